"""HTTP for people and probes: health, metrics, JSON."""
