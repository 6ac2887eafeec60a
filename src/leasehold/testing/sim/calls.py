"""A client's request and its answer, as they pass between clients, nodes and the oracle."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct

from leasehold.index.index import Index


class Answer(Struct):
    """The answer of a command, before it may be sent."""

    value: Any
    after: int
    hands_out_space: bool = False
    about: int = 0  # the record that it depends on, also where a planted bug does not wait for it


class Call(Protocol):
    """A client's request, as a node sees it."""

    what: str

    @property
    def open(self) -> bool:
        """Whether the client still waits for the answer."""
        ...

    def execute(self, index: Index, leader_ms: int) -> Answer | None:
        """None: the leader waits for a ping of the memory's owner; try again a little later (H9)."""
        ...

    def leaving(self, answer: Answer) -> None:
        """The node sends the answer: the oracle checks it."""
        ...

    def finish(self, value: Any) -> None: ...

    def refused(self) -> None: ...
