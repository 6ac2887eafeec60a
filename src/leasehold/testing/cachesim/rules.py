"""The machines that a simulation runs."""

from __future__ import annotations

from msgspec import Struct

from leasehold.cache.authority_machine import REAL_PARTS, PartTypes
from leasehold.cache.client_machine import ClientMachine


class Rules(Struct, frozen=True):
    """The real machines, or one with a rule switched off.

    Invariants are checked for the real ones only: a switched-off rule must show in what clients read.
    """

    authority: PartTypes = REAL_PARTS
    client: type[ClientMachine] = ClientMachine
    client_margin: bool = True
    tokens: bool = True
    checks_invariants: bool = True
