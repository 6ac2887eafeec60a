"""What every room may use: errors, limits, invariants, settings, the shape of a clock. Pure."""
