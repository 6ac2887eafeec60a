"""What users import is in `leasehold/__init__.py`, complete and importable."""

from __future__ import annotations

import leasehold


def test_everything_exported_is_there_and_sorted() -> None:
    assert sorted(leasehold.__all__) == list(leasehold.__all__)
    for name in leasehold.__all__:
        assert getattr(leasehold, name) is not None
