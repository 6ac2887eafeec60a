"""The calls that a pool lives on: exist, get, put, alone and in batches. The same as the others, only leaner.

Readers are compiled from the release's table, answers are put together from constants that were encoded by the same
table; the tests hold each of them against the reference codec.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from leasehold.base.codes import Code
from leasehold.index.index import Index
from leasehold.index.model import Object, PutConfig
from leasehold.index.puts import ManyStarted, NewObject, Started, Written
from leasehold.index.replies import Acknowledged, Answered
from leasehold.node.service.descriptors import COMPLETE, PROCESSING, DescriptorWriter, readable
from leasehold.node.service.leaving import Leaving, wait_for_owner
from leasehold.node.service.put_config import BatchConfig, config_of
from leasehold.wire.body import head
from leasehold.wire.compiler import Readers, argument_reader, body_reader
from leasehold.wire.connection import Connection, Handler
from leasehold.wire.frame import MAGIC, RESPONSE_HEAD
from leasehold.wire.schema import I32, Expected, LengthOverflow, Record, Tuple, Type, Vector, counted
from leasehold.wire.tables.release import Release

_CONFIGS_MAX: Final = 1024
_HIT, _MISS = b"\x01\x01", b"\x01\x00"  # a good result, true or false
DONE: Final = b"\x01"
_FIRST_MEMBERS: Final = slice(0, 3)  # of a start: client, key(s), size(s); the rest repeats from call to call
_WIDTHS: Final = (1, 2, 4, 8)
_NUMBERED: Final = struct.Struct("<II")  # how a good answer begins: the four first bytes as one number, then its own

Starter = Callable[[int, bytes, bytes, bytes, int, PutConfig], Started]
BatchStarter = Callable[[int, bytes, bytes, Iterable[NewObject]], ManyStarted]
Ender = Callable[[int, bytes, bytes, bytes, int, int | None], Acknowledged]
BatchEnder = Callable[[int, bytes, bytes, Iterable[Written], int], Answered[list[Code]]]


def failure(code: int) -> bytes:
    """The payload of a result that failed."""
    out = bytearray(b"\x00")
    I32.write(out, int(code), 1)
    return bytes(out)


def framed(seq: int, body: bytes) -> bytes:
    return RESPONSE_HEAD.pack(MAGIC, 0, 0, 0, seq, len(body), 0) + body


def fixed(body: bytes) -> Callable[[int], bytes]:
    """An answer that is always the same but for its number."""
    layout = struct.Struct(f"<II{8 + len(body)}s")
    rest = struct.pack("<II", len(body), 0) + body

    def make(seq: int) -> bytes:
        return layout.pack(MAGIC, seq, rest)

    return make


def heads(type_: Type) -> dict[int, bytes]:
    """What stands in front of an answer, by width: without the literal, which no client needs."""
    return {width: head(type_, width, literal=False) for width in _WIDTHS}


def width_for(count: int) -> int:
    """The narrowest width that can tell `count`."""
    return 1 if count < 1 << 8 else 2 if count < 1 << 16 else 4


class CountedFronts(dict[int, bytes]):
    """What stands between an answer's number and its results, by how many results of one size there are."""

    def __init__(self, front: dict[int, bytes], result_bytes: int) -> None:
        super().__init__()
        self._front = front
        self._result_bytes = result_bytes

    def __missing__(self, count: int) -> bytes:
        width = width_for(count)
        front = self._front[width] + counted(count, width)
        self[count] = made = struct.pack("<II", len(front) + count * self._result_bytes, 0) + front
        return made


class HotPaths:
    """Handlers for one release over one index."""

    def __init__(self, index: Index, leaving: Leaving, release: Release) -> None:
        self._index = index
        self._leaving = leaving
        self._gate = leaving.gate
        self._functions = release.functions
        self._writer = DescriptorWriter(release.name, _replica_of(release))
        self._checksums = "checksum" in _read_answer(release).fields
        self._object_meta = release.object_meta
        self._failures = {int(code): failure(code) for code in Code}

    def handlers(self) -> dict[int, Handler]:
        """By function id."""
        index = self._index
        made = {
            "ExistKey": self._exist(),
            "BatchExistKey": self._batch_exist(),
            "GetReplicaList": self._get(),
            "BatchGetReplicaList": self._batch_get(),
            "PutStart": self._start("PutStart", index.puts.start),
            "UpsertStart": self._start("UpsertStart", index.puts.start_upsert),
            "BatchPutStart": self._batch_start("BatchPutStart", index.puts.start_many),
            "BatchUpsertStart": self._batch_start("BatchUpsertStart", index.puts.start_many_upserts),
            "PutEnd": self._end("PutEnd", index.puts.end),
            "UpsertEnd": self._end("UpsertEnd", index.puts.end),
            "BatchPutEnd": self._batch_end("BatchPutEnd", index.puts.end_many),
            "BatchUpsertEnd": self._batch_end("BatchUpsertEnd", index.puts.end_many),
        }
        return {self._functions[name].id: handler for name, handler in made.items()}

    def _request(self, name: str) -> Type:
        request = self._functions[name].request
        assert request is not None  # for the type checker: all of these have arguments
        return request

    # --- reads

    def _exist(self) -> Handler:
        read = argument_reader(self._request("ExistKey"))
        front = heads(self._functions["ExistKey"].returns)[1]
        yes, no = fixed(front + _HIT), fixed(front + _MISS)
        gate, find, miss, send = self._gate, self._index.reads.exist, self._index.reads.miss, self._leaving.send

        def exist(connection: Connection, seq: int, body: bytes) -> bytes | None:
            key, tenant = read(body)
            found = find(gate.now_ms, tenant, key)
            if found is None:
                return send(connection, seq, no(seq), miss(tenant, key).after)
            if found.changed_n <= gate.acked_n:
                return yes(seq)
            return send(connection, seq, yes(seq), found.changed_n)

        return exist

    def _batch_exist(self) -> Handler:
        read = argument_reader(self._request("BatchExistKey"))
        fronts = CountedFronts(heads(self._functions["BatchExistKey"].returns), len(_HIT))
        gate, find, send, numbered = self._gate, self._index.reads.exist_many, self._leaving.send, _NUMBERED.pack

        def batch_exist(connection: Connection, seq: int, body: bytes) -> bytes | None:
            keys, tenant = read(body)
            reply = find(gate.now_ms, tenant, keys, _HIT, _MISS)
            frame = numbered(MAGIC, seq) + fronts[len(keys)] + b"".join(reply.value)
            return send(connection, seq, frame, reply.after)

        return batch_exist

    def _get(self) -> Handler:
        read = argument_reader(self._request("GetReplicaList"))
        front = heads(self._functions["GetReplicaList"].returns)
        gate, find, send, write = self._gate, self._index.reads.get, self._leaving.send, self._found

        def get(connection: Connection, seq: int, body: bytes, until_s: float = 0.0) -> bytes | None:
            key, tenant = read(body)
            index = self._index
            found = find(gate.now_ms, tenant, key)
            if found is None:
                reply = index.reads.miss(tenant, key)
                return send(connection, seq, framed(seq, front[1] + self._failures[reply.value]), reply.after)
            if index.owners.unproven and index.owners.must_wait(found):
                wait_for_owner(connection, seq, partial(get, connection, seq, body), until_s, len(body))
                return None
            try:
                answer = framed(seq, front[1] + write(found, 1))
            except LengthOverflow:
                answer = framed(seq, front[2] + write(found, 2))
            return answer if found.changed_n <= gate.acked_n else send(connection, seq, answer, found.changed_n)

        return get

    def _batch_get(self) -> Handler:
        read = argument_reader(self._request("BatchGetReplicaList"))
        front = heads(self._functions["BatchGetReplicaList"].returns)
        gate, find, send = self._gate, self._index.reads.get_many, self._leaving.send

        def batch_get(connection: Connection, seq: int, body: bytes, until_s: float = 0.0) -> bytes | None:
            keys, tenant = read(body)
            index = self._index
            reply = find(gate.now_ms, tenant, keys)
            found = reply.value
            if index.owners.unproven and any(each is not None and index.owners.must_wait(each) for each in found):
                wait_for_owner(connection, seq, partial(batch_get, connection, seq, body), until_s, len(body))
                return None
            width = width_for(len(keys))
            try:
                payload = self._found_many(tenant, keys, found, width)
            except LengthOverflow:
                width = 4
                payload = self._found_many(tenant, keys, found, width)
            return send(connection, seq, framed(seq, front[width] + counted(len(keys), width) + payload), reply.after)

        return batch_get

    def _found_many(self, tenant: bytes, keys: Sequence[bytes], found: list[Object | None], width: int) -> bytes:
        """Results of reads, one after the other. The usual object has one complete replica: that is written in line."""
        tail_name, pack_numbers, place = (
            self._writer.tail_name(COMPLETE, width),
            self._writer.numbers,
            self._writer.alternative,
        )
        one = b"\x01" + counted(1, width)
        lease = self._index.settings.lease_ttl_ms.to_bytes(8, "little")
        end = lease + b"\x00" if self._checksums else lease
        parts: list[bytes] = []
        append = parts.append
        for number, each in enumerate(found):
            if each is None:
                append(self._failures[self._index.reads.miss(tenant, keys[number]).value])
                continue
            replicas = each.replicas
            if len(replicas) == 1 and each.checksum is None:
                replica = replicas[0]
                segment = replica.segment
                tail = segment.memo.get(tail_name)
                if tail is not None and replica.status == COMPLETE and not segment.native:
                    append(one)
                    append(pack_numbers(replica.id, place, each.size, segment.spec.base + replica.offset))
                    append(tail)
                    append(end)
                    continue
            append(self._found(each, width))
        return b"".join(parts)

    def _found(self, found: Object, width: int) -> bytes:
        """A good result of a read: replicas, how long they are promised, checksum."""
        replicas = found.replicas
        first = replicas[0]
        if len(replicas) == 1 and first.status == COMPLETE and not first.segment.native:
            written = b"\x01" + counted(1, width) + self._writer.one(first, found.size, width)
        else:
            usable = readable(found)
            if not usable:  # only in hosts that speak our protocol alone: for this caller there is nothing to read
                return self._failures[Code.NOT_FOUND]
            written = b"\x01" + self._writer.vector(usable, found.size, width)
        lease = self._index.settings.lease_ttl_ms.to_bytes(8, "little")
        if not self._checksums:
            return written + lease
        if found.checksum is None:
            return written + lease + b"\x00"
        return written + lease + b"\x01" + found.checksum.to_bytes(8, "little")

    # --- puts

    def _configs(self, name: str) -> Callable[[bytes, int, int], tuple[BatchConfig, bytes]]:
        """Config and tenant are the same from call to call: each distinct pair is read once."""
        request = self._request(name)
        assert isinstance(request, Tuple)
        readers = Readers(request.members[_FIRST_MEMBERS.stop :])
        known: dict[tuple[int, bytes], tuple[BatchConfig, bytes]] = {}
        longest_ms = self._index.settings.soft_pin_ttl_max_ms

        def configs(body: bytes, at: int, width: int) -> tuple[BatchConfig, bytes]:
            rest = width, body[at:]
            found = known.get(rest)
            if found is None:
                (config, tenant), _ = readers[width](body, at)
                found = config_of(config, longest_ms), tenant
                if len(known) >= _CONFIGS_MAX:
                    known.clear()
                if len(rest[1]) <= 4096:
                    known[rest] = found
            return found

        return configs

    def _start(self, name: str, begin: Starter) -> Handler:
        read, configs = body_reader(self._request(name), _FIRST_MEMBERS), self._configs(name)
        front = heads(self._functions[name].returns)
        gate, send, failures, index = self._gate, self._leaving.send, self._failures, self._index
        vector, good = self._writer.vector, front[1] + b"\x01"

        def start(connection: Connection, seq: int, body: bytes, until_s: float = 0.0) -> bytes | None:
            if index.owners.unproven and index.owners.space_must_wait(native=False):
                wait_for_owner(connection, seq, partial(start, connection, seq, body), until_s, len(body))
                return None
            (client, key, size), _, at, width = read(body)
            config, tenant = configs(body, at, width)
            chosen = config.for_one
            if not isinstance(chosen, PutConfig):
                return framed(seq, front[1] + failure(chosen))
            reply = begin(gate.now_ms, client, tenant, key, size, chosen)
            made = reply.value
            if made is None:
                return send(connection, seq, framed(seq, front[1] + failures[reply.code]), reply.after)
            try:
                answer = framed(seq, good + vector(made.replicas, size, 1))
            except LengthOverflow:
                answer = framed(seq, front[4] + b"\x01" + vector(made.replicas, size, 4))
            return send(connection, seq, answer, reply.after, True)

        return start

    def _batch_start(self, name: str, begin: BatchStarter) -> Handler:
        read, configs = body_reader(self._request(name), _FIRST_MEMBERS), self._configs(name)
        front = heads(self._functions[name].returns)
        gate, send, index = self._gate, self._leaving.send, self._index

        def batch_start(connection: Connection, seq: int, body: bytes, until_s: float = 0.0) -> bytes | None:
            if index.owners.unproven and index.owners.space_must_wait(native=False):
                wait_for_owner(connection, seq, partial(batch_start, connection, seq, body), until_s, len(body))
                return None
            (client, keys, sizes), _, at, width = read(body)
            config, tenant = configs(body, at, width)
            chosen = config.for_many(len(keys)) if len(keys) == len(sizes) else Code.BAD_PARAMS
            if isinstance(chosen, int):
                width = width_for(len(keys))
                return framed(seq, front[width] + counted(len(keys), width) + failure(chosen) * len(keys))
            reply = begin(gate.now_ms, client, tenant, zip(keys, sizes, chosen, strict=True))
            results = reply.value or []
            width = width_for(len(keys))
            try:
                payload = self._started_many(results, width)
            except LengthOverflow:
                width = 4
                payload = self._started_many(results, width)
            answer = framed(seq, front[width] + counted(len(keys), width) + payload)
            return send(connection, seq, answer, reply.after, True)

        return batch_start

    def _started_many(self, results: Sequence[Started], width: int) -> bytes:
        """Results of starts, one after the other. The usual object has one replica: that is written in line."""
        vector, pack_numbers, place = self._writer.vector, self._writer.numbers, self._writer.alternative
        tail_name, one = self._writer.tail_name(PROCESSING, width), b"\x01" + counted(1, width)
        parts: list[bytes] = []
        append = parts.append
        for result in results:
            made = result.value
            if made is None:
                append(self._failures[result.code])
                continue
            replicas = made.replicas
            replica = replicas[0]
            segment = replica.segment
            tail = segment.memo.get(tail_name)
            if len(replicas) > 1 or tail is None or replica.status != PROCESSING:
                append(b"\x01" + vector(replicas, made.size, width))
                continue
            append(one)
            append(pack_numbers(replica.id, place, made.size, segment.spec.base + replica.offset))
            append(tail)
        return b"".join(parts)

    def _end(self, name: str, finish: Ender) -> Handler:
        read = argument_reader(self._request(name))
        front = heads(self._functions[name].returns)[1]
        done, refused = fixed(front + DONE), {code: fixed(front + body) for code, body in self._failures.items()}
        gate, send, object_meta = self._gate, self._leaving.send, self._object_meta

        def end(connection: Connection, seq: int, body: bytes) -> bytes | None:
            client, named, kind, tenant = read(body)
            key, checksum = (named.key, named.checksum) if object_meta else (named, None)
            reply = finish(gate.now_ms, client, tenant, key, kind, checksum)
            code = reply.code
            return send(connection, seq, done(seq) if code == 0 else refused[code](seq), reply.after)

        return end

    def _batch_end(self, name: str, finish: BatchEnder) -> Handler:
        read = argument_reader(self._request(name))
        front = heads(self._functions[name].returns)
        gate, send, object_meta, failures = self._gate, self._leaving.send, self._object_meta, self._failures
        with_kind = "type" in self._functions[name].arguments

        def batch_end(connection: Connection, seq: int, body: bytes) -> bytes | None:
            client, objects, *kinds, tenant = read(body)
            kind = kinds[0] if with_kind else 4
            written = [(named.key, named.checksum) if object_meta else (named, None) for named in objects]
            reply = finish(gate.now_ms, client, tenant, written, kind)
            parts = [DONE if code == 0 else failures[code] for code in reply.value]
            width = width_for(len(parts))
            frame = framed(seq, front[width] + counted(len(parts), width) + b"".join(parts))
            return send(connection, seq, frame, reply.after)

        return batch_end


def _read_answer(release: Release) -> Record:
    result = release.functions["GetReplicaList"].returns
    assert isinstance(result, Expected)
    assert isinstance(result.inner, Record)
    return result.inner


def _replica_of(release: Release) -> Record:
    replicas = _read_answer(release).fields["replicas"]
    assert isinstance(replicas, Vector)
    assert isinstance(replicas.element, Record)
    return replicas.element
