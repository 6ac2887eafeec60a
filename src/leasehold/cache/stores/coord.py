"""The coordination store (etcd, or the embedded one) behind the authority.

    {prefix}state       epoch, maximum term, clean-stop marker
    {prefix}v/{key}     token (16 bytes, so that values compare as tokens do), 1 or 0 (deleted), the value

Every write is a transaction that compares the state's revision (the fence: a newer term has written the state) and
checks that the existing token is older. The authority writes the state in its own term, too (a lower maximum lease
term), and that write may succeed without an answer. So after a refusal it reads the state again. Deleted keys stay as
tombstones until the next epoch.
"""

from __future__ import annotations

import struct

import msgspec
from msgspec import Struct

from leasehold.base.errors import Unavailable
from leasehold.cache.errors import TokenRefused
from leasehold.cache.model import Version
from leasehold.cache.stores.api import Kept, Opened
from leasehold.coord.api import Coord
from leasehold.mvcc.model import Compare, CompareResult, CompareTarget, DeleteRange, Op, Put, Txn, TxnResult, prefix_end

_TOKEN = struct.Struct(">QQ")
_HEAD_BYTES = _TOKEN.size + 1
_OPEN_ATTEMPTS_MAX = 20
_PURGE_PAGE = 100


class _State(Struct, frozen=True):
    epoch: int
    term_ms: int
    clean: bool


class CoordStore:
    """Values under `prefix` of a coordination store; the caller closes the client."""

    is_memory = False

    def __init__(self, coord: Coord, prefix: bytes = b"leasehold/cache/") -> None:
        self._coord = coord
        self._state_key = prefix + b"state"
        self._values = prefix + b"v/"
        self._state = _State(0, 0, True)
        self._fence_revision = 0

    async def open(self, term_ms: int) -> Opened:
        for _ in range(_OPEN_ATTEMPTS_MAX):
            kv = await self._coord.get_one(self._state_key)
            before = _State(0, 0, True) if kv is None else msgspec.msgpack.decode(kv.value, type=_State)
            after = _State(before.epoch + 1, max(before.term_ms, term_ms), False)
            if await self._write_state(after, 0 if kv is None else kv.mod_revision):
                await self._purge(after.epoch)
                return Opened(after.epoch, 0 if before.clean else before.term_ms)
        raise Unavailable("other authorities keep beginning terms: start fewer of them")

    async def load(self, key: bytes) -> Kept | None:
        kv = await self._coord.get_one(self._values + key)
        if kv is None or not kv.value[_TOKEN.size]:
            return None
        return Kept(kv.value[_HEAD_BYTES:], Version(*_TOKEN.unpack_from(kv.value)))

    async def store(self, key: bytes, value: bytes | None, token: Version) -> None:
        fenced_at = self._fence_revision
        while not await self._stored(key, value, token, fenced_at):
            fenced_at = await self._fence_after(fenced_at, token)

    async def _fence_after(self, refused: int, token: Version) -> int:
        """The revision of our own newer state. `TokenRefused` if the state is not ours, or did not change."""
        kv = await self._coord.get_one(self._state_key)
        ours = kv is not None and msgspec.msgpack.decode(kv.value, type=_State).epoch == self._state.epoch
        if kv is None or not ours or kv.mod_revision == refused:
            raise TokenRefused(f"the store has a newer token than {token}, or another authority has begun a term")
        self._fence_revision = max(self._fence_revision, kv.mod_revision)
        return kv.mod_revision

    async def _stored(self, key: bytes, value: bytes | None, token: Version, fence_revision: int) -> bool:
        name, stamp = self._values + key, _TOKEN.pack(token.epoch, token.n)
        fence = Compare(self._state_key, CompareTarget.MOD, CompareResult.EQUAL, fence_revision)
        put = Put(name, stamp + (b"\0" if value is None else b"\1" + value))
        absent = Compare(name, CompareTarget.CREATE, CompareResult.EQUAL, 0)
        older = Compare(name, CompareTarget.VALUE, CompareResult.LESS, stamp)
        replace = Txn((fence, older), (put,), ())
        done = await self._coord.txn((fence, absent), (put,), (replace,))
        return done.succeeded or _nested_succeeded(done)

    async def settle_term(self, term_ms: int) -> None:
        await self._rewrite(msgspec.structs.replace(self._state, term_ms=term_ms))

    async def mark_clean(self) -> None:
        await self._rewrite(msgspec.structs.replace(self._state, clean=True))

    async def close(self) -> None:
        return None

    async def _rewrite(self, state: _State) -> None:
        if state != self._state and not await self._write_state(state, self._fence_revision):
            raise TokenRefused("another authority has begun a term")

    async def _write_state(self, state: _State, at_revision: int) -> bool:
        """Write the state unless it changed since `at_revision`; its new revision is the fence."""
        unchanged = Compare(self._state_key, CompareTarget.MOD, CompareResult.EQUAL, at_revision)
        done = await self._coord.txn((unchanged,), (Put(self._state_key, msgspec.msgpack.encode(state)),))
        if done.succeeded:
            self._state, self._fence_revision = state, max(self._fence_revision, done.header.revision)
        return done.succeeded

    async def _purge(self, epoch: int) -> None:
        """Delete tombstones of older epochs: no write of those can succeed any more."""
        start, end = self._values, prefix_end(self._values)
        while True:
            page = await self._coord.get(start, end, limit=_PURGE_PAGE)
            dead: list[Op] = [
                DeleteRange(kv.key)
                for kv in page.kvs
                if not kv.value[_TOKEN.size] and _TOKEN.unpack_from(kv.value)[0] < epoch
            ]
            if dead:
                await self._coord.txn((), tuple(dead))
            if not page.more:
                return
            start = page.kvs[-1].key + b"\0"


def _nested_succeeded(done: TxnResult) -> bool:
    return any(isinstance(result, TxnResult) and result.succeeded for result in done.results)
