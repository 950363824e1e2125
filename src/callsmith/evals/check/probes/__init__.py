"""The probes, by what they look at. Importing a module of this folder makes its probes known."""
