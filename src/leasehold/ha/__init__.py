"""Roles, the leader lease, the standby, promotion and the guardian."""
