"""What stands where in the coordination store, and what the few keys outside the journal say.

Guardian, worker, command line and simulator all read these: one place keeps them of one mind.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from leasehold.base.errors import InvalidArgument, PeerError
from leasehold.mvcc.model import Compare, CompareResult, CompareTarget, DeleteRange, Put, Txn

PREFIX_DEFAULT: Final = "/leasehold"
T = TypeVar("T", bound=Struct)


class Keys:
    """Every key of one cluster, under `{prefix}/{cluster}/`."""

    __slots__ = (
        "explicit",
        "explicit_end",
        "floor",
        "history",
        "journal",
        "leader",
        "nodes",
        "notes",
        "pause",
        "root",
        "unlogged",
    )

    def __init__(self, cluster: str, prefix: str = PREFIX_DEFAULT) -> None:
        if not cluster or "/" in cluster:
            raise InvalidArgument(f"cluster {cluster!r}: a name without a slash is wanted, such as mooncake_cluster")
        self.root = f"{prefix}/{cluster}/".encode()
        self.leader = self.root + b"leader"
        self.notes = self.root + b"ended/"
        self.journal = self.root + b"journal/"
        self.explicit = self.journal + b"explicit/"
        self.explicit_end = self.explicit + b":"  # after every digit: a stray key with another name is in no range
        self.unlogged = self.journal + b"bulk/"
        self.floor = self.root + b"floor"
        self.nodes = self.root + b"nodes/"
        self.history = self.root + b"history/"
        self.pause = self.root + b"pause"

    def note(self, epoch: int) -> bytes:
        """Where the end of `epoch` is noted, in the very transaction that deletes its leader key."""
        return self.notes + b"%020d" % epoch

    def node(self, name: str) -> bytes:
        return self.nodes + name.encode()


class LeaderValue(Struct, frozen=True, omit_defaults=True):
    """The value of the leader key. Its create revision is the epoch."""

    name: str
    run: str  # one run of one worker process: after it was reaped its guardian may give up this key, no other
    rpc: str = ""  # where clients connect
    door: str = ""  # the worker-only port: guardians forward untouched connections here
    admin: str = ""


class EndMarker(Struct, frozen=True, omit_defaults=True):
    """Why an epoch ended, written in the transaction that deletes its key: its leader will not answer again."""

    name: str
    run: str
    cause: str  # "resigned" | "handed over" | "reaped"
    detail: str = ""  # for people
    wall_us: int = 0
    successor: str = ""  # who shall lead next, where an operator has named one
    drained: int = 0  # batches that were written for it from its buffer after its death (some perhaps twice)


def pack(value: Struct) -> bytes:
    """Readable with `etcdctl get`: JSON."""
    return msgspec.json.encode(value)


def unpack(kind: type[T], raw: bytes, key: bytes) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError as error:
        raise PeerError(f"{key.decode(errors='replace')} does not hold a {kind.__name__}: {error}") from None


def end_epoch(keys: Keys, epoch: int, note: EndMarker) -> Txn:
    """Delete the leader key of exactly this epoch and note why: both or neither.

    The create revision is compared, so a late request can never take a successor's key.
    """
    return Txn(
        compare=(Compare(keys.leader, CompareTarget.CREATE, CompareResult.EQUAL, epoch),),
        success=(DeleteRange(keys.leader), Put(keys.note(epoch), pack(note))),
    )
