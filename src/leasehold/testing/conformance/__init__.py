"""Conformance cases for every back end of `Coord`, to run on yours: the whole etcd v3 data model.

    for case in CASES:
        await run(case, coord)

Cases use keys of their own and may run on a store that others use; those that compact say so in their name.
"""

from leasehold.testing.conformance.cases import CASES, Case, run

__all__ = ["CASES", "Case", "run"]
