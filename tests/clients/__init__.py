"""Frameworks that speak to models, pointed at the server by its address alone."""
