"""Roles, the right to serve, the standby, promotion and the guardian."""
