"""The client: python-etcd3's `Etcd3Client` over `leasehold.sync`."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any

import leasehold.sync
from leasehold.concurrency import sync as blocking
from leasehold.contrib.etcd3 import etcdrpc, locks, transactions, utils
from leasehold.contrib.etcd3.events import Event
from leasehold.contrib.etcd3.exceptions import WatchTimedOut, translated
from leasehold.contrib.etcd3.leases import Lease, LeaseInfo, LeaseRefreshed
from leasehold.contrib.etcd3.members import Alarm, Member, Upkeep
from leasehold.contrib.etcd3.watch import Callback, Watcher, WatchResponse
from leasehold.coord.url import ConnectOptions
from leasehold.mvcc.model import (
    FROM_KEY,
    DeleteResult,
    Header,
    KeyValue,
    PutResult,
    RangeResult,
    SortOrder,
    SortTarget,
)
from leasehold.runtime.closing import Closing

Text = bytes | str
Found = tuple[bytes, "KVMetadata"]
DEFAULT_TIMEOUT_S = 5.0
_ORDERS = {None: SortOrder.NONE, "ascend": SortOrder.ASCEND, "descend": SortOrder.DESCEND}
_TARGETS = {
    None: SortTarget.KEY,
    "key": SortTarget.KEY,
    "version": SortTarget.VERSION,
    "create": SortTarget.CREATE,
    "mod": SortTarget.MOD,
    "value": SortTarget.VALUE,
}


class KVMetadata:
    """What belongs to a key beside its value."""

    def __init__(self, keyvalue: KeyValue, header: Header) -> None:
        self.key = keyvalue.key
        self.create_revision = keyvalue.create_revision
        self.mod_revision = keyvalue.mod_revision
        self.version = keyvalue.version
        self.lease_id = keyvalue.lease
        self.response_header = header


class Status:
    """The state of the member that answered."""

    def __init__(self, version: str, db_size: int, leader: Member | None, raft_index: int, raft_term: int) -> None:
        self.version = version
        self.db_size = db_size
        self.leader = leader
        self.raft_index = raft_index
        self.raft_term = raft_term


def _sorting(sort_order: str | None, sort_target: str | None) -> tuple[SortOrder, SortTarget]:
    if sort_order not in _ORDERS:
        raise ValueError(f'unknown sort order: "{sort_order}"')
    if sort_target not in _TARGETS:
        raise ValueError('sort_target must be one of "key", "version", "create", "mod" or "value"')
    return _ORDERS[sort_order], _TARGETS[sort_target]


class Etcd3Client(Closing):
    """A client of one etcd, or of `leasehold store`. Threads may share it; a forked child opens its own."""

    def __init__(
        self,
        host: str = "localhost",
        port: int = 2379,
        ca_cert: str | None = None,
        cert_key: str | None = None,
        cert_cert: str | None = None,
        timeout: float | None = None,
        user: str | None = None,
        password: str | None = None,
        grpc_options: object = None,
    ) -> None:
        if (cert_key is None) != (cert_cert is None):
            raise ValueError("a client certificate needs both cert_cert and cert_key")
        if (user is None) != (password is None):
            raise Exception("if using authentication credentials both user and password must be specified.")
        del grpc_options  # there is no gRPC library below
        self.uses_secure_channel = ca_cert is not None
        self.timeout = timeout
        self.transactions = transactions.Transactions()
        address = f"{f'[{host}]' if ':' in host else host}:{port}"
        options = ConnectOptions(
            timeout_s=timeout or DEFAULT_TIMEOUT_S,
            user=user or "",
            password=password or "",
            ca=ca_cert,
            cert=cert_cert,
            key=cert_key,
        )
        self._store = leasehold.sync.connect(
            f"{'etcds' if self.uses_secure_channel else 'etcd'}://{address}",
            timeout_s=options.timeout_s,
            user=options.user,
            password=options.password,
            ca=ca_cert,
            cert=cert_cert,
            key=cert_key,
        )
        self._upkeep = Upkeep(address, options, secure=self.uses_secure_channel, portal=self._store.portal)
        self.watcher = Watcher(self._store, timeout)
        if user is not None:
            with translated():
                self._store.status()  # python-etcd3 reports a wrong password here, too

    def close(self) -> None:
        """End all watches and close the connections. Leases stay until they expire."""
        self.watcher.close()
        self._upkeep.close()
        self._store.close()

    # --- reading ---

    def _range(
        self,
        key: Text,
        range_end: Text | None = None,
        limit: int | None = None,
        revision: int | None = None,
        sort_order: str | None = None,
        sort_target: str | None = "key",
        serializable: bool = False,
        keys_only: bool = False,
        count_only: bool | None = None,
        min_mod_revision: int | None = None,
        max_mod_revision: int | None = None,
        min_create_revision: int | None = None,
        max_create_revision: int | None = None,
    ) -> RangeResult:
        order, target = _sorting(sort_order, sort_target)
        with translated():
            return self._store.get(
                utils.to_bytes(key),
                b"" if range_end is None else utils.to_bytes(range_end),
                limit=limit or 0,
                revision=revision or 0,
                sort_order=order,
                sort_target=target,
                serializable=serializable,
                keys_only=keys_only,
                count_only=bool(count_only),
                min_mod_revision=min_mod_revision or 0,
                max_mod_revision=max_mod_revision or 0,
                min_create_revision=min_create_revision or 0,
                max_create_revision=max_create_revision or 0,
            )

    def get_response(self, key: Text, **kwargs: Any) -> RangeResult:
        """Read a key; the whole answer."""
        return self._range(key, **kwargs)

    def get(self, key: Text, **kwargs: Any) -> tuple[bytes, KVMetadata] | tuple[None, None]:
        """The value of a key and its metadata; `(None, None)` if it does not exist."""
        found = self.get_response(key, **kwargs)
        return (found.kvs[0].value, KVMetadata(found.kvs[0], found.header)) if found.kvs else (None, None)

    def get_prefix_response(self, key_prefix: Text, **kwargs: Any) -> RangeResult:
        """Read all keys with a prefix; the whole answer."""
        if "key" in kwargs or "range_end" in kwargs:
            raise TypeError("Don't use key or range_end with prefix")
        return self._range(key_prefix, utils.increment_last_byte(utils.to_bytes(key_prefix)), **kwargs)

    def get_prefix(self, key_prefix: Text, **kwargs: Any) -> Iterator[Found]:
        """All keys with a prefix, as pairs of value and metadata."""
        return _pairs(self.get_prefix_response(key_prefix, **kwargs))

    def get_range_response(self, range_start: Text, range_end: Text, **kwargs: Any) -> RangeResult:
        """Read the keys from `range_start` up to `range_end`, which is not included; the whole answer."""
        return self._range(range_start, range_end, **kwargs)

    def get_range(self, range_start: Text, range_end: Text, **kwargs: Any) -> Iterator[Found]:
        """The keys of a range, as pairs of value and metadata."""
        return _pairs(self.get_range_response(range_start, range_end, **kwargs))

    def get_all_response(self, **kwargs: Any) -> RangeResult:
        """Read all keys; the whole answer."""
        return self._range(FROM_KEY, FROM_KEY, **kwargs)

    def get_all(self, **kwargs: Any) -> Iterator[Found]:
        """All keys, as pairs of value and metadata."""
        return _pairs(self.get_all_response(**kwargs))

    # --- writing ---

    def put(self, key: Text, value: Text, lease: object = None, prev_kv: bool = False) -> PutResult:
        """Write a key, with `lease` (a `Lease` or its id) until that ends."""
        with translated():
            return self._store.put(
                utils.to_bytes(key), utils.to_bytes(value), lease=utils.lease_to_id(lease), prev_kv=prev_kv
            )

    def put_if_not_exists(self, key: Text, value: Text, lease: object = None) -> bool:
        """Write a key unless it exists. Returns whether it was written."""
        create = [self.transactions.create(key) == 0]
        return self.transaction(create, [self.transactions.put(key, value, lease=lease)])[0]

    def replace(self, key: Text, initial_value: Text, new_value: Text) -> bool:
        """Write a key if it has `initial_value`. Returns whether it was written."""
        same = [self.transactions.value(key) == initial_value]
        return self.transaction(same, [self.transactions.put(key, new_value)])[0]

    def delete(self, key: Text, prev_kv: bool = False, return_response: bool = False) -> bool | DeleteResult:
        """Delete a key. Returns whether it existed, or the whole answer."""
        with translated():
            found = self._store.delete(utils.to_bytes(key), prev_kv=prev_kv)
        return found if return_response else found.deleted >= 1

    def delete_prefix(self, prefix: Text) -> DeleteResult:
        """Delete all keys with a prefix."""
        start = utils.to_bytes(prefix)
        with translated():
            return self._store.delete(start, utils.increment_last_byte(start))

    def transaction(
        self,
        compare: Sequence[transactions.BaseCompare],
        success: Iterable[transactions.Operation] | None = None,
        failure: Iterable[transactions.Operation] | None = None,
    ) -> tuple[bool, list[Any]]:
        """Run `success` if all comparisons hold, else `failure`. Returns which, and the results."""
        compares = [each.build() for each in compare]
        chosen, otherwise = transactions.operations(success), transactions.operations(failure)
        with translated():
            answer = self._store.txn(compares, chosen, otherwise)
        results: list[Any] = []
        for result in answer.results:
            if isinstance(result, RangeResult):
                results.append([(kv.value, KVMetadata(kv, answer.header)) for kv in result.kvs])
            else:
                results.append(transactions.ResponseOp(result))
        return answer.succeeded, results

    def compact(self, revision: int, physical: bool = False) -> None:
        """Delete the history before `revision`."""
        with translated():
            self._store.compact(revision, physical=physical)

    # --- watching ---

    def add_watch_callback(self, key: Text, callback: Callback, **kwargs: Any) -> int:
        """Watch a key or a range, and call `callback` with every response. Returns a number for `cancel_watch`."""
        return self.watcher.add_callback(key, callback, **kwargs)

    def add_watch_prefix_callback(self, key_prefix: Text, callback: Callback, **kwargs: Any) -> int:
        """Watch all keys with a prefix, and call `callback` with every response."""
        return self.add_watch_callback(key_prefix, callback, **_prefixed(key_prefix, kwargs))

    def cancel_watch(self, watch_id: int) -> None:
        """End a watch."""
        self.watcher.cancel(watch_id)

    def watch_response(self, key: Text, **kwargs: Any) -> tuple[Iterator[WatchResponse], Callable[[], None]]:
        """Watch a key: an iterator of responses, and a function that ends it."""
        responses: queue.SimpleQueue[WatchResponse | Exception | None] = queue.SimpleQueue()
        watch_id = self.add_watch_callback(key, responses.put, **kwargs)
        cancelled = threading.Event()

        def cancel() -> None:
            cancelled.set()
            responses.put(None)
            self.cancel_watch(watch_id)

        def iterate() -> Iterator[WatchResponse]:
            while not cancelled.is_set():
                response = responses.get()
                if isinstance(response, Exception):
                    cancelled.set()
                    raise response
                if response is not None and not cancelled.is_set():
                    yield response

        return iterate(), cancel

    def watch(self, key: Text, **kwargs: Any) -> tuple[Iterator[Event], Callable[[], None]]:
        """Watch a key: an iterator of events, and a function that ends it."""
        responses, cancel = self.watch_response(key, **kwargs)
        return utils.response_to_event_iterator(responses), cancel

    def watch_prefix_response(
        self, key_prefix: Text, **kwargs: Any
    ) -> tuple[Iterator[WatchResponse], Callable[[], None]]:
        """Watch all keys with a prefix: an iterator of responses, and a function that ends it."""
        return self.watch_response(key_prefix, **_prefixed(key_prefix, kwargs))

    def watch_prefix(self, key_prefix: Text, **kwargs: Any) -> tuple[Iterator[Event], Callable[[], None]]:
        """Watch all keys with a prefix: an iterator of events, and a function that ends it."""
        return self.watch(key_prefix, **_prefixed(key_prefix, kwargs))

    def watch_once_response(self, key: Text, timeout: float | None = None, **kwargs: Any) -> WatchResponse:
        """The next response for a key; `WatchTimedOut` after `timeout` seconds."""
        responses: queue.SimpleQueue[WatchResponse | Exception] = queue.SimpleQueue()
        watch_id = self.add_watch_callback(key, responses.put, **kwargs)
        try:
            response = responses.get(timeout=timeout)
        except queue.Empty:
            raise WatchTimedOut from None
        finally:
            self.cancel_watch(watch_id)
        if isinstance(response, Exception):
            raise response
        return response

    def watch_once(self, key: Text, timeout: float | None = None, **kwargs: Any) -> Event:
        """The next event of a key; `WatchTimedOut` after `timeout` seconds."""
        return self.watch_once_response(key, timeout=timeout, **kwargs).events[0]

    def watch_prefix_once_response(
        self, key_prefix: Text, timeout: float | None = None, **kwargs: Any
    ) -> WatchResponse:
        """The next response for a prefix; `WatchTimedOut` after `timeout` seconds."""
        return self.watch_once_response(key_prefix, timeout=timeout, **_prefixed(key_prefix, kwargs))

    def watch_prefix_once(self, key_prefix: Text, timeout: float | None = None, **kwargs: Any) -> Event:
        """The next event under a prefix; `WatchTimedOut` after `timeout` seconds."""
        return self.watch_once(key_prefix, timeout=timeout, **_prefixed(key_prefix, kwargs))

    # --- leases and locks ---

    def lease(self, ttl: int, lease_id: int | None = None) -> Lease:
        """Create a lease. It is renewed only by `refresh`."""
        with translated():
            granted = self._store.lease_grant(ttl, lease_id or 0)
        return Lease(granted.id, granted.ttl_s, self)

    def revoke_lease(self, lease_id: int) -> None:
        """Revoke a lease and delete its keys."""
        with translated():
            self._store.lease_revoke(lease_id)

    def refresh_lease(self, lease_id: int) -> Iterator[LeaseRefreshed]:
        """Renew a lease once."""
        with translated():
            yield LeaseRefreshed(self._store.lease_keep_alive_once(lease_id))

    def get_lease_info(self, lease_id: int) -> LeaseInfo:
        """The remaining time and the keys of a lease."""
        with translated():
            return LeaseInfo(self._store.lease_time_to_live(lease_id, keys=True))

    def lock(self, name: Text, ttl: int = 60) -> locks.Lock:
        """A lock, to be acquired. Its lease is renewed while it is held."""
        return locks.Lock(name, ttl=ttl, etcd_client=self)

    def open_session(self, ttl: int) -> blocking.Session:
        """For `Lock`: a lease that is renewed in the background."""
        return blocking.Session.open(self._store, ttl_s=ttl)

    # --- the cluster ---

    @property
    def members(self) -> Iterator[Member]:
        """All members of the cluster."""
        with translated():
            found = self._upkeep.cluster("MemberList").members
        return iter([self._member(each) for each in found])

    def _member(self, found: Any) -> Member:
        return Member(found.ID, found.name, list(found.peerURLs), list(found.clientURLs), self)

    def add_member(self, urls: list[str]) -> Member:
        """Add a member to the cluster."""
        with translated():
            return self._member(self._upkeep.cluster("MemberAdd", peerURLs=urls).member)

    def remove_member(self, member_id: int) -> None:
        """Remove a member from the cluster."""
        with translated():
            self._upkeep.cluster("MemberRemove", ID=member_id)

    def update_member(self, member_id: int, peer_urls: list[str]) -> None:
        """Change the addresses under which the other members reach a member."""
        with translated():
            self._upkeep.cluster("MemberUpdate", ID=member_id, peerURLs=peer_urls)

    def status(self) -> Status:
        """The state of the member that answered."""
        with translated():
            found = self._store.status()
        leader = next((each for each in self.members if each.id == found.leader), None)
        return Status(found.version, found.db_size, leader, found.raft_index, found.raft_term)

    def defragment(self) -> None:
        """Release unused disk space of the member."""
        with translated():
            self._upkeep.maintenance("Defragment")

    def hash(self) -> int:
        """A hash of the member's keys."""
        with translated():
            return int(self._upkeep.maintenance("Hash").hash)

    def create_alarm(self, member_id: int = 0) -> list[Alarm]:
        """Raise the alarm "no space", for all members by default."""
        with translated():
            return self._upkeep.alarms(etcdrpc.AlarmRequest.ACTIVATE, member_id, etcdrpc.NOSPACE)

    def list_alarms(self, member_id: int = 0, alarm_type: str = "none") -> Iterator[Alarm]:
        """The active alarms."""
        if alarm_type not in ("none", "no space"):
            raise ValueError(f"Unknown alarm type: {alarm_type}")
        wanted = etcdrpc.NONE if alarm_type == "none" else etcdrpc.NOSPACE
        with translated():
            return iter(self._upkeep.alarms(etcdrpc.AlarmRequest.GET, member_id, wanted))

    def disarm_alarm(self, member_id: int = 0) -> list[Alarm]:
        """Cancel the alarm "no space"."""
        with translated():
            return self._upkeep.alarms(etcdrpc.AlarmRequest.DEACTIVATE, member_id, etcdrpc.NOSPACE)

    def snapshot(self, file_obj: IO[bytes]) -> None:
        """Write a snapshot of the database to a file."""
        with translated():
            self._upkeep.snapshot(file_obj)


def _pairs(found: RangeResult) -> Iterator[Found]:
    return ((kv.value, KVMetadata(kv, found.header)) for kv in found.kvs)


def _prefixed(key_prefix: Text, kwargs: dict[str, Any]) -> dict[str, Any]:
    return {**kwargs, "range_end": utils.increment_last_byte(utils.to_bytes(key_prefix))}


client = Etcd3Client
