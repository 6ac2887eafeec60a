"""The worker process: the machine, the store client, the listeners and the admin port on one event loop."""
