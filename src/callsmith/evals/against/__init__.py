"""`callsmith check --against`: a server held against a reference, on the same questions."""
