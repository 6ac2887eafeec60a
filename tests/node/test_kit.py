"""The test kit's own promises about nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold.testing.node import NodeProcess
from leasehold.testing.process import ServerFailed


def test_a_missing_worker_is_reported_and_no_other_process_is_signalled(tmp_path: Path) -> None:
    """A signal to process 0 went to the whole process group of the test, and killed or stopped it."""
    node = NodeProcess("memory://", "n", data_dir=tmp_path)
    node.argv = ["sleep", "600"]
    node.spawn()
    try:
        for harm in (node.kill_worker, node.freeze_worker):
            with pytest.raises(ServerFailed, match="has no worker now"):
                harm()
        node.thaw_worker()
    finally:
        node.kill()
