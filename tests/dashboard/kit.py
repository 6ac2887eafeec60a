"""A real Chromium, and a cluster with something to see: for the tests of the dashboard and the pictures of the docs."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from msgspec.structs import replace
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from leasehold.testing.load import Burst
from leasehold.testing.node import NodeGroup
from leasehold.testing.process import MissingServer, wait_until
from leasehold.testing.workload import Lender
from leasehold.wire.client import Client

SEGMENT = 4 << 20
WEB = ("http", "https", "ws", "wss")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-default-apps",
    "--hide-scrollbars",
    "--force-prefers-reduced-motion",
)


class Browser:
    """Chromium with a fresh profile. It keeps the console, and every request that a page sends."""

    def __init__(self, *, width: int = 1400, height: int = 1000, dark: bool = False) -> None:
        chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
        if chromium is None or driver is None:
            raise MissingServer("no chromium or chromedriver: install the Debian packages (scripts/system-deps)")
        self._profile = tempfile.TemporaryDirectory(prefix="leasehold-chromium-")
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in (*FLAGS, f"--user-data-dir={self._profile.name}", f"--window-size={width},{height}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        self._requested: list[str] = []
        self.set_theme(dark=dark)

    def set_theme(self, *, dark: bool) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def be_a_phone(self) -> None:
        metrics = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def open(self, url: str) -> None:
        self.driver.get(url)

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """The text as it is shown; "" if the element is absent or changes just now."""
        found = self.run(f"return document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        return str(found)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def run_async(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_async_script(script, *arguments)

    def until(self, selector: str, *parts: str, timeout_s: float = 60.0) -> None:
        """Wait until an element shows these texts."""
        wait_until(
            lambda: all(part in self.text(selector) for part in parts),
            lambda: f"{selector} shows {parts}: it shows {self.text(selector)!r}; console: {self.console()}",
            timeout_s,
        )

    def until_true(self, expression: str) -> None:
        """Wait until an expression in the page is true."""
        wait_until(lambda: bool(self.run(f"return {expression}")), lambda: f"{expression}; console: {self.console()}")

    def click(self, selector: str) -> None:
        self.find(selector).click()

    def picture(self, file: Path, *, whole: bool = True) -> None:
        """A screenshot, of the whole page if `whole`."""
        answer = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": whole})
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(answer["data"]))

    def console(self) -> list[str]:
        """Errors and warnings of the console since the last call."""
        entries: list[dict[str, Any]] = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [str(entry["message"]) for entry in entries if entry["level"] in ("SEVERE", "WARNING")]

    def requested(self) -> set[str]:
        """HOST:PORT of every request so far, of any scheme that leaves the browser."""
        entries: list[dict[str, Any]] = self.driver.get_log("performance")  # type: ignore[no-untyped-call]
        for entry in entries:
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self._requested.append(message["params"]["request"]["url"])
        return {urlsplit(url).netloc for url in self._requested if urlsplit(url).scheme in WEB}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.driver.quit()
        self._profile.cleanup()


@contextlib.asynccontextmanager
async def something_to_see(nodes: NodeGroup, *, lenders: int = 3) -> AsyncIterator[None]:
    """Hosts that lend memory, writers that fill it, and readers with hits and misses."""
    master = ",".join(nodes.addresses)
    async with contextlib.AsyncExitStack() as stack:
        for number in range(1, lenders + 1):
            lender = Lender(master, size=SEGMENT)
            lender.segments = [replace(each, name=f"host-{number}") for each in lender.segments]
            await stack.enter_async_context(lender)
        burst = await stack.enter_async_context(Burst(master, writers=2, batch=10))
        reading = asyncio.create_task(_read(master, burst))
        stack.callback(reading.cancel)
        yield


async def _read(master: str, burst: Burst) -> None:
    client = Client(master, timeout_ms=20_000)
    try:
        while True:
            keys: Sequence[str] = burst.acknowledged[-200:]
            with contextlib.suppress(Exception):  # a failover: the writers remember what matters
                await client.batch_exist_key([*keys, "absent-1", "absent-2"])
                await client.batch_get_replica_list(keys[:20])
            await asyncio.sleep(0.05)
    finally:
        client.close()
