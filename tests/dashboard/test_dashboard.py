"""The dashboard in a real Chromium, on a real cluster: what people see, what it may do, and what it may not."""

from __future__ import annotations

import asyncio
import http.server
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.dashboard.kit import Browser, something_to_see

from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.node import NodeGroup
from leasehold.testing.ports import free_ports
from leasehold.testing.process import wait_until

pytestmark = [pytest.mark.xdist_group("dashboard"), pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
SCREENSHOTS = ROOT / ".cache" / "screenshots"
READ, OPERATE = "r" * 24, "o" * 24
ORDER = """
const [url, done] = arguments;
const headers = {"X-Leasehold-Command": "1", "Content-Type": "application/json"};
fetch(url, {method: "POST", credentials: "include", headers, body: "{}"})
  .then(async (answer) => done([answer.status, await answer.text()]), (error) => done([0, String(error)]));
"""


@pytest.fixture(scope="module")
def nodes(etcd: EtcdCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeGroup]:
    folder = tmp_path_factory.mktemp("nodes")
    with NodeGroup(etcd.url, 3, cluster=f"kv-{uuid4().hex[:4]}", folder=folder) as group:
        yield group


@pytest.fixture(scope="module")
def axe() -> str:
    """The source of axe-core, from its registry."""
    subprocess.run([ROOT / "scripts" / "axe-core"], check=True, timeout=120)
    return (ROOT / ".cache" / "axe-core" / "axe.min.js").read_text()


@pytest.fixture
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


def page(nodes: NodeGroup, number: int = 0) -> str:
    return f"http://{nodes.nodes[number].admin}/"


def wait_for_the_picture(browser: Browser, nodes: NodeGroup) -> None:
    browser.until("#health", "healthy")
    browser.until("#nodes", *(node.node_name for node in nodes.nodes), "primary", "standby")
    browser.until("#source", *(node.node_name for node in nodes.nodes))


def violations(browser: Browser, axe: str) -> list[str]:
    """Violations of WCAG A and AA on the present page."""
    browser.run(axe)
    found: Any = browser.run_async(
        "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']})"
        ".then((result) => arguments[arguments.length - 1](result.violations.map((each) =>"
        " `${each.id}: ${each.help}: ${each.nodes.map((node) => node.html).join(' | ')}`)))"
    )
    return list(found)


async def test_it_shows_the_cluster_to_eyes_and_to_screen_readers(nodes: NodeGroup, browser: Browser, axe: str) -> None:
    async with something_to_see(nodes):

        def look() -> None:
            browser.open(page(nodes))
            wait_for_the_picture(browser, nodes)
            browser.until("#tiles", "Calls", "Keys found", "Commit, 99 %")
            browser.until("#charts", "BatchPutEnd", "hits", "renewals")
            browser.until("#pool", "MiB of 4.0 MiB")
            browser.until("#timeline", "Epoch", "begins after record")
            wait_until(lambda: "\u2013" not in browser.text("#tiles"), lambda: browser.text("#tiles"))
            for theme in ("light", "dark"):
                browser.set_theme(dark=theme == "dark")
                browser.until_true(f"document.documentElement.dataset.theme === '{theme}'")
                assert violations(browser, axe) == [], theme
                browser.picture(SCREENSHOTS / f"{theme}.png")
            browser.be_a_phone()
            browser.set_theme(dark=False)
            assert violations(browser, axe) == [], "phone"
            assert browser.run("return document.documentElement.scrollWidth <= innerWidth + 1"), "it scrolls sideways"
            browser.picture(SCREENSHOTS / "phone.png")
            assert browser.console() == []
            assert browser.requested() <= {node.admin for node in nodes.nodes}

        await asyncio.to_thread(look)


CHARTED = """
const done = arguments[arguments.length - 1];
import("/static/model.js").then(({ Model }) => {
  const model = new Model(), end = Math.floor(Date.now() / 2000) * 2000;
  const sample = (name, ms, calls) => model.nodeReported({status: {name}, sample: {wall_ms: end + ms, calls}});
  for (const ms of [-8000, -6000, -4000]) sample("primary", ms + 1500, ms);
  for (const ms of [-8000, -6000, -4000, -2000, 0]) sample("standby", ms, 0);
  for (const ms of [-9000, -3500]) sample("slow", ms, ms);
  for (const ms of [-5990, -4010, -4001]) sample("twice", ms, ms);
  model.nodeLost("twice");
  const rows = model.series(5).filter((point) => point.ms >= end - 8000 && point.ms <= end);
  done(rows.map((point) => point.samples.map((each) => each.calls)));
});
"""


def test_a_chart_has_one_sample_of_each_node_at_each_time(nodes: NodeGroup, browser: Browser) -> None:
    """Nodes sample at moments of their own, a busy one late: the present shall not show the standbys alone."""
    browser.open(page(nodes))
    assert browser.run_async(CHARTED) == [
        [-8000, 0, -3500],
        [-6000, 0, -3500, -4001],
        [-4000, 0, -3500],
        [-4000, 0, -3500],
        [-4000, 0, -3500],
    ]


async def test_a_failover_is_seen_live_without_a_reload(nodes: NodeGroup, browser: Browser) -> None:
    """The node that served the page dies with its host. The page goes on with the others."""
    async with something_to_see(nodes, lenders=1):

        def look() -> None:
            victim = nodes.primary()
            browser.open(f"http://{victim.admin}/")
            wait_for_the_picture(browser, nodes)
            browser.run("window.sameDocument = true")
            assert f"{victim.node_name} leads" in browser.text("#leadership")
            victim.kill_host()
            successor = nodes.primary()
            browser.until("#leadership", f"{successor.node_name} leads")
            browser.until(".node.dead", victim.node_name, "does not answer")
            browser.until("#worries", f"{victim.node_name} does not answer")
            browser.until("#timeline", successor.node_name)
            browser.picture(SCREENSHOTS / "failover.png", whole=False)
            victim.start()
            browser.until("#health", "healthy")
            browser.until("#source", victim.node_name)
            assert browser.run("return window.sameDocument") is True, "the page was reloaded"
            assert browser.run("return document.querySelectorAll('.node.leads').length") == 1
            assert browser.requested() <= {node.admin for node in nodes.nodes}
            unexpected = [line for line in browser.console() if f"http://{victim.admin}/api/live" not in line]
            assert unexpected == [], "only the dead node's stream may fail"

        try:
            await asyncio.to_thread(look)
        finally:
            await asyncio.to_thread(nodes.revive)


def test_the_buttons_work(nodes: NodeGroup, browser: Browser, axe: str) -> None:
    browser.open(page(nodes))
    wait_for_the_picture(browser, nodes)
    before = nodes.primary()
    target = nodes.standbys()[0].node_name
    browser.click("#switchover")
    browser.run("document.querySelector('#dialog select').value = arguments[0]", target)
    assert violations(browser, axe) == [], "dialog"
    browser.click("#dialog-go")
    browser.until("#leadership", f"{target} leads")
    browser.until("#timeline", "ordered by", "switchover")
    assert nodes.primary() is not before
    browser.click("#pause")
    browser.find("#dialog input").send_keys("new disks")
    browser.click("#dialog-go")
    browser.until("#worries", "failover is paused", "new disks", "leasehold resume")
    browser.click("#resume")
    browser.click("#dialog-go")
    wait_until(lambda: "paused" not in browser.text("#worries"), "it is resumed")
    assert browser.console() == []


def test_orders_through_the_page_of_another_node(nodes: NodeGroup, browser: Browser) -> None:
    """A page may order on another registered node: its own may be dead."""
    browser.open(page(nodes))
    wait_for_the_picture(browser, nodes)
    for path in ("pause", "resume"):
        status, answer = browser.run_async(ORDER, f"{page(nodes, 1)}api/{path}")
        assert status == 200, answer


def test_the_keyboard_is_enough(nodes: NodeGroup, browser: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open(page(nodes))
    wait_for_the_picture(browser, nodes)
    active = "return document.activeElement.id"
    for _ in range(12):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        if browser.run(active) == "pause":
            break
    assert browser.run(active) == "pause"
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.run("return document.querySelector('#dialog').open")
    browser.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not browser.run("return document.querySelector('#dialog').open")


def test_a_foreign_page_can_neither_order_nor_read(nodes: NodeGroup, browser: Browser) -> None:
    (port,) = free_ports(1)

    class Foreign(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>foreign</title>")

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing is printed."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Foreign)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    simple = ORDER.replace(
        '"X-Leasehold-Command": "1", "Content-Type": "application/json"', '"Content-Type": "text/plain"'
    )
    try:
        browser.open(f"http://127.0.0.1:{port}/")
        orders_before = len([line for line in nodes.nodes[0].history() if line.role == "order"])
        for script in (ORDER, simple):
            status, answer = browser.run_async(script, f"{page(nodes)}api/pause")
            assert status == 0, f"the foreign page read {answer}"
        read = "fetch(arguments[0]).then(() => arguments[1](true), () => arguments[1](false))"
        assert browser.run_async(read, f"{page(nodes)}api/status") is False
        framed = "const f = document.createElement('iframe'); f.src = arguments[0]; f.onload = () => arguments[1](1);"
        browser.run_async(framed + "document.body.append(f)", page(nodes))
        assert browser.run("try { return frames[0].document.title } catch { return 'refused' }") != "Leasehold"
    finally:
        server.shutdown()
    assert nodes.nodes[0].cluster_status().paused == ""
    assert len([line for line in nodes.nodes[0].history() if line.role == "order"]) == orders_before


def test_without_the_role_orders_are_refused(etcd: EtcdCluster, browser: Browser, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"read grace {READ}\noperate alice {OPERATE}\n")
    os.chmod(tokens, 0o600)
    arguments = ["--token-file", str(tokens)]
    with NodeGroup(etcd.url, 2, cluster=f"c{uuid4().hex[:6]}", folder=tmp_path, arguments=arguments) as nodes:
        browser.open(page(nodes))
        browser.until("#dialog", "Sign in")
        assert browser.run(
            "return performance.getEntriesByType('resource').every((e) => !e.name.includes('/api/live'))"
        )
        sign_in(browser, "w" * 24)
        browser.until("#dialog-error", "not in the node's token file")
        sign_in(browser, READ)
        browser.until("#who", "grace: may read")
        browser.until("#leadership", "leads")
        assert not browser.find("#orders").is_displayed()
        status, answer = browser.run_async(ORDER, f"{page(nodes)}api/pause")
        assert (status, "'grace' has only 'read'" in answer) == (403, True)
        assert browser.run("return document.cookie") == "", "scripts can read the session"
        browser.click("#sign")
        browser.until("#dialog", "Sign in")
        sign_in(browser, OPERATE)
        browser.until("#who", "alice: may operate")
        browser.until("#source", "n1", "n2")
        browser.click("#pause")
        browser.click("#dialog-go")
        browser.until("#worries", "failover is paused")
        browser.until("#timeline", "ordered by alice")


def sign_in(browser: Browser, token: str) -> None:
    field = browser.find("#dialog input")
    field.clear()
    field.send_keys(token)
    browser.click("#dialog-go")
