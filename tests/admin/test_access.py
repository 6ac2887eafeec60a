"""Who may do what on the admin port: the policy, and the port in front of a stub node."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
from tests.admin.stub_mooncake import StubMooncake
from tests.admin.test_server import Port, StubNode

from leasehold.admin.access import (
    COMMAND_HEADER,
    Access,
    AccessDenied,
    AccessPolicy,
    Caller,
    LocalProcess,
    came_directly,
    first_token,
    parse_tokens,
)
from leasehold.admin.server import ROUTES, AdminServer
from leasehold.base.errors import SettingError
from leasehold.base.hosts import HostPolicy
from leasehold.runtime.peer_process import PeerProcess, peer_process
from leasehold.runtime.reloaded import Reloaded, read_small

READ, OPERATE = "r" * 32, "o" * 32
FILE = f"# the file\nread prometheus {READ}\noperate alice {OPERATE}  # her own\n"
ORDERS = ["/api/pause", "/api/resume", "/api/force", "/api/switchover"]


def caller(**facts: object) -> Caller:
    return Caller(address="10.0.0.1:5", **facts)  # type: ignore[arg-type]  # a test names the facts that it needs


def test_without_tokens_only_a_process_of_this_host_operates() -> None:
    policy = AccessPolicy()
    assert policy.require(Access.READ, caller(), "/api/status").access is Access.READ
    with pytest.raises(AccessDenied, match="run the command on the node's host, or set --token-file"):
        policy.require(Access.OPERATE, caller(), "/api/pause")
    local = LocalProcess(1000, "alice", 42, "leasehold")
    assert policy.require(Access.OPERATE, caller(local=local), "/api/pause").name == "alice (leasehold, pid 42)"


def test_with_tokens_every_caller_needs_one() -> None:
    policy = AccessPolicy(parse_tokens(FILE, "f"))
    local = LocalProcess(1000, "alice", 42, "leasehold")
    with pytest.raises(AccessDenied, match="send a token"):
        policy.require(Access.READ, caller(local=local), "/api/status")
    assert policy.require(Access.OPEN, caller(), "/health").access is Access.OPEN
    assert policy.require(Access.READ, caller(token=READ), "/api/status").name == "prometheus"
    with pytest.raises(AccessDenied, match="'prometheus' has only 'read'"):
        policy.require(Access.OPERATE, caller(token=READ), "/api/pause")
    assert policy.require(Access.OPERATE, caller(token=OPERATE), "/api/pause").name == "alice"
    with pytest.raises(AccessDenied, match="not in the node's token file") as refused:
        policy.identify(caller(token="x" * 32))
    assert "xxx" not in str(refused.value)


def test_tokens_for_operators_only_leave_reading_open() -> None:
    policy = AccessPolicy(parse_tokens(f"operate alice {OPERATE}", "f"))
    local = LocalProcess(1000, "alice", 42, "leasehold")
    assert policy.require(Access.READ, caller(), "/metrics").name == "anonymous"
    with pytest.raises(AccessDenied, match="send a token"):
        policy.require(Access.OPERATE, caller(local=local), "/api/pause")


def test_names_in_certificates_have_roles() -> None:
    policy = AccessPolicy(operators=["operator"], readers=["*"], certificates=True)
    assert policy.identify(caller(certificate=("operator",))).access is Access.OPERATE
    assert policy.identify(caller(certificate=("host-1",))).access is Access.READ
    assert policy.identify(caller()).access is Access.OPEN
    closed = AccessPolicy(operators=["operator"], readers=["prometheus"], certificates=True)
    assert closed.identify(caller(certificate=("host-1",))).access is Access.OPEN


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no token"),
        ("write alice " + READ, "line 1: write 'read NAME TOKEN'"),
        ("read alice", "line 1"),
        ("\nread alice short-secret", "line 2: the token of 'alice' has less than 16 characters"),
    ],
)
def test_a_malformed_token_file_is_refused_without_showing_a_token(text: str, message: str) -> None:
    with pytest.raises(SettingError, match=message) as refused:
        parse_tokens(text, "f")
    assert READ not in str(refused.value)
    assert "short-secret" not in str(refused.value)


def test_a_client_takes_the_first_token_of_its_file() -> None:
    assert first_token(f"{READ}\n") == READ
    assert first_token(FILE) == READ
    assert first_token("# nothing\n") == ""


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        (None, True),  # HTTP/1.0: no browser
        ("127.0.0.1:8700", True),
        ("10.1.2.3", True),
        ("[::1]:8700", True),
        ("localhost:8700", True),
        ("node-a.example:8700", True),
        ("NODE-A.example.", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_only_own_names_are_allowed_as_host(host: str | None, allowed: bool) -> None:
    assert HostPolicy(["node-a.example"]).allows(host) is allowed


def test_only_a_page_of_this_port_sends_commands() -> None:
    hosts = HostPolicy(["a.example"])
    assert hosts.allows_origin("http://a.example:8700", "a.example:8700")
    assert hosts.allows_origin("https://10.0.0.1:8700", "10.0.0.1:8700")
    assert not hosts.allows_origin("http://10.0.0.66", "10.0.0.1:8700"), "a foreign page at an IP address"
    assert not hosts.allows_origin("http://a.example:9999", "a.example:8700"), "another server of the same host"
    assert not hosts.allows_origin("http://evil.example", "evil.example"), "DNS rebinding"
    assert not hosts.allows_origin("null", "a.example:8700")


@pytest.mark.parametrize("header", ["Forwarded", "X-Forwarded-For", "Via", "X-Real-IP"])
def test_a_proxied_request_does_not_count_as_local(header: str) -> None:
    assert came_directly({}, "127.0.0.1", "127.0.0.1")
    assert came_directly({}, "::ffff:127.0.0.1", "::1")
    assert not came_directly({header: "for=10.0.0.1"}, "127.0.0.1", "127.0.0.1")
    assert not came_directly({}, "10.0.0.1", "127.0.0.1")
    assert not came_directly({}, "10.0.0.1", "10.0.0.1"), "address translation can make a caller look like this host"


def test_the_process_at_the_other_end_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        code = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); sys.stdin.read()"
        child = subprocess.Popen([sys.executable, "-c", code, str(listener.getsockname()[1])], stdin=subprocess.PIPE)
        accepted, peer = listener.accept()
        with accepted:
            found = peer_process(peer, accepted.getsockname())
            assert found is not None
            assert (found.pid, found.uid) == (child.pid, os.getuid())
            assert found.is_here
            assert peer_process(("127.0.0.1", 1), accepted.getsockname()) is None
        child.communicate()


def test_a_process_outside_this_pid_namespace_is_not_here() -> None:
    """A port forward into a container, or a proxy in another container of the same pod."""
    assert not PeerProcess(os.geteuid()).is_here, "ours, but no process has the socket"
    assert not PeerProcess(os.geteuid(), uid_is_visible=True).is_here
    assert not PeerProcess(54_321).is_here, "a user without any process here"


def test_every_route_states_its_role() -> None:
    for route in ROUTES:
        if route.path.startswith("/api/session"):  # signing in and out: it gives no right that the token does not have
            continue
        assert (route.access is Access.OPERATE) == (route.method != "GET"), route.path
    open_paths = {route.path for route in ROUTES if route.access is Access.OPEN}
    probes = {"/health", "/ready", "/primary", "/standby", "/api/whoami", "/role", "/ha_status"}
    assert open_paths == probes | {"/", "/static/{name}", "/api/session"}


class Served:
    """The admin port of a stub node under a policy."""

    def __init__(self) -> None:
        self.node = StubNode()

    @contextlib.asynccontextmanager
    async def port(self, policy: AccessPolicy | Reloaded[AccessPolicy]) -> AsyncIterator[Port]:
        sock = socket.create_server(("127.0.0.1", 0))
        current = policy.value if isinstance(policy, Reloaded) else lambda: policy
        server = AdminServer(self.node, StubMooncake(), sock, current, HostPolicy(["node-a.example"]))
        address = sock.getsockname()
        await server.start()
        async with aiohttp.ClientSession() as session:
            yield Port(self.node, session, address)
        await server.close()


async def test_a_read_identity_can_order_nothing() -> None:
    async with Served().port(AccessPolicy(parse_tokens(FILE, "f"))) as port:
        for path in ORDERS:
            status, body = await port.ask("POST", path, b"{}", Authorization=f"Bearer {READ}")
            assert (status, "'prometheus' has only 'read'" in str(body["error"])) == (403, True), path
            assert (await port.ask("POST", path, b"{}"))[0] == 401
            assert (await port.ask("POST", path, b"{}", Authorization="Bearer wrong"))[0] == 401
        for route in ROUTES:
            if route.access is Access.READ and route.method == "GET":
                assert (await port.ask("GET", route.path))[0] == 401, route.path
                assert (await port.ask("HEAD", route.path))[0] == 401, route.path
                method = "HEAD" if route.path == "/api/live" else "GET"  # a stream does not end
                assert (await port.ask(method, route.path, Authorization=f"Bearer {READ}"))[0] not in (401, 403)
        assert port.node.story == []
        assert (await port.ask("GET", "/ready"))[0] == 200, "probes need no token"
        assert (await port.ask("POST", "/api/pause", b"{}", Authorization=f"Bearer {OPERATE}"))[0] == 200
        seen = (await port.ask("GET", "/api/whoami", Authorization=f"Bearer {OPERATE}"))[1]
        assert (seen["name"], seen["role"]) == ("alice", "operate")


async def test_an_order_is_recorded_before_it_is_carried_out() -> None:
    async with Served().port(AccessPolicy(parse_tokens(FILE, "f"))) as port:
        await port.ask("POST", "/api/pause", b'{"reason": "x\\u001b[2J"}', Authorization=f"Bearer {OPERATE}")
        recorded, carried_out = port.node.story
        assert recorded.startswith("recorded pause")
        assert "ordered by alice from 127.0.0.1:" in recorded
        assert "\x1b" not in recorded
        assert carried_out == "paused: x\\x1b[2J", "no control character goes further"
        port.node.store_is_away = True
        assert (await port.ask("POST", "/api/pause", b"{}", Authorization=f"Bearer {OPERATE}"))[0] == 503
        assert len(port.node.story) == 2, "an order that cannot be recorded is not carried out"


async def test_a_direct_loopback_connection_operates_until_tokens_are_configured() -> None:
    async with Served().port(AccessPolicy()) as port:
        assert (await port.ask("POST", "/api/pause", b"{}"))[0] == 200
        assert f"pid {os.getpid()}" in port.node.story[0]
        status, body = await port.ask("POST", "/api/pause", b"{}", X_Forwarded_For="10.0.0.1")
        assert (status, "run the command on the node's host" in str(body["error"])) == (401, True)
        with forwarded(port.address, "socat") as where:
            port.url = f"http://127.0.0.1:{where}"
            assert (await port.ask("GET", "/api/status"))[0] == 200
            assert (await port.ask("POST", "/api/pause", b"{}"))[0] == 401
        assert sum(line.startswith("paused") for line in port.node.story) == 1


@contextlib.contextmanager
def forwarded(target: tuple[str, int], name: str) -> Iterator[int]:
    """The local port of a small forwarder that runs under the name of a known one."""
    code = f"""
import ctypes, socket, threading
ctypes.CDLL(None).prctl(15, b{name!r}, 0, 0, 0)
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
def copy(one, other):
    while data := one.recv(65536):
        other.sendall(data)
    other.shutdown(socket.SHUT_WR)
while True:
    here = listener.accept()[0]
    there = socket.create_connection({target!r})
    threading.Thread(target=copy, args=(here, there), daemon=True).start()
    threading.Thread(target=copy, args=(there, here), daemon=True).start()
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("path", ORDERS)
@pytest.mark.parametrize("origin", ["http://somewhere.example", "http://10.0.0.66", "null"])
async def test_commands_from_foreign_pages_are_refused(path: str, origin: str) -> None:
    """Any page in an operator's browser could have paused the cluster: a form or a `fetch` may always send a POST."""
    async with Served().port(AccessPolicy()) as port:
        status, body = await port.ask("POST", path, b"{}", Origin=origin)
        assert (status, "commands from pages of" in str(body["error"])) == (403, True)
        rebound = {"Host": "somewhere.example", "Origin": "http://somewhere.example"}
        status, body = await port.ask("POST", path, b"{}", **rebound)
        assert (status, "allowed_hosts" in str(body["error"])) == (421, True)
        assert port.node.story == []


async def test_a_command_needs_the_header_that_foreign_pages_cannot_send() -> None:
    async with Served().port(AccessPolicy()) as port:
        async with port.session.post(port.url + "/api/pause", data=b"{}") as answer:
            assert (answer.status, COMMAND_HEADER in await answer.text()) == (403, True)
            assert "Access-Control-Allow-Origin" not in answer.headers
        own = f"{port.address[0]}:{port.address[1]}"
        assert (await port.ask("POST", "/api/pause", b"{}", Host=own, Origin=f"http://{own}"))[0] == 200


@pytest.mark.parametrize("path", ["/api/export", "/api/status", "/metrics"])
async def test_a_rebound_name_reads_nothing(path: str) -> None:
    """A page whose host name resolves to this address read the whole index."""
    async with Served().port(AccessPolicy()) as port:
        status, body = await port.ask("GET", path, Host="evil.example")
        assert (status, "allowed_hosts" in str(body["error"])) == (421, True)
        assert (await port.ask("GET", path, Host="node-a.example:8700"))[0] == 200
        assert (await port.ask("GET", "/health", Host="balancer.example"))[0] == 200


async def test_tokens_are_replaced_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold.runtime.reloaded.CHECK_INTERVAL_S", 0.0)
    file = tmp_path / "tokens"
    file.write_text(FILE)
    policy = Reloaded([file], lambda: AccessPolicy(parse_tokens(read_small(file, "token_file"), str(file))))
    async with Served().port(policy) as port:
        old, new = f"Bearer {READ}", "Bearer " + "n" * 32
        assert (await port.ask("GET", "/api/status", Authorization=old))[0] == 200
        file.write_text("read prometheus " + "n" * 32)
        assert (await port.ask("GET", "/api/status", Authorization=new))[0] == 200
        assert (await port.ask("GET", "/api/status", Authorization=old))[0] == 401
        file.write_text("nonsense")
        assert (await port.ask("GET", "/api/status", Authorization=new))[0] == 200, "the last good file stays in use"
        file.unlink()
        assert (await port.ask("GET", "/api/status", Authorization=new))[0] == 200
