"""The formats of the model families, one module each. Every `Format` in these modules is known by its name and aliases."""
