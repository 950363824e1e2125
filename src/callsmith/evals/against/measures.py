"""The measures: what is held against the reference, and what is wrong with one answer by each of them.

A judge says None where an answer does not count, "" where it is right, and else in words what is wrong with it.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from callsmith.core.schema import validate
from callsmith.core.types.escaped_text import one_line
from callsmith.evals.against.answers import KeptAnswer
from callsmith.evals.against.differences import arguments_of, canonical, explain_difference, find_swap, quote, strings_in
from callsmith.evals.against.questions import Question
from callsmith.evals.check.exchange import ReceivedCall

# U+FFFD; half a surrogate pair; UTF-8 that was read as Latin-1; escapes that are left in a text
_BROKEN: Final = re.compile(
    "\ufffd|[\ud800-\udfff]|[\u00c2-\u00f4][\u0080-\u009f]|\u00c3[\u00a0-\u00bf]|\u00c2[\u00a1-\u00bf]|\u00e2\u20ac|\u00f0\u0178"
    r"|\\u[0-9a-fA-F]{4}"
)


@dataclass(frozen=True, slots=True)
class ComparedAnswer:
    """The answers to one question: whole and as a stream, and the reference's. `is_steady`: asked again, it says the same."""

    question: Question
    whole: KeptAnswer
    streamed: KeptAnswer | None = None
    reference: KeptAnswer | None = None
    is_steady: bool = True


AnswerJudge: TypeAlias = Callable[[Question, KeptAnswer], str | None]
PairJudge: TypeAlias = Callable[[KeptAnswer, KeptAnswer], str | None]


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure. `least` is the share that is wanted where nobody names another; None: it is only told.

    `alone` judges an answer by itself, and the server must be as good as this or as the reference; `beside` holds it against the
    reference's answer. `is_f1`: the share is told as F1, which follows from it.
    """

    name: str
    title: str
    least: float | None = None
    alone: AnswerJudge | None = None
    beside: PairJudge | None = None
    is_f1: bool = False

    def judge(self, compared: ComparedAnswer) -> str | None:
        """What is wrong with the answers to a question."""
        if self.name == "stream":
            return _judge_stream(compared)
        if self.alone is not None:
            whole = self.alone(compared.question, compared.whole)
            streamed = self.alone(compared.question, compared.streamed) if compared.streamed else None
            return whole or (f"streamed: {streamed}" if streamed else whole)
        if self.beside is None or compared.reference is None or compared.whole.error or compared.reference.error:
            return None
        return self.beside(compared.whole, compared.reference)

    def judge_reference(self, compared: ComparedAnswer) -> str | None:
        """What is wrong with the reference's own answer, where it has given one."""
        if self.alone is None or compared.reference is None or compared.reference.error:
            return None
        return self.alone(compared.question, compared.reference)

    def scale(self, share: float) -> float:
        """The share as it is told. Of all answers that call where one of the two calls (J), F1 is 2 J / (1 + J)."""
        return 2 * share / (1 + share) if self.is_f1 else share


def _judge_answered(question: Question, answer: KeptAnswer) -> str | None:
    return answer.error


def _judge_schema(question: Question, answer: KeptAnswer) -> str | None:
    """Of the answers that end with calls, all of whose calls fit their tools?"""
    if answer.error or answer.is_cut or not answer.has_calls:
        return None
    if not answer.calls:
        return "it ends with calls, and has none"
    tools = {tool.name: tool for tool in question.request.tools}
    for call in answer.calls:
        if call.name not in tools:
            return f"there is no tool {quote(call.name)}{_near(call.name, tools)}"
        if call.arguments is None:
            return f"{call.name}: {_explain_arguments(call.text)}"
        try:
            complaints = validate(tools[call.name].parameters, call.arguments)
        except RecursionError:
            return f"{call.name}: the arguments are nested too deeply"
        if complaints:
            return f"{call.name}: {one_line('; '.join(map(str, complaints)), 300)}"
    return ""


def _explain_arguments(text: str) -> str:
    inner = ReceivedCall(text=text).decoded
    if isinstance(inner, str) and ReceivedCall(text=inner).arguments is not None:
        return f"the arguments are encoded twice: {quote(text)}"
    if not text.strip():
        return "the arguments are empty"
    return f"the arguments are {'no JSON' if inner is None else 'no JSON object'}: {quote(text)}"


def _near(name: str, known: Mapping[str, Any]) -> str:
    part = next((tool for tool in known if tool and tool in name), "")
    return f", but {part}" if part else ""


def _judge_trigger(answer: KeptAnswer, reference: KeptAnswer) -> str | None:
    """Of the questions in which either calls: do both?"""
    if answer.is_cut or reference.is_cut or not (answer.has_calls or reference.has_calls):
        return None
    if answer.has_calls and reference.has_calls:
        return ""
    if answer.has_calls:
        return f"it calls {_names(answer)}, where the reference says {quote(reference.text)}"
    return f"it says {quote(answer.text)}, where the reference calls {_names(reference)}"


def _judge_precision(answer: KeptAnswer, reference: KeptAnswer) -> str | None:
    return _judge_trigger(answer, reference) if answer.has_calls else None


def _judge_recall(answer: KeptAnswer, reference: KeptAnswer) -> str | None:
    return _judge_trigger(answer, reference) if reference.has_calls else None


def _judge_number(answer: KeptAnswer, reference: KeptAnswer) -> str | None:
    if not _both_call(answer, reference):
        return None
    if len(answer.calls) == len(reference.calls):
        return ""
    return f"it calls {_names(answer)}, and the reference {_names(reference)}"


def _judge_names(answer: KeptAnswer, reference: KeptAnswer) -> str | None:
    if not _both_call(answer, reference):
        return None
    if {call.name for call in answer.calls} == {call.name for call in reference.calls}:
        return ""
    return f"it calls {_names(answer)}, and the reference {_names(reference)}"


def _judge_arguments(answer: KeptAnswer, reference: KeptAnswer) -> str | None:
    """Of the answers that call the same tools as often: are the arguments the same values?"""
    if not _call_the_same(answer, reference):
        return None
    ours, theirs = Counter(map(_canonical_call, answer.calls)), Counter(map(_canonical_call, reference.calls))
    if ours == theirs:
        return ""
    others = [call for call in answer.calls if ours[key := _canonical_call(call)] > theirs[key]]
    wanted = [call for call in reference.calls if theirs[key := _canonical_call(call)] > ours[key]]
    one = others[0]
    other = next(call for call in wanted if call.name == one.name)
    return f"{one.name}: {explain_difference(arguments_of(one), arguments_of(other))}"


def _judge_keys(answer: KeptAnswer, reference: KeptAnswer) -> str | None:
    """Of the same answers: do the keys that both have come in the same order?"""
    if not _call_the_same(answer, reference):
        return None
    for one, other in _paired(answer.calls, reference.calls):
        if swapped := find_swap(arguments_of(one), arguments_of(other)):
            return f"{one.name}: {swapped}"
    return ""


def _judge_text(answer: KeptAnswer, reference: KeptAnswer) -> str | None:
    """Where the reference says something, beside its calls or without any: does this server?"""
    if answer.is_cut or reference.is_cut or answer.has_calls != reference.has_calls or not reference.text.strip():
        return None
    beside = " beside its calls" if reference.has_calls else ""
    return "" if answer.text.strip() else f"it says nothing, where the reference says {quote(reference.text)}{beside}"


def _judge_thoughts(question: Question, answer: KeptAnswer) -> str | None:
    if answer.error or answer.is_cut:
        return None
    if not answer.thoughts.strip() or answer.text.strip() or answer.calls:
        return ""
    return f"it has {len(answer.thoughts)} characters of thought, and neither words nor calls"


def _judge_characters(question: Question, answer: KeptAnswer) -> str | None:
    if answer.error:
        return None
    asked = "".join(message.content for message in question.request.messages)
    values = (item for call in answer.calls for item in (call.name, *strings_in(call.arguments)))  # None has escapes of JSON's
    for text in (answer.text, answer.thoughts, *values):
        for found in _BROKEN.finditer(text):
            if found[0] not in asked:
                return f"a character is broken: {quote(text[max(0, found.start() - 20) : found.end() + 20])}"
    return ""


def _judge_finish(question: Question, answer: KeptAnswer) -> str | None:
    if answer.error:
        return None
    if "finish" in answer.faults:
        return answer.faults["finish"]
    if answer.calls and not answer.is_cut and answer.finish != "calls":
        return f"it has calls, and says that it ended by {quote(answer.finish)}"
    return "it says that it ended with calls, and has none" if answer.finish == "calls" and not answer.calls else ""


def _judge_shape(question: Question, answer: KeptAnswer) -> str | None:
    if answer.error:
        return None
    return next((what for kind, what in answer.faults.items() if kind != "finish"), "")


def _judge_whole(answer: KeptAnswer, reference: KeptAnswer) -> str | None:
    if reference.is_cut:
        return None
    return "it was cut, where the reference comes to its end" if answer.is_cut else ""


def _judge_stream(compared: ComparedAnswer) -> str | None:
    """Does the stream say what the whole answer says? A server that does not repeat itself cannot be asked that."""
    whole, streamed = compared.whole, compared.streamed
    if streamed is None or whole.error or streamed.error or not compared.is_steady:
        return None
    return difference(whole, streamed)


def difference(whole: KeptAnswer, streamed: KeptAnswer) -> str:
    """In what two answers to one question are not the same; empty if they are. Ids do not count."""
    if len(whole.calls) != len(streamed.calls) or any(
        one.name != other.name for one, other in zip(whole.calls, streamed.calls, strict=True)
    ):
        return f"it calls {_names(whole)}, and streamed {_names(streamed)}"
    for one, other in zip(whole.calls, streamed.calls, strict=True):
        ours, theirs = arguments_of(one), arguments_of(other)
        if canonical(ours) != canonical(theirs) or find_swap(ours, theirs):
            return f"the arguments of {one.name} are {quote(one.text)}, and streamed {quote(other.text)}"
    for what, ours, theirs in (
        ("text", whole.text.strip(), streamed.text.strip()),
        ("thought", whole.thoughts.strip(), streamed.thoughts.strip()),
        ("end", whole.finish, streamed.finish),
    ):
        if ours != theirs:
            place = next((at for at, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
            start = max(0, place - 10)
            return f"the {what} is {quote(ours[start:])}, and streamed {quote(theirs[start:])}"
    return ""


MEASURES: Final[tuple[Measure, ...]] = (
    Measure("answered", "Questions that are answered", 1.0, alone=_judge_answered),
    Measure("schema", "Answers with calls, all of which fit their schemas", 0.98, alone=_judge_schema),
    Measure("trigger", "It calls where the reference calls (F1)", 0.95, beside=_judge_trigger, is_f1=True),
    Measure("trigger_precision", "Where it calls, the reference calls", beside=_judge_precision),
    Measure("trigger_recall", "Where the reference calls, it calls", beside=_judge_recall),
    Measure("number", "As many calls as the reference", 0.95, beside=_judge_number),
    Measure("names", "The same tools as the reference", 0.95, beside=_judge_names),
    Measure("arguments", "The same arguments as the reference", 0.90, beside=_judge_arguments),
    Measure("keys", "Arguments in the reference's order of keys", 0.95, beside=_judge_keys),
    Measure("text", "Words where the reference has words", 0.90, beside=_judge_text),
    Measure("thoughts", "Answers that are no thought alone", 1.0, alone=_judge_thoughts),
    Measure("characters", "Answers without broken characters", 1.0, alone=_judge_characters),
    Measure("finish", "Answers that say how they ended", 1.0, alone=_judge_finish),
    Measure("shape", "Answers of the right shape: ids, indices, frames", 1.0, alone=_judge_shape),
    Measure("whole", "Answers that are not cut, where the reference's are not", 0.95, beside=_judge_whole),
    Measure("stream", "Streams that say what the whole answer says", 1.0),
)


def _both_call(answer: KeptAnswer, reference: KeptAnswer) -> bool:
    return bool(answer.calls and reference.calls) and not answer.is_cut and not reference.is_cut


def _call_the_same(answer: KeptAnswer, reference: KeptAnswer) -> bool:
    names = [Counter(call.name for call in item.calls) for item in (answer, reference)]
    return _both_call(answer, reference) and names[0] == names[1]


def _canonical_call(call: ReceivedCall) -> tuple[str, str]:
    return call.name, canonical(arguments_of(call))


def _names(answer: KeptAnswer) -> str:
    names = [one_line(call.name, 64) for call in answer.calls[:5]]
    more = f" and {len(answer.calls) - 5} more" if len(answer.calls) > 5 else ""
    return (", ".join(names) or "nothing") + more


def _paired(ours: Sequence[ReceivedCall], theirs: Sequence[ReceivedCall]) -> Iterator[tuple[ReceivedCall, ReceivedCall]]:
    """The calls of the same tools, in their order."""
    left: dict[str, list[ReceivedCall]] = {}
    for call in reversed(theirs):
        left.setdefault(call.name, []).append(call)
    return ((call, left[call.name].pop()) for call in ours if left.get(call.name))
