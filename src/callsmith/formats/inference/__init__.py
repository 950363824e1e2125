"""Which format a chat template speaks: detected, inferred, and checked against the laws."""
