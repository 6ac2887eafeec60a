"""The documentation site: it builds without a warning, lists every page, loads nothing from elsewhere, has a search."""

from __future__ import annotations

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # its types are a separate package
from tests.dashboard.kit import Browser

ROOT = Path(__file__).parents[1]
# Resources that a browser loads without a click. A link that a reader may follow is none.
LOADED = re.compile(
    r"<(?:script|img|iframe)[^>]*\ssrc=[\"'](?://|https?:)[^>]*>|<link[^>]*\shref=[\"'](?://|https?:)[^>]*>"
)

pytestmark = pytest.mark.xdist_group("site")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=250,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def test_the_navigation_lists_every_page() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    listed = set(re.findall(r": ([\w/-]+\.md)$", text, re.MULTILINE))
    assert listed == {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert [next(iter(each)) for each in yaml.safe_load(text)["nav"]] == [
        "Start", "Operate", "Mooncake", "Python", "Reference", "Design",
    ]  # fmt: skip


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    assert [(page.name, found) for page in pages for found in LOADED.findall(page.read_text())] == []
    styles = [style for style in site.rglob("*.css") if re.search(r"url\([\"']?https?:|@import", style.read_text())]
    assert styles == []


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_the_search_in_a_browser(served: str) -> None:
    with Browser() as browser:
        browser.open(f"http://{served}/?q=switchover")
        browser.until(".md-search-result__list", "The hot standby", "Switchover")
        assert browser.requested() == {served}, "nothing else is contacted"
        assert browser.console() == []
