"""Types below the values: what JSON is, and how the fields of a value are checked."""
