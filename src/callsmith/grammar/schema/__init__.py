"""JSON Schema reduced to a small normal form that grammars can be made of."""
