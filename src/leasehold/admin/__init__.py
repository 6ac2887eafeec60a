"""HTTP for people and probes: health, readiness, metrics, status and the few things an operator may ask for."""
