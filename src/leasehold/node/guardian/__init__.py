"""The guardian's shell: the parent process that owns the sockets, spawns, watches and reaps the worker."""
