"""The parts of an index: their wiring, and the replies of batches."""

from __future__ import annotations

import gc

from tests.index.kit import KIB, WRITER, T, primary

from leasehold.index import Code, Index, IndexSettings, PutConfig
from leasehold.index.catalog import Catalog


def _catalogs() -> int:
    return sum(type(each) is Catalog for each in gc.get_objects())


def test_parts_have_no_reference_cycles() -> None:
    """A node freezes its long-lived objects, and frozen cycles are never collected."""
    gc.collect()
    gc.disable()
    try:
        before = _catalogs()
        index = Index(IndexSettings(), lambda _: 0)
        index.begin(0, 1)
        assert _catalogs() == before + 1
        del index
        assert _catalogs() == before
    finally:
        gc.enable()


def test_a_batch_of_starts_waits_for_its_highest_record() -> None:
    index = primary((64 * KIB,))
    index.puts.start(0, WRITER, T, b"there", KIB, PutConfig())
    index.puts.end(0, WRITER, T, b"there")
    objects = [(b"a", KIB, PutConfig()), (b"there", KIB, PutConfig()), (b"b", KIB, PutConfig())]
    reply = index.puts.start_many(1, WRITER, T, objects, request=7)
    assert reply.value is not None
    assert [each.code for each in reply.value] == [Code.OK, Code.EXISTS, Code.OK]
    assert reply.after == index.log.last_n == max(each.after for each in reply.value)
    drafts = [each.value.draft.request for each in reply.value if each.value is not None and each.value.draft]
    assert drafts == [7, 9], "request ids count up with the keys"
    ended = index.puts.end_many(2, WRITER, T, [(b"a", None), (b"absent", None), (b"b", 5)])
    assert (ended.value, ended.after) == ([Code.OK, Code.NOT_FOUND, Code.OK], index.log.last_n)
