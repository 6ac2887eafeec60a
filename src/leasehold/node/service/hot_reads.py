"""Optimised handlers for the hot reads: exist and get, single and in batches.

Readers are compiled from the release's table, and answers are put together from parts that the same table has encoded.
The tests compare each of them with the reference codec.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from typing import Final

from leasehold.base.codes import Code
from leasehold.base.measures import Calls
from leasehold.ha.serving import Serving
from leasehold.index.model import Object
from leasehold.node.service import commands
from leasehold.node.service.call_counts import CallCounts
from leasehold.node.service.descriptors import COMPLETE, DescriptorWriter, readable
from leasehold.node.service.frames import CountedFronts, Refusals, failure, fixed, framed, heads, width_for
from leasehold.node.service.owner_wait import wait_for_owner
from leasehold.wire.answers import Answer
from leasehold.wire.connection import Connection, Handler
from leasehold.wire.frame import MAGIC
from leasehold.wire.schema import Expected, LengthOverflow, Record, Vector, counted
from leasehold.wire.tables.release import Release

_HIT, _MISS = b"\x01\x01", b"\x01\x00"  # a good result, true or false
_NUMBERED: Final = struct.Struct("<II")  # the start of a good answer: its first four bytes as one number, its sequence


class HotReads:
    """Handlers for one release."""

    def __init__(self, serving: Serving, release: Release, calls: Calls, counts: CallCounts) -> None:
        self._serving = serving
        self._counts = counts
        self._functions = release.functions
        self._writer = DescriptorWriter(release.name, replica_type(release))
        self._checksums = "checksum" in _read_answer(release).fields
        self._calls = calls

    def handlers(self) -> dict[int, Handler]:
        """By function id."""
        made = {
            "ExistKey": self._exist(),
            "BatchExistKey": self._batch_exist(),
            "GetReplicaList": self._get(),
            "BatchGetReplicaList": self._batch_get(),
        }
        return {self._functions[name].id: handler for name, handler in made.items()}

    def _failures(self, name: str) -> Refusals[bytes]:
        return Refusals({int(code): failure(code) for code in Code}, self._calls, self._functions[name].id)

    def _exist(self) -> Handler:
        read = self._functions["ExistKey"].reader()
        front = heads(self._functions["ExistKey"].returns)[1]
        yes, no = fixed(front + _HIT), fixed(front + _MISS)
        find, answer = self._serving.exist, self._serving.answer

        def exist(_: Connection, seq: int, body: bytes) -> Answer:
            key, tenant = read(body)
            reply = find(tenant, key)
            return answer(reply, yes(seq) if reply.value else no(seq))

        return exist

    def _batch_exist(self) -> Handler:
        read = self._functions["BatchExistKey"].reader()
        fronts = CountedFronts(heads(self._functions["BatchExistKey"].returns), len(_HIT))
        execute, answer, numbered = self._serving.execute, self._serving.answer, _NUMBERED.pack

        count = self._counts.batches_of("BatchExistKey").add

        def batch_exist(_: Connection, seq: int, body: bytes) -> Answer:
            keys, tenant = read(body)
            count(len(keys), 0)
            reply = execute(commands.exist_many, tenant, keys, _HIT, _MISS)
            return answer(reply, numbered(MAGIC, seq) + fronts[len(keys)] + b"".join(reply.value))

        return batch_exist

    def _get(self) -> Handler:
        read = self._functions["GetReplicaList"].reader()
        front = heads(self._functions["GetReplicaList"].returns)
        serving, write, failures = self._serving, self._found, self._failures("GetReplicaList")
        find, answer, got = serving.get, serving.answer, self._counts.got

        def get(connection: Connection, seq: int, body: bytes, until_ms: int = 0) -> Answer:
            key, tenant = read(body)
            reply = find(tenant, key)
            found, index = reply.value, serving.index
            if found is None:
                got(1, 0, 0)
                return answer(reply, framed(seq, front[1] + failures[index.reads.miss(tenant, key).value]))
            if index.owners.unproven and index.owners.must_wait(found):
                return wait_for_owner(serving, seq, partial(get, connection, seq, body), until_ms, len(body))
            got(1, 1, found.size)
            try:
                frame = framed(seq, front[1] + write(found, 1, failures))
            except LengthOverflow:
                frame = framed(seq, front[2] + write(found, 2, failures))
            return answer(reply, frame)

        return get

    def _batch_get(self) -> Handler:
        read = self._functions["BatchGetReplicaList"].reader()
        front = heads(self._functions["BatchGetReplicaList"].returns)
        serving, failures = self._serving, self._failures("BatchGetReplicaList")
        execute, answer = serving.execute, serving.answer
        count, got = self._counts.batches_of("BatchGetReplicaList").add, self._counts.got

        def batch_get(connection: Connection, seq: int, body: bytes, until_ms: int = 0) -> Answer:
            keys, tenant = read(body)
            reply = execute(commands.get_many, tenant, keys)
            found, index = reply.value, serving.index
            if index.owners.unproven and any(each is not None and index.owners.must_wait(each) for each in found):
                return wait_for_owner(serving, seq, partial(batch_get, connection, seq, body), until_ms, len(body))
            width = width_for(len(keys))
            try:
                payload, misses, hit_bytes = self._found_many(tenant, keys, found, width, failures)
            except LengthOverflow:
                width = 4
                payload, misses, hit_bytes = self._found_many(tenant, keys, found, width, failures)
            count(len(keys), misses)
            got(len(keys), len(keys) - misses, hit_bytes)
            return answer(reply, framed(seq, front[width] + counted(len(keys), width) + payload))

        return batch_get

    def _found_many(
        self, tenant: bytes, keys: Sequence[bytes], found: list[Object | None], width: int, failures: Refusals[bytes]
    ) -> tuple[bytes, int, int]:
        """The results of reads, in order; how many are misses; the bytes of the objects found.

        The usual object has one complete replica: that one is written in line.
        """
        tail_name, pack_numbers, place = (
            self._writer.tail_name(COMPLETE, width),
            self._writer.numbers,
            self._writer.alternative,
        )
        one = b"\x01" + counted(1, width)
        index = self._serving.index
        lease = index.settings.lease_ttl_ms.to_bytes(8, "little")
        end = lease + b"\x00" if self._checksums else lease
        parts: list[bytes] = []
        append, on_disk = parts.append, index.disk.count
        misses = hit_bytes = 0
        for number, each in enumerate(found):
            if each is None:
                misses += 1
                append(failures[index.reads.miss(tenant, keys[number]).value])
                continue
            size = each.size
            hit_bytes += size
            segment = each.segment
            if segment is not None and each.extra is None and not on_disk:
                tail = segment.memo.get(tail_name)
                if tail is not None and not segment.native:
                    append(one)
                    append(pack_numbers(each.put_seq << 4, place, size, segment.spec.base + each.offset))
                    append(tail)
                    append(end)
                    continue
            append(self._found(each, width, failures))
        return b"".join(parts), misses, hit_bytes

    def _found(self, found: Object, width: int, failures: Refusals[bytes]) -> bytes:
        """A good result of a read: replicas, the length of their lease, checksum."""
        segment, disk = found.segment, self._serving.index.disk
        if disk.count and (copies := disk.beside(found)):
            written = b"\x01" + self._writer.with_disks(readable(found), copies, found.size, width)
        elif segment is not None and not segment.native:
            written = b"\x01" + self._writer.own_place(found, segment, COMPLETE, width)
        else:
            usable = readable(found)
            if not usable:  # only in hosts with Leasehold's own protocol, which this caller cannot read
                return failures[Code.NOT_FOUND]
            written = b"\x01" + self._writer.vector(usable, found.size, width)
        lease = self._serving.index.settings.lease_ttl_ms.to_bytes(8, "little")
        if not self._checksums:
            return written + lease
        if found.checksum is None:
            return written + lease + b"\x00"
        return written + lease + b"\x01" + found.checksum.to_bytes(8, "little")


def _read_answer(release: Release) -> Record:
    result = release.functions["GetReplicaList"].returns
    assert isinstance(result, Expected)
    assert isinstance(result.inner, Record)
    return result.inner


def replica_type(release: Release) -> Record:
    """The type of one replica in a release's answers."""
    replicas = _read_answer(release).fields["replicas"]
    assert isinstance(replicas, Vector)
    assert isinstance(replicas.element, Record)
    return replicas.element
