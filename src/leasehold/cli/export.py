"""`leasehold export` and `leasehold import`: an index as one file, from one cluster into another, empty one."""

from __future__ import annotations

import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from leasehold.admin.status import ClusterStatus, Peer
from leasehold.base.errors import PeerError, Refused, ResourceUnavailable, Unavailable
from leasehold.cli.child import run_once
from leasehold.cli.help import Explained
from leasehold.cli.journal import cluster_option, coord_option, prefix_option
from leasehold.cli.operate import (
    OPERATE_TIMEOUT_S,
    admin_option,
    error_said,
    first_answering,
    json_option,
    print_json,
)
from leasehold.cli.store_flags import shared, store_away

if TYPE_CHECKING:
    from leasehold.node.index_files import Imported

EXPORT_TIMEOUT_S = 10 * OPERATE_TIMEOUT_S


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
    with _complete_or_absent(file) as output:
        _, cluster = first_answering(admin, "/api/cluster", ClusterStatus)
        chosen, data = _whole_index(cluster)
        output.write(data)
    told = {"file": str(file), "bytes": len(data), "node": chosen.name, "cluster": cluster.cluster}
    if as_json:
        print_json(told)
    else:
        click.echo(f"{len(data)} bytes from {chosen.name} in {file}")


@contextmanager
def _complete_or_absent(file: Path) -> Iterator[BinaryIO]:
    """Opened before anything is asked for, so that a target which cannot be written is known at once.

    It gets its name when all of it is on the disk; whatever goes wrong before, nothing is left.
    """
    part = file.with_name(file.name + ".part")
    try:
        with part.open("wb") as output:
            yield output
            output.flush()
            os.fsync(output.fileno())
        part.rename(file)
    except OSError as error:
        raise ResourceUnavailable(f"{file}: cannot be written ({error.strerror}): make room, or name another") from None
    finally:
        part.unlink(missing_ok=True)


def _whole_index(cluster: ClusterStatus) -> tuple[Peer, bytes]:
    """The index of the first that gives it: standbys before the primary."""
    ready = sorted((peer for peer in cluster.nodes if peer.ready), key=lambda peer: peer.leads)
    problem: PeerError = Unavailable("no node is ready: there is no index to export; see `leasehold status`")
    for chosen in ready:
        try:
            with urllib.request.urlopen(f"http://{chosen.admin}/api/export", timeout=EXPORT_TIMEOUT_S) as answer:
                data = answer.read()
        except urllib.error.HTTPError as error:
            problem = Refused(f"{chosen.name}: {error_said(error)}")
        except (OSError, http.client.HTTPException) as error:
            problem = Unavailable(f"{chosen.name} at {chosen.admin}: {error or type(error).__name__}")
        else:
            return chosen, data
    raise problem


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
    told = run_once(_import(file.read_bytes(), shared(coord, "--coord"), cluster, prefix, data_dir))
    if as_json:
        print_json(told)
    else:
        click.echo(f"{told.objects} objects up to record {told.n} are in {data_dir}: start the node with it")


async def _import(data: bytes, url: str, cluster: str, prefix: str, data_dir: Path) -> Imported:
    from leasehold.node.index_files import import_file

    try:
        return await import_file(data, url, cluster, prefix, data_dir)
    except Unavailable:
        raise await store_away(url) from None
