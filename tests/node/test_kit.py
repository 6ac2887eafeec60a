"""The test kit's own promises about nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold.testing.node import NodeProcess
from leasehold.testing.process import ServerFailed


def test_a_worker_that_is_not_there_is_told_and_no_signal_goes_elsewhere(tmp_path: Path) -> None:
    """Signal to process 0: it went to the whole group of the test, which was killed, or stood still for ever."""
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
