"""Regular expressions: parsed, printed, and combined as finite automata."""
