"""A seeded world for the cache: real machines, simulated clocks, network, crashes and store."""
