"""The HTTP admin interface: health, readiness, metrics, status and the operator's commands."""
