"""The buffer of `durability = buffered`: finished batches that outlive the worker, on the disk or in Redis."""
