"""Errors of applying records.

LeaseholdError
  Unappliable    the record does not fit this state
    NotHere      the record names an object that this node does not have
"""

from __future__ import annotations

from leasehold.base.errors import LeaseholdError


class Unappliable(LeaseholdError):
    """The record does not fit this state: the node has diverged, or a record is missing. Report it and rebuild."""


class NotHere(Unappliable):
    """The record names an object that this node has evicted and the leader still has."""
