"""Values that tools and callers carry where calls go to other programs: authority, binding, and the record of what ran."""
