"""`leasehold node` as real processes: guardian and worker, with their faults as methods."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from leasehold.admin.access import COMMAND_HEADER
from leasehold.admin.status import ClusterStatus, HistoryLine, NodeStatus
from leasehold.runtime.tls import Tls
from leasehold.testing.ports import free_ports
from leasehold.testing.process import HERE, START_TIMEOUT_S, Place, ServerFailed, ServerProcess, wait_until

# A node that answers does so within this time, also on a busy machine. A frozen node costs all of it.
ANSWER_S = 10.0
ROLE_S = 3.0


class NodeProcess(ServerProcess):
    """One node: a guardian and its worker.

    `kill_worker` is a crash of the process, `kill_host` of the machine, `freeze_host` a machine that is stopped.
    """

    def __init__(
        self,
        coord: str,
        name: str,
        *,
        cluster: str = "mooncake_cluster",
        data_dir: Path | None = None,
        arguments: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        metadata: bool = False,
        tls: Tls | None = None,
        place: Place = HERE,
        token: str = "",
    ) -> None:
        """With `metadata` it also serves the HTTP metadata server, on `metadata_port`.

        `tls` and `token` are for requests to the admin port; the node's own files are in `arguments`.
        """
        self._tls, self._token, self._host = tls, token, place.host
        owned = None if data_dir else tempfile.TemporaryDirectory(prefix="leasehold-node-")
        self.data_dir = data_dir or Path(owned.name if owned else "")
        self.node_name = name
        self.rpc_port, self.admin_port, self.metadata_port = free_ports(3)
        command = [sys.executable, "-m", "leasehold", "node", "--name", name, "--cluster", cluster, "--coord", coord]
        command += ["--rpc", self.rpc, "--admin", self.admin, "--data-dir", str(self.data_dir / "data")]
        if metadata:
            command += ["--metadata-server", f"127.0.0.1:{self.metadata_port}"]
        self._command = command
        super().__init__(
            f"node {name}",
            [*command, *arguments],
            log_path=self.data_dir / f"{name}.log",
            probe=self.answers,
            env=env,
            place=place,
            owned=owned,
        )

    def change_release(self, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        """Run other code from the next start on: `env` has its PYTHONPATH, `arguments` the flags that it knows."""
        self.reconfigure([*self._command, *arguments], env)

    @property
    def rpc(self) -> str:
        return f"{self._host}:{self.rpc_port}"

    @property
    def admin(self) -> str:
        return f"{self._host}:{self.admin_port}"

    # --- its answers ---

    def http(self, path: str, *, body: bytes | None = None, timeout_s: float = ANSWER_S) -> tuple[int, bytes]:
        """HTTP status and body from the admin port; status 0 if there is no answer."""
        scheme, context = ("https", self._tls.client()) if self._tls is not None else ("http", None)
        request = urllib.request.Request(f"{scheme}://{self.admin}{path}", data=body)
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        if body is not None:
            request.add_header(COMMAND_HEADER, "1")
        try:
            with urllib.request.urlopen(request, timeout=timeout_s, context=context) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except (OSError, http.client.HTTPException):  # nothing listens, or it died while answering
            return 0, b""

    def answers(self) -> bool:
        return self.http("/health", timeout_s=ROLE_S)[0] == 200

    def is_primary(self) -> bool:
        return self.http("/primary", timeout_s=ROLE_S)[0] == 200

    def is_ready(self) -> bool:
        return self.http("/ready", timeout_s=ROLE_S)[0] == 200

    def is_standby(self) -> bool:
        return self.http("/standby", timeout_s=ROLE_S)[0] == 200

    def status(self) -> NodeStatus:
        return msgspec.json.decode(self._get("/api/status"), type=NodeStatus)

    def cluster_status(self) -> ClusterStatus:
        return msgspec.json.decode(self._get("/api/cluster"), type=ClusterStatus)

    def history(self) -> list[HistoryLine]:
        return msgspec.json.decode(self._get("/api/history?limit=1000"), type=list[HistoryLine])

    def _get(self, path: str) -> bytes:
        """The body of a successful answer. Retries: there is none while a worker is being replaced."""
        answers: list[tuple[int, bytes]] = []

        def is_good() -> bool:
            answers[:] = [self.http(path)]
            return answers[0][0] == 200

        wait_until(is_good, lambda: f"{self.name} answers {path}: {answers}; its log ends with:\n{self.log_tail()}")
        return answers[0][1]

    def switchover(self, target: str = "") -> tuple[int, bytes]:
        body = msgspec.json.encode({"target": target} if target else {})
        return self.http("/api/switchover", body=body, timeout_s=60)

    # --- its faults ---

    @property
    def worker_pid(self) -> int:
        """The worker's process id; 0 while there is none."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return int(children[0]) if children else 0

    def kill_worker(self) -> None:
        """Kill only the worker: its guardian notices."""
        os.kill(self._worker(), signal.SIGKILL)

    def kill_guardian(self) -> None:
        """Kill only the guardian: the worker must exit too."""
        self.kill()

    def kill_host(self) -> None:
        """Kill guardian and worker together, as when their machine dies: no process is left to report it."""
        worker = self.worker_pid
        os.kill(self.pid, signal.SIGSTOP)  # so that the guardian cannot notice first
        if worker:
            os.kill(worker, signal.SIGKILL)
        self.kill()

    def freeze_worker(self) -> None:
        os.kill(self._worker(), signal.SIGSTOP)

    def thaw_worker(self) -> None:
        if worker := self.worker_pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGCONT)

    def _worker(self) -> int:
        """Its process id for a signal; never 0, which would signal the test's own process group."""
        if not (worker := self.worker_pid):
            raise ServerFailed(f"{self.name} has no worker now; its log ends with:\n{self.log_tail()}")
        return worker

    def freeze_host(self) -> None:
        """Stop both processes; connections stay open."""
        worker = self.worker_pid
        os.kill(self.pid, signal.SIGSTOP)
        if worker:
            os.kill(worker, signal.SIGSTOP)

    def thaw_host(self) -> None:
        worker = self.worker_pid
        if worker:
            os.kill(worker, signal.SIGCONT)
        os.kill(self.pid, signal.SIGCONT)


class NodeGroup:
    """Several nodes of one cluster over one store."""

    def __init__(
        self,
        coord: str,
        count: int = 2,
        *,
        cluster: str,
        folder: Path,
        arguments: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        metadata: bool = False,
    ) -> None:
        self.cluster = cluster
        self.nodes = [
            NodeProcess(
                coord, name, cluster=cluster, data_dir=folder / name, arguments=arguments, env=env, metadata=metadata
            )
            for name in (f"n{number}" for number in range(1, count + 1))
        ]

    @property
    def addresses(self) -> list[str]:
        return [node.rpc for node in self.nodes]

    def primary(self, timeout_s: float = START_TIMEOUT_S) -> NodeProcess:
        """The node that serves; waits until there is one."""
        found: list[NodeProcess] = []

        def there_is() -> bool:
            found[:] = [node for node in self.nodes if node.running and node.is_primary()]
            return bool(found)

        wait_until(there_is, lambda: f"a node serves; logs end with:\n{self.logs()}", timeout_s)
        return found[0]

    def standbys(self) -> list[NodeProcess]:
        primary = self.primary()
        return [node for node in self.nodes if node is not primary]

    def settle(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until one node serves and all others are ready."""

        def settled() -> bool:
            running = [node for node in self.nodes if node.running]
            primaries = [node for node in running if node.is_primary()]
            return len(primaries) == 1 and all(node in primaries or node.is_standby() for node in running)

        wait_until(
            settled, lambda: f"one node serves and the others are ready; logs end with:\n{self.logs()}", timeout_s
        )

    def revive(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the killed nodes and wait until the cluster has settled."""
        for node in self.nodes:
            if not node.running:
                node.start()
        self.settle(timeout_s)

    def logs(self) -> str:
        return "\n".join(f"--- {node.name}\n{node.log_tail(25)}" for node in self.nodes)

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                if not node.running:
                    node.spawn()
            for node in self.nodes:
                node.wait_ready()
            self.settle()
        except BaseException:  # __exit__ is not called for a block that was never entered
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes:
            node.kill()
