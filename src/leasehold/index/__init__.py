"""The master's state: segments, space, objects, leases, limbo, eviction. Pure: time and chance come in."""

from leasehold.base.codes import Code
from leasehold.index.index import Index
from leasehold.index.model import Object, PutConfig, Replica, Segment, SegmentSpec
from leasehold.index.settings import IndexSettings

__all__ = ["Code", "Index", "IndexSettings", "Object", "PutConfig", "Replica", "Segment", "SegmentSpec"]
