"""The generated modules match the `.proto` files, and do not clash with another etcd client."""

from __future__ import annotations

import filecmp
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
SOURCE = HERE / "src"
PB, STUBS = Path("leasehold/etcd/pb"), Path("leasehold/testing/grpc_stubs")


def test_generating_again_gives_the_committed_modules(tmp_path: Path) -> None:
    subprocess.run([sys.executable, HERE / "scripts/generate-proto", tmp_path], check=True)
    for folder, manual in ((PB, set()), (STUBS, {"__init__.py"})):
        committed = {path.name for path in (SOURCE / folder).iterdir() if path.suffix in (".py", ".pyi")} - manual
        assert {path.name for path in (tmp_path / folder).iterdir()} == committed
        _, differing, missing = filecmp.cmpfiles(tmp_path / folder, SOURCE / folder, sorted(committed), shallow=False)
        assert not differing, f"run `make proto`: {differing}"
        assert not missing


def test_the_stubs_live_beside_another_client_with_the_same_names() -> None:
    """Another package has registered `etcdserverpb.RangeRequest` in the common pool."""
    script = """
from google.protobuf import descriptor_pb2, descriptor_pool
taken = descriptor_pb2.FileDescriptorProto(name="rpc.proto", package="etcdserverpb")
taken.message_type.add(name="RangeRequest")
taken.service.add(name="KV")
descriptor_pool.Default().Add(taken)
from leasehold.etcd.pb import election_pb2, rpc_pb2
from leasehold.testing.grpc_stubs import election_pb2_grpc, lock_pb2_grpc, rpc_pb2_grpc
assert rpc_pb2.RangeRequest.FromString(rpc_pb2.RangeRequest(key=b"k").SerializeToString()).key == b"k"
assert election_pb2.LeaderKey(rev=7).rev == 7
"""
    subprocess.run([sys.executable, "-c", script], check=True)
