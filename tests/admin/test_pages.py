"""The dashboard's port without a browser: files, headers, sessions, streams."""

from __future__ import annotations

import contextlib
import json
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from tests.admin.stub_mooncake import StubMooncake
from tests.admin.test_server import StubNode

from leasehold.admin import live
from leasehold.admin.access import SESSION_S, AccessDenied, AccessPolicy, Caller, parse_tokens
from leasehold.admin.pages import load_files
from leasehold.admin.server import AdminServer
from leasehold.base.hosts import HostPolicy

READ, OPERATE = "r" * 24, "o" * 24
TOKENS = f"read grace {READ}\noperate al.ice {OPERATE}\n"
STATIC = Path(live.__file__).parent / "static"


@contextlib.asynccontextmanager
async def served(policy: AccessPolicy | None = None) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    sock = socket.create_server(("127.0.0.1", 0))
    chosen = policy or AccessPolicy()
    server = AdminServer(StubNode(), StubMooncake(), sock, lambda: chosen, HostPolicy())
    await server.start()
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        yield url, session
    await server.close()


async def test_the_page_may_connect_only_to_the_registered_nodes() -> None:
    async with served() as (url, session), session.get(url + "/") as answer:
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "connect-src 'self' http://10.0.0.11:8700 http://10.0.0.12:8700 http://127.0.0.1:8701;" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Frame-Options"] == "DENY"
        names = set(re.findall(r'(?:src|href)="/static/([^"]+)"', await answer.text()))
        assert names <= set(load_files())


def test_the_files_load_nothing_from_elsewhere_and_nothing_inline() -> None:
    for file in STATIC.iterdir():
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://", text.replace("${location.protocol}//", "")), file.name
        assert "innerHTML" not in text, f"{file.name}: text of a node could become markup"
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*src=)|\sstyle=|\son\w+=", page)
    for file in STATIC.glob("*.js"):
        for name in re.findall(r'from "\./([^"]+)"', file.read_text()):
            assert (STATIC / name).is_file(), f"{file.name} imports {name}"


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://10.0.0.12:8700", True),
        ("http://localhost:8701", True),
        ("http://10.0.0.12:8800", False),
        ("https://evil.example", False),
        ("null", False),
    ],
)
async def test_pages_of_registered_nodes_may_read_and_order(origin: str, allowed: bool) -> None:
    headers = {"Origin": origin, "X-Leasehold-Command": "1"}
    async with served() as (url, session):
        async with session.get(url + "/api/status", headers=headers) as answer:
            assert (answer.headers.get("Access-Control-Allow-Origin") == origin) is allowed
        async with session.options(url + "/api/pause", headers=headers) as answer:
            assert (answer.status == 204) is allowed
        async with session.post(url + "/api/pause", headers=headers, data=b"{}") as answer:
            assert (answer.status == 200) is allowed
        without = {"Origin": origin}
        async with session.post(url + "/api/pause", headers=without, data=b"{}") as answer:
            assert answer.status == 403, "the header is missing"


async def test_a_token_is_exchanged_for_a_cookie() -> None:
    headers = {"X-Leasehold-Command": "1"}
    async with served(AccessPolicy(parse_tokens(TOKENS, "f"))) as (url, session):
        async with session.get(url + "/") as answer:
            assert "connect-src 'self';" in answer.headers["Content-Security-Policy"], "strangers see no addresses"
        async with session.post(url + "/api/session", headers=headers, json={"token": "x" * 24}) as answer:
            assert answer.status == 401
        async with session.post(url + "/api/session", headers=headers, json={"token": OPERATE}) as answer:
            cookie = answer.headers["Set-Cookie"]
        assert all(part in cookie for part in ("HttpOnly", "SameSite=Strict", f"Max-Age={SESSION_S}"))
        assert OPERATE not in cookie
        async with session.get(url + "/api/whoami") as answer:
            seen = await answer.json()
        assert (seen["name"], seen["role"], seen["session"]) == ("al.ice", "operate", True)
        async with session.post(url + "/api/pause", headers=headers, data=b"{}") as answer:
            assert answer.status == 200
        async with session.delete(url + "/api/session", headers=headers) as answer:
            assert answer.status == 200
        async with session.get(url + "/api/status") as answer:
            assert answer.status == 401


def test_a_session_ends_with_its_time_and_with_its_token() -> None:
    policy = AccessPolicy(parse_tokens(TOKENS, "f"))
    value = policy.open_session(OPERATE, 1_000)
    seen = Caller("here", session=value, now_s=1_000)
    assert policy.identify(seen).name == "al.ice"
    assert policy.identify(Caller("here", session=value, now_s=1_001 + SESSION_S)).name == "anonymous"
    replaced = AccessPolicy(parse_tokens(TOKENS.replace(OPERATE, "n" * 24), "f"))
    assert replaced.identify(seen).name == "anonymous"
    for forged in (value[:-1] + "0", value.replace("al.ice", "grace"), "", "..", value.replace("1000", "9999", 1)):
        if forged != value:
            assert policy.identify(Caller("here", session=forged, now_s=1_000)).name == "anonymous"


def test_a_pass_opens_a_session_on_a_node_with_the_same_tokens_only() -> None:
    here, there = (AccessPolicy(parse_tokens(TOKENS, "f")) for _ in range(2))
    value = here.open_session(READ, 1_000)
    made = here.make_pass(Caller("here", session=value, now_s=1_000))
    assert there.identify(Caller("x", session=there.exchange_pass(made, 1_010), now_s=1_010)).name == "grace"
    assert there.identify(Caller("x", session=made, now_s=1_010)).name == "anonymous", "a pass is not a session"
    for stranger, now_s in ((there, 1_031), (AccessPolicy(parse_tokens(f"read grace {'q' * 24}", "f")), 1_010)):
        with pytest.raises(AccessDenied):
            stranger.exchange_pass(made, now_s)
    with pytest.raises(AccessDenied):
        here.make_pass(Caller("here", now_s=1_000))


async def test_the_stream_has_the_samples_the_node_and_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "STREAMS_MAX", 2)
    async with served() as (url, session), contextlib.AsyncExitStack() as stack:
        answer = await stack.enter_async_context(session.get(url + "/api/live"))
        assert answer.content_type == "text/event-stream"
        seen: dict[str, object] = {}
        event = ""
        async for raw in answer.content:
            line = raw.decode().strip()
            if line.startswith("event: "):
                event = line.removeprefix("event: ")
            elif line.startswith("data: "):
                seen[event] = json.loads(line.removeprefix("data: "))
            if seen.keys() == {"samples", "node", "cluster"}:
                break
        assert seen["samples"] == []
        assert isinstance(seen["node"], dict)
        assert seen["node"]["status"]["name"] == "a"
        assert isinstance(seen["cluster"], dict)
        assert seen["cluster"]["problem"] == "the store does not answer"
        await stack.enter_async_context(session.get(url + "/api/live"))
        async with session.get(url + "/api/live") as refused:
            assert refused.status == 503
            assert "pages are connected" in (await refused.json())["error"]
