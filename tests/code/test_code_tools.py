"""run_code: what code may call, what comes back, who is asked, and how it goes on after a pause or a kill."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_monty")

from callsmith.code import RUN_CODE, CodeLimits, CodeTools
from callsmith.core.approval import Approved, Denied, Policy, Rule
from callsmith.core.capability.execution import Execution
from callsmith.core.errors import MissingExtra
from callsmith.core.events import CallDeferred, CallEvent, ConfirmationNeeded
from callsmith.core.ports import Checkpoint, Context
from callsmith.core.values import Call, Result, Tool
from callsmith.runtime.conversation.conversation import Conversation
from callsmith.tools.functions import Functions
from callsmith.tools.wrap import Audited, Cached, Confirmed, Filtered, Limited
from tests.code.code_runs import TOOLS, Bank, Fixed, add, run_code, written, zip_code
from tests.fakes import StrictFakeModel, calls, says


async def test_the_model_is_shown_the_tools_as_functions():
    (offered,) = await CodeTools(Functions(add, zip_code)).tools()
    assert offered.name == RUN_CODE
    assert "def add(a: int, b: int = 1):" in offered.description
    assert "        a: The first." in offered.description
    assert not offered.side_effects
    assert (await CodeTools(Bank().tools).tools())[0].side_effects
    assert await CodeTools(Functions()).tools() == []


async def test_what_tools_return_is_described_where_they_say_it():
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
    (offered,) = await CodeTools(Fixed(Tool("find", "Finds.", output=schema), {"id": 1})).tools()
    assert "Returns dict: keys: id (int)" in offered.description


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("add(1, 2)", "3"),
        ("add(b=2, a=1)", "3"),
        ("print('a')\nprint('b')", "a\nb"),
        ("print(sum(add(n) for n in [1, 2]))\nadd(1)", "5\n2"),
        ("[order['id'] for order in orders('Bonn')]", "[0, 1, 2]"),
        ("zip_code('Bonn') + 'x'", "53111x"),
        ("import asyncio\na, b = await asyncio.gather(add(1), add(5))\na * b", "12"),
        ("async def both():\n    return [await add(1), await add(2)]\nawait both()", "[2, 3]"),
        ("f = add\nf(1)", "2"),
        ("try:\n    fail('gone')\nexcept RuntimeError as error:\n    print('caught', error)", "caught internal_error: gone"),
        ("zip_code('we await you')", "53111"),
        ("# await\nadd(1)\n'''\nawait'''\nadd(2)", "3"),
        ("f'{await add(1)}'", "2"),
        ("'ä'", "ä"),
        ("import json\njson.dumps({'a': 1})", '{"a": 1}'),
        ("x = 1", "The code printed nothing and its last line has no value. print() what you want to see."),
    ],
)
async def test_code_returns_what_it_prints_and_its_last_value(code: str, text: str):
    result = await run_code(code)
    assert (result.text, result.ok) == (text, True)


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        ("x = 1\ny = x / 0", ["line 2: ZeroDivisionError: division by zero", "y = x / 0"]),
        ("def f(:\n    pass", ["line 1: SyntaxError"]),
        ("fail('gone')", ["line 1: RuntimeError: internal_error: gone"]),
        ("add('one')", ["RuntimeError: invalid_arguments:", "integer"]),
        ("add(1, 2, 3)", ["TypeError: add() takes 2 positional arguments but 3 were given"]),
        ("add(1, a=2)", ["TypeError: add() got multiple values for argument 'a'"]),
        ("add({1})", ["TypeError: add() takes only what can be written as JSON"]),
        ("add(float('nan'))", ["TypeError: add() takes only what can be written as JSON"]),
        ("subtract(1)", ["NameError: name 'subtract' is not defined; the functions are: add, orders, zip_code, fail"]),
        ("import asyncio\nawait asyncio.sleep(0)\nadd(1)", ["calls without `await` have not run: add"]),
        ("print('first')\nadd(1)\nadd(2)\n1 / 0", ["Printed until then:\nfirst", "not undone: add (2 times)"]),
    ],
)
async def test_errors_say_where_and_what(code: str, texts: list[str]):
    result = await run_code(code)
    assert (result.ok, result.code) == (False, "tool_error")
    for text in texts:
        assert text in result.text


@pytest.mark.parametrize(
    ("content", "text"), [("12", "str"), ('{"a": 1}', "dict"), (12, "int"), (None, "NoneType"), ("NaN", "str")]
)
async def test_values_are_what_the_tool_has_returned(content: Any, text: str):
    assert (await run_code("print(type(read()).__name__)", Fixed(Tool("read"), content))).text == text


async def test_a_result_that_is_no_success_is_an_error_whatever_its_text():
    class Failing(Fixed):
        async def call(self, call: Call, context: Context) -> AsyncIterator[CallEvent]:
            yield Result(call.id, call.name, "out of paper", ok=False)

    assert "RuntimeError: tool_error: out of paper" in (await run_code("read()", Failing(Tool("read"), ""))).text


async def test_tools_whose_names_are_none_in_python_have_others():
    names = (("files/read.all", "files_read_all"), ("class", "class_2"), ("2d", "_2d"))
    built_in = (("list", "list_2"), ("open", "open_2"), ("print", "print_2"))  # the sandbox would run its own
    for name, function in (*names, *built_in):
        toolset = Fixed(Tool(name), "text")
        (offered,) = await CodeTools(toolset).tools()
        assert f"def {function}(" in offered.description
        assert (await run_code(f"{function}()", toolset)).text == "text"


async def test_calls_go_through_policy_limits_cache_and_audit():
    executions, asked = list[Execution](), list[Context]()

    async def audit(execution: Execution) -> None:
        executions.append(execution)

    inner = Fixed(Tool("read", idempotent=True), "text", asked)
    policy = Policy((Rule("deny", "add", reason="no sums"),))
    context = Context("talk", "ada")
    limited = Confirmed(Limited(Cached(Audited(inner, audit), 60), budgets={"*": 2}), policy)
    result = await run_code("print(read())\nprint(read())\nread()", limited, context)
    assert "limit_reached: the 2 calls this conversation has for * are spent" in result.text
    assert [execution.outcome for execution in executions] == ["", "ok"]  # the second was cached
    assert (executions[0].subject, executions[0].conversation, asked[0].conversation) == ("ada", "talk", "talk")
    assert "denied: no sums" in (await run_code("add(1)", Confirmed(TOOLS, policy))).text
    assert "NameError" in (await run_code("add(1)", Filtered(TOOLS, allow=["orders"]))).text


async def test_calls_that_whoever_asked_runs_are_none_for_code():
    class Elsewhere(Fixed):
        async def call(self, call: Call, context: Context) -> AsyncIterator[CallEvent]:
            yield CallDeferred(call)

    assert "read runs elsewhere" in (await run_code("read()", Elsewhere(Tool("read"), ""))).text


async def test_where_nobody_can_be_asked_a_call_that_needs_approval_is_denied():
    bank = Bank()
    result = await run_code("try:\n    pay(5)\nexcept RuntimeError as error:\n    print(error)", Confirmed(bank.tools))
    assert result.text.startswith("denied: it needs a person's approval")
    assert bank.paid == []


TWICE = "first = pay(1)\nsecond = pay(2)\nprint(first, second, add(1))"


async def test_each_call_that_needs_approval_pauses_the_conversation():
    bank = Bank()
    model = StrictFakeModel(calls(written(TWICE)), says("Done."))
    conversation = Conversation(model, CodeTools(Confirmed(bank.tools)))
    reply = await conversation.send("Pay.")
    (first,) = reply.pending
    assert first.reason.startswith('the code wants to call pay with {"amount": 1}')
    assert bank.paid == []
    reply = await conversation.decide("c1", Approved())
    (second,) = reply.pending
    assert second.id != first.id
    assert bank.paid == [1]
    reply = await conversation.decide("c1", Approved())
    assert (reply.text, bank.paid) == ("Done.", [1, 2])
    assert model.asked[1].messages[-1].content == "paid 1 paid 2 2"


async def test_an_approved_call_that_is_made_once_more_is_answered_with_its_value():
    bank = Bank()
    model = StrictFakeModel(calls(written("print([pay(1), pay(1)])")), says("Done."))
    conversation = Conversation(model, CodeTools(Confirmed(bank.tools)))
    await conversation.send("Pay.")
    await conversation.decide("c1", Approved())
    assert model.asked[1].messages[-1].content == "['paid 1', 'paid 1']"
    assert bank.paid == [1]


def list_sandboxes() -> list[str]:
    """The processes of sandboxes that this one has started."""
    found = list[str]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = (text := path.read_text()).rpartition(") ")[2].split()[:2]
            if "(monty) " in text and state != "Z" and parent == str(os.getpid()):
                found.append(path.parent.name)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("code", ["while True: pass", "wait()"])
async def test_the_sandbox_ends_with_the_call(code: str):
    async def wait() -> None:
        """Waits."""
        await asyncio.sleep(60)

    task = asyncio.create_task(run_code(code, Functions(wait), limits=CodeLimits(seconds=60)))
    async with asyncio.timeout(10):
        while not list_sandboxes():
            await asyncio.sleep(0.02)
        task.cancel()
        while list_sandboxes():
            await asyncio.sleep(0.02)
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_sandbox_that_is_starting_ends_with_the_call_too():
    errors = list[object]()  # as long as one is kept, so is what its frames hold
    for milliseconds in range(0, 24, 2):
        task = asyncio.create_task(run_code("while True: pass", limits=CodeLimits(seconds=60)))
        await asyncio.sleep(milliseconds / 1000)
        task.cancel()
        errors.extend(await asyncio.gather(task, return_exceptions=True))
    async with asyncio.timeout(10):
        while list_sandboxes():
            await asyncio.sleep(0.02)
    assert {type(error) for error in errors} == {asyncio.CancelledError}


def test_without_the_sandbox_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    monkeypatch.delitem(sys.modules, "callsmith.code.sandbox")
    with pytest.raises(MissingExtra, match=r"callsmith\[code\]"):
        import_module("callsmith.code.sandbox")


async def test_several_calls_at_a_time_are_asked_about_one_after_another():
    bank = Bank()
    code = "import asyncio\nprint(await asyncio.gather(pay(1), pay(2)))"
    conversation = Conversation(StrictFakeModel(calls(written(code)), says("Done.")), CodeTools(Confirmed(bank.tools)))
    reply = await conversation.send("Pay.")
    while reply.pending:
        reply = await conversation.decide("c1", Approved())
    assert (reply.text, sorted(bank.paid)) == ("Done.", [1, 2])


async def test_a_denied_call_is_an_error_in_the_code_and_changed_arguments_are_a_denial():
    for decision, text in (
        (Denied("too much"), "denied: too much"),
        (Approved({"code": "pay(2)"}), "denied: a person wants it done differently"),
    ):
        bank = Bank()
        model = StrictFakeModel(calls(written("try:\n    pay(1)\nexcept RuntimeError as error:\n    print(error)")), says("No."))
        conversation = Conversation(model, CodeTools(Confirmed(bank.tools)))
        await conversation.send("Pay.")
        assert (await conversation.decide("c1", decision)).text == "No."
        assert model.asked[1].messages[-1].content.startswith(text)
        assert bank.paid == []


async def test_a_paused_conversation_goes_on_elsewhere_with_the_same_clock(tmp_path: Path):
    path, bank = tmp_path / "talk.json", Bank()
    code = "from datetime import datetime\nimport random\nnow = datetime.now(), random.random()\nprint(now)\npay(1)\nprint(now)"
    model = StrictFakeModel(calls(written(code)), says("Done."))
    await Conversation(model, CodeTools(Confirmed(bank.tools)), journal=path).send("Pay.")
    saved = json.loads(path.read_text())
    assert [*saved["checkpoints"]] == ["c1"]
    again = Conversation.load(path, model, CodeTools(Confirmed(bank.tools)), journal=path)
    assert (await again.decide("c1", Approved())).text == "Done."
    first, second = model.asked[1].messages[-1].content.splitlines()
    assert first == second
    assert bank.paid == [1]
    assert "checkpoints" not in json.loads(path.read_text())


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from callsmith.code import CodeTools
from callsmith.core.values import Call
from callsmith.runtime.conversation.conversation import Conversation
from callsmith.tools.functions import Functions, tool
from tests.code.code_runs import TOOLS, Bank, Fixed, add, run_code, written, zip_code
from tests.fakes import StrictFakeModel, calls, says

folder, at = Path(sys.argv[1]), sys.argv[2]

@tool(side_effects=True)
def pay(amount: int) -> str:
    "Pays."
    with (folder / "paid").open("a") as log:
        log.write(f"{amount}\\n")
    if at == f"in {amount}":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"paid {amount}"

def count(number: int) -> int:
    "Counts."
    if at == f"before {number}":
        os.kill(os.getpid(), signal.SIGKILL)
    return number

CODE = '''
for number in range(3):
    count(number)
    try:
        print(pay(number))
    except RuntimeError as error:
        print(str(error).split(":")[0])
'''
path = folder / "talk.json"
call = Call("run_code", {"code": CODE}, "c1")
tools = CodeTools(Functions(pay, count))
if path.exists():
    model = StrictFakeModel(says("Done."))
    conversation = Conversation.load(path, model, tools, journal=path)
    asyncio.run(conversation.resume())
    print(model.asked[0].messages[-1].content)
else:
    asyncio.run(Conversation(StrictFakeModel(calls(call)), tools, journal=path).send("Pay."))
"""


@pytest.mark.processes
@pytest.mark.parametrize(("at", "printed"), [("before 2", "paid 0\npaid 1\npaid 2"), ("in 1", "paid 0\ninterrupted\npaid 2")])
async def test_code_goes_on_after_its_program_was_killed_and_pays_nothing_twice(tmp_path: Path, at: str, printed: str):
    script = tmp_path / "pay.py"
    script.write_text(KILLED)

    async def start(at: str) -> tuple[int | None, str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        program = await asyncio.create_subprocess_exec(
            sys.executable, str(script), str(tmp_path), at, stdout=asyncio.subprocess.PIPE, env=environment
        )
        output, _ = await program.communicate()
        return program.returncode, output.decode().strip()

    assert await start(at) == (-signal.SIGKILL, "")
    assert await start("never") == (0, printed)
    assert (tmp_path / "paid").read_text().split() == ["0", "1", "2"]


async def test_questions_keep_their_time():
    """A question of code expires when that of the call would have."""
    items = [
        item
        async for item in CodeTools(Confirmed(Bank().tools, expires=60)).call(
            written("pay(1)"), replace(Context(), checkpoint=Checkpoint("", _forget))
        )
    ]
    assert isinstance(items[-1], ConfirmationNeeded)
    assert items[-1].expires is not None


async def _forget(value: str) -> None:
    pass
