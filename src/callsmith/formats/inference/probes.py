"""What a chat template shows of made-up turns: the raw material of inference.

Every turn is rendered at the same place of the same conversation and compared with a plain answer there. What both begin with
(the prompt, the header of the turn) and what both end in (the end of the turn) is no part of the format.
"""

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile

from callsmith.core.errors import CallsmithError
from callsmith.core.values import Call, Message, Request, Result, Schema, Tool
from callsmith.formats.algebra import ARGS, NAME, Calls, Format, obj
from callsmith.formats.prompt.prompt import prompt_for
from callsmith.formats.prompt.template import Template
from callsmith.formats.reader.turn import CONTROL

# Words that no template contains. Keys are in alphabetical order, since some templates sort them.
NAMES = ("tourmaline_fn", "obsidian_fn")
KEYS = ("agate_key", "beryl_key")
WORDS = ("feldspar", "zirconium")
IDS = ("qidaaaaa1", "qidbbbbb2")  # nine letters and digits: what the pickiest templates take
SAID = "Quietly spoken"
THOUGHT = "Deeply pondered"

ANYTHING: Schema = {"type": "object", "properties": {key: {} for key in KEYS}}
TOOLS = tuple(Tool(name, "A tool.", ANYTHING) for name in NAMES)
QUESTION = Message.user("What now?")
STAND_IN = Format("stand-in", (Calls(obj(("name", NAME), ("arguments", ARGS))),))

FIRST_MARKER = re.compile(r"\s*(?:<[^<>\s]+>|\[/?[A-Z_]+\])\s*")
LAST_MARKER = re.compile(r"(?:<[^<>\s]+>|\[[A-Z_]+\])\s*\Z")
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
PLAIN = Scene((), SAID)
OTHER_ID = Scene((replace(ONE_ARGUMENT.calls[0], id="call_7"),))
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
        if not self.answered:
            return _without_control(rest.removesuffix(self.after))
        held = max((rest.rfind(word) for word in (*NAMES, *KEYS, *WORDS)), default=0)
        end = rest.find(self._end_of_turn, held)
        return _without_control(rest[:end]).rstrip() if self._end_of_turn and end > 0 else None

    @cached_property
    def before(self) -> str:
        """What stands before every turn; reasoning that is there but empty belongs to it."""
        one, length = self.whole(ONE_ARGUMENT) or "", len(self._header)
        open, close = (re.escape(marker.strip()) for marker in self.reasoning or ("", ""))
        empty = re.compile(rf"\s*{open}\s*{close}\s*").match(one, length)
        return one[: empty.end() if open and empty else length]

    @cached_property
    def _header(self) -> str:
        one = self.whole(ONE_ARGUMENT) or ""
        return one[: shared_start(one, self._plain)]

    @cached_property
    def after(self) -> str:
        """What stands behind every turn."""
        one = self.whole(ONE_ARGUMENT) or ""
        return one[len(one) - shared_end(one[len(self.before) :], self._plain[len(self._header) :]) :]

    @cached_property
    def frame(self) -> tuple[str, str]:
        """What stands around spoken text inside the turn."""
        open, _, close = self._plain[len(self._header) :].removesuffix(self.after).partition(SAID)
        return open, _without_control(close)

    @cached_property
    def reasoning(self) -> tuple[str, str] | None:
        """What stands around reasoning, where the template shows it before a call."""
        one = self.whole(ONE_ARGUMENT) or ""
        head, thought, tail = (self.whole(THINKING) or "").rpartition(THOUGHT)
        if not thought or NAMES[0] not in tail:
            return None
        if _squeezed(head + tail) == _squeezed(one):  # a turn without reasoning has the markers too, with nothing between
            opener, closer = LAST_MARKER.search(head), FIRST_MARKER.match(tail)
            return (opener[0], closer[0]) if opener and closer else None
        open = head[shared_start(head, self._header) :]
        close = tail[: len(tail) - shared_end(tail, one[len(self._header) :])]
        begun = next((at for at in edges(self.opened) if self._header.endswith(self.opened[:at]) and at), 0)
        open = open if open.strip() else self.opened[begun:]  # only the prompt shows it
        again = (at for at in edges(close) if close[:at].strip() and close[at:].strip() and self._header.endswith(close[at:]))
        close = close[: next(again, len(close))]  # behind it, the header of another message
        return (open.lstrip(), close) if open.strip() and close.strip() else None

    @cached_property
    def picky(self) -> bool:
        """Whether the template refuses ids that are not nine letters and digits."""
        return self.whole(OTHER_ID) is None

    @cached_property
    def opened(self) -> str:
        """How the prompt begins the model's turn."""
        try:
            return prompt_for(Request((QUESTION,)), TOOLS, self.template, STAND_IN).opened
        except CallsmithError:
            return ""

    @cached_property
    def _end_of_turn(self) -> str:
        """The first token behind a plain answer that is followed by another message."""
        told = self._told((QUESTION, Message.assistant(SAID), Message.user(THOUGHT))) or ""
        between = told.partition(SAID)[2].partition(THOUGHT)[0]
        return next((found[0] for found in TOKEN.finditer(between) if found[0].strip()), "")

    @cached_property
    def _plain(self) -> str:
        return self.whole(PLAIN) or ""

    def _render(self, scene: Scene) -> str | None:
        told = [QUESTION, Message.assistant(scene.text, reasoning=scene.thought, calls=scene.calls)]
        results = [Message.tool(Result(call.id, call.name, "Granted.")) for call in scene.calls if self.answered]
        return self._told((*told, *results))

    def _told(self, messages: tuple[Message, ...]) -> str | None:
        try:
            prompt = prompt_for(Request(messages), TOOLS, self.template, STAND_IN)
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
    ends, others = ({len(text) - edge for edge in edges(text)} for text in (one, other))
    return max(ends & others & set(range(length + 1)))


def edges(text: str) -> list[int]:
    """Where tokens begin and end: markers, words, white space, single signs."""
    return [*(found.start() for found in TOKEN.finditer(text)), len(text)]


def _without_control(text: str) -> str:
    """The text without the tokens at its end that end a turn."""
    bare = text.rstrip()
    ending = next((control for control in CONTROL if bare.endswith(control)), None)
    return text if ending is None else _without_control(bare.removesuffix(ending))


def _squeezed(text: str) -> str:
    return "".join(text.split())
