"""Capabilities: permissions to read or write memory of a storage host, signed by the master. Pure.

    version u8 | right u8 | incarnation u64 | address u64 | length u64 | token u64 | epoch u64 | window u64 | MAC

The MAC is HMAC-SHA-256 under the segment's key, cut to 16 bytes. The key follows from the cluster secret, the segment's
id and its incarnation, so a successor can compute it, and a capability of an earlier mount is worthless. The token
of a write is its fencing token, signed as the master gave it out (`fence.py`).

Capabilities expire without comparing clocks. The pings of a host carry a window number; the master stamps (its epoch,
the last window that it received). Once a ping is answered, every later stamp is at least as high. So a lower stamp was
given before the answer, and the host refuses it `ttl_ms` after it on its own clock. While no ping is answered, nothing
expires: a host that cannot reach the master goes on serving the holders of leases.
"""

from __future__ import annotations

import hmac
from collections import deque
from enum import IntEnum
from struct import Struct as Layout
from typing import Final

from msgspec import Struct

VERSION: Final = 1
_FIELDS: Final = Layout("<BBQQQQQQ")
_MAC_BYTES: Final = 16
CAPABILITY_BYTES: Final = _FIELDS.size + _MAC_BYTES
NONE: Final = bytes(CAPABILITY_BYTES)  # fills the place of a capability that was not given
_PURPOSE: Final = b"leasehold segment\0"  # no other signature of the cluster secret begins with it

Stamp = tuple[int, int]  # epoch and window: honest ones grow with time


class Right(IntEnum):
    READ = 1
    WRITE = 2


class Refusal(IntEnum):
    """Why a host refuses a request, as the status of its answer."""

    NO_CAPABILITY = 16
    FORGED_CAPABILITY = 17  # not signed for this segment by a master with this secret, or changed since
    EXPIRED_CAPABILITY = 18  # its window, or its mount, has passed
    OUTSIDE_CAPABILITY = 19  # another range, or a write with the right to read


class Capability(Struct, frozen=True):
    """The right to read or write `length` bytes at `address`."""

    right: int
    incarnation: int
    address: int
    length: int
    token: int
    epoch: int
    window: int

    @property
    def stamp(self) -> Stamp:
        return self.epoch, self.window


def segment_key(secret: bytes, segment: bytes, incarnation: int) -> bytes:
    """The key under which capabilities of one mount of a segment are signed."""
    return hmac.digest(secret, _PURPOSE + segment + incarnation.to_bytes(8, "little"), "sha256")


def sign(key: bytes, given: Capability) -> bytes:
    """The capability as it travels."""
    fields = _FIELDS.pack(
        VERSION, given.right, given.incarnation, given.address, given.length, given.token, given.epoch, given.window
    )
    return fields + hmac.digest(key, fields, "sha256")[:_MAC_BYTES]


class Keyring:
    """The secrets that a host accepts. One that was removed stays valid for a while: for writers that hold capabilities
    of it, and for masters that read the changed file later."""

    def __init__(self, secrets: tuple[bytes, ...]) -> None:
        self._secrets = secrets
        self._removed: dict[bytes, int] = {}  # secret -> valid until

    def update(self, now_ms: int, secrets: tuple[bytes, ...], keep_ms: int) -> None:
        """The secrets in the file now."""
        for gone in set(self._secrets) - set(secrets):
            self._removed[gone] = now_ms + keep_ms
        for back in secrets:
            self._removed.pop(back, None)
        self._removed = {secret: until for secret, until in self._removed.items() if now_ms < until}
        self._secrets = secrets

    def accepted(self, now_ms: int) -> tuple[bytes, ...]:
        return (*self._secrets, *(secret for secret, until in self._removed.items() if now_ms < until))


class Windows:
    """The window numbers of one host, and which stamps are too old."""

    def __init__(self, ttl_ms: int) -> None:
        self._ttl_ms = ttl_ms
        self._answered: deque[tuple[int, Stamp]] = deque()  # when, and which; the first is the bound for stamps
        self._sent = 0

    def open(self) -> int:
        """A new window, for the next ping."""
        self._sent += 1
        return self._sent

    def answered(self, now_ms: int, epoch: int, window: int) -> None:
        """The master of this epoch has received the ping of this window."""
        if self._answered and epoch < self._answered[-1][1][0]:
            self._answered.clear()  # the cluster was built again, with low epochs
        self._answered.append((now_ms, (epoch, window)))
        while len(self._answered) > 1 and self._answered[1][0] + self._ttl_ms <= now_ms:
            self._answered.popleft()

    def fresh(self, now_ms: int, stamp: Stamp) -> bool:
        """Whether a capability with this stamp is accepted now."""
        bound = None
        for when, answered in self._answered:
            if when + self._ttl_ms > now_ms:
                break
            bound = answered
        return bound is None or stamp >= bound


class Verifier:
    """Judges requests to one segment."""

    def __init__(self, keyring: Keyring, ttl_ms: int) -> None:
        self.keyring = keyring
        self.windows = Windows(ttl_ms)
        self._segment = b""
        self._incarnation = 0  # of the last mount that the master has confirmed
        self._keys: dict[tuple[bytes, int], bytes] = {}

    def lend(self, segment: bytes) -> None:
        """The id of the segment."""
        self._segment = segment

    def mounted(self, incarnation: int) -> None:
        """The master's number of the present mount. Capabilities of earlier mounts are refused from now on."""
        if incarnation != self._incarnation:
            self._keys.clear()
        self._incarnation = incarnation

    def judge(self, now_ms: int, right: Right, address: int, length: int, raw: bytes) -> Capability | Refusal:
        """The capability, if it allows this request."""
        if not raw or raw == NONE:
            return Refusal.NO_CAPABILITY
        if len(raw) != CAPABILITY_BYTES or raw[0] != VERSION:
            return Refusal.FORGED_CAPABILITY
        given = Capability(*_FIELDS.unpack_from(raw)[1:])
        # Only a master can sign for a later mount, so it has accepted one whose answer has not arrived here yet.
        if given.incarnation < self._incarnation:
            return Refusal.EXPIRED_CAPABILITY if self._signed(now_ms, given, raw) else Refusal.FORGED_CAPABILITY
        if not self._signed(now_ms, given, raw):
            return Refusal.FORGED_CAPABILITY
        if not self.windows.fresh(now_ms, given.stamp):
            return Refusal.EXPIRED_CAPABILITY
        inside = given.address <= address and address + length <= given.address + given.length
        return given if inside and right == given.right else Refusal.OUTSIDE_CAPABILITY

    def _signed(self, now_ms: int, given: Capability, raw: bytes) -> bool:
        fields, mac = raw[: _FIELDS.size], raw[_FIELDS.size :]
        good = [
            hmac.compare_digest(hmac.digest(self._key(secret, given.incarnation), fields, "sha256")[:_MAC_BYTES], mac)
            for secret in self.keyring.accepted(now_ms)
        ]
        return any(good)

    def _key(self, secret: bytes, incarnation: int) -> bytes:
        key = self._keys.get((secret, incarnation))
        if key is None:
            key = segment_key(secret, self._segment, incarnation)
            if incarnation == self._incarnation:  # others are a caller's claim: nothing is kept for them
                self._keys[secret, incarnation] = key
        return key
