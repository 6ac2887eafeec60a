"""Lease arithmetic and the planner: pure, shared by the cache and the index."""
