"""The descriptor pool of our messages.

Every Python client of etcd registers messages of the same names, and protobuf refuses a name twice in one pool. With
our own pool, another client can be used in the same process.
"""

from __future__ import annotations

from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()
