"""Caches that are never stale: every cached value is under a lease."""
