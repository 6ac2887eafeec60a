"""Shared by every package: errors, limits, invariants, settings, units, the clock interface. No I/O."""
