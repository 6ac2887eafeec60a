"""The `leasehold` command."""
