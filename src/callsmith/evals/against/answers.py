"""Answers as they are kept: of a reference, to hold servers against it later."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from callsmith.core.errors import UsageError
from callsmith.core.serialize import dump, load
from callsmith.core.types.escaped_text import in_json
from callsmith.core.types.tables import Table
from callsmith.core.values import Json
from callsmith.evals.against.questions import Question
from callsmith.evals.cases.case import read_lines
from callsmith.evals.check.exchange import Answer, ReceivedCall
from callsmith.files import write_file

_VERSION: Final = 1
_HEADER: Final = "answers_of"  # the field by which the first line is known


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """The answer to a question, as a client sees it. One with an `error` is none. `faults` are of its shape, by their kinds."""

    id: str
    digest: str
    text: str = ""
    thoughts: str = ""
    calls: tuple[ReceivedCall, ...] = ()
    finish: str = ""
    faults: Mapping[str, str] = field(default_factory=dict[str, str])
    error: str = ""
    seconds: float = 0.0

    @property
    def is_cut(self) -> bool:
        """Whether it ends because it had no more tokens."""
        return self.finish == "length"

    @property
    def is_none(self) -> bool:
        """Whether it is no answer: there is nothing in it, and what came has not the shape of one."""
        return bool(self.faults) and not (self.text or self.thoughts or self.calls)

    @property
    def has_calls(self) -> bool:
        """Whether it calls tools, or says that it does."""
        return bool(self.calls) or self.finish == "calls"


def keep(question: Question, answer: Answer) -> KeptAnswer:
    """The answer to a question, without the bytes in which it came."""
    faults, seconds = dict(answer.faults), round(answer.exchange.seconds, 3)
    calls = tuple(answer.calls)
    return KeptAnswer(question.id, question.digest, answer.text, answer.thoughts, calls, answer.finish, faults, "", seconds)


@dataclass(frozen=True, slots=True)
class ReferenceAnswers:
    """The answers of a reference that were kept in a file, by the ids of their questions."""

    path: Path
    url: str
    model: str
    answers: Mapping[str, KeptAnswer]

    def to(self, question: Question) -> KeptAnswer | None:
        """The answer to a question, None where it was not asked. A UsageError where another one of that id was."""
        answer = self.answers.get(question.id)
        if answer is not None and answer.digest != question.digest:
            raise UsageError(
                f"{self.path} has the answer to another question {question.id!r}: record the reference again, with these cases",
                field="against",
            )
        return answer


@dataclass(frozen=True, slots=True)
class _Header:
    """The first line of a file."""

    id: str
    url: str
    model: str


def read_answers(path: Path) -> ReferenceAnswers:
    """The answers in a file that `write_answers` has written; a UsageError names the line that is wrong."""
    header, *answers = read_lines(path, _read_line, "answer")
    if not isinstance(header, _Header):
        raise UsageError(f"{path} has no answers that were kept by `callsmith check URL --record FILE`", field="against")
    kept = {answer.id: answer for answer in answers if isinstance(answer, KeptAnswer)}
    if not kept:
        raise UsageError(f"there are no answers in {path}", field="against")
    return ReferenceAnswers(path, header.url, header.model, kept)


def _read_line(document: Json) -> KeptAnswer | _Header:
    row = Table.of(document, "")
    if _HEADER not in row.data:
        return load(KeptAnswer, row.data, ignore_unknown=True)
    if row.integer("version") != _VERSION:
        raise UsageError(f"these answers are of version {row.get('version')!r}, and version {_VERSION} is known here")
    return _Header(f"\0{_HEADER}", row.required_text(_HEADER), row.required_text("model"))


def write_answers(path: Path, url: str, model: str, answers: Sequence[KeptAnswer]) -> int:
    """Write answers to a file, those that are none aside; where there are no others, the file stays as it was. The number of
    those that were written."""
    if not (given := [answer for answer in answers if not answer.error]):
        return 0
    rows: list[Any] = [{_HEADER: url, "model": model, "version": _VERSION}, *map(dump, given)]
    try:
        write_file(path, "".join(f"{in_json(row)}\n" for row in rows))
    except OSError as error:
        raise UsageError(f"the answers cannot be written to {path}: {error}", field="record") from error
    return len(given)
