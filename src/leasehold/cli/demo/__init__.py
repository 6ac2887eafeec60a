"""`leasehold demo`: break a local cluster in every way that matters, and check each answer."""
