"""One running master: wire, index, journal and standby put together."""
