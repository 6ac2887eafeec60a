"""Our master beside the C++ one, with the real client, taking turns in one run: throughput and server CPU.

Ratios are what counts; single figures depend on what else the machine does. `LEASEHOLD_BENCH_SECONDS` is how long one
measurement takes, `LEASEHOLD_BENCH_ROUNDS` how often the two take turns. Ours is `leasehold node --coord memory://`,
with its journal; with `LEASEHOLD_BENCH_STANDALONE=1` the wire and the index alone.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import time
from pathlib import Path

from leasehold.testing.mooncake import MooncakeMaster, OwnNode, StandaloneMaster, client_environment, venv, why_missing
from leasehold.wire.body import pack
from leasehold.wire.frame import request
from leasehold.wire.tables import V0_3_13

SECONDS = float(os.environ.get("LEASEHOLD_BENCH_SECONDS", "0.25"))
ROUNDS = int(os.environ.get("LEASEHOLD_BENCH_ROUNDS", "3"))
STANDALONE = bool(os.environ.get("LEASEHOLD_BENCH_STANDALONE"))  # without journal: what wire and index cost alone
IN_FLIGHT = 64
# (operation, items in a call, the throughput ratio to reach)
CASES = [
    ("exist", 1, 0.8),
    ("batch exist", 10, 0.8),
    ("batch exist", 100, 0.8),
    ("batch exist", 500, 0.8),
    ("get", 1, 0.6),
    ("batch get", 10, 0.8),
    ("batch get", 100, 0.8),
    ("batch get", 500, 0.8),
    ("put", 1, 0.6),
    ("put batch", 100, 0.6),
    ("put batch", 500, 0.6),
    ("remove", 1, 0.6),
]
Master = MooncakeMaster | StandaloneMaster | OwnNode


class Load:
    """A real client in a process of its own, told what to do line by line."""

    def __init__(self, master: Master) -> None:
        self.master = master
        script = Path(__file__).parent / "clients" / "mooncake_load.py"
        self._process = subprocess.Popen(
            [str(venv() / "bin" / "python"), str(script), master.rpc],
            env={**os.environ, **client_environment()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        while not self._line().startswith("ready 0"):
            pass

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def _tell(self, step: str, name: str, size: int) -> str:
        assert self._process.stdin is not None
        print(step, name, size, SECONDS, sep=",", file=self._process.stdin, flush=True)
        return self._line()

    def measure(self, name: str, size: int) -> tuple[float, float]:
        """(items per second, server CPU seconds per item)."""
        self._tell("prepare", name, size)
        before_s = self.master.cpu_s()
        count, took = self._tell("measure", name, size).split()
        used_s = self.master.cpu_s() - before_s
        self._tell("clean", name, size)
        return int(count) / float(took), used_s / int(count)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def pipelined(master: Master, seconds: float) -> tuple[float, float]:
    """Exist with 64 requests in flight on one connection, from a generator that costs next to nothing."""
    function = V0_3_13.functions["ExistKey"]
    assert function.request is not None
    body = pack(function.request, (b"bench-key-0000000000000", b"default"))
    with socket.create_connection(("127.0.0.1", master.rpc_port)) as sock:
        sock.sendall(request(0, function.id, body))
        answer_bytes = len(sock.recv(1 << 16))
        window = b"".join(request(seq, function.id, body) for seq in range(1, IN_FLIGHT + 1))
        count, before_s, start = 0, master.cpu_s(), time.perf_counter()
        while time.perf_counter() - start < seconds:
            sock.sendall(window)
            left = answer_bytes * IN_FLIGHT
            while left:
                left -= len(sock.recv(left))
            count += IN_FLIGHT
        return count / (time.perf_counter() - start), (master.cpu_s() - before_s) / count


def show(name: str, theirs: list[tuple[float, float]], ours: list[tuple[float, float]], target: float) -> None:
    their_rate, our_rate = (statistics.median(rate for rate, _ in each) for each in (theirs, ours))
    their_cpu, our_cpu = (statistics.mean(cpu for _, cpu in each) * 1e6 for each in (theirs, ours))
    ratio = our_rate / their_rate
    verdict = "met" if ratio >= target else "NOT MET"
    print(
        f"{name:<22} {their_rate:>11,.0f} {our_rate:>11,.0f} {ratio:>6.2f}  (aim {target:g}, {verdict:<7})"
        f" {their_cpu:>9.2f} {our_cpu:>9.2f} {our_cpu / their_cpu if their_cpu else 0:>7.2f}",
        flush=True,
    )


def main() -> None:
    if (reason := why_missing()) is not None:
        print(f"NOT MEASURED: {reason}")
        return
    print(f"{'':<22} {'C++ /s':>11} {'ours /s':>11} {'ratio':>6} {'':<20} {'C++ CPU us':>10} {'ours':>8} {'ratio':>7}")
    own: Master = StandaloneMaster("--lease-ttl", "10ms") if STANDALONE else OwnNode("--lease-ttl", "10ms")
    with MooncakeMaster("--default_kv_lease_ttl=1") as theirs, own as ours:
        loads = Load(theirs), Load(ours)
        for name, size, target in CASES:
            rounds = [[load.measure(name, size) for load in loads] for _ in range(ROUNDS)]
            title = name if size == 1 else f"{name} {size}"
            show(title, [each[0] for each in rounds], [each[1] for each in rounds], target)
        rounds = [[pipelined(master, SECONDS) for master in (theirs, ours)] for _ in range(ROUNDS)]
        show(f"exist, {IN_FLIGHT} in flight", [each[0] for each in rounds], [each[1] for each in rounds], 2.0)
        for load in loads:
            load.close()


if __name__ == "__main__":
    main()
