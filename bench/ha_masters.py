"""Two masters with a standby, as `bench ha` compares them: `mooncake_master` with its op log, and `leasehold node`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TypeVar

import msgspec
from msgspec import Struct

import leasehold.sync
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.mooncake import MooncakeMaster, client_environment, venv
from leasehold.testing.node import NodeGroup
from leasehold.testing.process import cpu_s, wait_until

SCRIPT = Path(__file__).parent / "clients" / "ha_load.py"
T = TypeVar("T")


class Master(Protocol):
    """A leader and its standby."""

    cluster: str

    def worker_cpu_s(self) -> float:
        """CPU time of the leader's process so far."""

    def kill_leader(self) -> None:
        """Kill the leader's process with SIGKILL."""

    def revive(self) -> None:
        """Wait until there is a leader, and start the killed process again as its standby."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Peer:
    """Two C++ masters. The leader is the one whose address is in the cluster's master view."""

    def __init__(self, etcd: EtcdCluster) -> None:
        self.cluster = "peer"
        self._url = etcd.url
        flags = ["--enable_ha=true", "--enable_oplog=true", f"--cluster_id={self.cluster}"]
        flags.append(f"--etcd_endpoints={';'.join(etcd.endpoints)}")
        self._masters = [MooncakeMaster(*flags), MooncakeMaster(*flags)]
        self._leader = self._masters[0]

    def worker_cpu_s(self) -> float:
        return self._leader.cpu_s()

    def kill_leader(self) -> None:
        self._leader.kill()
        self._leader = next(master for master in self._masters if master is not self._leader)

    def revive(self) -> None:
        wait_until(self._leads, "a C++ master leads")
        for master in self._masters:
            if not master.running:
                master.spawn()

    def _leads(self) -> bool:
        with leasehold.sync.connect(self._url) as store:
            view = store.get_one(f"mooncake-store/{self.cluster}/master_view".encode())
        return view is not None and view.value == self._leader.rpc.encode()

    def __enter__(self) -> Self:
        try:
            self._leader.start()
            self.revive()
        except BaseException:  # __exit__ is not called for a block that was never entered
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for master in self._masters:
            master.__exit__(kind, error, trace)


class Ours:
    """Two nodes with one durability."""

    def __init__(self, etcd: EtcdCluster, durability: str, folder: Path) -> None:
        self.cluster = durability
        arguments = ["--durability", durability]
        self._nodes = NodeGroup(etcd.url, 2, cluster=durability, folder=folder / durability, arguments=arguments)
        self._worker_pid = 0

    def worker_cpu_s(self) -> float:
        return cpu_s(self._worker_pid)

    def kill_leader(self) -> None:
        self._nodes.primary().kill_worker()

    def revive(self) -> None:
        """The guardian has started a new worker."""
        self._nodes.settle()
        self._worker_pid = self._nodes.primary().worker_pid

    def __enter__(self) -> Self:
        self._nodes.__enter__()
        self._worker_pid = self._nodes.primary().worker_pid
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._nodes.__exit__(kind, error, trace)


class Measured(Struct):
    items: int
    seconds: float
    failed: int


class Kept(Struct):
    acknowledged: int
    lost: int
    answered_s: float  # on the clock `time.monotonic`


class Nothing(Struct):
    pass


class Load:
    """A real client in a process of its own, which lends memory to one cluster and sends it calls."""

    def __init__(self, etcd: EtcdCluster, cluster: str) -> None:
        self._cluster = cluster
        self._process = subprocess.Popen(
            [str(venv() / "bin" / "python"), str(SCRIPT), f"etcd://{';'.join(etcd.endpoints)}"],
            env={**os.environ, **client_environment(), "MC_STORE_CLUSTER_ID": cluster},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # it logs every failed call there
            text=True,
        )
        try:
            while self._line().strip() != "ready":  # the client's libraries print lines of their own first
                pass
        except BaseException:
            self.close()
            raise

    def measure(self, name: str, size: int, threads: int, seconds: float) -> Measured:
        return self._send(Measured, do="measure", name=name, size=size, threads=threads, seconds=seconds)

    def stock(self, count: int) -> None:
        self._send(Nothing, do="stock", count=count)

    def burst(self) -> None:
        self._send(Nothing, do="burst")

    def stop(self) -> None:
        self._send(Nothing, do="stop")

    def lost(self) -> Kept:
        return self._send(Kept, do="lost")

    def _send(self, kind: type[T], **command: object) -> T:
        assert self._process.stdin is not None
        print(msgspec.json.encode(command).decode(), file=self._process.stdin, flush=True)
        return msgspec.json.decode(self._line(), type=kind)

    def _line(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(f"the client of {self._cluster} died: exit code {self._process.wait()}")
        return line

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
