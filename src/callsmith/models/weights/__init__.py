"""Model weights: the catalogue, and how files are found, fetched and verified."""
