"""Orders on a running cluster: recorded with who and from where, and `force` only where it is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.node import NodeGroup

TOKENS = {"read": "r" * 32, "operate": "o" * 32}


def run(node: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "leasehold", *arguments, "--admin", node]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **environment}
    )


def test_orders_are_in_the_history_with_who_and_from_where(etcd: EtcdCluster, tmp_path: Path) -> None:
    with NodeGroup(etcd.url, 2, cluster=f"c{uuid4().hex[:8]}", folder=tmp_path) as nodes:
        primary, standby = nodes.primary(), nodes.standbys()[0]
        # A force that stays armed would take effect in a later promotion, unexpectedly.
        for node in (primary, standby):
            code, body = node.http("/api/force", body=b"{}")
            assert (code, b"lead" in body) == (409, True)
        # The proxy for web pages must not be used.
        done = run(standby.admin, "pause", "--reason", "new \x1b[31mdisks", http_proxy="http://127.0.0.1:1")
        assert done.returncode == 0, done.stderr
        assert run(primary.admin, "resume").returncode == 0
        orders = [line for line in primary.history() if line.role == "order"]
        names = [line.sentence.partition(" ")[0].rstrip(",") for line in orders]
        assert names == ["force", "force", "pause", "resume"]
        assert all("from 127.0.0.1:" in line.sentence and "pid" in line.sentence for line in orders)
        assert not any("\x1b" in line.sentence for line in orders)
        assert "new \\\\x1b[31mdisks" in orders[2].sentence or "new \\u001b[31mdisks" in orders[2].sentence
        assert '"order": "pause"' in standby.log_path.read_text() or "order=pause" in standby.log_path.read_text()
        shown = run(primary.admin, "history")
        assert "resume, ordered by" in " ".join(shown.stdout.split())


def test_tokens_protect_a_cluster(etcd: EtcdCluster, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("".join(f"{role} {role}-user {token}\n" for role, token in TOKENS.items()))
    for role, token in TOKENS.items():
        (tmp_path / role).write_text(token)
    arguments = ["--token-file", str(tokens), "--allowed-hosts", "leasehold.example"]
    with NodeGroup(etcd.url, 1, cluster=f"c{uuid4().hex[:8]}", folder=tmp_path, arguments=arguments) as nodes:
        node = nodes.nodes[0]
        reader, operator = (str(tmp_path / role) for role in TOKENS)
        assert "needs the role 'read': send a token" in run(node.admin, "status").stderr
        assert run(node.admin, "status", "--token-file", reader).returncode == 3  # one node: no standby
        assert "needs the role 'read': send a token" in run(node.admin, "top", "--once").stderr
        assert f"{node.node_name} leads" in run(node.admin, "top", "--once", "--token-file", reader).stdout
        refused = run(node.admin, "pause", "--token-file", reader)
        assert (refused.returncode, "'read-user' has only 'read'" in refused.stderr) == (1, True)
        assert run(node.admin, "pause", LEASEHOLD_TOKEN_FILE=operator).returncode == 0
        seen = json.loads(run(node.admin, "history", "--json", "--token-file", reader).stdout)
        assert "ordered by operate-user from 127.0.0.1:" in seen[-1]["sentence"]
        output = node.log_path.read_text() + Path(f"/proc/{node.pid}/cmdline").read_text() + json.dumps(seen)
        assert not [token for token in TOKENS.values() if token in output]


def test_a_missing_token_file_is_named_at_the_start(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "leasehold", "node", "--token-file", str(tmp_path / "none")]
    command += ["--rpc", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "token_file = " in done.stderr) == (1, True), done.stderr
