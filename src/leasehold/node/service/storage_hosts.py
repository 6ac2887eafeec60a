"""The storage hosts as the primary knows them from their pings, and the capabilities that it signs for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from leasehold.index.index import Index
from leasehold.index.model import Replica, Segment
from leasehold.pool.capability import NONE, Capability, Right, segment_key, sign
from leasehold.wire.native import HostPing

_SHOWN_MS: Final = 10 * 60_000  # refusals stay in the status for this long after the last one
_REASONS_MAX: Final = 16
_NAME_MAX: Final = 40
_FORGET_FROM: Final = 64
_COUNT_MAX: Final = (1 << 53) - 1  # JSON


class HostReport(Struct):
    """The last ping of one host."""

    name: str
    window: int
    refused: dict[str, int]
    refused_ms: int  # when the counts last grew


class StorageHosts:
    """The reports of this epoch, by segment id. A node that stops leading forgets them.

    `secrets` returns the secrets of the cluster; capabilities are signed with the first. Without one, none are given
    out. `epoch` and the last window of a host are the stamp of a capability (see `pool/capability.py`): 0 is fine
    before a host's first ping in this epoch, because it is lower than every later one and higher than earlier epochs'.
    """

    def __init__(self, secrets: Callable[[], tuple[bytes, ...]] = tuple, epoch: Callable[[], int] = lambda: 0) -> None:
        self._secrets = secrets
        self._epoch = epoch
        self._reports: dict[bytes, HostReport] = {}
        self._keys: dict[int, tuple[bytes, bytes]] = {}  # by incarnation: the secret, and the key made of it

    @property
    def signs(self) -> bool:
        return bool(self._secrets())

    def pinged(self, index: Index, now_ms: int, ping: HostPing) -> Segment | None:
        """A host has pinged. Returns its segment, if it is mounted by this client."""
        segment = index.space.segments.by_id.get(ping.segment)
        if segment is None or segment.client != ping.client_id:
            return None
        counts = list(ping.refused.items())[:_REASONS_MAX]
        refused = {reason[:_NAME_MAX]: min(count, _COUNT_MAX) for reason, count in counts if count > 0}
        last = self._reports.get(ping.segment)
        if last is None:
            self._forget_others(index)
            since_ms = now_ms if refused else now_ms - _SHOWN_MS
        else:
            since_ms = now_ms if sum(refused.values()) > sum(last.refused.values()) else last.refused_ms
        window = max(ping.window, last.window if last is not None else 0)
        self._reports[ping.segment] = HostReport(segment.spec.name, window, refused, since_ms)
        return segment

    def refusals(self, now_ms: int) -> dict[str, dict[str, int]]:
        """The hosts that refused requests lately, each with its counts by reason."""
        return {
            each.name: dict(each.refused)
            for each in self._reports.values()
            if each.refused and now_ms - each.refused_ms < _SHOWN_MS
        }

    def forget_all(self) -> None:
        """This node does not lead any more."""
        self._reports.clear()
        self._keys.clear()

    def granting(self, right: Right) -> Grants | None:
        """Capabilities for the replicas of one answer; None without a secret."""
        secrets = self._secrets()
        return Grants(self, secrets[0], right, self._epoch()) if secrets else None

    def probe(self, segment: Segment) -> bytes:
        """A capability to read nothing of a segment: for a probe, which must not count as a refused request."""
        secrets = self._secrets()
        if not secrets:
            return b""
        key, window = self.stamp(secrets[0], segment)
        base = segment.spec.base
        return sign(key, Capability(Right.READ, segment.incarnation, base, 0, _COUNT_MAX, self._epoch(), window))

    def stamp(self, secret: bytes, segment: Segment) -> tuple[bytes, int]:
        """The key of a segment, and its host's last window."""
        known = self._keys.get(segment.incarnation)
        if known is None or known[0] != secret:
            if len(self._keys) > 2 * len(self._reports) + _FORGET_FROM:
                self._keys.clear()
            known = secret, segment_key(secret, segment.spec.id, segment.incarnation)
            self._keys[segment.incarnation] = known
        report = self._reports.get(segment.spec.id)
        return known[1], report.window if report is not None else 0

    def _forget_others(self, index: Index) -> None:
        segments = index.space.segments
        if len(self._reports) > _FORGET_FROM + 2 * len(segments):
            self._reports = {key: each for key, each in self._reports.items() if segments.by_id.get(key) is not None}


class Grants:
    """The capabilities of one answer, in the order of its replicas."""

    def __init__(self, hosts: StorageHosts, secret: bytes, right: Right, epoch: int) -> None:
        self._hosts, self._secret, self._right, self._epoch = hosts, secret, right, epoch
        self.given: list[bytes] = []

    def add(self, replica: Replica, token: int, size: int) -> None:
        """Grant access to a replica, under the token that its descriptor states."""
        segment = replica.segment
        if not segment.native:
            self.given.append(NONE)
            return
        key, window = self._hosts.stamp(self._secret, segment)
        right, epoch = self._right, self._epoch
        self.given.append(
            sign(key, Capability(right, segment.incarnation, replica.address, size, token, epoch, window))
        )
