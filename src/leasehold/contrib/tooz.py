"""A driver for tooz: `coordination.get_coordinator("leasehold://127.0.0.1:2379", b"member")`.

    leasehold://h1:2379,h2:2379/namespace?timeout=30     leaseholds:// with TLS

`timeout` is the TTL of the member's session in seconds. The session is renewed in the background; a member that crashed
leaves its groups, locks and leaderships within that time. After the session was lost, the next `heartbeat` (or any
other call) opens a new one and joins the same groups again; locks and leaderships are not taken again silently.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar
from urllib.parse import quote_from_bytes, unquote_to_bytes

import leasehold.sync
from leasehold.base.errors import LeaseholdError, NotHeld, SessionLost, Unavailable, UnknownOutcome
from leasehold.concurrency import Held, RWLock, Session, WaitTimeout
from leasehold.contrib.extras import require
from leasehold.mvcc.model import (
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRange,
    KeyValue,
    Op,
    Put,
    Range,
    RangeResult,
    TxnResult,
    prefix_end,
)
from leasehold.sync import SyncCoord

require("tooz", "tooz", __name__)

import tooz  # noqa: E402
from tooz import coordination, locking, utils  # noqa: E402

T = TypeVar("T")
DEFAULT_TTL_S = 30
DEFAULT_PREFIX = "/tooz/"
TRY_S = 1.0  # a lock that is free, but whose queue another client enters at the same moment, is given up after this


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise tooz's errors in place of ours."""
    try:
        yield
    except Unavailable as error:
        raise coordination.ToozConnectionError(str(error)) from error
    except (UnknownOutcome, WaitTimeout) as error:
        raise coordination.OperationTimedOut(str(error)) from error
    except LeaseholdError as error:
        raise tooz.ToozError(str(error)) from error


def exists(key: bytes) -> Compare:
    return Compare(key, CompareTarget.VERSION, CompareResult.GREATER, 0)


def absent(key: bytes, range_end: bytes = b"") -> Compare:
    """No such key; with `range_end`, no key in the range."""
    return Compare(key, CompareTarget.CREATE, CompareResult.EQUAL, 0, range_end)


def found(result: TxnResult, number: int) -> tuple[KeyValue, ...]:
    """The keys of the read at this place of a transaction."""
    answer = result.results[number]
    assert isinstance(answer, RangeResult)  # the operation there is a `Range`
    return answer.kvs


class LeaseholdLock(locking.Lock):
    """A fair lock, exclusive or shared. It belongs to the coordinator's session, not to a thread."""

    def __init__(self, driver: LeaseholdDriver, name: bytes) -> None:
        super().__init__(name)
        self._driver = driver
        self._prefix = driver.key("locks", utils.to_binary(name))
        self._held: list[tuple[RWLock, Held, bool]] = []
        self._callbacks: list[Callable[[SessionLost], None]] = []

    @property
    def acquired(self) -> bool:
        """Whether it is certainly held through this object at this moment. Local, no round trip."""
        return self.is_still_owner()

    @property
    def token(self) -> int:
        """A fencing token: it grows with every acquisition. 0 while the lock is not held."""
        return self._held[-1][1].token if self._held else 0

    def on_lost(self, callback: Callable[[SessionLost], None]) -> None:
        """Call `callback`, on another thread, if the lock is lost while it is held. It must not block."""
        self._callbacks.append(callback)

    def is_still_owner(self) -> bool:
        for _, held, _ in self._held:
            try:
                held.check()
            except NotHeld:
                return False
        return bool(self._held)

    def acquire(self, blocking: bool | float = True, shared: bool = False, timeout: float | None = None) -> bool:
        """Wait for the lock: `blocking` may be a number of seconds, as tooz allows. Returns whether it was acquired."""
        limit_s = timeout if timeout is not None else None if blocking is True else float(blocking)
        with translated():
            try:
                held = self._driver.run(self._acquire, shared, blocking is False, limit_s)
            except WaitTimeout:
                return False
        return held is not None

    async def _acquire(self, shared: bool, try_only: bool, limit_s: float | None) -> Held | None:
        session = await self._driver.session()
        lock = RWLock(session, self._prefix)
        if try_only:
            ahead = self._prefix + (b"/write/" if shared else b"/")
            if (await session.coord.get(ahead, prefix_end(ahead), count_only=True)).count:
                return None
            limit_s = TRY_S
        held = await (lock.rlock(timeout_s=limit_s) if shared else lock.lock(timeout_s=limit_s))
        self._held.append((lock, held, shared))
        session.on_lost(lambda loss: self._lost(held, loss))
        return held

    def _lost(self, held: Held, loss: SessionLost) -> None:
        if any(mine is held for _, mine, _ in self._held):
            for callback in self._callbacks:
                callback(loss)

    def release(self) -> bool:
        """Release it. False if it was not held, or was lost or broken meanwhile."""
        if not self._held:
            return False
        with translated():
            return self._driver.run(self._release)

    async def _release(self) -> bool:
        if not self._held:
            return False
        lock, held, _ = self._held.pop()
        try:
            held.check()
            there = await self._driver.store.coord.txn([held.is_owner()])
            await lock.unlock(held)
        except NotHeld:
            return False
        return there.succeeded

    def break_(self) -> bool:
        """Take the lock away from its holder."""
        with translated():
            return bool(self._driver.store.delete(self._prefix + b"/", prefix_end(self._prefix + b"/")).deleted)

    def heartbeat(self) -> bool:
        """Not needed: the session is renewed in the background. Returns whether the lock is held."""
        return self.is_still_owner()


class LeaseholdDriver(coordination.CoordinationDriverCachedRunWatchers):
    """The coordinator. See the module."""

    CHARACTERISTICS = (
        coordination.Characteristics.DISTRIBUTED_ACROSS_THREADS,
        coordination.Characteristics.DISTRIBUTED_ACROSS_PROCESSES,
        coordination.Characteristics.DISTRIBUTED_ACROSS_HOSTS,
        coordination.Characteristics.LINEARIZABLE,
        coordination.Characteristics.SEQUENTIAL,
        coordination.Characteristics.CAUSAL,
        coordination.Characteristics.SERIALIZABLE,
        coordination.Characteristics.SAME_VIEW_UNDER_PARTITIONS,
        coordination.Characteristics.SAME_VIEW_ACROSS_CLIENTS,
    )

    def __init__(self, member_id: bytes, parsed_url: Any, options: dict[str, Any]) -> None:
        super().__init__(utils.to_binary(member_id), parsed_url, options)
        given = utils.collapse(options)
        self._url = f"{'etcds' if parsed_url.scheme == 'leaseholds' else 'etcd'}://{parsed_url.netloc or '127.0.0.1'}"
        self._prefix = f"/{path}/" if (path := parsed_url.path.strip("/")) else DEFAULT_PREFIX
        self._tls = {
            ours: given.get(theirs) for ours, theirs in (("ca", "ca_cert"), ("cert", "cert_cert"), ("key", "cert_key"))
        }
        try:
            self._ttl_s = int(given.get("timeout", DEFAULT_TTL_S))
        except ValueError:
            raise tooz.ToozError(f"timeout={given['timeout']!r}: it is a whole number of seconds") from None
        self._store: SyncCoord | None = None
        self._session: Session | None = None
        self._capabilities: dict[bytes, bytes] = {}
        self._leading: dict[bytes, int] = {}
        self._order = asyncio.Lock()  # requests about groups take effect in the order in which they were made

    # --- for the parts of this module ---

    def key(self, kind: str, *names: bytes) -> bytes:
        """A key of ours. Names are quoted: they may contain any byte."""
        return "/".join([self._prefix + kind, *(quote_from_bytes(name, safe="") for name in names)]).encode()

    @property
    def store(self) -> SyncCoord:
        """The client of the store."""
        if self._store is None:
            raise tooz.ToozError("the coordinator is not started: call start()")
        return self._store

    def run(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Run a coroutine function and wait for its result."""
        return self.store.portal.call(function, *args)

    async def session(self) -> Session:
        """The session of this member: a new one, which joins the same groups, if the last one was lost."""
        session = self._session
        if session is not None:
            try:
                session.check()
                return session
            except SessionLost:
                self._leading.clear()
        coord = self.store.coord
        self._session = session = await Session.open(coord, ttl_s=self._ttl_s)
        for group, capabilities in list(self._capabilities.items()):
            member = self.key("members", group, self._member_id)
            put = Put(member, capabilities, lease=session.lease_id)
            if not (await coord.txn([exists(self.key("groups", group))], [put])).succeeded:
                self._forget(group)
        return session

    # --- life ---

    def _start(self) -> None:
        with translated():
            self._store = leasehold.sync.connect(self._url, timeout_s=min(self._ttl_s, 5.0), **self._tls)
            try:
                self.run(self.session)
            except BaseException:
                self._store.close()
                self._store = None
                raise

    def _stop(self) -> None:
        session, self._session = self._session, None
        with translated():
            if session is not None:
                self.run(session.close)
            self.store.close()
        self._store = None
        self._capabilities.clear()
        self._leading.clear()

    def heartbeat(self) -> float:
        """Renew a lost session. A live one is renewed in the background. Returns the seconds until the next call."""
        with translated():
            self.run(self.session)
        return self._ttl_s / 3

    # --- groups ---

    def _submit(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> Any:
        async def in_order() -> T:
            async with self._order:
                return await function(*args)

        return coordination.CoordinatorResult(self.store.portal.submit(in_order), translated)

    def create_group(self, group_id: bytes) -> Any:
        async def create() -> None:
            key = self.key("groups", utils.to_binary(group_id))
            if not (await self.store.coord.txn([absent(key)], [Put(key)])).succeeded:
                raise coordination.GroupAlreadyExist(group_id)

        return self._submit(create)

    def get_groups(self) -> Any:
        async def groups() -> list[bytes]:
            prefix = self.key("groups") + b"/"
            listed = await self.store.coord.get(prefix, prefix_end(prefix), keys_only=True)
            return [unquote_to_bytes(kv.key[len(prefix) :]) for kv in listed.kvs]

        return self._submit(groups)

    def delete_group(self, group_id: bytes) -> Any:
        async def delete() -> None:
            group = utils.to_binary(group_id)
            key, members = self.key("groups", group), self.key("members", group) + b"/"
            empty = absent(members, prefix_end(members))
            result = await self.store.coord.txn([exists(key), empty], [DeleteRange(key)], [Range(key)])
            if not result.succeeded:
                raise (
                    coordination.GroupNotEmpty(group_id) if found(result, 0) else coordination.GroupNotCreated(group_id)
                )

        return self._submit(delete)

    def join_group(self, group_id: bytes, capabilities: Any = None) -> Any:
        group, packed = utils.to_binary(group_id), utils.dumps(capabilities)

        async def join() -> None:
            session = await self.session()
            key, member = self.key("groups", group), self.key("members", group, self._member_id)
            put = Put(member, packed, lease=session.lease_id)
            result = await session.coord.txn([exists(key), absent(member)], [put], [Range(key), Range(member)])
            if not result.succeeded:
                self._raise_unless_group(result, group_id)
                raise coordination.MemberAlreadyExist(group_id, self._member_id)
            self._joined_groups.add(group_id)
            self._capabilities[group] = packed

        return self._submit(join)

    def leave_group(self, group_id: bytes) -> Any:
        return self._submit(self._change_membership, group_id, None)

    def update_capabilities(self, group_id: bytes, capabilities: Any) -> Any:
        return self._submit(self._change_membership, group_id, utils.dumps(capabilities))

    async def _change_membership(self, group_id: bytes, packed: bytes | None) -> None:
        """Leave the group, or replace the capabilities."""
        group = utils.to_binary(group_id)
        session = await self.session()
        key, member = self.key("groups", group), self.key("members", group, self._member_id)
        change: Op = DeleteRange(member) if packed is None else Put(member, packed, lease=session.lease_id)
        result = await session.coord.txn([exists(key), exists(member)], [change], [Range(key)])
        if not result.succeeded:
            self._forget(group_id)
            self._raise_unless_group(result, group_id)
            raise coordination.MemberNotJoined(group_id, self._member_id)
        if packed is None:
            self._forget(group_id)
        else:
            self._capabilities[group] = packed

    def _forget(self, group_id: bytes) -> None:
        self._joined_groups.discard(group_id)
        self._capabilities.pop(utils.to_binary(group_id), None)

    @staticmethod
    def _raise_unless_group(result: TxnResult, group_id: bytes) -> None:
        """Raise `GroupNotCreated` if the first read of the transaction found no group."""
        if not found(result, 0):
            raise coordination.GroupNotCreated(group_id)

    async def _members(self, group_id: bytes) -> dict[bytes, Any]:
        group = utils.to_binary(group_id)
        members = self.key("members", group) + b"/"
        both = [Range(self.key("groups", group)), Range(members, prefix_end(members))]
        result = await self.store.coord.txn([], both)
        self._raise_unless_group(result, group_id)
        return {unquote_to_bytes(kv.key[len(members) :]): utils.loads(kv.value) for kv in found(result, 1)}

    def get_members(self, group_id: bytes) -> Any:
        async def members() -> set[bytes]:
            return set(await self._members(group_id))

        return self._submit(members)

    def get_members_with_capabilities(self, group_id: bytes) -> Any:
        return self._submit(self._members, group_id)

    def get_member_capabilities(self, group_id: bytes, member_id: bytes) -> Any:
        async def capabilities() -> Any:
            members = await self._members(group_id)
            if (member := utils.to_binary(member_id)) not in members:
                raise coordination.MemberNotJoined(group_id, member_id)
            return members[member]

        return self._submit(capabilities)

    def get_member_info(self, group_id: bytes, member_id: bytes) -> Any:
        async def information() -> dict[str, Any]:
            members = await self._members(group_id)
            if (member := utils.to_binary(member_id)) not in members:
                raise coordination.MemberNotJoined(group_id, member_id)
            return {"capabilities": members[member]}

        return self._submit(information)

    # --- leaders ---

    def run_watchers(self, timeout: float | None = None) -> list[Any]:
        results: list[Any] = super().run_watchers(timeout=timeout)
        self.run_elect_coordinator()
        return results

    def run_elect_coordinator(self) -> None:
        """Take the leadership of each watched group that has no leader; call the hooks of those just won."""
        for group_id, hooks in list(self._hooks_elected_leader.items()):
            with translated():
                if hooks and self.run(self._elect, group_id):
                    hooks.run(coordination.LeaderElected(group_id, self._member_id))

    async def _elect(self, group_id: bytes) -> bool:
        """Whether this member has just become the leader."""
        session = await self.session()
        key = self.key("leaders", utils.to_binary(group_id))
        put = Put(key, self._member_id, lease=session.lease_id)
        result = await session.coord.txn([absent(key)], [put], [Range(key)])
        if result.succeeded:
            self._leading[group_id] = result.header.revision
            return True
        (leader,) = found(result, 0)
        # The answer to an earlier request may have been lost: then the key is of this session, and not known yet.
        won = leader.lease == session.lease_id and self._leading.get(group_id) != leader.create_revision
        if won:
            self._leading[group_id] = leader.create_revision
        return won

    def stand_down_group_leader(self, group_id: bytes) -> bool:
        """Give up the leadership of a group. Returns whether this member had it."""
        revision = self._leading.pop(group_id, 0)
        key = self.key("leaders", utils.to_binary(group_id))
        mine = Compare(key, CompareTarget.CREATE, CompareResult.EQUAL, revision)
        with translated():
            return revision > 0 and self.store.txn([mine], [DeleteRange(key)]).succeeded

    def get_leader(self, group_id: bytes) -> Any:
        async def leader() -> bytes | None:
            kv = await self.store.coord.get_one(self.key("leaders", utils.to_binary(group_id)))
            return kv.value if kv else None

        return self._submit(leader)

    def get_lock(self, name: bytes) -> LeaseholdLock:
        return LeaseholdLock(self, name)

    def _destroy_group(self, group_id: bytes) -> None:
        """Delete a group with all its members; for tests, as in tooz's own drivers."""
        group = utils.to_binary(group_id)
        members = self.key("members", group) + b"/"
        with translated():
            self.store.txn([], [DeleteRange(self.key("groups", group)), DeleteRange(members, prefix_end(members))])
