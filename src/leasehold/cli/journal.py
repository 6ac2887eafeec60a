"""`leasehold journal show` prints the journal; `journal quarantined` prints batches that could not be added to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from leasehold.base import renamed
from leasehold.base.errors import InvalidArgument
from leasehold.cli.child import run_once
from leasehold.cli.help import Chapters, Explained
from leasehold.cli.store_flags import reach, shared
from leasehold.coord.api import Coord
from leasehold.ha.keys import PREFIX_DEFAULT, Keys
from leasehold.journal.batch import ExplicitBatch, UnloggedBatch, UnreadableBatch, decode_explicit, decode_unlogged
from leasehold.journal.fenced_writer import slot_key
from leasehold.journal.render import describe, plain
from leasehold.mvcc.model import KeyValue, SortOrder, prefix_end
from leasehold.node import preflight
from leasehold.node.buffer.disk import ASIDE, read_frames

PAGE_KEYS = 64

coord_option = click.option(
    "--coord",
    default="etcd://127.0.0.1:2379",
    show_default=True,
    envvar="LEASEHOLD_NODE_COORD",
    help="URL of the coordination store (LEASEHOLD_NODE_COORD)",
)
cluster_option = click.option("--cluster", default="mooncake_cluster", show_default=True, help="name of the cluster")
prefix_option = click.option(
    "--prefix", default=PREFIX_DEFAULT, show_default=True, help="key prefix in the store, as set for the nodes"
)


class JournalCommands(Chapters):
    """Accepts the old names of renamed commands, with a warning."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        new = renamed.COMMANDS.get(f"journal {cmd_name}")
        if new is None:
            return super().get_command(ctx, cmd_name)
        line = renamed.warning(f"`leasehold journal {cmd_name}`", f"`leasehold {new}`")
        click.echo(f"leasehold: warning: {line}", err=True)
        return super().get_command(ctx, new.removeprefix("journal "))


@click.group(cls=JournalCommands)
def journal() -> None:
    """Print the contents of the journal."""


@journal.command(
    cls=Explained,
    examples=(
        ("leasehold journal show --from 1200", "records from number 1200 on"),
        ("leasehold journal show --unlogged --json | tail -1", "the newest batch of renewals and hints"),
    ),
)
@coord_option
@cluster_option
@prefix_option
@click.option("--from", "first_n", default=0, type=click.IntRange(0), help="number of the first record")
@click.option("--limit", default=1000, show_default=True, type=click.IntRange(1), help="largest number of batches")
@click.option("--unlogged", is_flag=True, help="print lease renewals and eviction hints instead of records")
@click.option(f"--{renamed.UNLOGGED_FLAG}", "old_flag", is_flag=True, hidden=True)
@click.option("--json", "as_json", is_flag=True, help="print one JSON document per batch")
def show(
    coord: str, cluster: str, prefix: str, first_n: int, limit: int, unlogged: bool, old_flag: bool, as_json: bool
) -> None:
    """Print the journal, one line per record: number, time and decision."""
    if old_flag:
        line = renamed.warning(f"flag --{renamed.UNLOGGED_FLAG}", "--unlogged")
        click.echo(f"leasehold: warning: {line}", err=True)
    keys, unlogged = Keys(cluster, prefix), unlogged or old_flag
    run_once(_show(shared(coord, "--coord"), keys, first_n, limit, unlogged, as_json))


async def _show(url: str, keys: Keys, first_n: int, limit: int, unlogged: bool, as_json: bool) -> None:
    async with reach(url) as coord:
        root = keys.unlogged if unlogged else keys.explicit
        start = root if unlogged else await _batch_with(coord, keys, first_n)
        shown = 0
        async for kv in _pages(coord, start, prefix_end(root)):
            _print(kv.key.decode(), kv.value, first_n, unlogged=unlogged, as_json=as_json)
            shown += 1
            if shown == limit:
                break
        if not shown:
            click.echo(f"no batches below '{root.decode()}': check --cluster, --prefix and --coord", err=True)


@journal.command(
    cls=Explained,
    examples=(
        ("leasehold journal quarantined --data-dir /var/lib/leasehold", "on the host of the node named by `status`"),
        ("leasehold journal quarantined --buffer redis://10.0.0.5:6379", "if that node keeps its buffer in Redis"),
    ),
)
@cluster_option
@click.option("--data-dir", default="leasehold-data/node", show_default=True, help="data directory of the node")
@click.option("--buffer", default="disk", show_default=True, help="buffer of the node: disk, or redis://HOST:PORT")
@click.option("--json", "as_json", is_flag=True, help="print one JSON document per batch")
def quarantined(cluster: str, data_dir: str, buffer: str, as_json: bool) -> None:
    """Print quarantined batches: acknowledged with durability `buffered`, but impossible to add to the journal."""
    preflight.check_buffer(buffer)
    if buffer == "disk":
        if not Path(data_dir).is_dir():
            raise InvalidArgument(
                f"'{data_dir}' is not a directory: run this on the node's host, with the node's --data-dir"
            )
        for path in sorted((Path(data_dir) / "buffer").glob(f"*{ASIDE}")):
            click.echo(f"{path}:", err=True)
            for _, raw in read_frames(path):
                _print(path.name, raw, 0, unlogged=False, as_json=as_json)
    else:
        for _, raw in run_once(_read_redis(buffer, cluster)):
            _print("Redis", raw, 0, unlogged=False, as_json=as_json)


async def _read_redis(url: str, cluster: str) -> list[tuple[int, bytes]]:
    from leasehold.node.buffer.redis import RedisBuffer  # slow to import, and needed only for this option

    buffer = RedisBuffer(url, cluster)
    try:
        return await buffer.read_quarantined()
    finally:
        await buffer.close()


async def _batch_with(coord: Coord, keys: Keys, n: int) -> bytes:
    """The key of the batch that contains record `n`: the last one that begins at or before it."""
    end = slot_key(keys.explicit, n + 1)
    found = await coord.get(keys.explicit, end, limit=1, sort_order=SortOrder.DESCEND, keys_only=True)
    return found.kvs[0].key if found.kvs else keys.explicit


async def _pages(coord: Coord, start: bytes, end: bytes) -> AsyncIterator[KeyValue]:
    while True:
        found = await coord.get(start, end, limit=PAGE_KEYS)
        for kv in found.kvs:
            yield kv
        if not found.more:
            return
        start = found.kvs[-1].key + b"\0"


def _print(where: str, raw: bytes, first_n: int, *, unlogged: bool, as_json: bool) -> None:
    try:
        batch: ExplicitBatch | UnloggedBatch = decode_unlogged(raw) if unlogged else decode_explicit(raw)
    except UnreadableBatch as error:
        click.echo(f"{where}: cannot decode this batch: {error}")
        return
    if as_json:
        click.echo(msgspec.json.encode({"key": where, "batch": _jsonable(batch)}))
        return
    when = datetime.fromtimestamp(batch.wall_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    if isinstance(batch, UnloggedBatch):
        state = "complete" if batch.complete else "to be continued"
        at = f"as of record {batch.as_of_n}, leader time {batch.leader_ms} ms, {state}"
        click.echo(f"{when} epoch {batch.epoch} unlogged batch {batch.number} {at}")
        for each in (*batch.renewals, *batch.hints):
            click.echo(f"    {describe(each)}")
        return
    for n, record in enumerate(batch.records, batch.first_n):
        if n >= first_n:
            click.echo(f"{n:>10} {when} epoch {batch.epoch} {describe(record)}")


def _jsonable(batch: ExplicitBatch | UnloggedBatch) -> dict[str, object]:
    """The batch with field names: the stored form is an array."""
    fields = {name: getattr(batch, name) for name in batch.__struct_fields__}
    for name in ("records", "renewals", "hints"):
        if name in fields:
            fields[name] = [
                {"kind": type(one).__name__, **{f: _value(getattr(one, f)) for f in one.__struct_fields__}}
                for one in fields[name]
            ]
    return fields


def _value(value: object) -> object:
    return value if isinstance(value, bool | int | float | str) else plain(value)
