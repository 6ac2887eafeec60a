"""Lease arithmetic, the table of holders, and the planner: pure, shared by whatever keeps things by lease."""

from leasehold.leases.arithmetic import (
    DRIFT_PPM_DEFAULT,
    holder_deadline_ms,
    margin_ms,
    outlasts_ms,
)
from leasehold.leases.planner import Law, Plan, plan

__all__ = ["DRIFT_PPM_DEFAULT", "Law", "Plan", "holder_deadline_ms", "margin_ms", "outlasts_ms", "plan"]
