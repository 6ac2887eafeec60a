"""The cache on the wire: two functions of our own whose parcels carry our messages.

A connection begins with a call of `Tell`, which is answered, so that both sides know that they understand each other.
Everything else is *said*, in frames without an answer whose body is the messages and nothing else: what they lead to is
pushed, at once or later, and an acknowledgement costs one frame. Everything for one client in one turn of the loop
travels together.
"""

from __future__ import annotations

import socket

import structlog

from leasehold.base.errors import InvalidArgument
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
from leasehold.cache.push_queue import Outbox, Pusher
from leasehold.cache.wire_functions import SAY, TELL, Parcel, encode, pushed, unpacked
from leasehold.wire.answers import Answer as WireAnswer
from leasehold.wire.answers import Released
from leasehold.wire.connection import Connection
from leasehold.wire.rpc import implement
from leasehold.wire.server import Server, listen

log = structlog.get_logger("leasehold.cache")


class _Peer:
    """One client's connection to the authority that was in office when it came."""

    def __init__(self, authority: Authority, connection: Connection, client: str, outbox: Outbox) -> None:
        self.client = client
        self.authority = authority
        self.outbox = outbox
        authority.attach(client, outbox)
        connection.tie(self._gone)

    def _gone(self) -> None:
        self.authority.detach(self.client, self.outbox)


class CacheServer:
    """Serves one authority after the other on one address; between two of them clients are refused and retry."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0, *, sock: socket.socket | None = None) -> None:
        self._pusher = Pusher()
        self._server = Server()
        self._peers: dict[Connection, _Peer] = {}
        self._authority: Authority | None = None
        self._listener = self._server.serve(
            sock or listen(host, port), {**implement(TELL, self._told), SAY: self._said}
        )

    @property
    def address(self) -> str:
        host, port = self._listener.address
        return f"{host}:{port}"

    def install(self, authority: Authority | None) -> None:
        """Serve this one from now on; everybody connected to the one before is cut off and comes again."""
        self._authority = authority
        for connection in list(self._peers):
            connection.abort("the authority has changed")
        self._peers.clear()

    def close(self) -> None:
        self._server.close()

    # --- in

    def _said(self, connection: Connection, _seq: int, body: bytes) -> WireAnswer:
        """Messages without an answer: what they have led to is pushed at the end of the turn, with everything else."""
        try:
            refusals = self._hear(connection, body)
        except InvalidArgument as error:
            connection.abort(str(error))  # nobody waits for a refusal, so the end of the connection says it
            return None
        return Released(pushed(refusals)) if refusals else None

    def _told(self, connection: Connection, parcel: Parcel) -> Parcel:
        """That it was understood; what it has led to is pushed."""
        return Parcel(encode(self._hear(connection, parcel.messages)))

    def _hear(self, connection: Connection, packed: bytes) -> list[FromAuthority]:
        """Hand the messages to the authority in office; without one, what to say instead."""
        messages = unpacked(packed)
        peer = self._peers.get(connection)
        if peer is None:
            authority = self._authority
            if authority is None:  # an answer, not a closed door: so the caller knows that nothing was done
                return [refusal for message in messages for refusal in _not_serving(message)]
            peer = self._greet(authority, connection, messages)
        peer.authority.receive(peer.client, messages)
        for message in messages:
            if type(message) is Ack:
                self._pusher.acknowledged(peer.outbox)
        return []

    def _greet(self, authority: Authority, connection: Connection, messages: list[FromClient]) -> _Peer:
        hello = messages[0] if messages else None
        if not isinstance(hello, Hello) or not 1 <= len(hello.client) <= 200:
            raise InvalidArgument("a connection begins with Hello and the client's identity")
        outbox = Outbox(self._pusher, connection)
        peer = self._peers[connection] = _Peer(authority, connection, hello.client, outbox)
        connection.tie(lambda: self._forget(connection))
        return peer

    def _forget(self, connection: Connection) -> None:
        peer = self._peers.pop(connection, None)
        if peer is not None:
            self._pusher.gone(peer.outbox)


def _not_serving(message: FromClient) -> list[FromAuthority]:
    if isinstance(message, Ask):
        return [Answer(message.seq, tuple(Item(key, None, ABSENT, 0, Code.NOT_SERVING) for key in message.keys))]
    if isinstance(message, Write | Subscribe | Unsubscribe):
        return [Outcome(message.seq, Code.NOT_SERVING, ABSENT, "no authority is in office here")]
    return []
