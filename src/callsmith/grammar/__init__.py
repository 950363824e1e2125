"""Format × tools × choice → a grammar that admits only valid calls, and its emitters."""
