"""Probes for inference: made-up turns, and how a chat template renders them.

Every probe is rendered at the same place of the same conversation and compared with a plain answer there. What both begin with
(the prompt, the header of the turn) and what both end with (the end of the turn) is not part of the format.
"""

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile

from callsmith.core.errors import CallsmithError
from callsmith.core.values import Call, Message, Request, Result, Schema, Tool
from callsmith.formats.algebra import ARGS, NAME, Calls, Format, obj
from callsmith.formats.prompt.prompt import Prompt, prompt_for
from callsmith.formats.prompt.template import Template
from callsmith.formats.reader.markers import CONTROL_TOKENS

# Words that no template contains. Keys are in alphabetical order, since some templates sort them.
NAMES = ("tourmaline_fn", "obsidian_fn")
KEYS = ("agate_key", "beryl_key")
VALUES = ("feldspar", "zirconium")
IDS = ("qidaaaaa1", "qidbbbbb2")  # nine letters and digits: what the strictest templates accept
TEXT = "Quietly spoken"
THOUGHT = "Deeply pondered"

ANY_VALUES: Schema = {"type": "object", "properties": {key: {} for key in KEYS}}
TOOLS = tuple(Tool(name, "A tool.", ANY_VALUES) for name in NAMES)
QUESTION = Message.user("What now?")
PLACEHOLDER_FORMAT = Format("stand-in", (Calls(obj(("name", NAME), ("arguments", ARGS))),))

FIRST_MARKER = re.compile(r"\s*(?:<[^<>\s]+>|\[/?[A-Z_]+\])\s*")
LAST_MARKER = re.compile(r"(?:<[^<>\s]+>|\[[A-Z_]+\])\s*\Z")
TOKEN = re.compile(r"<[^<>]*>?|\[/?[A-Z_]+\]|\w+|\s+|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ProbeTurn:
    """A made-up turn of the model: calls, text and reasoning for a template to render."""

    calls: tuple[Call, ...]
    text: str = ""
    thought: str = ""


def probe_turn(*arguments: dict[str, object]) -> ProbeTurn:
    """A turn with one call for each set of arguments, the first of the first tool, the second of the second."""
    return ProbeTurn(tuple(Call(*fields) for fields in zip(NAMES, arguments, IDS, strict=False)))


NO_ARGUMENT = probe_turn({})
ONE_ARGUMENT = probe_turn({KEYS[0]: VALUES[0]})
TWO_ARGUMENTS = probe_turn({KEYS[0]: VALUES[0], KEYS[1]: VALUES[1]})
TWO_CALLS = probe_turn({KEYS[0]: VALUES[0]}, {KEYS[1]: VALUES[1]})
PLAIN_ANSWER = ProbeTurn((), TEXT)
OTHER_ID = ProbeTurn((replace(ONE_ARGUMENT.calls[0], id="call_7"),))
THINKING = replace(ONE_ARGUMENT, thought=THOUGHT)
TYPED = {
    "number": probe_turn({KEYS[0]: 7301}),
    "boolean": probe_turn({KEYS[0]: True}),
    "array": probe_turn({KEYS[0]: [7302, "mica"]}),
    "object": probe_turn({KEYS[0]: {"quartz": "mica"}}),
    "null": probe_turn({KEYS[0]: None}),
}


@dataclass
class RenderedTurns:
    """The probes as one template renders them. `with_results`: results follow the calls, for templates that need them."""

    template: Template
    with_results: bool = False
    _cache: dict[str, str | None] = field(default_factory=dict[str, str | None])

    def conversation(self, probe: ProbeTurn) -> str | None:
        """The rendered conversation that ends with this turn; None if the template refuses it."""
        key = repr(probe)
        if key not in self._cache:
            self._cache[key] = self._render(probe)
        return self._cache[key]

    def turn(self, probe: ProbeTurn) -> str | None:
        """The rendered turn alone, without its header and its end; None if the template does not render it."""
        whole = self.conversation(probe)
        if whole is None or not whole.startswith(self.prefix):
            return None
        rest = whole[len(self.prefix) :]
        if not self.with_results:
            return _without_control(rest.removesuffix(self.suffix))
        last = max((rest.rfind(word) for word in (*NAMES, *KEYS, *VALUES)), default=0)
        end = rest.find(self._end_of_turn, last)
        return _without_control(rest[:end]).rstrip() if self._end_of_turn and end > 0 else None

    @cached_property
    def prefix(self) -> str:
        """The text before every turn, including the markers of empty reasoning."""
        rendered, length = self.conversation(ONE_ARGUMENT) or "", len(self._header)
        open, close = (re.escape(marker.strip()) for marker in self.reasoning_markers or ("", ""))
        empty = re.compile(rf"\s*{open}\s*{close}\s*").match(rendered, length)
        return rendered[: empty.end() if open and empty else length]

    @cached_property
    def _header(self) -> str:
        rendered = self.conversation(ONE_ARGUMENT) or ""
        return rendered[: shared_start(rendered, self._plain_answer)]

    @cached_property
    def suffix(self) -> str:
        """The text after every turn."""
        rendered = self.conversation(ONE_ARGUMENT) or ""
        return rendered[len(rendered) - shared_end(rendered[len(self.prefix) :], self._plain_answer[len(self._header) :]) :]

    @cached_property
    def text_markers(self) -> tuple[str, str]:
        """The text before and after plain text inside a turn."""
        open, _, close = self._plain_answer[len(self._header) :].removesuffix(self.suffix).partition(TEXT)
        return open, _without_control(close)

    @cached_property
    def reasoning_markers(self) -> tuple[str, str] | None:
        """The text before and after reasoning, if the template shows reasoning before a call."""
        rendered = self.conversation(ONE_ARGUMENT) or ""
        head, thought, tail = (self.conversation(THINKING) or "").rpartition(THOUGHT)
        if not thought or NAMES[0] not in tail:
            return None
        if _without_space(head + tail) == _without_space(rendered):  # empty markers without reasoning
            opener, closer = LAST_MARKER.search(head), FIRST_MARKER.match(tail)
            return (opener[0], closer[0]) if opener and closer else None
        open = head[shared_start(head, self._header) :]
        close = tail[: len(tail) - shared_end(tail, rendered[len(self._header) :])]
        begun = next((at for at in token_edges(self.opened) if self._header.endswith(self.opened[:at]) and at), 0)
        open = open if open.strip() else self.opened[begun:]  # only the prompt shows the opener
        again = (
            at for at in token_edges(close) if close[:at].strip() and close[at:].strip() and self._header.endswith(close[at:])
        )
        close = close[: next(again, len(close))]  # after it, the header of another message
        return (open.lstrip(), close) if open.strip() and close.strip() else None

    @cached_property
    def needs_nine_char_ids(self) -> bool:
        """Whether the template refuses ids that are not nine letters and digits."""
        return self.conversation(OTHER_ID) is None

    @cached_property
    def opened(self) -> str:
        """The end of the prompt that begins the model's turn."""
        prompt = self._prompt(QUESTION)
        return prompt.opened if prompt else ""

    @cached_property
    def _end_of_turn(self) -> str:
        """The first token after a plain answer that another message follows."""
        text = self._text_of(QUESTION, Message.assistant(TEXT), Message.user(THOUGHT)) or ""
        between = text.partition(TEXT)[2].partition(THOUGHT)[0]
        return next((match[0] for match in TOKEN.finditer(between) if match[0].strip()), "")

    @cached_property
    def _plain_answer(self) -> str:
        return self.conversation(PLAIN_ANSWER) or ""

    def _render(self, probe: ProbeTurn) -> str | None:
        messages = [QUESTION, Message.assistant(probe.text, reasoning=probe.thought, calls=probe.calls)]
        results = [Message.tool(Result(call.id, call.name, "Granted.")) for call in probe.calls if self.with_results]
        return self._text_of(*messages, *results)

    def _text_of(self, *messages: Message) -> str | None:
        prompt = self._prompt(*messages)
        return prompt and prompt.text.removesuffix(prompt.opened)

    def _prompt(self, *messages: Message) -> Prompt | None:
        """The prompt that the template makes of messages; None if it refuses them."""
        try:
            return prompt_for(Request(messages), TOOLS, self.template, PLACEHOLDER_FORMAT)
        except CallsmithError:
            return None


def shared_start(one: str, other: str) -> int:
    """The length of the common start of two texts, up to the edge of a token in both."""
    length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    start = max(one.rfind("<", 0, length), 0)  # only the text from here on is split into tokens: prompts are long
    return max(set(token_edges(one[start:])) & set(token_edges(other[start:])) & set(range(length - start + 1))) + start


def shared_end(one: str, other: str) -> int:
    """The length of the common end of two texts, up to the edge of a token in both."""
    length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(reversed(one), reversed(other), strict=False)))
    ends, others = ({len(text) - edge for edge in token_edges(text)} for text in (one, other))
    return max(ends & others & set(range(length + 1)))


def token_edges(text: str) -> list[int]:
    """The positions where tokens begin and end: markers, words, white space, single characters."""
    return [*(match.start() for match in TOKEN.finditer(text)), len(text)]


def _without_control(text: str) -> str:
    """The text without the control tokens at its end."""
    bare = text.rstrip()
    ending = next((control for control in CONTROL_TOKENS if bare.endswith(control)), None)
    return text if ending is None else _without_control(bare.removesuffix(ending))


def _without_space(text: str) -> str:
    return "".join(text.split())
