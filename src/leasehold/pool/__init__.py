"""A storage host that lends a segment of memory, and put/get of real bytes in Python."""
