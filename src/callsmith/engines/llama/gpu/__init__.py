"""GPUs: which the library sees, how many layers of a model fit into their memory, and whether they work at all."""
