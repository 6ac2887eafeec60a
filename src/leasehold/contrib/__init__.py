"""Adapters: the interfaces of other projects over Leasehold's locks, elections and caches.

leasehold.contrib.singleton     one instance of a fleet leads
leasehold.contrib.only_one      the same for one function or block
leasehold.contrib.fencing       the fencing token of the current job
leasehold.contrib.etcd3         a client in the shape of python-etcd3
leasehold.contrib.tooz          a driver for tooz; needs the extra `tooz`

A module that needs a framework imports it. Nothing else in Leasehold does.
"""
