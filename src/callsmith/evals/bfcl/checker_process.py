"""The process in which the benchmark's checker runs: JSON lines in, JSON lines out. Run by its path, with `python -I`.

    {"check": "calls", "category": "multiple", "functions": […], "calls": [{"add": {"a": 1}}], "answers": […]}
    → {"valid": false, "error_type": "…", "error": "…"}
    {"check": "run", "name": "m1", "world": {…}, "calls": [{"ls": {}}]} → {"results": ["…"]}
    {"check": "conversation", "name": "m1", "world": {…}, "turns": [[[{"ls": {}}]]]} → {"valid": …}

It imports nothing of ours: what the benchmark evaluates must not be where models and keys are. What it has no need of (files to
write, programs, connections) is refused; this is a railing against accidents, no sandbox.
"""

import importlib
import json
import os
import sys
from collections import defaultdict
from types import ModuleType, SimpleNamespace
from typing import Any, cast

MODEL = "model"  # how the checker calls whoever made the calls
_REFUSED = ("subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.remove", "os.rename", "os.rmdir")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def main(folder: str) -> None:
    """Answer line after line, until there are no more."""
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    # The checker asks this table one thing, and the table imports the packages of every vendor.
    stub: Any = ModuleType("bfcl_eval.constants.model_config")
    stub.MODEL_CONFIG_MAPPING = defaultdict(lambda: SimpleNamespace(underscore_to_dot=True))
    sys.modules[stub.__name__] = stub
    answers, sys.stdout = sys.stdout, sys.stderr  # what tools print is no answer
    check = BfclJudge()
    sys.addaudithook(refuse)
    for line in sys.stdin:
        try:
            answer = check.answer(json.loads(line))
        except Exception as error:  # of the benchmark's code: the case is wrong, and the next one is looked at
            answer = {"valid": False, "error_type": f"checker:{type(error).__name__}", "error": str(error)}
        print(json.dumps(answer), file=answers, flush=True)


class BfclJudge:
    """Judges calls and runs the tools of conversations, by the benchmark's own code."""

    def __init__(self) -> None:
        checker = importlib.import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")
        self._check_calls: Any = checker.ast_checker
        self._python: Any = importlib.import_module("bfcl_eval.constants.enums").Language.PYTHON
        package = "bfcl_eval.eval_checker.multi_turn_eval"
        self._worlds: Any = importlib.import_module(f"{package}.multi_turn_utils")
        self._conversations: Any = importlib.import_module(f"{package}.multi_turn_checker")

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a line."""
        match request["check"]:
            case "calls":
                verdict = self._check_calls(
                    request["functions"], request["calls"], request["answers"], self._python, request["category"], MODEL
                )
                return {
                    "valid": verdict["valid"],
                    "error_type": verdict.get("error_type", ""),
                    "error": str(verdict.get("error", "")),
                }
            case "run":
                return {"results": self._run(request["name"], request["world"], request["calls"])}
            case "conversation":
                return self._judge(request["name"], request["world"], request["turns"])
            case other:
                raise ValueError(f"nothing is known of {other!r}")

    def _run(self, name: str, world: dict[str, Any], calls: list[dict[str, Any]]) -> list[str]:
        """The results of calls, which change the world of that name. It begins with the first of them."""
        results, _ = self._worlds.execute_multi_turn_func_call(
            *([_spell(call) for call in calls], world["beginning"], world["classes"], name, world["id"]),
            long_context="long_context" in world["id"],
        )
        return results

    def _judge(self, name: str, world: dict[str, Any], turns: list[list[list[dict[str, Any]]]]) -> dict[str, Any]:
        """Whether all turns have left the world as the right calls do; the world is forgotten afterwards."""
        spelled = [[[_spell(call) for call in step] for step in turn] for turn in turns]
        row = {"id": world["id"], "initial_config": world["beginning"], "involved_classes": world["classes"]}
        try:
            verdict = self._conversations.multi_turn_checker(spelled, world["gold"], row, "", name)
        finally:
            for module in (self._worlds, self._conversations):
                names: list[str] = list(cast("Any", vars(module)))
                for known in names:
                    if known.startswith(f"{name}_"):
                        delattr(module, known)
        return {"valid": verdict["valid"], "error_type": verdict.get("error_type", ""), "error": verdict.get("error_message", "")}


def _spell(call: dict[str, Any]) -> str:
    """A call as Python. Names are checked, for this is evaluated; values are those of JSON and spelled by `repr`."""
    ((name, arguments),) = call.items()
    if not all(word.isidentifier() for word in (name, *arguments)):
        raise ValueError(f"{name}({', '.join(arguments)}) is no call")
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse what no checker needs."""
    is_writing = event == "open" and isinstance(arguments[2], int) and bool(arguments[2] & _WRITING)
    if is_writing or event.startswith(_REFUSED) or event in ("socket.connect", "socket.bind"):
        raise PermissionError(f"{event} is not allowed here")


if __name__ == "__main__":
    main(sys.argv[1])
