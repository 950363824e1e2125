"""How model families write calls: one declarative value each, and the interpreters that walk it."""
