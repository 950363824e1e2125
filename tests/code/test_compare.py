"""The tasks by which calls and code are compared: each can be done by code, and only the right answer counts."""

import pytest

pytest.importorskip("pydantic_monty")

from callsmith.code import RUN_CODE, CodeTools
from callsmith.core.ports import Context
from callsmith.core.values import Call, Result
from callsmith.tools.functions import Functions
from tests.code.compare import TOOLS, Task, list_tasks


def test_there_are_thirty_different_tasks():
    assert len({task.question for task in list_tasks()}) == 30


@pytest.mark.parametrize("task", list_tasks(), ids=lambda task: task.question)
async def test_every_task_can_be_done_by_code(task: Task):
    call = Call(RUN_CODE, {"code": task.code}, "c1")
    results = [item async for item in CodeTools(Functions(*TOOLS)).call(call, Context()) if isinstance(item, Result)]
    assert results[0].ok
    assert results[0].text == task.answer
    assert task.is_right(f"It is {results[0].text}.")
    assert not task.is_right("It is 1234567.")
