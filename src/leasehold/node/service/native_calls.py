"""The master's functions of our own (`wire/native.py`), carried out on the index."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from leasehold.base.codes import Code, ReplicaStatus
from leasehold.base.limits import wire_batch_items_max
from leasehold.index.index import Index
from leasehold.index.model import Object
from leasehold.index.puts import ManyStarted, NewObject
from leasehold.node.service.descriptors import message_of
from leasehold.node.service.leaving import Leaving, wait_for_owner
from leasehold.node.service.put_config import config_of
from leasehold.wire.connection import Connection, Handler
from leasehold.wire.errors import Malformed
from leasehold.wire.frame import response
from leasehold.wire.native import GET, PUT_START, UPSERT_START, Found, Located, Start, Started
from leasehold.wire.rpc import Method

Begin = Callable[[int, bytes, bytes, Iterable[NewObject], int], ManyStarted]


class OwnCalls:
    """Starts that may be repeated, and reads that tell all replicas."""

    def __init__(self, index: Index, leaving: Leaving) -> None:
        self._index = index
        self._leaving = leaving
        self._gate = leaving.gate

    def handlers(self) -> dict[int, Handler]:
        """By function id."""
        index = self._index
        return {
            PUT_START.id: self._starting(PUT_START, index.puts.start_many),
            UPSERT_START.id: self._starting(UPSERT_START, index.puts.start_many_upserts),
            GET.id: self._get,
        }

    def _starting(self, method: Method[Start, Started], begin: Begin) -> Handler:
        def handle(connection: Connection, seq: int, body: bytes, until_s: float = 0.0) -> bytes | None:
            request = method.unpack_request(body)
            _bounded(request.keys)
            if self._index.owners.unproven and self._index.owners.space_must_wait(request.native):
                wait_for_owner(connection, seq, partial(handle, connection, seq, body), until_s, len(body))
                return None
            value, after = self._start(request, begin)
            frame = response(seq, method.pack_answer(value))
            return self._leaving.send(connection, seq, frame, after, True)

        return handle

    def _start(self, start: Start, begin: Begin) -> tuple[Started, int]:
        """Each key's request id is the call's, counted on."""
        config = config_of(start.config, self._index.settings.soft_pin_ttl_max_ms, native=start.native)
        same_length = len(start.keys) == len(start.sizes)
        chosen = config.for_many(len(start.keys)) if same_length else int(Code.BAD_PARAMS)
        if isinstance(chosen, int):
            return Started([Located(chosen) for _ in start.keys]), 0
        objects = zip(start.keys, start.sizes, chosen, strict=True)
        reply = begin(self._gate.now_ms, start.client_id, start.tenant, objects, start.request)
        return Started([_located(each.code, each.value, started=True) for each in reply.value or ()]), reply.after

    def _get(self, connection: Connection, seq: int, body: bytes, until_s: float = 0.0) -> bytes | None:
        get, index = GET.unpack_request(body), self._index
        _bounded(get.keys)
        reply = index.reads.get_many(self._gate.now_ms, get.tenant, get.keys)
        found, after = reply.value, reply.after
        if index.owners.unproven and any(each is not None and index.owners.must_wait(each) for each in found):
            wait_for_owner(connection, seq, partial(self._get, connection, seq, body), until_s, len(body))
            return None
        objects = [
            _located(Code.OK if each is not None else index.reads.miss(get.tenant, key).value, each)
            for key, each in zip(get.keys, found, strict=True)
        ]
        frame = response(seq, GET.pack_answer(Found(objects, index.settings.lease_ttl_ms)))
        return self._leaving.send(connection, seq, frame, after)


def _bounded(keys: list[bytes]) -> None:
    if len(keys) > wire_batch_items_max:
        raise Malformed(f"{len(keys)} keys are more than one request may name ({wire_batch_items_max})")


def _located(code: int, found: Object | None, *, started: bool = False) -> Located:
    if found is None:
        return Located(int(code))
    replicas = [each for each in found.replicas if started or each.status == ReplicaStatus.COMPLETE]
    return Located(0, [message_of(each, found.size) for each in replicas], found.size, found.checksum)
