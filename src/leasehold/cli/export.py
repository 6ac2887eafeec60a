"""`leasehold export` and `leasehold import`: an index as one file, from one cluster into another, empty one."""

from __future__ import annotations

import asyncio
import http.client
import urllib.error
import urllib.request
from pathlib import Path

import click

from leasehold.admin.status import ClusterStatus
from leasehold.base.errors import InvalidArgument, Refused, Unavailable
from leasehold.cli.help import Explained
from leasehold.cli.journal import cluster_option, coord_option, prefix_option
from leasehold.cli.operate import OPERATE_TIMEOUT_S, admin_option, first_answering, json_option, print_json


@click.command(
    "export",
    cls=Explained,
    examples=(("leasehold export index-2026-11-16.lsx", ""),),
)
@admin_option
@json_option
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def export_index(admin: str, as_json: bool, file: Path) -> None:
    """Write the whole index to FILE: taken on a standby, so that the primary is not held up."""
    _, cluster = first_answering(admin, "/api/cluster", ClusterStatus)
    ready = sorted((peer for peer in cluster.nodes if peer.ready), key=lambda peer: peer.leads)
    if not ready:
        raise Unavailable("no node is ready: there is no index to export; see `leasehold status`")
    chosen = ready[0]
    try:
        with urllib.request.urlopen(f"http://{chosen.admin}/api/export", timeout=OPERATE_TIMEOUT_S * 10) as answer:
            data = answer.read()
    except urllib.error.HTTPError as error:
        raise Refused(f"{chosen.name}: {error.read().decode(errors='replace')}") from None
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"{chosen.name} at {chosen.admin}: {error}") from None
    part = file.with_name(file.name + ".part")
    part.write_bytes(data)
    part.rename(file)
    told = {"file": str(file), "bytes": len(data), "node": chosen.name, "cluster": cluster.cluster}
    if as_json:
        print_json(told)
    else:
        click.echo(f"{len(data)} bytes from {chosen.name} in {file}")


@click.command(
    "import",
    cls=Explained,
    examples=(
        ("leasehold import --coord etcd://10.0.0.1:2379 --data-dir /var/lib/leasehold index-2026-11-16.lsx", ""),
    ),
)
@coord_option
@cluster_option
@prefix_option
@click.option("--data-dir", required=True, type=click.Path(path_type=Path), help="of the node that shall begin with it")
@json_option
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
def import_index(coord: str, cluster: str, prefix: str, data_dir: Path, as_json: bool, file: Path) -> None:
    """Begin an empty cluster with the index in FILE. Start the node with this --data-dir afterwards, then the others.

    The storage clients must be the same and still have their memory: the index says where the bytes are, no more.
    """
    from leasehold.node.importing import import_file

    if (data_dir / "snapshots").exists() and any((data_dir / "snapshots").glob("*.lsnap")):
        raise InvalidArgument(f"{data_dir} has snapshots already: name an empty directory")
    told = asyncio.run(import_file(file.read_bytes(), coord, cluster, prefix, data_dir))
    if as_json:
        print_json(told)
    else:
        click.echo(f"{told.objects} objects up to record {told.n} are in {data_dir}: start the node with it")
