"""A client's request and its answer, as they pass between clients, nodes and the oracle."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct

from leasehold.index.index import Index


class Answer(Struct):
    """What a command answered, before it is known whether it may be said."""

    value: Any
    after: int
    hands_out_space: bool = False
    about: int = 0  # the record that it really is about, also where a planted bug does not wait for it


class Call(Protocol):
    """A client's request, as a node sees it."""

    what: str

    @property
    def open(self) -> bool:
        """Whether somebody still waits for the answer."""
        ...

    def execute(self, index: Index, leader_ms: int) -> Answer | None:
        """None: the memory's owner has not been heard of yet; ask again a little later (H9)."""
        ...

    def leaving(self, answer: Answer) -> None:
        """The answer leaves its node: the oracle looks at it."""
        ...

    def finish(self, value: Any) -> None: ...

    def refused(self) -> None: ...
