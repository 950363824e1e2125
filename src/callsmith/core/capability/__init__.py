"""Values of the capability bus that tools and callers carry: authority and binding."""
