"""The state of one master. Pure: time and randomness are passed in."""

from leasehold.base.codes import Code
from leasehold.index.index import Index
from leasehold.index.model import Object, PutConfig, Replica, Segment, SegmentSpec
from leasehold.index.settings import IndexSettings

__all__ = ["Code", "Index", "IndexSettings", "Object", "PutConfig", "Replica", "Segment", "SegmentSpec"]
