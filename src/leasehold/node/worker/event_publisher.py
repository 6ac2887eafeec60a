"""Publishes the events of a node over ZeroMQ. `events.stream` decides; this sends.

A slow subscriber never holds up the master: a PUB socket drops what a subscriber does not take in time, and the
subscriber requests it again, from the buffer, on another socket.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import structlog

from leasehold.events import protocol, sockets
from leasehold.events.follower import PageRequest, Request
from leasehold.events.messages import Encoder, Message, Style
from leasehold.events.settings import EventSettings
from leasehold.events.stream import Answer, EventStream
from leasehold.ha.effects import Role
from leasehold.ha.machine import NodeMachine
from leasehold.index.changes import Changes
from leasehold.node.event_addresses import requests_address
from leasehold.runtime.tasks import TaskSet

log = structlog.get_logger("leasehold.events")

BIND_AGAIN_S: Final = 1.0


class EventPublisher:
    """The two sockets of one node. `flush` is called after every turn of its machine."""

    def __init__(self, settings: EventSettings) -> None:
        self._settings = settings
        self._machine: NodeMachine | None = None
        style = Style(settings.events_backend_id, settings.events_legacy, settings.events_object_key)
        self.stream = EventStream(Encoder(style), settings.events_buffer_messages, settings.events_buffer_bytes)
        self._zmq = sockets.import_zmq()
        self._context = self._zmq.asyncio.Context()
        self._authenticator: Any = None
        self._publisher: Any = None
        self._tasks = TaskSet(self._failed)
        self.published_messages = 0
        self.dropped_before = 0  # events dropped in former epochs

    def new_changes(self) -> Changes:
        """For a new index."""
        return Changes(self._settings.events_queue)

    def start(self, machine: NodeMachine) -> None:
        """Publish for this machine from now on."""
        self._machine = machine
        self._tasks.start(self._run())

    async def close(self) -> None:
        await self._tasks.close()
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.destroy(linger=0)

    def on_role(self, role: Role) -> None:
        """The machine has a new role."""
        machine, changes = self._machine, self._changes()
        if machine is None or changes is None:
            return
        if role is Role.PRIMARY:
            self._send([self.stream.begin(_wall_ms(), machine.epoch, changes)])
        elif self.stream.epoch:
            self.dropped_before += changes.dropped_count
            self.stream.end(changes)

    def flush(self) -> None:
        """Publish what has become durable."""
        changes = self._changes()
        if self._machine is not None and self.stream.epoch and changes is not None:
            self._send(self.stream.publish(_wall_ms(), self._machine.durable_n, changes))

    def status(self) -> dict[str, int | bool]:
        """The fields of the C++ master, and ours."""
        stream, changes = self.stream, self._changes()
        dropped = self.dropped_before + (changes.dropped_count if changes is not None and stream.epoch else 0)
        return {
            "enabled": True,
            "published_batches": self.published_messages,
            "published_events": stream.published_events,
            "dropped_events": dropped,
            "skipped_unparsed_keys": stream.skipped_keys,
            "epoch": stream.epoch,
            "count": stream.count,
            "reloads": stream.reloads,
        }

    def _changes(self) -> Changes | None:
        return self._machine.index.changes if self._machine is not None else None

    def _send(self, messages: list[Message]) -> None:
        self.published_messages += len(messages)
        if self._publisher is not None:
            for message in messages:
                self._publisher.send_multipart(message.frames(), flags=self._zmq.NOBLOCK)

    # --- requests ---

    async def _run(self) -> None:
        zmq, settings = self._zmq, self._settings
        if settings.events_curve_key:
            self._authenticator = zmq.auth.asyncio.AsyncioAuthenticator(self._context)
            self._authenticator.start()
            self._authenticator.configure_curve(
                domain="*", location=settings.events_curve_clients or zmq.auth.CURVE_ALLOW_ANY
            )
        # A plain socket of the same context: `send` must not wait for the loop.
        publisher = zmq.Context.shadow(self._context.underlying).socket(zmq.PUB)
        publisher.sndhwm = sockets.SEND_MESSAGES_MAX
        router = self._context.socket(zmq.ROUTER)
        router.sndhwm = sockets.SEND_MESSAGES_MAX
        router.setsockopt(zmq.MAXMSGSIZE, protocol.request_bytes_max)
        for sock in (publisher, router):
            sock.linger = 0
            if settings.events_curve_key:
                sockets.secure_server(zmq, sock, sockets.read_key(settings.events_curve_key))
        await self._bind(publisher, settings.events_bind)
        await self._bind(router, requests_address(settings))
        self._publisher = publisher
        log.info("events are published", address=settings.events_bind, requests=requests_address(settings))
        while True:
            frames = await router.recv_multipart()
            if len(frames) == 3 and (request := protocol.decode_request(frames[2])) is not None:
                answer = self._answer(request)
                await router.send_multipart([frames[0], b"", protocol.encode(answer)])

    async def _bind(self, sock: Any, address: str) -> None:
        """The port may be in use for a moment: the worker before this one has just died."""
        while True:
            try:
                sock.bind(f"tcp://{address}")
                return
            except self._zmq.ZMQError as error:
                log.error("events cannot be published here; the attempt is repeated", address=address, error=str(error))
                await asyncio.sleep(BIND_AGAIN_S)

    def _answer(self, request: Request) -> Answer | protocol.NotLeading:
        changes, stream = self._changes(), self.stream
        if self._machine is None or changes is None or not stream.epoch:
            return protocol.NotLeading()
        if isinstance(request, PageRequest):
            index = self._machine.index
            return stream.page(index.catalog, index.disk, changes, request.cursor)
        return stream.resume(request.epoch, request.count)

    def _failed(self, error: BaseException) -> None:
        log.error("events are no longer published by this process", error=str(error), exc_info=error)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
