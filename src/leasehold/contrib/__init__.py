"""Adapters: the interfaces of other projects over Leasehold's locks, elections and caches.

leasehold.contrib.singleton     one instance of a fleet leads
leasehold.contrib.only_one      the same for one function or block
leasehold.contrib.fencing       the fencing token of the current job
"""
