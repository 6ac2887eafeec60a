"""The keys of one cluster in the coordination store, and the values of the few keys outside the journal.

Guardian, worker, command line and simulator share these definitions.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from leasehold.base.decoding import UNDECODABLE
from leasehold.base.errors import InvalidArgument, PeerError
from leasehold.mvcc.model import Compare, CompareResult, CompareTarget, DeleteRange, Put, Txn

PREFIX_DEFAULT: Final = "/leasehold"
T = TypeVar("T", bound=Struct)


class Keys:
    """Every key of one cluster, under `{prefix}/{cluster}/`."""

    __slots__ = (
        "end_markers",
        "explicit",
        "explicit_end",
        "history",
        "journal",
        "leader",
        "members",
        "metadata",
        "nodes",
        "pause",
        "root",
        "truncation",
        "unlogged",
    )

    def __init__(self, cluster: str, prefix: str = PREFIX_DEFAULT) -> None:
        if not cluster or "/" in cluster:
            raise InvalidArgument(f"cluster {cluster!r}: use a name without a slash, such as mooncake_cluster")
        self.root = f"{prefix}/{cluster}/".encode()
        self.leader = self.root + b"leader"
        self.end_markers = self.root + b"ended/"
        self.journal = self.root + b"journal/"
        self.explicit = self.journal + b"explicit/"
        self.explicit_end = self.explicit + b":"  # sorts after every digit: no range has a key with another name
        self.unlogged = self.journal + b"bulk/"
        self.truncation = self.root + b"floor"
        self.nodes = self.root + b"nodes/"
        self.history = self.root + b"history/"
        self.pause = self.root + b"pause"
        self.members = self.root + b"members/"  # every node that has run, until an operator removes it
        self.metadata = (
            self.root + b"metadata/"
        )  # the table of Mooncake's transfer engines, not of this cluster's nodes

    def end_marker(self, epoch: int) -> bytes:
        """The key of the marker that `epoch` ended, written in the transaction that deletes its leader key."""
        return self.end_markers + b"%020d" % epoch

    def node(self, name: str) -> bytes:
        return self.nodes + name.encode()


class LeaderValue(Struct, frozen=True, omit_defaults=True):
    """The value of the leader key. Its create revision is the epoch."""

    name: str
    run: str  # one run of one worker process: its guardian may delete this key only after it reaped that run
    rpc: str = ""  # the address for clients
    door: str = ""  # the port for guardians only: they forward connections without an open request to it
    admin: str = ""
    lease: int = 0  # the key's lease, if the value is signed
    signature: str = ""


class EndMarker(Struct, frozen=True, omit_defaults=True):
    """Why an epoch ended, written in the transaction that deletes its key. Its leader will not answer again."""

    name: str
    run: str
    cause: str  # for people: "resigned" | "handed over" | "reaped"; no decision depends on it
    detail: str = ""  # for people
    wall_us: int = 0
    successor: str = ""  # the node that an operator chose to lead next, if any
    drained: int = 0  # batches of its buffer that were written after its death (some perhaps twice)


def pack(value: Struct) -> bytes:
    """Encode as JSON, readable with `etcdctl get`."""
    return msgspec.json.encode(value)


def unpack(kind: type[T], raw: bytes, key: bytes) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except UNDECODABLE as error:
        raise PeerError(f"{key.decode(errors='replace')} does not hold a {kind.__name__}: {error}") from None


def end_epoch(keys: Keys, epoch: int, marker: EndMarker) -> Txn:
    """Delete the leader key of exactly this epoch and write its end marker: both or neither.

    The transaction compares the create revision, so a late request can never delete a successor's key.
    """
    return Txn(
        compare=(Compare(keys.leader, CompareTarget.CREATE, CompareResult.EQUAL, epoch),),
        success=(DeleteRange(keys.leader), Put(keys.end_marker(epoch), pack(marker))),
    )
