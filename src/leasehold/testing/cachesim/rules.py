"""Which machines play in a simulation."""

from __future__ import annotations

from leasehold.cache.authority_machine import AuthorityMachine
from leasehold.cache.client_machine import ClientMachine


class Rules:
    """Which machines play: the real ones, or one with a rule switched off."""

    authority: type[AuthorityMachine] = AuthorityMachine
    client: type[ClientMachine] = ClientMachine
    client_margin = True
    tokens = True
