"""Grammars that allow only valid calls: made from a format, tools and a choice, written in the languages of grammar engines."""
