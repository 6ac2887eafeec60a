"""The parameters of a run."""

from __future__ import annotations

from msgspec import Struct


class Options(Struct, frozen=True):
    """What `leasehold chaos` was started with."""

    seed: int
    minutes: float
    other_release: str = ""  # a commit of this checkout, or a folder with the sources of a release; "" for none
    history: str = ""  # file for the histories of all keys as JSON lines
