"""A simulated cluster on virtual time: real machines, a real store, everything else derived from one seed.

from leasehold.testing.sim import run_seed
outcome = run_seed(7, events=5_000)
print(outcome.story())
"""

from leasehold.testing.sim.run import Outcome, run_seed

__all__ = ["Outcome", "run_seed"]
