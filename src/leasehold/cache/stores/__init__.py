"""Stores behind the authority: where the truth is kept. Each takes tokens and refuses older ones."""
