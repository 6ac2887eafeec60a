"""Names of segments that are no UTF-8: the C++ master gives them back as they came, and so does a node of ours."""

from __future__ import annotations

from pathlib import Path

from tests.wire.conftest import need

from leasehold.base.codes import TaskStatus
from leasehold.testing.mooncake import NEWEST, MooncakeMaster
from leasehold.testing.node import NodeProcess
from leasehold.testing.process import wait_until
from leasehold.wire.client import Client
from leasehold.wire.messages import MemoryReplica, Segment
from leasehold.wire.text import decode_text, encode_text

NAMES = [b"se\xffgment", b"\xed\xb2\xa2 a surrogate"]
KEY = b"k\xfe\x80y"


def segment(number: int) -> Segment:
    name = decode_text(NAMES[number])
    return Segment(bytes([number]) * 16, name, (number + 1) << 40, 1 << 24, f"{name}:1", "tcp", name)


async def endpoints(client: Client) -> set[bytes]:
    found = (await client.get_replica_list(KEY)).replicas
    places = [replica.place for replica in found]
    assert all(isinstance(place, MemoryReplica) for place in places)
    return {encode_text(place.buffer.transport_endpoint) for place in places if isinstance(place, MemoryReplica)}


async def lend_and_put(client: Client) -> None:
    for number in range(len(NAMES)):
        await client.mount_segment(segment(number))
    await client.put_start(KEY, 10)
    await client.put_end(KEY)


async def test_the_real_master_returns_them_unchanged() -> None:
    need(NEWEST)
    with MooncakeMaster("--client_ttl=600") as master:
        async with Client(master.rpc) as client:
            await lend_and_put(client)
            assert await endpoints(client) <= {name + b":1" for name in NAMES}


async def test_a_node_journals_them_and_returns_them_after_a_crash(tmp_path: Path) -> None:
    coord = f"embedded://{tmp_path}/store"
    with NodeProcess(
        coord, "alone", data_dir=tmp_path / "n", arguments=["--copies", "1", "--client-ttl", "1h"]
    ) as node:
        wait_until(node.is_primary, "it serves")
        async with Client(node.rpc) as client:
            worker = node.worker_pid
            await lend_and_put(client)
            (source,) = await endpoints(client)
            assert source in {name + b":1" for name in NAMES}
            (target,) = (name for name in NAMES if name + b":1" != source)
            task_id = await client.create_copy_task(KEY, [decode_text(target)])
            (task,) = await client.fetch_tasks()
            assert b'"key":"' + KEY + b'"' in encode_text(task.payload), "the executor receives the key unchanged"
            assert target in encode_text(task.payload)
            await client.mark_task_to_complete(task_id, TaskStatus.FAILED, decode_text(b"no \xff disk"))
            assert encode_text((await client.query_task(task_id)).message) == b"no \xff disk"
            assert node.worker_pid == worker
            for page in ("/metrics", "/api/status", "/api/cluster", "/api/export"):
                assert node.http(page)[0] == 200, page
            node.kill_worker()
            wait_until(node.is_primary, "it serves again")
            await client.ping()  # a new leader waits for the owners of segments
            assert await endpoints(client) == {source}
