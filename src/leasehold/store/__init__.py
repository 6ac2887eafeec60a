"""The embedded store: `mvcc` with a clock and a disk, used in this process or served over gRPC."""
