"""The paths of a put and of a standby's apply stay short: how often each enters a package."""

from __future__ import annotations

from leasehold.testing.walk import walk_apply, walk_put

PUT_ENTRIES_MAX = 18
APPLY_ENTRIES_MAX = 10


async def test_a_durable_put_enters_few_packages() -> None:
    start, end = await walk_put()
    assert len(start.entries) <= PUT_ENTRIES_MAX, str(start)
    assert len(end.entries) <= PUT_ENTRIES_MAX, str(end)
    assert start.entries[0].package == end.entries[0].package == "wire"


async def test_a_standby_applies_a_batch_with_few_entries() -> None:
    (path,) = await walk_apply()
    assert len(path.entries) <= APPLY_ENTRIES_MAX, str(path)
    assert "index" in [entry.package for entry in path.entries]
