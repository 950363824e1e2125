"""What a report says of how tools are chosen."""

from typing import Any

import pytest

from callsmith.core.values import Call
from callsmith.runtime.telemetry.summary import Confusion, report
from callsmith.runtime.telemetry.turns import UNKNOWN, CallRecord, TurnRecord
from tests.fakes import FakeModel, Handlers, calls, hello, says
from tests.runtime.telemetry.traced import GREET, traced


def of(*records: CallRecord, offered: tuple[str, ...] = ("find", "search", "wave")) -> TurnRecord:
    return TurnRecord(0.0, "parrot", offered, calls=records)


@pytest.mark.req("R221")
def test_the_report_names_tools_that_are_never_called_and_those_often_called_wrongly():
    reported = report([of(CallRecord("find", "ok")), *(of(CallRecord("search", how)) for how in ("ok", "ok", "invalid"))])
    assert reported.turns == 4
    assert reported.never_called == ("wave",)
    assert reported.often_invalid == ("search",)
    assert reported.confused == ()


@pytest.mark.req("R221")
@pytest.mark.parametrize("outcome", ["failed", "declined", "invalid", "timeout"])
def test_a_tool_called_in_vain_and_then_another_is_a_confusion(outcome: Any):
    turn = of(CallRecord("find", outcome, step=1), CallRecord("search", "ok", step=2))
    assert report([turn, turn]).confused == (Confusion("find", "search", "instead", 2),)


def test_a_call_denied_in_an_earlier_turn_and_then_another_is_a_confusion():
    turn = of(CallRecord("find", "declined", step=0, resumed=True), CallRecord("search", "ok", step=1))
    assert report([turn]).confused == (Confusion("find", "search", "instead", 1),)


@pytest.mark.parametrize(
    "records",
    [
        (CallRecord("find", "ok", step=1), CallRecord("search", "ok", step=2)),
        (CallRecord("find", "failed", step=1), CallRecord("search", "ok", step=1)),  # side by side
        (CallRecord("find", "failed", step=1), CallRecord("find", "ok", step=2), CallRecord("search", "ok", step=2)),
        (CallRecord("find", "failed", step=1), CallRecord("search", "ok", step=3)),
        (CallRecord(UNKNOWN, "unknown", step=1),),
    ],
)
def test_what_need_not_be_a_confusion_is_none(records: tuple[CallRecord, ...]):
    assert report([of(*records)]).confused == ()


@pytest.mark.req("R221")
async def test_a_name_that_is_almost_that_of_a_tool_is_a_confusion():
    turn = await traced(FakeModel(calls(Call("gret", {}, "c1"), Call("fly", {}, "c2")), says("hm")), Handlers(GREET, greet=hello))
    assert report([turn]).confused == (Confusion("gret", "greet", "name", 1),)
