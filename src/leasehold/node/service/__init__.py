"""What clients can call: every function of a release and our own, carried out on the index."""
