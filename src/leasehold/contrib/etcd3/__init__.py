"""The public interface of python-etcd3 0.12 over Leasehold's client.

    from leasehold.contrib import etcd3     # instead of: import etcd3
    etcd = etcd3.client(host="127.0.0.1", port=2379)

The names, arguments and results are those of python-etcd3. `docs/adapters/etcd3.md` lists the differences.
"""

from leasehold.contrib.etcd3 import etcdrpc, events, exceptions, utils
from leasehold.contrib.etcd3.client import Etcd3Client, client
from leasehold.contrib.etcd3.exceptions import Etcd3Exception
from leasehold.contrib.etcd3.leases import Lease
from leasehold.contrib.etcd3.locks import Lock
from leasehold.contrib.etcd3.members import Member
from leasehold.contrib.etcd3.transactions import Transactions

__all__ = [
    "Etcd3Client",
    "Etcd3Exception",
    "Lease",
    "Lock",
    "Member",
    "Transactions",
    "client",
    "etcdrpc",
    "events",
    "exceptions",
    "utils",
]
