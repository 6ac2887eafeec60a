"""Stores behind the authority, which keep the values. Each refuses writes with an older token."""
