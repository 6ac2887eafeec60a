"""Taking over the pool of a running `mooncake_master` (docs/migrate.md)."""
