"""Conversations of several turns, in which the benchmark's tools run and change the world that the verdict is about."""

from itertools import count
from typing import Final

from callsmith.core.ports import Model
from callsmith.core.values import Call, Message, Result, Sampling, Tool
from callsmith.evals.bfcl.checker import BfclVerdict, Checker
from callsmith.evals.cases.case import Case, World
from callsmith.evals.run.ask import CaseAnswer, ask
from callsmith.evals.run.setup import Setup, offered_tools
from callsmith.runtime.guards.guards import guard_model

MOST_STEPS: Final = 20  # answers with calls in one turn, as the benchmark has it
_numbers = count(1)


class CaseConversation:
    """Holds the conversation of a case with a model: it is asked until it calls nothing, and then given the next turn."""

    def __init__(self, model: Model, setup: Setup, checker: Checker, sampling: Sampling) -> None:
        self._model = guard_model(model, () if setup.guards is False else None)
        self._opened = model
        self._setup = setup
        self._checker = checker
        self._sampling = sampling
        self._name = f"m{next(_numbers)}"  # of the world: each conversation has its own

    async def hold(self, case: Case, world: World) -> tuple[CaseAnswer, BfclVerdict]:
        """All that the model said and called, and the verdict on it."""
        together, turns = CaseAnswer(rounds=0), list[list[list[Call]]]()
        messages, tools = list[Message](), list[Tool]()
        for turn in case.turns:
            messages += turn.messages
            tools += turn.tools
            steps, rounds = list[list[Call]](), 0
            turns.append(steps)
            while calls := await self._step(together, messages, tools):
                known = {tool.name for tool in tools}
                run = [call for call in calls if call.name in known]
                steps += [run] if run else []
                results = iter(await self._checker.run_calls(self._name, world, run) if run else ())
                for call in calls:
                    content = next(results) if call.name in known else f"not_found: there is no tool {call.name!r}"
                    messages.append(Message.tool(Result(call.id, call.name, content)))
                rounds += 1
                if rounds > MOST_STEPS:
                    await self._checker.check_conversation(self._name, world, turns)  # for the world ends with it
                    return together, BfclVerdict(False, "multi_turn:force_terminated", f"more than {MOST_STEPS} steps")
        return together, await self._checker.check_conversation(self._name, world, turns)

    async def _step(self, together: CaseAnswer, messages: list[Message], tools: list[Tool]) -> list[Call]:
        """Ask once; the calls that are to be run."""
        offered = offered_tools(self._opened, self._setup, tools)
        answer = await ask(self._model, self._setup.request(messages, offered, self._sampling))
        messages.append(answer.message)
        together.add(answer)
        return answer.calls
