"""Files of servers are private: data, logs and keys contain the names, and in a store the values, of all objects."""

from __future__ import annotations

import os


def make_files_private() -> None:
    """From now on this process and its children create files with mode 0600, and directories with 0700."""
    os.umask(0o077)
