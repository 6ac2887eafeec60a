"""The embedded store as a process of its own, `leasehold store`, with its faults as verbs."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from leasehold.testing.ports import free_ports, listens
from leasehold.testing.process import ServerProcess


class StoreProcess(ServerProcess):
    """`leasehold store` on a loopback port of its own; `url` is for `leasehold.connect`.

    with StoreProcess() as store:
        client = await leasehold.connect(store.url)
        store.kill()
    """

    def __init__(self, *, data_dir: Path | None = None, arguments: Sequence[str] = ()) -> None:
        self._owned = None if data_dir else tempfile.TemporaryDirectory(prefix="leasehold-store-")
        folder = data_dir or Path(self._owned.name if self._owned else "")
        self.data_dir = folder / "data"
        self.port = free_ports(1)[0]
        command = [sys.executable, "-m", "leasehold", "store", "--listen", self.endpoint, "--data", str(self.data_dir)]
        super().__init__(
            "leasehold store",
            command + list(arguments),
            log_path=folder / "store.log",
            probe=lambda: listens(self.port),
        )

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"etcd://{self.endpoint}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._owned:
            self._owned.cleanup()
