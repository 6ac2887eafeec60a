"""`leasehold export` and `leasehold import`: move an index, as one file, into an empty cluster."""

from __future__ import annotations

import http.client
import os
import urllib.error
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
    error_text,
    first_answering,
    json_option,
    opened,
    print_json,
)
from leasehold.cli.store_flags import shared, store_away
from leasehold.runtime.private_files import make_files_private

if TYPE_CHECKING:
    from leasehold.node.index_files import Imported

EXPORT_TIMEOUT_S = 10 * OPERATE_TIMEOUT_S


@click.command(
    "export",
    cls=Explained,
    examples=(("leasehold export index-2026-11-16.lsx", "then copy the file and use `leasehold import`"),),
)
@admin_option
@json_option
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def export_index(admin: str, as_json: bool, file: Path) -> None:
    """Write the whole index to FILE. A standby is preferred, so that the primary is not delayed."""
    make_files_private()
    with _complete_or_absent(file) as output:
        _, cluster = first_answering(admin, "/api/cluster", ClusterStatus)
        chosen, data = _whole_index(cluster)
        output.write(data)
    if as_json:
        print_json({"file": str(file), "bytes": len(data), "node": chosen.name, "cluster": cluster.cluster})
    else:
        click.echo(f"wrote {len(data)} bytes from node {chosen.name} to '{file}'")


@contextmanager
def _complete_or_absent(file: Path) -> Iterator[BinaryIO]:
    """Open a temporary file, and rename it to `file` once it is complete on disk; on any failure remove it.

    It is opened before any request is sent, so that an unwritable target is reported immediately.
    """
    part = file.with_name(file.name + ".part")
    try:
        with part.open("wb") as output:
            yield output
            output.flush()
            os.fsync(output.fileno())
        part.rename(file)
    except OSError as error:
        raise ResourceUnavailable(
            f"cannot write '{file}' ({error.strerror}): free some space, or choose another file"
        ) from None
    finally:
        part.unlink(missing_ok=True)


def _whole_index(cluster: ClusterStatus) -> tuple[Peer, bytes]:
    """Fetch the index from the first ready node that answers: standbys before the primary."""
    ready = sorted((peer for peer in cluster.nodes if peer.ready), key=lambda peer: peer.leads)
    problem: PeerError = Unavailable("no node is ready, so there is no index to export; see `leasehold status`")
    for chosen in ready:
        try:
            with opened(chosen.admin, "/api/export", timeout_s=EXPORT_TIMEOUT_S) as answer:
                data = answer.read()
        except urllib.error.HTTPError as error:
            problem = Refused(f"node {chosen.name}: {error_text(error)}")
        except (OSError, http.client.HTTPException) as error:
            problem = Unavailable(f"node {chosen.name} at {chosen.admin}: {error or type(error).__name__}")
        else:
            return chosen, data
    raise problem


@click.command(
    "import",
    cls=Explained,
    examples=(
        (
            "leasehold import --coord etcd://10.0.0.1:2379 --data-dir /var/lib/leasehold index-2026-11-16.lsx",
            "before the first node of the new cluster is started",
        ),
    ),
)
@coord_option
@cluster_option
@prefix_option
@click.option(
    "--data-dir", required=True, type=click.Path(path_type=Path), help="data directory of the node to start first"
)
@json_option
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
def import_index(coord: str, cluster: str, prefix: str, data_dir: Path, as_json: bool, file: Path) -> None:
    """Load the index in FILE into an empty cluster. Then start the node with this --data-dir, and the others after it.

    The index contains the locations of the objects, not their bytes: the same storage clients must still run with
    the same memory.
    """
    make_files_private()
    done = run_once(_import(file.read_bytes(), shared(coord, "--coord"), cluster, prefix, data_dir))
    if as_json:
        print_json(done)
    else:
        click.echo(
            f"loaded {done.objects} objects up to record {done.n}; now start the node with --data-dir '{data_dir}'"
        )


async def _import(data: bytes, url: str, cluster: str, prefix: str, data_dir: Path) -> Imported:
    from leasehold.node.index_files import import_file

    try:
        return await import_file(data, url, cluster, prefix, data_dir)
    except Unavailable:
        raise await store_away(url) from None
