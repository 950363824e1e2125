"""Functionary 3.2: a line names the recipient, `all` being the user.

    >>>all
    Let me see.>>>get_weather
    {"city": "Paris"}

The prompt ends in `>>>`.
"""

from callsmith.formats.algebra import ARGS, NAME, Calls, Format, Says

V32 = Format(name="functionary-v32", parts=(Says(">>>all\n"), Calls(">>>", NAME, "\n", ARGS)), aliases=("functionary",))
