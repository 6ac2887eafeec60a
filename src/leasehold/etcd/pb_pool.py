"""The descriptor pool of our stubs.

Every Python client of etcd brings messages of the same names; protobuf refuses a name twice in one pool, so that
two clients could not live in one process. Ours keep to themselves.
"""

from __future__ import annotations

from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()
