"""The simulation's story on real processes: kill -9 of the authority, clients stopped past the lease."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from leasehold.testing.cache import CacheProcess, ClientProcess
from leasehold.testing.checkers import by_key, check_register
from leasehold.testing.process import wait_until

KEYS = 4
DURATION_S = 5.0


@pytest.mark.alone
def test_history_of_real_processes_is_linearizable(tmp_path: Path) -> None:
    arguments = ("--store", f"sqlite:///{tmp_path}/cache.db", "--term", "300ms")
    with CacheProcess(tmp_path, *arguments) as served:
        clients = [ClientProcess(tmp_path, [served.address], seed, DURATION_S, KEYS) for seed in range(3)]
        for client in clients:
            client.start()
        time.sleep(1.0)  # a stretch of ordinary work between the faults
        clients[0].freeze()
        time.sleep(0.5)  # past its lease
        clients[0].thaw()
        served.restart()
        time.sleep(0.7)
        clients[1].kill()
        served.restart()
        for client in (clients[0], clients[2]):
            wait_until(lambda client=client: not client.running, "the client is done", 30)  # type: ignore[misc]
        histories = [client.history() for client in clients]
    history = [item for each in histories for item in each]
    assert min(map(len, histories)) > 50, [len(each) for each in histories]
    writes = sum(operation.what == "write" for _, operation in history)
    assert writes > 20
    for key, operations in by_key(history).items():
        verdict = check_register(operations)
        assert verdict, f"{key!r}: no order for {verdict.stuck}"
