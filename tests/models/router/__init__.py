"""The router: aliases, models loaded on demand, and the memory they share."""
