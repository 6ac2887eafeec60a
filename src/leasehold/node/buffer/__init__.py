"""The buffer of `durability = buffered`: finished batches that survive the worker, on disk or in Redis."""
