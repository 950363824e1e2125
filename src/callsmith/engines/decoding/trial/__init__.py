"""Grammars are tried in a process of their own before the server compiles them: what crashes or never ends does so there."""
