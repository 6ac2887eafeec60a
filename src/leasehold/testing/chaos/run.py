"""One run inside its namespaces: start everything, apply faults under load, heal, judge, report."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from leasehold.runtime.clock import boot_ns
from leasehold.testing import mooncake
from leasehold.testing.chaos import sandbox
from leasehold.testing.chaos.clients import ChaosClient, Keys
from leasehold.testing.chaos.cluster import ChaosCluster, MooncakeClient
from leasehold.testing.chaos.faults import FaultInjector
from leasehold.testing.chaos.history import Call, FaultLine, operations, read_calls
from leasehold.testing.chaos.judge import Verdict, judge, losses
from leasehold.testing.chaos.options import Options
from leasehold.testing.chaos.plan import faults
from leasehold.testing.chaos.roles import RoleSample, sample_roles
from leasehold.testing.second_opinion import export

CLIENTS = 8
MOONCAKE_CLIENTS = 3
NATIVE_KEYS = 24
FINISH_S = 90.0
Say = Callable[[str], None]


class Finished(Struct, frozen=True):
    """A finished run, for the report."""

    options: Options
    began_ns: int
    ended_ns: int
    calls: list[Call]
    faults: list[FaultLine]
    roles: list[RoleSample]
    verdict: Verdict
    converged: bool
    left_out: list[str]  # in sentences
    etcd: str
    clients: list[str]


async def run(options: Options, folder: Path, say: Say) -> Finished:
    """Run in the namespaces of this process. All processes are killed at the end."""
    sandbox.prepare()
    left_out: list[str] = []
    with _other_release(options.other_release, left_out) as release:
        without = _unavailable_kinds(release, left_out)
        with ChaosCluster(folder, release) as cluster:
            say(f"{cluster.etcd.binary} with 3 members, 3 nodes and 3 storage hosts are running")
            return await _Run(options, cluster, without, left_out, say).run()


def _unavailable_kinds(release: Path | None, left_out: list[str]) -> frozenset[str]:
    without = set()
    if release is None:
        without.add("rolling-version")
    if not ChaosCluster.can_jump():
        without.add("clock-jump")
        left_out.append("clock jumps: libfaketime is not installed (apt-get install faketime)")
    return frozenset(without)


@contextmanager
def _other_release(name: str, left_out: list[str]) -> Iterator[Path | None]:
    """The source folder of another release."""
    if not name:
        left_out.append("changes of the release: --other-release is empty")
        yield None
    elif Path(name).is_dir():
        yield Path(name)
    else:
        root = Path(__file__).resolve().parents[4]
        packed = subprocess.run(["git", "-C", str(root), "archive", name, "src"], capture_output=True, check=False)
        if packed.returncode != 0:
            reason = packed.stderr.decode().strip().splitlines()[-1:]
            left_out.append(f"changes of the release: commit {name} is not available here ({''.join(reason)})")
            yield None
            return
        with tempfile.TemporaryDirectory(prefix="leasehold-chaos-release-") as folder:
            subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)
            yield Path(folder) / "src"


class _Run:
    """The part of a run in which everything is up."""

    def __init__(
        self, options: Options, cluster: ChaosCluster, without: frozenset[str], left_out: list[str], say: Say
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._without = without
        self._left_out = left_out
        self._say = say
        self._calls: list[Call] = []
        self._faults: list[FaultLine] = []
        self._roles: list[RoleSample] = []
        self._injector = FaultInjector(cluster)

    async def run(self) -> Finished:
        began_ns = boot_ns()
        theirs = await asyncio.to_thread(self._start_mooncake)
        stop = asyncio.Event()
        keys = Keys("n", NATIVE_KEYS)
        ours = [
            ChaosClient(
                f"client{number}",
                self._cluster.nodes.addresses,
                keys,
                self._options.seed,
                self._calls.append,
                self._cluster.is_stable,
            )
            for number in range(CLIENTS - len(theirs))
        ]
        async with asyncio.TaskGroup() as group:
            calling = [group.create_task(client.run(stop)) for client in ours]
            sampling = group.create_task(sample_roles(self._cluster.nodes, self._roles))
            await self._apply_faults(began_ns)
            converged = await asyncio.to_thread(self._cluster.settle, FINISH_S)
            await asyncio.sleep(1)
            stop.set()
            await asyncio.gather(*calling)
            await self._read_everything()
            await asyncio.gather(*(asyncio.to_thread(client.read_everything) for client in theirs))
            await asyncio.gather(*(asyncio.to_thread(client.close, FINISH_S) for client in theirs))
            sampling.cancel()
        for client in theirs:
            self._calls += read_calls(client.history)
        ended_ns = boot_ns()
        self._say(f"judging {len(self._calls):,} calls")
        if self._options.history:
            lost = losses(self._calls, self._injector.losses)
            export(Path(self._options.history), operations([*self._calls, *lost]))
        return Finished(
            self._options,
            began_ns,
            ended_ns,
            self._calls,
            self._faults,
            self._roles,
            judge(self._calls, self._injector.losses, self._cluster.is_stable),
            converged,
            self._left_out,
            str(self._cluster.etcd.binary),
            [f"client{number}" for number in range(len(ours))] + [client.name for client in theirs],
        )

    def _start_mooncake(self) -> list[MooncakeClient]:
        if (reason := mooncake.why_missing()) is not None:
            self._left_out.append(f"real Mooncake clients: {reason}")
            return []
        return self._cluster.start_mooncake(MOONCAKE_CLIENTS, self._options.seed)

    async def _apply_faults(self, began_ns: int) -> None:
        end_ns = began_ns + int(self._options.minutes * 60e9)
        for fault in faults(self._options.seed, self._without):
            await asyncio.sleep(fault.pause_ms / 1000)
            if boot_ns() >= end_ns:
                return
            line = await asyncio.to_thread(self._injector.carry_out, fault)
            self._faults.append(line)
            at_s = (line.began_ns - began_ns) / 1e9
            took_s = (line.settled_ns - line.began_ns) / 1e9
            self._say(
                f"{at_s:7.1f} s  {line.kind:24} {line.victim:28} settled after {took_s:5.1f} s"
                f"{'  ' + line.problem if line.problem else ''}"
            )

    async def _read_everything(self) -> None:
        """Read every key that our clients ever used: what was acknowledged must still be there."""
        names = sorted({call.key for call in self._calls if call.key.startswith("n")})
        reader = ChaosClient(
            "final",
            self._cluster.nodes.addresses,
            Keys("n", 1),
            self._options.seed,
            self._calls.append,
            self._cluster.is_stable,
        )
        await reader.read_all(names)
