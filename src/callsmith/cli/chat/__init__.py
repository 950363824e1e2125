"""`callsmith chat`: talk to a model in the terminal, watch it call tools, and be asked before it does something."""

from callsmith.cli.chat.command import app as app
