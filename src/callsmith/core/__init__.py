"""Ring 0: the values, events, ports and errors everything else is written in."""
