"""Questions for two servers: nobody has to know what is right to call, for the reference says it.

A file has one JSON object a line, of any of these kinds:

    {"id": "w1", "category": "weather", "messages": […], "tools": […]}   a case of `callsmith eval`; it need not say what is right
    {"messages": […], "tools": […], "tool_choice": …}                    the body of a chat completion
    {"id": "simple_python_0", "question": [[…]], "function": […]}        a question of the Berkeley benchmark
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, Final, cast

from callsmith.core.errors import UsageError
from callsmith.core.types.tables import Table
from callsmith.core.values import Json, Request, Sampling
from callsmith.evals.bfcl.load import read_question
from callsmith.evals.cases.case import Case, read_lines
from callsmith.evals.check.dialects.chat import CHAT
from callsmith.wire.openai.chat import ChatFields, read_request

_OWN: Final = Path(__file__).with_name("questions.jsonl")
_SEED: Final = 1
_LABELS: Final = frozenset({"id", "category", "expect", "calls", "answers", "check_type"})  # beside what is asked
_SET_HERE: Final = frozenset({"model", "stream", "stream_options", "n", "max_tokens", "max_completion_tokens"})
_NUMBER: Final = re.compile(r"_\d.*")  # behind the category, in the benchmark's ids


@dataclass(frozen=True, slots=True)
class Question:
    """One question. `digest` tells it from another of the same id: by its messages, tools and choice."""

    id: str
    category: str
    request: Request
    digest: str

    def asked(self, tokens: int) -> Request:
        """The request as it is sent: greedy with a fixed seed, unless the question says how to sample."""
        own = self.request.sampling
        temperature, seed = 0.0 if own.temperature is None else own.temperature, _SEED if own.seed is None else own.seed
        return replace(self.request, sampling=replace(own, temperature=temperature, seed=seed, max_tokens=tokens))


def own_questions() -> list[Question]:
    """The questions that come along: 48 of eight categories."""
    return read_questions(_OWN)


def read_questions(path: Path) -> list[Question]:
    """The questions of a file; a UsageError names the line that is wrong."""
    numbers = count(1)
    return read_lines(path, lambda document: _read_question(document, next(numbers)), "case")


def from_case(case: Case) -> Question:
    """The question of a case, whatever is right to call in it."""
    return _question(case.id, case.category, Request(case.messages, case.tools))


def choose(questions: Sequence[Question], only: Collection[str]) -> list[Question]:
    """The questions whose ids or categories fit one of these patterns; all, where there are none."""
    for pattern in only:
        if not any(_fits(item, pattern) for item in questions):
            known = ", ".join(dict.fromkeys(item.category for item in questions))
            raise UsageError(f"no case and no category is called {pattern}; there are {known}", field="only")
    return [item for item in questions if not only or any(_fits(item, pattern) for pattern in only)]


def repeat(questions: Sequence[Question], times: int) -> list[Question]:
    """Each question so often, each time with another seed; the later ones have a number behind their ids."""
    return [_again(item, number) for item in questions for number in range(times)]


def _again(question: Question, number: int) -> Question:
    if not number:
        return question
    sampling = replace(question.request.sampling, seed=_SEED + number)
    return replace(question, id=f"{question.id}#{number + 1}", request=replace(question.request, sampling=sampling))


def _fits(question: Question, pattern: str) -> bool:
    return fnmatchcase(question.id, pattern) or fnmatchcase(question.category, pattern)


def _read_question(document: Json, number: int) -> Question:
    row = Table.of(document, "")
    if "question" in row.data:
        return _read_benchmark_question(row.data)
    row.check_keys({*_LABELS, *ChatFields.declared, *ChatFields.refused, *ChatFields.ignored})
    body = {key: value for key, value in row.data.items() if key not in _LABELS and key not in _SET_HERE}
    if isinstance(messages := body.get("messages"), list):
        body["messages"] = [_read_role(message) for message in cast("list[Json]", messages)]
    request = read_request(body).request
    id, category = row.text("id") or f"case_{number}", row.text("category") or "own"
    return _question(id, category, request)


def _read_role(message: Json) -> Json:
    """A message. The vendors' verifiers have cases in which the role of the system is called `_input`."""
    if not isinstance(message, dict):
        return message
    table = cast("dict[str, Json]", message)
    return {**table, "role": "system"} if table.get("role") == "_input" else table


def _read_benchmark_question(row: Mapping[str, Any]) -> Question:
    id = Table(row).required_text("id")
    if "involved_classes" in row:
        raise UsageError(f"{id} is a conversation, whose tools have to be run; `callsmith eval` has those")
    try:
        return from_case(read_question(row, _NUMBER.sub("", id)))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise UsageError(f"{id} is no question of the benchmark: {type(error).__name__} {error}") from error


def _question(id: str, category: str, request: Request) -> Question:
    f"{id}{category}".encode()  # a ValueError if half a character is in it: it could not be stored
    body = CHAT.write("", replace(request, sampling=Sampling()), stream=False)
    return Question(id, category, request, sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16])
