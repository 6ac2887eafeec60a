"""`leasehold top`: the cluster live in the terminal."""
