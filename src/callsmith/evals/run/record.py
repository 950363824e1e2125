"""`CaseRecord`: the outcome of one case in one setup; and the file in which records are kept as they come."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

from callsmith.core.errors import UsageError
from callsmith.core.serialize import dump, load
from callsmith.core.types.escaped_text import in_json
from callsmith.core.values import Call, Json, Message
from callsmith.evals.cases.case import Case
from callsmith.files import write_file

VERSION = 1
RECORDS, PLAN = "records.jsonl", "run.json"
_ANSWERING = ("weights", "format")  # of what is kept beside a setup: other ones answer otherwise
CallRow: TypeAlias = Mapping[str, Json]  # a call as it is kept: its name and its arguments


@dataclass(frozen=True, slots=True)
class CaseRecord:
    """The outcome of one case in one setup.

    `is_right` is the verdict, `judge` says whose ("bfcl", "ast_eq", "expect"), `error_type` what is wrong. `is_equal` is the
    strict equality `ast_eq`, None where no calls are expected. `valid` is how many of the calls fit the schemas of their tools.
    `text` is what the model wrote, in its own spelling. `cached` of the prompt's tokens were in the KV cache. `repairs` names
    what had to be repaired to read the calls, `retries` is how often something was asked for again. A case with an `error` has no
    answer, and is wrong whatever was expected. `digest` tells the case from another of the same id. `score` is the log odds of
    a call where it was decided whether there is one.
    """

    case: str
    category: str
    setup: str
    digest: str
    is_right: bool = False
    judge: str = ""
    error_type: str = ""
    is_equal: bool | None = None
    calls: tuple[CallRow, ...] = ()
    valid: int = 0
    text: str = ""
    finish: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0
    retries: int = 0
    repairs: tuple[str, ...] = ()
    steps: int = 1
    error: str = ""
    taken_back: tuple[str, ...] = ()
    score: float | None = None


def call_row(call: Call) -> CallRow:
    """A call as it is kept."""
    return {"name": call.name, "arguments": dict(call.arguments)}


def case_digest(case: Case) -> str:
    """What tells a case from another of the same id."""
    messages = [[_message_row(message) for message in turn.messages] for turn in case.turns]
    tools = [[(tool.name, tool.description, tool.parameters) for tool in turn.tools] for turn in case.turns]
    right = [case.expect, [call_row(call) for call in case.calls], list(case.answers)]
    return sha256(json.dumps([messages, tools, right], sort_keys=True, default=dict).encode()).hexdigest()[:12]


def _message_row(message: Message) -> Sequence[Json]:
    """What tells a message from another: its role and its words, and what else it has, if there is anything."""
    others = {name: value for name, value in dump(message).items() if name not in ("role", "content")}
    return [message.role, message.content, *([others] if others else [])]


class Records:
    """The records in a folder, appended as they come, and `run.json`: which setups they are of.

    What was cut off by a crash is dropped when the folder is opened again. Of several records of one case the last counts.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._found: dict[tuple[str, str], CaseRecord] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.plan = read_plan(folder)
            self._read()
            self._file = (folder / RECORDS).open("ab")
        except (OSError, ValueError) as error:
            raise UsageError(f"results cannot be kept in {folder}: {error}", field="out") from error

    def describe(self, setup: str, description: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        """Say what a setup is. One that was something else when this folder was begun is a UsageError, for its records would
        be mixed. `about` is kept beside it, and may change; but not the weights, nor the format in which they are read."""
        if (known := self.plan["setups"].get(setup)) is not None:
            told = [key for key in _ANSWERING if key in known["about"] and key in about]
            before = {**known["setup"], **{key: known["about"][key] for key in told}}
            now = {**description, **{key: about[key] for key in told}}
            changed = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]
            if changed:
                was, is_now = (json.dumps({key: item.get(key) for key in changed}) for item in (before, now))
                raise UsageError(
                    f"{self.folder} has results of another setup {setup!r}: {was} then, {is_now} now; "
                    "name another folder with --out, or another setup",
                    field="out",
                )
        self.plan["setups"][setup] = {"setup": dict(description), "about": dict(about)}
        write_file(self.folder / PLAN, in_json(self.plan, 2) + "\n")

    def add(self, record: CaseRecord) -> None:
        """Keep a record; it is on the disk when this returns."""
        self._found[record.case, record.setup] = record
        self._file.write(in_json(dump(record)).encode() + b"\n")
        self._file.flush()

    def done(self, case: Case, setup: str) -> CaseRecord | None:
        """The record of a case that need not be asked again: it has an answer, and is still the same case."""
        record = self._found.get((case.id, setup))
        return record if record and not record.error and record.digest == case_digest(case) else None

    def all(self) -> list[CaseRecord]:
        """All records."""
        return list(self._found.values())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read(self) -> None:
        path = self.folder / RECORDS
        data = path.read_bytes() if path.is_file() else b""
        whole = data[: data.rfind(b"\n") + 1]
        if whole != data:
            os.truncate(path, len(whole))  # in place: a file that is written anew may be lost on the way
        if whole:
            self._found = {(record.case, record.setup): record for record in read_records(self.folder)}


def read_record(row: Json) -> CaseRecord:
    """A record out of a decoded line; fields of later versions are left out."""
    return load(CaseRecord, row, ignore_unknown=True)


def read_records(folder: Path) -> list[CaseRecord]:
    """The records in a folder, which is only read."""
    if not (folder / RECORDS).is_file():
        raise UsageError(f"there are no results in {folder}", field="folder")
    records: dict[tuple[str, str], CaseRecord] = {}
    for number, line in enumerate((folder / RECORDS).read_bytes().splitlines(keepends=True), 1):
        if line.endswith(b"\n"):
            try:
                record = read_record(json.loads(line))
            except (ValueError, RecursionError, UsageError) as error:
                where = f"{folder / RECORDS}, line {number}"
                raise UsageError(f"{where}: {error}; without it its case is asked again", field="folder") from error
            records[record.case, record.setup] = record
    return list(records.values())


def read_plan(folder: Path) -> dict[str, Any]:
    """Which setups the records in a folder are of."""
    return json.loads((folder / PLAN).read_text("utf-8")) if (folder / PLAN).is_file() else {"version": VERSION, "setups": {}}
