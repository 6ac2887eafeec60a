"""Records, batches, group commit, renewals, buffer and snapshots of the index."""
