"""Shared access to the operating system: clock, event-loop thread, log, sockets, signals."""
