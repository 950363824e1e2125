"""`callsmith tune`, on an engine that says how likely a call is and then makes it."""

import json
import math
import re
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.ports import WeightsInfo
from callsmith.core.values import Sampling, TokenLogprob, Usage
from callsmith.engines.port import EngineInfo, Finished, Piece, SampledToken
from callsmith.evals.cases.sample import half_of
from callsmith.evals.run.record import read_records
from callsmith.formats.prompt.prompt import Prompt
from callsmith.models import open_model, opening
from callsmith.models.tool_prompts import tool_prompt_named

ADD = {
    "type": "function",
    "function": {
        "name": "total",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    },
}
PROMPT = "json-array"
ODDS = re.compile(r"log odds (-?\d+)")


class Knowing:
    """Would begin a call with the log odds that the question names; makes one where the answer is opened with it."""

    def __init__(self) -> None:
        self.info = EngineInfo("Knowing", logprobs=True, weights=WeightsInfo(size=77))
        self.answers = 0
        self.stops_after = math.inf
        self.is_closed = False

    async def generate(self, prompt: Prompt, sampling: Sampling, grammar: Any = None) -> AsyncGenerator[Piece | Finished, None]:
        if sampling.logprobs is not None:
            chance = 1 / (1 + math.exp(-int(ODDS.findall(prompt.text)[-1])))
            top = tuple(
                TokenLogprob(text, math.log(probability)) for text, probability in ((b"```", chance), (b"No", 1 - chance))
            )
            yield Piece("No", tokens=(SampledToken(TokenLogprob(b"No", top[1].logprob, top), 0, 2),))
        else:
            self.answers += 1
            if self.answers > self.stops_after:
                raise KeyboardInterrupt
            opening = tool_prompt_named(PROMPT).opening
            yield Piece('{"name": "total", "arguments": {"a": 1}}]\n```' if prompt.text.endswith(opening) else "Hello.")
        yield Finished("stop", Usage(10, 5))

    async def count(self, text: str) -> int:
        return len(text)

    async def close(self) -> None:
        self.is_closed = True


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLSMITH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CALLSMITH_CONFIG", str(tmp_path / "config"))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Knowing:
    knowing = Knowing()
    monkeypatch.setattr(opening, "_engine", lambda spec, options: knowing)
    return knowing


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """Twelve cases of each kind: what is to be called has log odds from 1 to 4, what is not from -1 to -4."""

    def row(number: int, sign: int, **right: Any) -> str:
        text = f"The total of 1, please. Case {number}, log odds {sign * (1 + number % 4)}"
        return json.dumps(
            {"id": f"{right['category']}{number}", "messages": [{"role": "user", "content": text}], "tools": [ADD], **right}
        )

    called = [row(number, 1, category="sums", calls=[{"name": "total", "arguments": {"a": 1}}]) for number in range(12)]
    silent = [row(number, -1, category="talk", expect="no_call") for number in range(12)]
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join([*called, *silent]))
    return path


@pytest.fixture
def tune(callsmith: Callable[..., Any], cases: Path, tmp_path: Path) -> Callable[..., Any]:
    def run(*more: str, spec: str = "scripted:x") -> Any:
        where = ("--cases", str(cases), "--out", str(tmp_path / "out"), "--prompts", PROMPT, "--concurrency", "1")
        return callsmith("tune", spec, *where, *more)

    return run


@pytest.mark.req("R222", "R228")
def test_what_is_found_is_told_with_intervals_and_tests_and_kept_for_the_weights(
    engine: Knowing, tune, callsmith, tmp_path: Path
):
    output = tune("--store")
    assert output.code == 0, output.err
    assert re.search(r"About .* for 21 more cases in 2 ways", output.err)
    assert f'tool_prompt = "{PROMPT}"' in output.out
    assert "threshold = 0.0\n" in output.out
    assert "100.0 %" in output.out
    assert "scripted/json-array against scripted/template" in output.out
    tuning = json.loads((tmp_path / "out" / "scripted.json").read_text())
    held_out = sum(half_of(f"{category}{number}") == "held-out" for category in ("sums", "talk") for number in range(12))
    assert (tuning["held_out"], tuning["tuned_on"]) == (held_out, 24 - held_out)
    chosen, template = tuning["ways"][PROMPT]["held_out"]["shares"], tuning["ways"]["template"]["held_out"]["shares"]
    assert [chosen[name]["share"] for name in ("right calls", "left alone")] == [1.0, 1.0]
    assert [template[name]["share"] for name in ("right calls", "left alone")] == [0.0, 1.0]
    assert tuning["comparisons"][0]["overall"]["p"] < 1
    assert engine.is_closed

    model = open_model("scripted:x")
    assert isinstance(model, opening.LocalModel)
    assert (model.traits.tool_prompt.name, model.traits.tool_prompt.threshold, model.traits.auto_guarded) == (PROMPT, 0.0, True)
    line = f"scripted, Knowing (77 bytes): tool prompt {PROMPT}, calls from log odds 0 on; held out: 100.0 % right calls"
    assert line in callsmith("models").out


def test_every_case_is_called_once_and_its_score_kept(engine: Knowing, tune, tmp_path: Path):
    assert tune().code == 0
    records = [record for record in read_records(tmp_path / "out") if record.setup == f"scripted/{PROMPT}"]
    assert len(records) == 24
    assert all(record.calls for record in records)
    assert {round(record.score or 0.0, 3) for record in records} == {-4, -3, -2, -1, 1, 2, 3, 4}
    assert engine.answers == 48


def test_what_was_stopped_goes_on_where_it_was(engine: Knowing, tune, tmp_path: Path):
    engine.stops_after = 20
    output = tune()
    assert output.code == 130
    assert "the same command goes on from there" in output.err
    kept = len(read_records(tmp_path / "out"))
    assert 0 < kept <= 20
    engine.stops_after, engine.answers = math.inf, 0
    again = tune()
    assert again.code == 0, again.err
    assert engine.answers == 48 - kept
    engine.answers = 0
    assert tune().out == again.out
    assert engine.answers == 0


def test_a_sample_has_as_many_of_each_category_in_each_half(engine: Knowing, tune):
    assert tune("--per-category", "2").code == 0
    assert engine.answers == 2 * 2 * 2 * 2


@pytest.mark.parametrize("spec", ["http://127.0.0.1:9/v1#m", "scripted:Hello"])
def test_a_model_without_log_probabilities_is_refused_with_what_can_be_done(tune, spec: str):
    output = tune(spec=spec)
    assert output.code == 2
    assert "gives no log probabilities" in output.err
    assert "GGUF" in output.err


def test_what_cannot_be_tuned_on_or_kept_is_said_before_anything_is_asked(engine: Knowing, tune, callsmith, cases: Path):
    assert "must have cases in which something is to be called" in tune("--categories", "sums").err
    assert "tool prompt" in callsmith("tune", "scripted:x", "--cases", str(cases), "--prompts", "nonsense").err
    engine.info = EngineInfo("Knowing", logprobs=True)
    assert "no file of weights" in tune("--store").err
    assert engine.answers == 0
