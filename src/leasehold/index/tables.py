"""How objects are spread over tables by the hash of their key.

Snapshots and range records work on whole tables, and a dict grows in one step. With many small tables no single step
takes long.
"""

from __future__ import annotations

from typing import Final

from leasehold.index.model import Object

# Range records and snapshots name tables by number, so this must never change.
TABLES: Final = 16384  # a few dozen objects each, of a million; the hot paths write `crc32(key) & 16383`
Tables = list[dict[bytes, Object]]
NO_OBJECTS: Final[dict[bytes, Object]] = {}  # stands for every table that is still empty. Read only.
NO_TABLES: Final[Tables] = [NO_OBJECTS] * TABLES  # of a tenant without objects in memory. Read only.
Name = tuple[bytes, bytes]  # tenant, key
