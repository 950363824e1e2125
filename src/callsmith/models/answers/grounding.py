"""Whether the values of a call stand on something: on what was said, or on what a tool has returned.

Small models that plan several calls at once make up what they cannot know yet: the phone number that the first call will find is
"123-456-7890" in the second. Such values can be seen before anything runs.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, cast

from callsmith.core.types.partial import parse_partial
from callsmith.core.values import Call, Json, Message, Tool

# Names of tools that begin with one of these do something, unless what they name is only looked up: `order`, not `order_status`.
_EFFECTS: Final = frozenset(
    """add append apply approve archive assign block book buy call cancel change charge clear close confirm create delete deploy
    disable dispatch edit email enable forward grant insert install invite lock mail message modify move notify open order pay
    place play post publish purchase push put record register remind remove rename replace reply reserve reset restart run save
    schedule send set share shutdown start stop store submit subscribe switch transfer trigger turn unlock update upload
    write""".split()  # noqa: SIM905 (as a list it would take two pages)
)
_LOOKED_UP: Final = frozenset(
    "status info information history list details detail count price prices hours state results".split()  # noqa: SIM905
)
_WORDS_OF_A_NAME: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
# The patterns take time in proportion to the text: what is written into a file may be long, and without a space.
_PLACEHOLDER: Final = re.compile(
    r"\[[^\[\]a-z]*+[a-z][^\[\]]*+\]|<[a-z_ ]+>|\{[a-z_. ]+\}|\bexample\.(?:com|org)\b"
    r"|\b(?:insert|placeholder|your_\w+|(?:result|output) (?:of|from))\b",
    re.IGNORECASE,
)
_REMAINS: Final = re.compile(r"[)\]}'\",;:]+")  # what follows on a variable, where a text had to be written
_ADDRESS: Final = re.compile(r"(?<![\w.+-])[\w.+-]++@[\w.-]+|https?://\S+")
_PERSON: Final = re.compile(r"[A-Z][a-z]+(?: [A-Z][a-z]+){1,2}")
_REFUSAL: Final = re.compile(
    r"\b(?:don['’]?t|do not|never|without|not) "
    r"(?:(?:use|using|call|calling) (?:(?:any|your|the|these|a) )?tools?|(?:call|calling) (?:any|your) functions?)\b"
    r"|\b(?:no|without) (?:any )?(?:tool|function) calls?\b",
    re.IGNORECASE,
)
UNKNOWN_VALUES: Final = 6.0  # what speaks against a call of which no value was given, in log odds; for half of them, half of it
UNSPOKEN: Final = 2.0  # against one of a tool that was not spoken of
REPEATED: Final = 2.0  # against one that changes something and was made earlier in the conversation
NO_VALUES: Final = 0.5  # against one that has none
EFFECTS: Final = 0.5  # against one that changes something
REFUSED: Final = 20.0  # against any where the user says not to use tools: the surest scores were below seven
_PLANNED: Final = 2.5  # what may speak against a call that follows on results, however sure the model is
_LONG_TEXT: Final = 40  # characters: longer ones are written by the model itself, in words of its own
_LONGEST_PLACEHOLDER: Final = 80  # characters of a value: in a longer one, brackets are those of code or markup
LONG_BEGINNING: Final = 400  # characters of arguments: what is given so far is all given
_SHORT_WORD: Final = 3
_BEGINNING: Final = 5  # characters: words that begin alike are forms of one
_FEW_WORDS: Final = 2
_NUMBER_WORDS: Final = dict(
    zip(
        map(str, (*range(1, 21), *range(30, 101, 10))),
        """one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
        nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred""".split(),  # noqa: SIM905
        strict=True,
    )
)
# One of these tells that a text is English; `in`, `an` and `is` would not.
_ENGLISH: Final = frozenset("the of are what how which who when where does can you my this that with please and it".split())  # noqa: SIM905
# Words that say nothing of what a text is about, where it tells what a tool does.
_COMMON: Final = _ENGLISH | frozenset(
    """about all also any based between could default did each every false find for format from function get given had has have
    here information into its list more most name names not number one only optional other our out per provided return returns
    set should some specific string such than their them then there they true two type use used user using value values via was
    were will would your""".split()  # noqa: SIM905
)


def has_effects(tool: Tool) -> bool:
    """Whether a tool changes something: it says so, or is called like one that does."""
    words = [word.lower() for word in _WORDS_OF_A_NAME.findall(tool.name.rsplit(".", 1)[-1])]
    return tool.side_effects or (bool(words) and words[0] in _EFFECTS and words[-1] not in _LOOKED_UP)


def refuses_calls(question: str) -> bool:
    """Whether the user says, in English, not to use tools. A small model hardly hears it: 22 of 22 everyday questions that want a
    call still got a score for one with "Don't use any tools." behind them. No question of BFCL says such a thing."""
    return _REFUSAL.search(question) is not None


def said_in(messages: Sequence[Message]) -> str:
    """All that a call may rely on: what users and systems said, what tools returned, and what was called before."""
    texts = (message.content for message in messages if message.role != "assistant" or not message.calls)
    calls = (call.text for message in messages for call in message.calls)
    return "\n".join((*texts, *calls))


def made_up_values(call: Call, tool: Tool, conversation: str) -> list[str]:
    """The values that stand nowhere and cannot be the model's own words: long numbers, addresses, names, placeholders."""
    known = _Known(f"{conversation}\n{json.dumps(tool.parameters, ensure_ascii=False, default=dict)}\n{tool.description}")

    def is_made_up(value: str) -> bool:
        return value not in conversation if _REMAINS.fullmatch(value) else _is_made_up(value, known)

    return [text for value in _leaves(call.arguments) if is_made_up(text := str(value))]


def is_given(call: Call, tool: Tool, conversation: str) -> bool:
    """Whether every value of a call was given: literally, as one that the tool allows, or a short one by its words.

    A text of several words that was not said so may be about a result that is not there yet: "the text of the file".
    """
    known = _Known(f"{conversation}\n{json.dumps(tool.parameters, ensure_ascii=False, default=dict)}")
    for value in _leaves(call.arguments):
        said_so = not isinstance(value, str) or value.casefold() in known.folded
        words, numbers = (set(re.findall(form, str(value).casefold())) for form in (r"[^\W\d]+", r"\d+"))
        if not said_so and (
            len(words) > _FEW_WORDS or any(len(word) > _SHORT_WORD and word not in known.words for word in words)
        ):
            return False
        if not isinstance(value, bool) and any(len(number) > 1 and number not in known.folded for number in numbers):
            return False
    return True


def call_doubt(call: Call, tool: Tool, conversation: str, question: str) -> float:
    """How much speaks against a call that the model was free not to make, in log odds; `question` is what the user has said.

    A call that fits what was asked for takes its values from there: of calls where nothing fits, nearly half of the values were
    never given, and of right ones one in twenty-five. Who wants something done speaks of it: 92 % of the questions with a right
    call have a word of the tool's name or description beside the values, and 43 % of the others (measured on the tuning half of
    BFCL). A call without values shows nothing, and one that changes something must be surer than one that only looks.
    """
    known = _Known(conversation)
    values = [str(value).casefold() for value in _own_values(call, tool)]
    unknown = sum(not _is_known(value, known) for value in values) / len(values) if values else 0.0
    others = UNSPOKEN * (not _is_spoken_of(call, tool, question)) + NO_VALUES * (not values) + EFFECTS * has_effects(tool)
    return unknown * UNKNOWN_VALUES + others


def is_same(one: Call, other: Call) -> bool:
    """Whether two calls do the same."""
    return one.name == other.name and json.dumps(one.arguments, sort_keys=True) == json.dumps(other.arguments, sort_keys=True)


class CallJudge:
    """Judges the calls of one answer: whether each can be made now, and together with those before it, whose results it does not
    know.

    `margin` is how far the model's score for calling is above the threshold; None: the first call is made in any case. `earlier`
    are calls that need not be made again. `doubt` is what was found to speak against the first one.
    """

    def __init__(
        self, tools: Iterable[Tool], messages: Iterable[Message], margin: float | None, earlier: Sequence[Call] = ()
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        messages = tuple(messages)
        self._earlier = [call for message in messages for call in message.calls]
        self._said = said_in(messages)
        self._asked = "\n".join(message.content for message in messages if message.role == "user")
        self._margin = margin
        self._made = earlier
        self.doubt = 0.0

    def is_in_doubt(self, name: str, earlier: Sequence[Call]) -> bool:
        """Whether a call of this tool can be judged only when it is complete."""
        tool = self._tools.get(name)
        if tool is None or (not earlier and self._margin is None):
            return False
        is_sure = UNKNOWN_VALUES + UNSPOKEN <= (self._margin or 0.0) < math.inf
        return bool(earlier or self._made) or has_effects(tool) or not is_sure

    def stands(self, call: Call, earlier: Sequence[Call]) -> bool:
        """Whether a call can be made now."""
        if any(is_same(call, item) for item in self._made):
            return False
        tool = self._tools.get(call.name)
        if tool is None or (not earlier and self._margin is None):
            return True
        if not earlier and self._margin is not None:
            is_repeated = has_effects(tool) and any(is_same(call, item) for item in self._earlier)
            self.doubt = call_doubt(call, tool, self._said, self._asked) + REPEATED * is_repeated
            is_made_up = has_effects(tool) and made_up_values(call, tool, self._said)
            return not is_made_up and self.doubt <= (_PLANNED if math.isinf(self._margin) else self._margin)
        if made_up_values(call, tool, self._said):
            return False
        return not has_effects(tool) or (not self.must_wait(call.name, earlier) and is_given(call, tool, self._said))

    def must_wait(self, name: str, earlier: Sequence[Call], begun: str = "") -> bool:
        """Whether a call of this tool cannot be made before the earlier ones have their results, as far as can be seen in the
        beginning of its arguments: what would be made up need not be written to its end."""
        tool = self._tools.get(name)
        if tool is None or not has_effects(tool):
            return False
        if tool.side_effects and any(not has_effects(self._tools[item.name]) for item in earlier if item.name in self._tools):
            return True
        words, space, _ = begun.rpartition(" ")  # the last word may go on
        arguments = parse_partial(dict[str, Any], words) if earlier and space and len(words) <= LONG_BEGINNING else None
        return bool(arguments) and not is_given(Call(name, arguments or {}), tool, self._said)


class _Known:
    """A text that values may stand in."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def folded(self) -> str:
        return self.text.casefold()

    @cached_property
    def words(self) -> set[str]:
        return set(re.findall(r"\w+", self.folded))

    @cached_property
    def stems(self) -> set[str]:
        """How its words begin."""
        return _stems(self.text)

    @cached_property
    def numbers(self) -> set[str]:
        """The digits of its numbers."""
        return {_digits(match) for match in re.findall(r"\d[\d.,]*", self.text)}


def _is_made_up(value: str, known: _Known) -> bool:
    if value and value in known.text:
        return False
    if len(value) <= _LONGEST_PLACEHOLDER and _PLACEHOLDER.search(value):
        return True
    if any(match not in known.text for match in _ADDRESS.findall(value)):
        return True
    numbers = {_digits(match) for match in re.findall(r"\d[\d.,]*", value)}
    if any(len(number) > _SHORT_WORD - 1 and number not in known.numbers for number in numbers):
        return True
    is_person = len(value) <= _LONG_TEXT and _PERSON.fullmatch(value) is not None
    return is_person and not any(word.casefold() in known.folded for word in value.split())


def _own_values(call: Call, tool: Tool) -> Iterator[Json]:
    """The values that the model had to find: not those that the tool lists, or has anyway."""
    for value, schema in _with_schemas(call, tool):
        if not schema.get("enum") and "default" not in schema:
            yield from (leaf for leaf in _leaves(value) if not isinstance(leaf, bool))


def _with_schemas(call: Call, tool: Tool) -> Iterator[tuple[Json, Mapping[str, Any]]]:
    """The arguments of a call, each with what the tool says of it."""
    properties: Mapping[str, Any] = tool.parameters.get("properties") or {}
    for name, value in call.arguments.items():
        schema = properties.get(name)
        yield value, cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}


def _is_known(value: str, known: _Known) -> bool:
    """Whether a value was given: literally, by one of its words or the beginning of one, or by one of its numbers, which may
    be spelled otherwise: 2027-06-03 for "3 June", 2 for "two"."""
    numbers = {number.lstrip("0") or "0" for number in re.findall(r"\d+", value)}
    if value in known.folded or any(number in known.folded or _NUMBER_WORDS.get(number) in known.words for number in numbers):
        return True
    if value == "1" and not known.words.isdisjoint(("a", "an")):
        return True
    return _share_a_word(_stems(value), known.stems)


def _is_spoken_of(call: Call, tool: Tool, question: str) -> bool:
    """Whether the user speaks of what the tool does: by a word of its name or description, or a value that the tool lists. The
    values of the call do not tell: they may be taken from anywhere. Where that is unknown, it is so: in other languages, and
    where nothing but the values was said."""
    words = set(re.findall(r"\w+", question.casefold()))
    listed = (re.findall(r"\w+", str(value).casefold()) for value, schema in _with_schemas(call, tool) if schema.get("enum"))
    if _ENGLISH.isdisjoint(words) or any(words.issuperset(value) for value in listed if value):
        return True
    spoken = _stems(question) - _stems(" ".join(map(str, call.arguments.values())))
    if not spoken:
        return bool(call.arguments)
    return _share_a_word(spoken, _stems(f"{tool.name} {tool.description}"))


def _stems(text: str) -> set[str]:
    """How the words begin that a text is about."""
    words = {word.lower() for word in re.findall(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+", text)} - _COMMON
    return {word[:_BEGINNING] for word in words if len(word) >= _SHORT_WORD}


def _share_a_word(some: set[str], others: set[str]) -> bool:
    """Whether a stem of one kind is one of the other, or its beginning: EUR and euros."""
    return any(
        stem[:size] in among
        for stems, among in ((some, others), (others, some))
        for stem in stems
        for size in range(_SHORT_WORD, len(stem) + 1)
    )


def _digits(number: str) -> str:
    """The digits of a number that tell it from others: 45.00 and 4,500 are "45"."""
    return re.sub(r"\D", "", number).strip("0")


def _leaves(value: Json) -> Iterator[Json]:
    if isinstance(value, Mapping):
        for inner in cast("Mapping[str, Any]", value).values():
            yield from _leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in cast("Sequence[Any]", value):
            yield from _leaves(inner)
    elif value is not None:
        yield value
