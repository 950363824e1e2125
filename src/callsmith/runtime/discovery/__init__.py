"""Tool discovery: a model that has too many tools to be shown searches for them."""
