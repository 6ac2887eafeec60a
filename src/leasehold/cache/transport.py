"""The cache on the wire: two functions of our own whose parcels carry our messages.

A connection begins with a call of `Tell`, which is answered, so that both sides know that they understand each other.
Everything else is *said*, in parcels without an answer: what the messages lead to is pushed, at once or later, and an
acknowledgement costs one frame. Everything for one client in one turn of the loop travels together.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

import msgspec
import structlog
from msgspec import Struct

from leasehold.base.errors import InvalidArgument
from leasehold.cache.authority import Authority
from leasehold.cache.model import (
    ABSENT,
    Answer,
    Ask,
    Changed,
    Code,
    Drop,
    FromAuthority,
    FromClient,
    Hello,
    Item,
    Outcome,
    Subscribe,
    Unsubscribe,
    Write,
)
from leasehold.wire.connection import Connection
from leasehold.wire.errors import Malformed
from leasehold.wire.rpc import implement, method, push, pushed
from leasehold.wire.server import Server, listen

log = structlog.get_logger("leasehold.cache")


class Parcel(Struct, frozen=True):
    """Messages, packed by msgspec."""

    messages: bytes


TELL: Final = method("leasehold::cache::Tell", Parcel, Parcel)
SAY: Final = method("leasehold::cache::Say", Parcel, Parcel)
encode = msgspec.msgpack.Encoder().encode
decode_from_client = msgspec.msgpack.Decoder(list[FromClient]).decode
decode_from_authority = msgspec.msgpack.Decoder(list[FromAuthority]).decode


def coalesced(messages: list[FromAuthority]) -> list[FromAuthority]:
    """The same with all callbacks in one message, and all notices in one, in front: they are the urgent ones."""
    drops = [message for message in messages if isinstance(message, Drop) and message.keys]
    notices = [message for message in messages if isinstance(message, Changed)]
    rest: list[FromAuthority] = [
        message for message in messages if isinstance(message, Answer | Outcome) or message == Drop(())
    ]
    if len(drops) + len(notices) < 2:
        return messages
    merged: list[FromAuthority] = []
    if drops:
        merged.append(Drop(tuple(pair for drop in drops for pair in drop.keys)))
    if notices:
        changes = {pair[0]: pair for notice in notices for pair in notice.changes}
        merged.append(Changed(tuple(changes.values()), any(notice.missed for notice in notices)))
    return merged + rest


class _Peer:
    """One client's connection: what waits to be sent to it in this turn."""

    def __init__(self, authority: Authority, connection: Connection, client: str) -> None:
        self.client = client
        self._authority = authority
        self._connection = connection
        self._outgoing: list[FromAuthority] = []
        self._pushing = False
        self._sink = self._take
        authority.attach(client, self._sink)
        connection.on_close.append(self.gone)

    def gone(self) -> None:
        self._authority.detach(self.client, self._sink)

    def _take(self, message: FromAuthority) -> None:
        if not self._pushing:
            self._pushing = True
            asyncio.get_running_loop().call_soon(self._push)
        self._outgoing.append(message)

    def take_outgoing(self) -> list[FromAuthority]:
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    def _push(self) -> None:
        self._pushing = False
        outgoing = self.take_outgoing()
        if outgoing and not self._connection.closed:
            push(self._connection, SAY, Parcel(encode(coalesced(outgoing))))


class CacheServer:
    """Serves one authority after the other on one address; between two of them clients are refused and retry."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0, *, sock: socket.socket | None = None) -> None:
        self._server = Server()
        self._peers: dict[Connection, _Peer] = {}
        self._authority: Authority | None = None
        self._listener = self._server.serve(
            sock or listen(host, port), {**implement(TELL, self._told), SAY.id: self._said}
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

    def _said(self, connection: Connection, _seq: int, body: bytes) -> bytes | None:
        """A parcel without an answer: what it has led to is pushed at the end of the turn, with everything else."""
        try:
            refusals = self._hear(connection, SAY.unpack_request(body))
        except (InvalidArgument, Malformed) as error:
            connection.abort(str(error))  # nobody waits for a refusal, so the end of the connection says it
            return None
        return pushed(SAY, Parcel(encode(refusals))) if refusals else None

    def _told(self, connection: Connection, parcel: Parcel) -> Parcel:
        refusals = self._hear(connection, parcel)
        peer = self._peers.get(connection)
        return Parcel(encode(refusals if peer is None else coalesced(peer.take_outgoing())))

    def _hear(self, connection: Connection, parcel: Parcel) -> list[FromAuthority]:
        """Hand the messages to the authority in office; without one, what to say instead."""
        authority = self._authority
        if authority is None:  # an answer, not a closed door: so the caller knows that nothing was done
            return [refusal for message in _unpacked(parcel) for refusal in _not_serving(message)]
        peer = self._peers.get(connection)
        for message in _unpacked(parcel):
            if peer is None:
                peer = self._greet(authority, connection, message)
            authority.receive(peer.client, message)
        return []

    def _greet(self, authority: Authority, connection: Connection, message: FromClient) -> _Peer:
        if not isinstance(message, Hello) or not 1 <= len(message.client) <= 200:
            raise InvalidArgument("a connection begins with Hello and the client's identity")
        peer = self._peers[connection] = _Peer(authority, connection, message.client)
        connection.on_close.append(lambda: self._forget(connection))
        return peer

    def _forget(self, connection: Connection) -> None:
        self._peers.pop(connection, None)


def _not_serving(message: FromClient) -> list[FromAuthority]:
    if isinstance(message, Ask):
        return [Answer(message.seq, tuple(Item(key, None, ABSENT, 0, Code.NOT_SERVING) for key in message.keys))]
    if isinstance(message, Write | Subscribe | Unsubscribe):
        return [Outcome(message.seq, Code.NOT_SERVING, ABSENT, "no authority is in office here")]
    return []


def _unpacked(parcel: Parcel) -> list[FromClient]:
    try:
        return decode_from_client(parcel.messages)
    except msgspec.MsgspecError as error:
        raise InvalidArgument(f"not messages of the cache: {error}") from None
