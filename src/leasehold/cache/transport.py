"""The cache on the wire: two functions of our own whose parcels carry our messages.

A connection begins with a call of `Tell`, which is answered, so that both sides know that they understand each other.
Everything else is *said*, in frames without an answer whose body is the messages and nothing else: what they lead to is
pushed, at once or later, and an acknowledgement costs one frame. Everything for one client in one turn of the loop
travels together.
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
    Ack,
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
    Refill,
    Subscribe,
    Unsubscribe,
    Version,
    Write,
)
from leasehold.cache.rounds import Rounds
from leasehold.runtime.clock import BootClock
from leasehold.wire.connection import Connection
from leasehold.wire.frame import PUSH, function_id, response
from leasehold.wire.rpc import implement, method
from leasehold.wire.server import Server, listen

log = structlog.get_logger("leasehold.cache")


class Parcel(Struct, frozen=True):
    """Messages, packed by msgspec."""

    messages: bytes


TELL: Final = method("leasehold::cache::Tell", Parcel, Parcel)
SAY: Final = function_id("leasehold::cache::Say")
_REFILL_HOLD_S: Final = 0.005
_ROUND_HOLD_MS: Final = 10
encode = msgspec.msgpack.Encoder().encode
decode_from_client = msgspec.msgpack.Decoder(list[FromClient]).decode
decode_from_authority = msgspec.msgpack.Decoder(list[FromAuthority]).decode


def coalesced(messages: list[FromAuthority]) -> list[FromAuthority]:
    """The same with all callbacks in one message, and all notices in one, in front: they are the urgent ones."""
    if len(messages) < 2:
        return messages
    drops = [pair for message in messages if type(message) is Drop for pair in message.keys]
    notices = [message for message in messages if type(message) is Changed]
    merged: list[FromAuthority] = [Drop(tuple(drops))] if drops else []
    if notices:
        changes = {pair[0]: pair for notice in notices for pair in notice.changes}
        merged.append(Changed(tuple(changes.values()), any(notice.missed for notice in notices)))
    merged += [
        message
        for message in messages
        if type(message) is not Changed and not (type(message) is Drop and message.keys)  # without keys: the end
    ]
    return merged


class _Peer:
    """One client's connection: what waits to be sent to it.

    Refills, for which nobody waits, ride with the next thing that is said to this client: a frame of their own
    would wake it, and cost as much as the request that they save.
    """

    def __init__(self, server: CacheServer, authority: Authority, connection: Connection, client: str) -> None:
        self.client = client
        self.authority = authority
        self._server = server
        self._connection = connection
        self._outgoing: list[FromAuthority] = []
        self._drops: list[tuple[bytes, Version]] = []
        self._refills: list[tuple[int, Item]] = []
        self._sink = self._take
        authority.attach(client, self._sink)
        connection.tie(self.gone)

    def gone(self) -> None:
        self.authority.detach(self.client, self._sink)

    def _take(self, message: FromAuthority) -> None:
        if type(message) is Drop and message.keys:
            self._drops += message.keys
            self._server.push_round(self, message)
            return
        if type(message) is Refill:
            if not self._refills:
                self._server.push_soon(self)
            self._refills += message.items
            return
        if not self._outgoing:
            self._server.push_now(self)
        self._outgoing.append(message)

    def take_outgoing(self) -> list[FromAuthority]:
        outgoing, self._outgoing = coalesced(self._outgoing), []
        if self._refills:
            outgoing = [*outgoing, Refill(tuple(self._refills))]
            self._refills = []
        return outgoing

    def push(self) -> None:
        if (self._outgoing or self._refills) and not self._connection.closed:
            self._connection.send(response(SAY, encode(self.take_outgoing()), kind=PUSH))

    def call_back(self) -> None:
        """Its part in a round."""
        self._outgoing.append(Drop(tuple(self._drops)))
        self._drops = []
        self.push()


class CacheServer:
    """Serves one authority after the other on one address; between two of them clients are refused and retry."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0, *, sock: socket.socket | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = BootClock()
        self._rounds: Rounds[_Peer] = Rounds(_ROUND_HOLD_MS)
        self._round_timer: asyncio.Handle | None = None
        self._round_ms = 0
        self._due: list[_Peer] = []
        self._held: list[_Peer] = []
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

    # --- out: for the peers

    def push_now(self, peer: _Peer) -> None:
        """At the end of this turn of the loop, with everything else for this client."""
        if not self._due:
            self._loop.call_soon(self._push_due)
        self._due.append(peer)

    def push_soon(self, peer: _Peer) -> None:
        """With the next thing that is pushed to this client, at the latest after a moment."""
        if not self._held:
            self._loop.call_later(_REFILL_HOLD_S, self._push_held)
        self._held.append(peer)

    def push_round(self, peer: _Peer, drop: Drop) -> None:
        """With the callbacks of other writes that are under way: see `rounds`."""
        now_ms = self._clock.now_ms()
        self._rounds.hold(now_ms, peer, drop)
        self._schedule_round(now_ms)

    def _schedule_round(self, now_ms: int) -> None:
        due_ms = self._rounds.due_ms(now_ms)
        if due_ms is None or (self._round_timer is not None and self._round_ms <= due_ms):
            return  # an earlier look at it is set, and will look again
        if self._round_timer is not None:
            self._round_timer.cancel()
        self._round_ms = due_ms
        if due_ms <= now_ms:  # at the end of this turn of the loop, which may bring more
            self._round_timer = self._loop.call_soon(self._begin_round)
        else:
            self._round_timer = self._loop.call_later((due_ms - now_ms) / 1_000, self._begin_round)

    def _begin_round(self) -> None:
        self._round_timer = None
        now_ms = self._clock.now_ms()
        due_ms = self._rounds.due_ms(now_ms)
        if due_ms is not None and due_ms <= now_ms:
            for peer in self._rounds.begin(now_ms):
                peer.call_back()
        self._schedule_round(now_ms)

    def _push_due(self) -> None:
        due, self._due = self._due, []
        for peer in due:
            peer.push()

    def _push_held(self) -> None:
        held, self._held = self._held, []
        for peer in held:
            peer.push()

    # --- in

    def _said(self, connection: Connection, _seq: int, body: bytes) -> bytes | None:
        """Messages without an answer: what they have led to is pushed at the end of the turn, with everything else."""
        try:
            refusals = self._hear(connection, body)
        except InvalidArgument as error:
            connection.abort(str(error))  # nobody waits for a refusal, so the end of the connection says it
            return None
        return response(SAY, encode(refusals), kind=PUSH) if refusals else None

    def _told(self, connection: Connection, parcel: Parcel) -> Parcel:
        refusals = self._hear(connection, parcel.messages)
        peer = self._peers.get(connection)
        return Parcel(encode(refusals if peer is None else peer.take_outgoing()))

    def _hear(self, connection: Connection, packed: bytes) -> list[FromAuthority]:
        """Hand the messages to the authority in office; without one, what to say instead."""
        messages = _unpacked(packed)
        peer = self._peers.get(connection)
        if peer is None:
            authority = self._authority
            if authority is None:  # an answer, not a closed door: so the caller knows that nothing was done
                return [refusal for message in messages for refusal in _not_serving(message)]
            peer = self._greet(authority, connection, messages)
        peer.authority.receive(peer.client, messages)
        if any(type(message) is Ack for message in messages):
            now_ms = self._clock.now_ms()
            self._rounds.acknowledged(now_ms, peer)
            self._schedule_round(now_ms)
        return []

    def _greet(self, authority: Authority, connection: Connection, messages: list[FromClient]) -> _Peer:
        hello = messages[0] if messages else None
        if not isinstance(hello, Hello) or not 1 <= len(hello.client) <= 200:
            raise InvalidArgument("a connection begins with Hello and the client's identity")
        peer = self._peers[connection] = _Peer(self, authority, connection, hello.client)
        connection.tie(lambda: self._forget(connection))
        return peer

    def _forget(self, connection: Connection) -> None:
        peer = self._peers.pop(connection, None)
        if peer is not None:
            now_ms = self._clock.now_ms()
            self._rounds.gone(now_ms, peer)
            self._schedule_round(now_ms)


def _not_serving(message: FromClient) -> list[FromAuthority]:
    if isinstance(message, Ask):
        return [Answer(message.seq, tuple(Item(key, None, ABSENT, 0, Code.NOT_SERVING) for key in message.keys))]
    if isinstance(message, Write | Subscribe | Unsubscribe):
        return [Outcome(message.seq, Code.NOT_SERVING, ABSENT, "no authority is in office here")]
    return []


def _unpacked(packed: bytes) -> list[FromClient]:
    try:
        return decode_from_client(packed)
    except msgspec.MsgspecError as error:
        raise InvalidArgument(f"not messages of the cache: {error}") from None
