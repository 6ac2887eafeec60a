"""The messages of the event stream, in the format of Mooncake's publisher. docs/events.md has the facts.

A message has three frames: an empty topic, its count as 8 bytes big-endian, and a payload in msgpack:
`[time in ms, [event, ...], 0]`. An event is a map. `epoch`, `put`, `reason`, `fingerprint` and `objects` are ours;
other subscribers ignore them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from leasehold.base.decoding import UNDECODABLE
from leasehold.base.errors import PeerError
from leasehold.index.changes import Change

_encode, _decode = msgspec.msgpack.encode, msgspec.msgpack.decode
_HASH_BITS = 64


class NotOurMessage(PeerError):
    """Bytes on the publisher's socket that no Leasehold publisher sent."""


class Message(Struct, frozen=True):
    """A published message: the events of one epoch are counted without gaps."""

    epoch: int
    count: int
    payload: bytes

    def frames(self) -> list[bytes]:
        """As Mooncake's publisher sends it."""
        return [b"", self.count.to_bytes(8, "big"), self.payload]


class Stored(Struct, frozen=True):
    """A version of a key is readable."""

    tenant: bytes
    key: bytes
    put_seq: int


class Removed(Struct, frozen=True):
    """A version of a key is no longer readable."""

    tenant: bytes
    key: bytes
    put_seq: int


class Reload(Struct, frozen=True):
    """Only a picture with this fingerprint is still right; every other one must be loaded again."""

    reason: str
    fingerprint: int
    objects: int


Event = Stored | Removed | Reload


class Style(Struct, frozen=True):
    """How events are written: the settings of Mooncake's publisher."""

    backend_id: str
    legacy: bool = True  # also the field names of vLLM and SGLang
    object_key: bool = True


def seq_hash_of(key: bytes) -> int | None:
    """The 64-bit hash that a key stands for, if it is a decimal number or hexadecimal with 0x. None for other keys."""
    digits, base = (key[2:], 16) if key[:2] in (b"0x", b"0X") else (key, 10)
    try:
        number = int(digits, base) if digits.isalnum() else -1
    except ValueError:
        return None
    return number if 0 <= number < 1 << _HASH_BITS else None


class Encoder:
    """Writes messages. `event_id` counts events over all messages of this process, from 1, as Mooncake's does."""

    __slots__ = ("_next_id", "_style", "skipped")

    def __init__(self, style: Style) -> None:
        self._style = style
        self._next_id = 1
        self.skipped = 0  # keys that are no hash

    def changes(self, wall_ms: int, epoch: int, count: int, changes: Iterable[Change]) -> Message:
        """A message about objects."""
        events = [event for change in changes if (event := self._change(wall_ms, epoch, change)) is not None]
        return Message(epoch, count, _encode([wall_ms, events, 0]))

    def reload(self, wall_ms: int, epoch: int, count: int, reload: Reload) -> Message:
        """A message that requires a reload. Subscribers that know no reload forget everything (`AllBlocksCleared`)."""
        event = self._envelope(wall_ms, epoch, "cleared", "AllBlocksCleared", b"default", b"")
        event |= {"reason": reload.reason, "fingerprint": reload.fingerprint, "objects": reload.objects}
        return Message(epoch, count, _encode([wall_ms, [event], 0]))

    def _change(self, wall_ms: int, epoch: int, change: Change) -> dict[str, Any] | None:
        seq_hash = seq_hash_of(change.key)
        if seq_hash is None:
            self.skipped += 1
            if not self._style.object_key:
                return None
        kind, legacy = ("stored", "BlockStored") if change.stored else ("removed", "BlockRemoved")
        event = self._envelope(wall_ms, epoch, kind, legacy, change.tenant, change.group)
        hashes = [] if seq_hash is None else [seq_hash]
        event |= {"medium": "cpu", "seq_hashes": hashes, "put": change.put_seq}
        if self._style.object_key:
            event["object_key"] = _text(change.key)
        if self._style.legacy:
            event["block_hashes"] = [each - (1 << _HASH_BITS) if each >> 63 else each for each in hashes]
        event["base_block_idx"] = 0 if change.stored else None
        if change.stored:
            event |= {"parent_hash": None, "token_ids": None}
            if self._style.legacy:
                event["parent_block_hash"] = None
        return event

    def _envelope(
        self, wall_ms: int, epoch: int, kind: str, legacy: str, tenant: bytes, group: bytes
    ) -> dict[str, Any]:
        event: dict[str, Any] = {
            "event_id": self._next_id, "timestamp": wall_ms, "event_type": kind, "model_name": None,
            "block_size": None, "additional_salt": None, "lora_name": None, "tenant_id": _text(tenant),
            "backend_id": self._style.backend_id, "group_id": _text(group) or None, "dp_rank": None, "epoch": epoch,
        }  # fmt: skip
        if self._style.legacy:
            event["type"] = legacy
        self._next_id += 1
        return event


def events_of(payload: bytes) -> tuple[int, list[Event]]:
    """The epoch and the events of a message of ours. Raises `NotOurMessage` if it is none."""
    try:
        return _events_of(payload)
    except (*UNDECODABLE, KeyError, TypeError, ValueError) as error:
        raise NotOurMessage(f"not a message of a Leasehold publisher: {type(error).__name__}: {error}") from None


def _events_of(payload: bytes) -> tuple[int, list[Event]]:
    _, written, _ = _decode(payload)
    events: list[Event] = []
    epoch = 0
    for event in written:
        epoch = event["epoch"]
        if event["event_type"] == "cleared":
            events.append(Reload(event["reason"], event["fingerprint"], event["objects"]))
        else:
            kind = Stored if event["event_type"] == "stored" else Removed
            key = event["object_key"]
            events.append(kind(_bytes(event["tenant_id"]), _bytes(key), event["put"]))
    return epoch, events


def _text(raw: bytes) -> str | bytes:
    """Mooncake packs every name as a string. A name that is no UTF-8 is packed as bytes: a string could not hold it."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _bytes(name: str | bytes) -> bytes:
    return name.encode() if isinstance(name, str) else name
