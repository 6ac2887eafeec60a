"""Adapters: the interfaces of other projects over Leasehold's locks, elections and caches.

leasehold.contrib.singleton     one instance of a fleet leads
leasehold.contrib.only_one      the same for one function or block
leasehold.contrib.fencing       the fencing token of the current job
leasehold.contrib.etcd3         a client in the shape of python-etcd3
leasehold.contrib.cached        functions whose results are cached in the whole fleet
leasehold.contrib.tooz          a driver for tooz
leasehold.contrib.celery        Celery Beat on several hosts
leasehold.contrib.apscheduler   APScheduler 3 on several hosts
leasehold.contrib.apscheduler4  APScheduler 4 on several hosts
leasehold.contrib.django        a cache back end for Django
leasehold.contrib.aiocache      a back end for aiocache

The last six need the extra of their framework's name, and import it. Nothing else in Leasehold does.
"""
