"""Lease arithmetic, the table of leases, and the planner. Pure, and shared by everything that uses leases."""

from leasehold.leases.arithmetic import (
    DRIFT_PPM_DEFAULT,
    holder_deadline_ms,
    margin_ms,
    outlasts_ms,
)
from leasehold.leases.planner import Law, Plan, plan

__all__ = ["DRIFT_PPM_DEFAULT", "Law", "Plan", "holder_deadline_ms", "margin_ms", "outlasts_ms", "plan"]
