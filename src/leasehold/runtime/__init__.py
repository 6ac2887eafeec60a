"""The few things that touch the real world for everybody: the clock, the loop thread, the log."""
