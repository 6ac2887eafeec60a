"""Sessions, locks, elections, transactions and recipes on a coordination store."""
