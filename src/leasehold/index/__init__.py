"""The master's state: segments, objects, leases, limbo, eviction. A pure state machine."""
