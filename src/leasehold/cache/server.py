"""The cache's server: it carries the messages of clients and authority over two functions of the wire protocol.

A connection begins with a call of `Tell`, which is answered, so that both sides know that the other understands the
protocol. All other messages use `Say`: frames without an answer, whose body is the messages and nothing else. Their
results are pushed, immediately or later, so an acknowledgement costs one frame. All messages to one client in one turn
of the loop share a frame.
"""

from __future__ import annotations

import socket
from collections import Counter

import structlog

from leasehold.base.errors import InvalidArgument
from leasehold.base.measures import Measure
from leasehold.cache.authority import Authority
from leasehold.cache.model import (
    ABSENT,
    Ack,
    Answer,
    Ask,
    Code,
    FromAuthority,
    FromClient,
    Hello,
    Item,
    Outcome,
    Subscribe,
    Unsubscribe,
    Write,
)
from leasehold.cache.push_queue import PushQueue, PushScheduler
from leasehold.cache.wire_functions import SAY, TELL, Parcel, encode, pushed, unpacked
from leasehold.runtime.tls import Tls
from leasehold.wire.answers import Answer as WireAnswer
from leasehold.wire.answers import Released
from leasehold.wire.connection import Connection
from leasehold.wire.rpc import implement
from leasehold.wire.server import Server, listen

log = structlog.get_logger("leasehold.cache")


class _Peer:
    """One client's connection to the authority that served when the client connected."""

    def __init__(self, authority: Authority, connection: Connection, client: str, queue: PushQueue) -> None:
        self.client = client
        self.authority = authority
        self.queue = queue
        authority.attach(client, queue)
        connection.tie(self._detach)

    def _detach(self) -> None:
        self.authority.detach(self.client, self.queue)


class CacheServer:
    """Serves one authority after another on one address. In between, clients are refused and retry."""

    def __init__(
        self, host: str = "127.0.0.1", port: int = 0, *, sock: socket.socket | None = None, tls: Tls | None = None
    ) -> None:
        self._scheduler = PushScheduler()
        self._server = Server()
        self._peers: dict[Connection, _Peer] = {}
        self._authority: Authority | None = None
        self._messages: Counter[str] = Counter()  # received, by kind
        self._listener = self._server.serve(
            sock or listen(host, port), {**implement(TELL, self._on_tell), SAY: self._on_say}, tls=tls
        )

    @property
    def address(self) -> str:
        host, port = self._listener.address
        return f"{host}:{port}"

    def install(self, authority: Authority | None) -> None:
        """Serve this authority from now on (None: none). Clients of the one before are disconnected and reconnect."""
        self._authority = authority
        for connection in list(self._peers):
            connection.abort("the authority has changed")
        self._peers.clear()

    def close(self) -> None:
        self._server.close()

    def measures(self) -> list[Measure]:
        """For the metrics port."""
        machine = self._authority.machine if self._authority is not None else None
        return [
            Measure.gauge("leasehold_cache_serving", "1 while an authority serves here", machine is not None),
            Measure.gauge("leasehold_cache_clients", "connected clients", len(self._peers)),
            Measure.gauge("leasehold_cache_keys", "keys in memory", len(machine.keys) if machine else 0),
            Measure.gauge("leasehold_cache_leases", "keys with leases", len(machine.grants.table) if machine else 0),
            Measure(
                "leasehold_cache_messages",
                "messages from clients, by kind: Ask reads, Write writes, Ack confirms a callback",
                "counter",
                {(kind,): count for kind, count in self._messages.items()},
                ("kind",),
            ),
        ]

    def _on_say(self, connection: Connection, _seq: int, body: bytes) -> WireAnswer:
        """Messages without an answer: their results are pushed at the end of the turn."""
        try:
            refusals = self._receive(connection, body)
        except InvalidArgument as error:
            connection.abort(str(error))  # there is no answer that could carry the error
            return None
        return Released(pushed(refusals)) if refusals else None

    def _on_tell(self, connection: Connection, parcel: Parcel) -> Parcel:
        """Answer that the messages were understood; their results are pushed."""
        return Parcel(encode(self._receive(connection, parcel.messages)))

    def _receive(self, connection: Connection, packed: bytes) -> list[FromAuthority]:
        """Pass the messages to the authority; without one, return the refusals."""
        messages = unpacked(packed)
        peer = self._peers.get(connection)
        if peer is None:
            authority = self._authority
            if authority is None:  # an answer, not a closed connection: the caller knows that nothing was done
                return [refusal for message in messages for refusal in _not_serving(message)]
            peer = self._greet(authority, connection, messages)
        peer.authority.receive(peer.client, messages)
        for message in messages:
            self._messages[type(message).__name__] += 1
            if type(message) is Ack:
                self._scheduler.acknowledged(peer.queue)
        return []

    def _greet(self, authority: Authority, connection: Connection, messages: list[FromClient]) -> _Peer:
        hello = messages[0] if messages else None
        if not isinstance(hello, Hello) or not 1 <= len(hello.client) <= 200:
            raise InvalidArgument("a connection begins with Hello and the client's identity")
        queue = PushQueue(self._scheduler, connection)
        peer = self._peers[connection] = _Peer(authority, connection, hello.client, queue)
        connection.tie(lambda: self._forget(connection))
        return peer

    def _forget(self, connection: Connection) -> None:
        peer = self._peers.pop(connection, None)
        if peer is not None:
            self._scheduler.remove(peer.queue)


def _not_serving(message: FromClient) -> list[FromAuthority]:
    if isinstance(message, Ask):
        return [Answer(message.seq, tuple(Item(key, None, ABSENT, 0, Code.NOT_SERVING) for key in message.keys))]
    if isinstance(message, Write | Subscribe | Unsubscribe):
        return [Outcome(message.seq, Code.NOT_SERVING, ABSENT, "no authority serves at this address now")]
    return []
