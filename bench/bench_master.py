"""Our master beside the C++ one, with the real client, taking turns in one run: throughput and server CPU.

Three masters: `mooncake_master` (without its op log: it keeps nothing), ours without journal (`node/standalone.py`,
which keeps nothing either: what the wire and the index cost), and `leasehold node --coord memory://` with all that it
does for a standby. Ratios are what counts; single figures depend on what else the machine does.
`LEASEHOLD_BENCH_SECONDS` is how long one measurement takes, `LEASEHOLD_BENCH_ROUNDS` how often the three take turns.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

from bench.rows import PER_SECOND, record
from leasehold.testing.mooncake import MooncakeMaster, OwnNode, StandaloneMaster, client_environment, venv, why_missing
from leasehold.wire.body import pack
from leasehold.wire.frame import request
from leasehold.wire.tables import V0_3_13

SECONDS = float(os.environ.get("LEASEHOLD_BENCH_SECONDS", "0.1"))
ROUNDS = int(os.environ.get("LEASEHOLD_BENCH_ROUNDS", "5"))
IN_FLIGHT = 64
# (operation, items in a call, the throughput ratio to reach without journal)
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
    """A real client in its own process, which reads one command per line."""

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
        while not self._line().startswith("ready 0"):  # the client's libraries print lines of their own first
            pass

    def _line(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(f"the client of {self.master.rpc} died: exit code {self._process.wait()}")
        return line

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


Figures = list[tuple[float, float]]
"""(items per second, server CPU seconds per item), one for each round."""


def show(name: str, found: list[Figures], target: float) -> None:
    """One line: rates, ratios to the first master, CPU ratios."""
    # The best of the rounds: what else runs on the machine can only take away.
    rates = [max(rate for rate, _ in each) for each in found]
    cpu_us = [min(cpu for _, cpu in each) * 1e6 for each in found]
    ratio = rates[1] / rates[0]
    verdict = "met" if ratio >= target else "NOT MET"
    print(
        f"{name:<19}{rates[0]:>11,.0f}{rates[1]:>11,.0f}{rates[2]:>11,.0f}"
        f"{ratio:>7.2f} (aim {target:g}: {verdict:<7}){rates[2] / rates[0]:>6.2f}"
        f"{cpu_us[0]:>9.1f}{cpu_us[1]:>8.1f}{cpu_us[2]:>8.1f}"
        f"{cpu_us[1] / cpu_us[0]:>7.2f}{cpu_us[2] / cpu_us[0]:>6.2f}",
        flush=True,
    )
    for number, which in ((1, "without journal"), (2, "with journal")):
        record(f"{name}, {which}", rates[number], PER_SECOND)
        record(f"{name}, {which}, server CPU", cpu_us[number], "us")


def main() -> None:
    if (reason := why_missing()) is not None:
        print(f"NOT MEASURED: {reason}")
        return
    print(f"{'':<19}{'items/s':>11}{'':>22}{'rate ratio to C++':>28}{'CPU us/item':>15}{'':>13}{'CPU ratio':>14}")
    print(
        f"{'':<19}{'C++':>11}{'ours':>11}{'journal':>11}{'ours':>7}{'':>19}{'journal':>8}"
        f"{'C++':>7}{'ours':>8}{'journal':>9}{'ours':>6}{'journal':>8}"
    )
    with MooncakeMaster() as theirs, StandaloneMaster() as bare, OwnNode() as node:
        masters: list[Master] = [theirs, bare, node]
        loads = [Load(master) for master in masters]
        for name, size, target in CASES:
            rounds = [[load.measure(name, size) for load in loads] for _ in range(ROUNDS)]
            show(name if size == 1 else f"{name} {size}", [list(each) for each in zip(*rounds, strict=True)], target)
        rounds = [[pipelined(master, SECONDS) for master in masters] for _ in range(ROUNDS)]
        show(f"exist, {IN_FLIGHT} in flight", [list(each) for each in zip(*rounds, strict=True)], 2.0)
        for load in loads:
            load.close()


if __name__ == "__main__":
    main()
