"""CodeTools: a toolset whose tools are called by code. The model is offered `run_code`, whose description has them as Python.

The calls of the code are a run of their own inside the call of `run_code`: through the wrapped toolset, with its policy, limits,
cache and audit, and with a journal that is the checkpoint of that call. Where one of them needs an approval, `run_code` asks in
its place; with the decision, also in another process, the code goes on.
"""

import builtins
import json
import keyword
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace

from callsmith.code.sandbox import LONGEST_MESSAGE, MOST_CHARACTERS, MOST_CHARACTERS_IN_ALL, CodeLimits, CodeModel, begin_history
from callsmith.core.approval import Approved, Decision, Denied
from callsmith.core.closing import closing
from callsmith.core.events import CallEvent, ConfirmationNeeded, ToolProgress, ToolStarted
from callsmith.core.failures import is_failure, make_failure, unknown_tool
from callsmith.core.ports import Checkpoint, Context, Toolset
from callsmith.core.serialize import Saved, read_conversation, write_conversation
from callsmith.core.types.call_ids import CallIds
from callsmith.core.types.escaped_text import cut_text
from callsmith.core.types.field_checks import check_argument
from callsmith.core.values import Call, Request, Result, Schema, Tool
from callsmith.formats.prompt.tool_prompt import describe_value, list_as_python
from callsmith.runtime.conversation.journal import Journal, answer_interrupted
from callsmith.runtime.conversation.pausable_run import PausableRun
from callsmith.runtime.execute import STANDARD_LIMITS, Limits
from callsmith.tools.functions import Tools, as_toolset

RUN_CODE = "run_code"
_SECONDS = 300.0  # that code and its calls may take
_DESCRIPTION = """Runs Python code and returns what it prints and the value of its last line. Only that comes back: let the code \
filter, join and compute, and print no more than is needed. These functions are there; files and the network are not:

```python
{functions}
```

A call returns its result: a dict, list or number where it is JSON, else a str. A call that fails raises RuntimeError. Several \
calls at a time: `a, b = await asyncio.gather(f(1), f(2))`; code that uses `await` writes it before every call."""
_PARAMETERS: Schema = {
    "type": "object",
    "properties": {"code": {"type": "string", "description": "The Python code."}},
    "required": ["code"],
}
_TAKEN = frozenset((*keyword.kwlist, *dir(builtins)))  # names that mean something else in code
_NOBODY_TO_ASK = "it needs a person's approval, and nobody can be asked from here: do without it"


class CodeTools:
    """A toolset of one tool, `run_code`. `call_limits` bound the calls of the code one by one, as those of a run."""

    def __init__(self, tools: Tools, limits: CodeLimits | None = None, *, call_limits: Limits = STANDARD_LIMITS) -> None:
        self._toolset = as_toolset(tools)
        self._limits = check_argument("limits", limits or CodeLimits(), CodeLimits)
        self._call_limits = replace(
            call_limits, iterations=self._limits.calls + 1, result_characters=2 * MOST_CHARACTERS, tokens=None, deadline=None
        )

    async def tools(self) -> Sequence[Tool]:
        tools = await self._toolset.tools()
        return [_describe_tool(_name_functions(tools))] if tools else []

    async def call(self, call: Call, context: Context) -> AsyncIterator[CallEvent]:
        if call.name != RUN_CODE:
            yield unknown_tool(call, [RUN_CODE])
            return
        await context.starting()
        code = str(call.arguments.get("code", ""))
        functions, journal = _name_functions(await self._toolset.tools()), await self._open_journal(call, code, context)
        async with CodeModel(code, functions, self._limits, call.id or RUN_CODE) as model:
            run = PausableRun(model, _JsonResults(self._toolset, journal), journal, limits=self._call_limits)
            inner = Context(
                context.conversation,
                context.subject,
                context.depth,
                tighten=context.tighten,
                authority=context.authority,
                cancelled=context.cancelled,
            )
            for _ in range(self._limits.calls + 1):
                async with closing(run.events(Request(()), inner)) as events:
                    async for event in events:
                        if isinstance(event, ToolStarted):
                            yield ToolProgress(call.id, f"{event.call.name} {event.call.text}")
                if not journal.pending or context.checkpoint is not None:
                    break
                await journal.resume(decisions={question.call.id: Denied(_NOBODY_TO_ASK) for question in journal.pending})
            yield _conclude(call, journal, model)

    async def _open_journal(self, call: Call, code: str, context: Context) -> Journal:
        """The journal of the code's calls: a new one, or the one that the call was left with, with what was decided since."""
        checkpoint = context.checkpoint
        if checkpoint is None or not checkpoint.value:
            begun = Saved(f"{context.conversation}/{call.id}", begin_history(code), context.subject)
            journal = Journal(begun, None if checkpoint is None else _CheckpointStorage(checkpoint), self._call_limits)
            await journal.begin()
            return journal
        saved = answer_interrupted(read_conversation(json.loads(checkpoint.value)))
        journal = Journal(saved, _CheckpointStorage(checkpoint), self._call_limits)
        # A word is taken only under the id of the very question: one on `run_code` as such says nothing about what it calls.
        answers = {question.call.id: context.decisions.get(question.id) for question in journal.pending}
        await journal.resume(decisions={id: _deny_changes(word) for id, word in answers.items() if word is not None})
        return journal


@dataclass(frozen=True, slots=True)
class _JsonResults:
    """A toolset whose results are written as JSON, texts too, so that the code gets from the journal the value that it was."""

    toolset: Toolset
    journal: Journal

    async def tools(self) -> Sequence[Tool]:
        return await self.toolset.tools()

    async def call(self, call: Call, context: Context) -> AsyncIterator[CallEvent]:
        async with closing(self.toolset.call(call, context)) as items:
            async for item in items:
                yield _as_json(call, item, self._room()) if isinstance(item, Result) else item

    def _room(self) -> int:
        """How many characters the next result may have: the journal is written anew with each."""
        return min(MOST_CHARACTERS, MOST_CHARACTERS_IN_ALL - sum(len(message.content) for message in self.journal.saved.messages))


def _as_json(call: Call, result: Result, room: int) -> Result:
    if not result.ok:
        failed = result if is_failure(result.text) else make_failure(call, "tool_error", result.text)
        return replace(failed, content=cut_text(failed.text, LONGEST_MESSAGE))
    if result.code == "already_done":  # an earlier result, which is JSON, and a line about that
        text = result.text.rpartition("\n")[0]
    else:
        text = json.dumps(result.content, ensure_ascii=False, default=dict)
    if len(text) > room:
        most = f"{MOST_CHARACTERS:,} of a result and {MOST_CHARACTERS_IN_ALL:,} of all"
        return make_failure(
            call, "limit_reached", f"{call.name} gave {len(text):,} characters, and code reads at most {most}: ask for less"
        )
    return replace(result, content=text)


@dataclass(slots=True)
class _CheckpointStorage:
    """Writes a journal into the checkpoint of a call, if there is anything new that the code would not come to by itself."""

    checkpoint: Checkpoint
    written: Saved | None = None

    async def write(self, saved: Saved, *, starting: Call | None = None, results: Sequence[Result] = ()) -> None:
        makes_it_again = starting is not None and starting.id not in saved.started
        if not makes_it_again and saved != self.written:
            await self.checkpoint.save(json.dumps(write_conversation(saved)))
            self.written = saved


def _conclude(call: Call, journal: Journal, model: CodeModel) -> CallEvent:
    """What the call comes to: a question, or its result."""
    for question in journal.pending:
        reason = f"the code wants to call {question.call.name} with {question.call.text}"
        return ConfirmationNeeded(
            question.id, call, f"{reason}: {question.reason}" if question.reason else reason, question.expires
        )
    if left := [open_call.name for open_call in journal.open_calls]:
        return make_failure(call, "tool_error", f"{left[0]} runs elsewhere, and cannot be called by code")
    if model.failure:
        return make_failure(call, "tool_error", model.failure)
    return Result(call.id, call.name, journal.saved.messages[-1].content)


def _deny_changes(word: Decision) -> Decision:
    """Arguments that a person has changed are those of `run_code`; what the code calls has others."""
    if isinstance(word, Approved) and word.arguments is not None:
        return Denied(f"a person wants it done differently: {json.dumps(dict(word.arguments), ensure_ascii=False)}")
    return word


def _name_functions(tools: Sequence[Tool]) -> Mapping[str, Tool]:
    """The tools by the names of their functions: their own where that is one in Python, and means nothing there yet."""
    ids = CallIds(_TAKEN)
    plain = {ids.claim(tool.name): tool for tool in tools if tool.name.isidentifier() and tool.name not in _TAKEN}
    others = [tool for tool in tools if tool not in plain.values()]
    return plain | {ids.claim(re.sub(r"\W|^(?=\d)", "_", tool.name)): tool for tool in others}


def _describe_tool(functions: Mapping[str, Tool]) -> Tool:
    stubs = list_as_python([_as_function(name, tool) for name, tool in functions.items()])
    return Tool(
        RUN_CODE,
        _DESCRIPTION.replace("{functions}", stubs),
        _PARAMETERS,
        side_effects=any(tool.side_effects for tool in functions.values()),
        timeout=_SECONDS,
        source="callsmith",
    )


def _as_function(name: str, tool: Tool) -> Tool:
    returns = f"Returns {shape}" if tool.output is not None and (shape := describe_value(tool.output)) else ""
    return replace(tool, name=name, description="\n\n    ".join(filter(None, (tool.description.strip(), returns))))
