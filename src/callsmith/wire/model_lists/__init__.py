"""Lists of models: what every dialect is given, and how one client wants it that has a list of its own."""
