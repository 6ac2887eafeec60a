"""`/metrics` of a storage host and of a cache, as their commands serve it."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from leasehold.cache.client import Client
from leasehold.testing.ports import free_ports
from leasehold.testing.process import ServerProcess
from leasehold.wire.server import listen

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


def command(name: str, arguments: list[str], metrics: str, folder: Path) -> ServerProcess:
    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"http://{metrics}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    argv = [sys.executable, "-m", "leasehold", *arguments, "--metrics", metrics]
    return ServerProcess(name, argv, log_path=folder / f"{name}.log", probe=answers)


def scraped(metrics: str) -> dict[str, float]:
    """The samples of a scrape; each name is in the operators' page."""
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=30) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    page = OPERATIONS.read_text()
    samples = [sample for family in families for sample in family.samples]
    assert [each.name for each in samples if each.name.startswith("leasehold_") and f"`{each.name}`" not in page] == []
    return {" ".join([sample.name, *sample.labels.values()]): sample.value for sample in samples}


def test_a_storage_host(tmp_path: Path) -> None:
    master, port = free_ports(2)  # nothing listens at the master's: the host waits for it
    metrics = f"127.0.0.1:{port}"
    arguments = ["host", "--segment", "1MiB", "--master", f"127.0.0.1:{master}"]
    with command("host", arguments, metrics, tmp_path):
        found = scraped(metrics)
    assert found["leasehold_host_segment_bytes"] == 1 << 20
    assert found["leasehold_host_transferred_bytes_total read"] == 0
    assert found["process_resident_memory_bytes"] > 1 << 20


async def test_a_cache(tmp_path: Path) -> None:
    address, port = free_ports(2)
    metrics = f"127.0.0.1:{port}"
    with command("cache", ["cache", "serve", "--listen", f"127.0.0.1:{address}"], metrics, tmp_path):
        async with Client((f"127.0.0.1:{address}",)) as client:
            await client.put(b"limits", b"100")
            assert await client.get(b"limits") == b"100"
            found = scraped(metrics)
    assert (found["leasehold_cache_serving"], found["leasehold_cache_clients"]) == (1, 1)
    assert found["leasehold_cache_keys"] == 1
    assert found["leasehold_cache_messages_total Write"] == 1


def test_an_address_in_use_is_named() -> None:
    with listen("127.0.0.1", 0) as taken:
        metrics = f"127.0.0.1:{taken.getsockname()[1]}"
        argv = [sys.executable, "-m", "leasehold", "host", "--master", "127.0.0.1:1", "--metrics", metrics]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"metrics = '{metrics}': cannot listen" in done.stderr
