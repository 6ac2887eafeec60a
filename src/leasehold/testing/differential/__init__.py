"""The same random script to two servers of the etcd API; every field of every answer is compared.

    difference = await compare(reference.endpoint, other.endpoint, seed=7, operations=5_000)

Exempt, by name, are only what two clusters cannot share (cluster and member ids, raft terms, how much of a lease's
term is left) and orders that etcd leaves to chance; `exempt.py` has them all.
"""

from leasehold.testing.differential.run import Difference, Report, compare

__all__ = ["Difference", "Report", "compare"]
