"""Optimised handlers for the hot writes: the start and the end of puts and upserts, single and in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from leasehold.base.codes import Code
from leasehold.base.measures import Calls
from leasehold.ha.serving import Serving
from leasehold.index.model import PutConfig
from leasehold.index.puts import Started
from leasehold.index.replies import NOTHING_SHOWN, Acknowledged
from leasehold.node.service import commands
from leasehold.node.service.call_counts import CallCounts
from leasehold.node.service.descriptors import PROCESSING, DescriptorWriter
from leasehold.node.service.frames import DONE, Refusals, code_name, failure, fixed, framed, heads, width_for
from leasehold.node.service.hot_reads import replica_type
from leasehold.node.service.owner_wait import wait_for_owner
from leasehold.node.service.put_config import BatchConfig, config_of
from leasehold.wire.answers import Answer
from leasehold.wire.compiler import Readers, body_reader
from leasehold.wire.connection import Connection, Handler
from leasehold.wire.messages import DEFAULT_TENANT
from leasehold.wire.schema import LengthOverflow, Tuple, Type, counted
from leasehold.wire.tables.release import Release

StartOne = Callable[[bytes, bytes, bytes, int, PutConfig], Started]

_CONFIGS_MAX: Final = 1024
_FIRST_MEMBERS: Final = slice(0, 3)  # of a start: client, key(s), size(s); the rest repeats from call to call
_ALL_KINDS: Final = 4  # of replicas, where the request does not name one


class HotPuts:
    """Handlers for one release."""

    def __init__(self, serving: Serving, release: Release, calls: Calls, counts: CallCounts) -> None:
        self._serving = serving
        self._counts = counts
        self._functions = release.functions
        self._writer = DescriptorWriter(release.name, replica_type(release))
        self._object_meta = release.object_meta
        self._calls = calls

    def handlers(self) -> dict[int, Handler]:
        """By function id."""
        made = {
            "PutStart": self._start("PutStart", self._serving.start),
            "UpsertStart": self._start("UpsertStart", self._start_upsert),
            "BatchPutStart": self._batch_start("BatchPutStart", commands.start_many),
            "BatchUpsertStart": self._batch_start("BatchUpsertStart", commands.start_many_upserts),
            "PutEnd": self._end("PutEnd"),
            "UpsertEnd": self._end("UpsertEnd"),
            "BatchPutEnd": self._batch_end("BatchPutEnd"),
            "BatchUpsertEnd": self._batch_end("BatchUpsertEnd"),
        }
        return {self._functions[name].id: handler for name, handler in made.items()}

    def _start_upsert(self, client: bytes, tenant: bytes, key: bytes, size: int, config: PutConfig) -> Started:
        return self._serving.execute(commands.start_upsert, client, tenant, key, size, config)

    def _request(self, name: str) -> Type:
        request = self._functions[name].request
        assert request is not None  # for the type checker: all of these have arguments
        return request

    def _failures(self, name: str) -> Refusals[bytes]:
        return Refusals({int(code): failure(code) for code in Code}, self._calls, self._functions[name].id)

    def _configs(self, name: str) -> Callable[[bytes, int, int], tuple[BatchConfig, bytes]]:
        """Reads config and tenant. They repeat from call to call: each distinct pair is decoded once."""
        request = self._request(name)
        assert isinstance(request, Tuple)
        readers = Readers(request.members[_FIRST_MEMBERS.stop :])
        known: dict[tuple[int, bytes], tuple[BatchConfig, bytes]] = {}
        longest_ms = self._serving.index.settings.soft_pin_ttl_max_ms

        def configs(body: bytes, at: int, width: int) -> tuple[BatchConfig, bytes]:
            rest = width, body[at:]
            found = known.get(rest)
            if found is None:
                (config, *sent), _ = readers[width](body, at)
                found = config_of(config, longest_ms), sent[0] if sent else DEFAULT_TENANT
                if len(known) >= _CONFIGS_MAX:
                    known.clear()
                if len(rest[1]) <= 4096:
                    known[rest] = found
            return found

        return configs

    def _start(self, name: str, start_one: StartOne) -> Handler:
        read, configs = body_reader(self._request(name), _FIRST_MEMBERS), self._configs(name)
        front = heads(self._functions[name].returns)
        serving, failures, function, calls = self._serving, self._failures(name), self._functions[name].id, self._calls
        answer = serving.answer
        started, good = self._writer.started, front[1] + b"\x01"

        count_sizes = self._counts.started

        def start(connection: Connection, seq: int, body: bytes, until_ms: int = 0) -> Answer:
            index = serving.index
            if index.owners.unproven and index.owners.space_must_wait(native=False):
                return wait_for_owner(serving, seq, partial(start, connection, seq, body), until_ms, len(body))
            (client, key, size), _, at, width = read(body)
            config, tenant = configs(body, at, width)
            chosen = config.for_one
            if not isinstance(chosen, PutConfig):
                calls.failed(function, code_name(chosen))
                return answer(NOTHING_SHOWN, framed(seq, front[1] + failure(chosen)))
            reply = start_one(client, tenant, key, size, chosen)
            made = reply.value
            if made is None:  # a refusal hands out no space
                refused = Acknowledged(reply.code, reply.after)
                return answer(refused, framed(seq, front[1] + failures[reply.code]))
            count_sizes((size,))
            try:
                frame = framed(seq, good + started(made, 1))
            except LengthOverflow:
                frame = framed(seq, front[4] + b"\x01" + started(made, 4))
            return answer(reply, frame)

        return start

    def _batch_start(self, name: str, start_many: commands.StartMany) -> Handler:
        read, configs = body_reader(self._request(name), _FIRST_MEMBERS), self._configs(name)
        front = heads(self._functions[name].returns)
        serving, failures, function, calls = self._serving, self._failures(name), self._functions[name].id, self._calls
        execute, answer = serving.execute, serving.answer

        count, count_sizes = self._counts.batches_of(name).add, self._counts.started

        def batch_start(connection: Connection, seq: int, body: bytes, until_ms: int = 0) -> Answer:
            index = serving.index
            if index.owners.unproven and index.owners.space_must_wait(native=False):
                return wait_for_owner(serving, seq, partial(batch_start, connection, seq, body), until_ms, len(body))
            (client, keys, sizes), _, at, width = read(body)
            config, tenant = configs(body, at, width)
            chosen = config.for_many(len(keys)) if len(keys) == len(sizes) else Code.BAD_PARAMS
            if isinstance(chosen, int):
                calls.failed(function, code_name(chosen), len(keys))
                count(len(keys), len(keys))
                width = width_for(len(keys))
                payload = failure(chosen) * len(keys)
                return answer(NOTHING_SHOWN, framed(seq, front[width] + counted(len(keys), width) + payload))
            items = zip(keys, sizes, chosen, strict=True)
            reply = execute(start_many, client, tenant, items, 0)
            results, width = reply.value or [], width_for(len(keys))
            started = [result.value.size for result in results if result.value is not None]
            count(len(keys), len(keys) - len(started))
            count_sizes(started)
            try:
                payload = self._started_many(results, width, failures)
            except LengthOverflow:
                width = 4
                payload = self._started_many(results, width, failures)
            return answer(reply, framed(seq, front[width] + counted(len(keys), width) + payload))

        return batch_start

    def _started_many(self, results: Sequence[Started], width: int, failures: Refusals[bytes]) -> bytes:
        """The results of starts, in order. The usual object has one replica: that one is written in line."""
        started, pack_numbers, place = self._writer.started, self._writer.numbers, self._writer.alternative
        tail_name, one = self._writer.tail_name(PROCESSING, width), b"\x01" + counted(1, width)
        parts: list[bytes] = []
        append = parts.append
        for result in results:
            made = result.value
            if made is None:
                append(failures[result.code])
                continue
            segment = made.segment
            tail = None if segment is None else segment.memo.get(tail_name)
            if segment is None or tail is None:
                append(b"\x01" + started(made, width))
                continue
            append(one)
            append(pack_numbers(made.put_seq << 4, place, made.size, segment.spec.base + made.offset))
            append(tail)
        return b"".join(parts)

    def _end(self, name: str) -> Handler:
        read = self._functions[name].reader()
        front = heads(self._functions[name].returns)[1]
        done = fixed(front + DONE)
        refused = Refusals(
            {int(code): fixed(front + failure(code)) for code in Code}, self._calls, self._functions[name].id
        )
        end_put, answer = self._serving.end, self._serving.answer
        object_meta = self._object_meta

        def end(_: Connection, seq: int, body: bytes) -> Answer:
            client, named, kind, tenant = read(body)
            key, checksum = (named.key, named.checksum) if object_meta else (named, None)
            reply = end_put(client, tenant, key, kind, checksum)
            return answer(reply, done(seq) if reply.code == 0 else refused[reply.code](seq))

        return end

    def _batch_end(self, name: str) -> Handler:
        read = self._functions[name].reader()
        front = heads(self._functions[name].returns)
        execute, answer = self._serving.execute, self._serving.answer
        object_meta, failures = self._object_meta, self._failures(name)
        with_kind = "type" in self._functions[name].arguments
        count = self._counts.batches_of(name).add

        def batch_end(_: Connection, seq: int, body: bytes) -> Answer:
            client, objects, *kinds, tenant = read(body)
            kind = kinds[0] if with_kind else _ALL_KINDS
            named = [(one.key, one.checksum) for one in objects] if object_meta else [(key, None) for key in objects]
            reply = execute(commands.end_many, client, tenant, named, kind)
            results = [DONE if code == 0 else failures[code] for code in reply.value]
            payload = b"".join(results)
            count(len(results), len(results) - results.count(DONE))
            width = width_for(len(named))
            return answer(reply, framed(seq, front[width] + counted(len(named), width) + payload))

        return batch_end
