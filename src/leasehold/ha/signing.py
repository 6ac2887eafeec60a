"""Signatures of the values that nodes write about themselves: the leader value and the registrations. Pure.

Every client that can write to the coordination store can write these keys. The other nodes connect to the addresses in
them, so a value counts only if a node with the cluster's secret wrote it, under the lease that the key still has.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from enum import Enum
from typing import TypeVar

import msgspec

from leasehold.base.cluster_secret import Secrets
from leasehold.base.decoding import UNDECODABLE
from leasehold.ha.keys import LeaderValue, pack
from leasehold.ha.node_values import NodeValue

V = TypeVar("V", LeaderValue, NodeValue)


class Trust(Enum):
    """The verdict on a value in the store."""

    SIGNED = "signed by a node of the cluster"
    UNSIGNED = "not signed"
    FORGED = "not written by a node of the cluster"


class Signer:
    """Signs this node's values, and judges those of the others.

    `secrets` is called for each signature, because they may be replaced. Without a secret nothing is signed, and every
    value under a lease is accepted. With one, unsigned values are accepted until every node signs, and then never
    again: so a cluster can be changed to signatures one node at a time.
    """

    def __init__(self, secrets: Callable[[], Secrets] = tuple) -> None:
        self._secrets = secrets
        self.all_sign = False  # every node was once seen to sign: unsigned values are refused from then on

    @property
    def current(self) -> bytes:
        """Identifies the secret that signs now; empty if there is none."""
        secrets = self._secrets()
        return hashlib.blake2b(secrets[0], digest_size=8).digest() if secrets else b""

    def secrets(self) -> Secrets:
        """The secrets that are accepted now; the first signs."""
        return self._secrets()

    def signed(self, value: V, key: bytes, lease: int) -> V:
        """The value as this node writes it to `key` under `lease`."""
        secrets = self._secrets()
        if not secrets:
            return value
        bound = msgspec.structs.replace(value, lease=lease, signature="")
        fields = msgspec.json.decode(pack(bound), type=dict[str, object])
        return msgspec.structs.replace(bound, signature=_signature(secrets[0], key, fields))

    def judge(self, raw: bytes, key: bytes, lease: int) -> Trust:
        """The verdict on a value that `key` has under `lease` now."""
        secrets = self._secrets()
        if not secrets:
            return Trust.UNSIGNED
        try:
            fields = msgspec.json.decode(raw, type=dict[str, object])
        except UNDECODABLE:
            return Trust.FORGED
        given = fields.pop("signature", "")
        if not given:
            return Trust.FORGED if self.all_sign else Trust.UNSIGNED
        if not isinstance(given, str) or fields.get("lease") != lease:
            return Trust.FORGED
        good = [hmac.compare_digest(_signature(secret, key, fields).encode(), given.encode()) for secret in secrets]
        return Trust.SIGNED if any(good) else Trust.FORGED

    def observe(self, nodes: list[Trust], leader: Trust | None) -> None:
        """All registered nodes, and the leader value if there is one, were judged."""
        if nodes and all(trust is Trust.SIGNED for trust in nodes) and leader in (None, Trust.SIGNED):
            self.all_sign = True


def _signature(secret: bytes, key: bytes, fields: dict[str, object]) -> str:
    """Over all fields, also those that a newer release has added and this one does not know."""
    payload = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    return hmac.new(secret, key + b"\0" + payload, hashlib.sha256).hexdigest()
