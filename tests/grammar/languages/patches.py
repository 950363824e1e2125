"""The language of patches, as agents that edit files send it; and custom tools with grammars, for tests."""

from functools import cache
from typing import Any

import lark

from callsmith.core.values import Tool

# As a tool that edits files brings it: an envelope around files that are added, deleted or changed.
PATCH = r"""
start: begin file+ end
begin: "*** Begin Patch" LF
end: "*** End Patch" LF?

file: added | deleted | changed
added: "*** Add File: " path LF new_line+
deleted: "*** Delete File: " path LF
changed: "*** Update File: " path LF moved? changes?

path: /(.+)/
new_line: "+" /(.*)/ LF -> line

moved: "*** Move to: " path LF
changes: (place | changed_line)+ last?
place: ("@@" | "@@ " /(.+)/) LF
changed_line: ("+" | "-" | " ") /(.*)/ LF
last: "*** End of File" LF

%import common.LF
"""

# The same language for the parser that judges: a terminal of it is never empty.
_JUDGED_PATCH = PATCH.replace("/(.*)/", "/.+/?")

SUM = r"""
start: sum
?sum: sum ("+" | "-") product | product
?product: product "*" atom | atom
atom: NUMBER | NAME | "(" sum ")" | TEXT
NAME: /[a-z]+/
TEXT: /"[^"\n]*"/
%import common.NUMBER
%ignore " "
"""

TAGS = r"""
start: tag
tag: "<" NAME ">" (tag | TEXT)* "</" NAME ">"
NAME: /[a-z]{1,9}/
TEXT: /[^<>&]+/
"""


def custom(name: str, definition: str, syntax: str = "lark") -> Tool:
    """A tool whose only argument is a text that a grammar holds."""
    text = {"type": "string", "x-grammar": {"syntax": syntax, "definition": definition}}
    return Tool(name, "", {"type": "object", "properties": {"input": text}, "required": ["input"], "additionalProperties": False})


@cache
def parser(definition: str) -> Any:
    """Lark's own parser of a grammar, which shares nothing with ours."""
    return lark.Lark(_JUDGED_PATCH if definition == PATCH else definition, parser="earley", lexer="dynamic_complete")


def fits(definition: str, text: str) -> bool:
    """Whether Lark's own parser reads the text."""
    try:
        parser(definition).parse(text)
    except lark.exceptions.LarkError:
        return False
    return True
