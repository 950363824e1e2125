"""What a chat template shows of made-up turns: the raw material of inference.

Every turn is rendered at the same place of the same conversation and compared with a plain answer there. What both begin with
(the prompt, the header of the turn) and what both end in (the end of the turn) is no part of the format.
"""

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile

from callsmith.core.errors import CallsmithError
from callsmith.core.values import Call, Message, Request, Result, Tool
from callsmith.formats.layout import ARGS, NAME, Calls, Format, obj
from callsmith.formats.prompt import prompt_for
from callsmith.formats.template import Template
from callsmith.formats.turn import CONTROL

# Words that no template contains. Keys are in alphabetical order, since some templates sort them.
NAMES = ("tourmaline_fn", "obsidian_fn")
KEYS = ("agate_key", "beryl_key")
WORDS = ("feldspar", "zirconium")
IDS = ("qidaaaaa1", "qidbbbbb2")  # nine letters and digits: what the pickiest templates take
SAID = "Quietly spoken"
THOUGHT = "Deeply pondered"

ANYTHING = {"type": "object", "properties": {key: {} for key in KEYS}}
TOOLS = tuple(Tool(name, "A tool.", ANYTHING) for name in NAMES)
QUESTION = Message.user("What now?")
STAND_IN = Format("stand-in", (Calls(obj(("name", NAME), ("arguments", ARGS))),))

TOKEN = re.compile(r"<[^<>]*>?|\[/?[A-Z_]+\]|\w+|\s+|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Scene:
    """A turn to render."""

    calls: tuple[Call, ...]
    text: str = ""
    thought: str = ""


def scene(*arguments: dict[str, object]) -> Scene:
    """One call for each set of arguments, of the tools in turn."""
    return Scene(tuple(Call(*given) for given in zip(NAMES, arguments, IDS, strict=False)))


NO_ARGUMENT = scene({})
ONE_ARGUMENT = scene({KEYS[0]: WORDS[0]})
TWO_ARGUMENTS = scene({KEYS[0]: WORDS[0], KEYS[1]: WORDS[1]})
TWO_CALLS = scene({KEYS[0]: WORDS[0]}, {KEYS[1]: WORDS[1]})
SPOKEN = replace(ONE_ARGUMENT, text=SAID)
THINKING = replace(ONE_ARGUMENT, thought=THOUGHT)
TYPED = {
    "number": scene({KEYS[0]: 7301}),
    "boolean": scene({KEYS[0]: True}),
    "array": scene({KEYS[0]: [7302, "mica"]}),
    "object": scene({KEYS[0]: {"quartz": "mica"}}),
    "null": scene({KEYS[0]: None}),
}


@dataclass
class Shown:
    """The turns of one template. `answered`: calls are followed by their results, for templates that show them only then."""

    template: Template
    answered: bool = False
    _seen: dict[str, str | None] = field(default_factory=dict[str, str | None])

    def whole(self, scene: Scene) -> str | None:
        """A conversation that ends in this turn; None if the template refuses it."""
        key = repr(scene)
        if key not in self._seen:
            self._seen[key] = self._render(scene)
        return self._seen[key]

    def turn(self, scene: Scene) -> str | None:
        """The turn alone, without its header and its end."""
        whole = self.whole(scene)
        if whole is None or not whole.startswith(self.before):
            return None
        rest = whole[len(self.before) :]
        return _without_control(rest[: rest.rfind(self.after)] if self.answered else rest.removesuffix(self.after))

    @cached_property
    def before(self) -> str:
        """What stands before every turn."""
        one, plain = self.whole(ONE_ARGUMENT) or "", self._plain
        return one[: shared_start(one, plain)]

    @cached_property
    def after(self) -> str:
        """What stands behind every turn."""
        one, plain = self.whole(ONE_ARGUMENT) or "", self._plain
        return one[len(one) - shared_end(one[len(self.before) :], plain[len(self.before) :]) :]

    @cached_property
    def frame(self) -> tuple[str, str]:
        """What stands around spoken text inside the turn."""
        rest = self._plain[len(self.before) :].removesuffix(self.after)
        open, _, close = rest.partition(SAID)
        return open, _without_control(close)

    @cached_property
    def opened(self) -> str:
        """How the prompt begins the model's turn."""
        try:
            return prompt_for(Request((QUESTION,)), TOOLS, self.template, STAND_IN).opened
        except CallsmithError:
            return ""

    @cached_property
    def _plain(self) -> str:
        return self.whole(Scene((), SAID)) or ""

    def _render(self, scene: Scene) -> str | None:
        told = [QUESTION, Message.assistant(scene.text, reasoning=scene.thought, calls=scene.calls)]
        if self.answered:
            told += [Message.tool(Result(call.id, call.name, "Granted.")) for call in scene.calls]
        try:
            prompt = prompt_for(Request(tuple(told)), TOOLS, self.template, STAND_IN)
        except CallsmithError:
            return None
        return prompt.text.removesuffix(prompt.opened)


def shared_start(one: str, other: str) -> int:
    """How much two texts begin with in common, to the edge of a token in both."""
    length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    start = max(one.rfind("<", 0, length), 0)  # tokens are told apart from here on: long prompts need not be cut up
    return max(set(edges(one[start:])) & set(edges(other[start:])) & set(range(length - start + 1))) + start


def shared_end(one: str, other: str) -> int:
    """How much two texts end with in common, to the edge of a token in both."""
    length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(reversed(one), reversed(other), strict=False)))
    ends = ({len(text) - edge for edge in edges(text)} for text in (one, other))
    return max(set.intersection(*ends) & set(range(length + 1)))


def edges(text: str) -> list[int]:
    """Where tokens begin and end: markers, words, white space, single signs."""
    return [*(found.start() for found in TOKEN.finditer(text)), len(text)]


def _without_control(text: str) -> str:
    """The text without the tokens at its end that end a turn."""
    bare = text.rstrip()
    ending = next((control for control in CONTROL if bare.endswith(control)), None)
    return text if ending is None else _without_control(bare.removesuffix(ending))
