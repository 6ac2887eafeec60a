"""Generated from `../proto/` by `make proto`. Not to be edited."""
