"""The functions that clients can call: those of each Mooncake release, and Leasehold's own."""
