"""The embedded store: `mvcc` with a clock, a disk and readers; in this process, or served over gRPC."""
