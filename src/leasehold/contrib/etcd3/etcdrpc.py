"""The messages of etcd's API under the names of python-etcd3's `etcdrpc`."""

from leasehold.etcd.pb.kv_pb2 import *  # noqa: F403
from leasehold.etcd.pb.rpc_pb2 import *  # noqa: F403
