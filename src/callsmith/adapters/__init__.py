"""Plug-ins for other programs: our reader and grammars inside servers that run the model themselves."""
