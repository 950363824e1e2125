"""Runs the probes against a server, in every dialect that it speaks."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import import_module
from pkgutil import iter_modules
from typing import Literal, TypeAlias

from callsmith.core.errors import ModelError, UnknownName, UsageError
from callsmith.core.types.tables import as_object, as_objects, as_text
from callsmith.core.values import Json
from callsmith.evals.check import probes
from callsmith.evals.check.advice import ServerKind, identify
from callsmith.evals.check.dialects.anthropic import ANTHROPIC
from callsmith.evals.check.dialects.chat import CHAT
from callsmith.evals.check.dialects.dialect import CheckedDialect
from callsmith.evals.check.dialects.ollama import OLLAMA
from callsmith.evals.check.dialects.responses import RESPONSES
from callsmith.evals.check.exchange import CheckedServer, Exchange, KeyWanted
from callsmith.evals.check.probe import PROBES, TOKENS, Gone, Late, ModelFault, Probe, ProbeContext, Skipped, Wrong, describe

Verdict: TypeAlias = Literal["right", "wrong", "weak", "skipped"]
DIALECTS = {item.name: item for item in (CHAT, RESPONSES, ANTHROPIC, OLLAMA)}
QUICK = (  # what goes wrong most often
    "answers.stream",
    "answers.stream_is_whole",
    "calls.read",
    "calls.shape_in_stream",
    "calls.stream_is_whole",
    "calls.text",
    "choices.required",
    "choices.required_in_stream",
    "choices.named",
    "choices.none",
    "choices.one_at_a_time",
    "schemas.enum",
    "schemas.escapes",
    "schemas.nested",
    "history.result",
    "history.two_results",
    "errors.tools",
    "outputs.schema",
)
_NOT_SPOKEN = frozenset({404, 405, 501})
MOST_LATE = 3  # probes in a row


@dataclass(frozen=True, slots=True)
class Finding:
    """What a probe has found. Of several times, `counts` says how often what; the worst verdict counts."""

    probe: Probe
    dialect: CheckedDialect
    verdict: Verdict
    reason: str = ""
    exchanges: tuple[dict[str, Json], ...] = ()
    seconds: float = 0.0
    counts: Counter[Verdict] = field(default_factory=Counter[Verdict])
    is_late: bool = False

    @property
    def name(self) -> str:
        return f"{self.dialect.name}.{self.probe.name}"


@dataclass(slots=True)
class CheckReport:
    """All that was found about a server."""

    url: str
    model: str
    server: ServerKind
    dialects: list[str] = field(default_factory=list[str])
    unspoken: list[str] = field(default_factory=list[str])
    findings: list[Finding] = field(default_factory=list[Finding])
    seconds: float = 0.0
    planned: list[str] = field(default_factory=list[str])  # the names of all probes that were to be run
    stopped: str = ""  # why not all of them were

    def of(self, *verdicts: Verdict) -> list[Finding]:
        return [finding for finding in self.findings if finding.verdict in verdicts]

    @property
    def not_asked(self) -> list[str]:
        """The names of the probes that were to be run and were not."""
        return self.planned[len(self.findings) :]

    @property
    def late(self) -> list[str]:
        """The names of the probes that had no answer in time."""
        return [finding.name for finding in self.findings if finding.is_late]


def known_probes() -> Sequence[Probe]:
    """All probes, in the order of their modules."""
    for module in iter_modules(probes.__path__):
        import_module(f"{probes.__name__}.{module.name}")
    return PROBES


async def check(
    url: str,
    *,
    key: str = "",
    model: str = "",
    dialects: Collection[str] = (),
    only: Collection[str] = (),
    repeat: int = 1,
    tokens: int = TOKENS,
    seconds: float = 120.0,
    on_start: Callable[[CheckReport], None] | None = None,
    on_finding: Callable[[Finding], None] | None = None,
) -> CheckReport:
    """Check a server. `only` are patterns of the names of probes, such as `choices.*` or `chat.schemas.enum`.

    `on_start` gets the report that is then filled, so that whoever cancels this has what was found so far.
    """
    for name in dialects:
        if name not in DIALECTS:
            raise UnknownName("dialect", name, DIALECTS, field="dialect")
    for pattern in only:
        if not any(_fits(dialect, probe, pattern) for dialect in DIALECTS.values() for probe in known_probes()):
            raise UsageError(f"no probe is called {pattern}; --list lists them", field="only")
    began = time.perf_counter()
    async with CheckedServer(url, key, seconds=seconds) as target:
        listed = await target.models()
        model = model or first_model(target, listed)
        report = CheckReport(target.url, model, "unknown")
        contexts, refusals = list[ProbeContext](), list[str]()
        for dialect in DIALECTS.values():
            if dialects and dialect.name not in dialects:
                continue
            if refusal := await _is_unspoken(target, dialect, model):
                if dialects:
                    raise ModelError(f"{url} does not speak {dialect.title}: {refusal}")
                report.unspoken.append(dialect.name)
                refusals.append(refusal)
            else:
                contexts.append(ProbeContext(target, dialect, model, tokens))
        if not contexts:
            raise ModelError(
                f"no API that is known is spoken at {target.url}: {refusals[0]}", hint="Is the address complete (…/v1)?"
            )
        report.server = identify(listed, target.exchanges)
        report.dialects = [context.dialect.name for context in contexts]
        suitable = [(context, probe) for context in contexts for probe in known_probes() if probe.is_for(context.dialect)]
        chosen = [pair for pair in suitable if not only or any(_fits(pair[0].dialect, pair[1], pattern) for pattern in only)]
        if not chosen:
            raise UsageError(f"no probe is called {', '.join(only)}; --list lists them", field="only")
        report.planned = [f"{context.dialect.name}.{probe.name}" for context, probe in chosen]
        if on_start is not None:
            on_start(report)
        late = 0
        for context, probe in chosen:
            finding, ended = await _run(context, probe, repeat)
            report.findings.append(finding)
            report.seconds = time.perf_counter() - began
            if on_finding is not None:
                on_finding(finding)
            late = late + 1 if isinstance(ended, Late) else 0
            if isinstance(ended, Gone) and not await target.is_there():
                report.stopped = f"the server is gone since {finding.name}"
                break
            if late == MOST_LATE:
                report.stopped = f"{late} answers in a row took longer than {seconds:g} s; --timeout gives them more"
                break
    return report


def _fits(dialect: CheckedDialect, probe: Probe, pattern: str) -> bool:
    return fnmatchcase(probe.name, pattern) or fnmatchcase(f"{dialect.name}.{probe.name}", pattern)


async def _run(context: ProbeContext, probe: Probe, repeat: int) -> tuple[Finding, Exception | None]:
    """The probe, as often as it is to be run; the worst of what it finds is reported. And what the last run has ended with."""
    order: tuple[Verdict, ...] = ("skipped", "right", "weak", "wrong")
    worst, counts, began = Finding(probe, context.dialect, "skipped"), Counter[Verdict](), time.perf_counter()
    ended: Exception | None = None
    for number in range(repeat):
        own = context if number == 0 else ProbeContext(context.target, context.dialect, context.model, context.tokens)
        context.target.exchanges = []
        verdict, ended = await _verdict(own, probe)
        counts[verdict] += 1
        if number == 0 or order.index(verdict) > order.index(worst.verdict):
            seen = tuple(exchange.view() for exchange in context.target.exchanges[-4:])
            worst = Finding(probe, context.dialect, verdict, str(ended or ""), seen)
        if isinstance(ended, Gone | Late):
            break
    seconds = time.perf_counter() - began
    late = isinstance(ended, Late)
    return Finding(probe, context.dialect, worst.verdict, worst.reason, worst.exchanges, seconds, counts, late), ended


async def _verdict(context: ProbeContext, probe: Probe) -> tuple[Verdict, Exception | None]:
    try:
        await probe.run(context)
    except Wrong as error:
        return "wrong", error
    except ModelFault as error:
        return "weak", error
    except Skipped as error:
        return "skipped", error
    return "right", None


def first_model(target: CheckedServer, listed: Exchange) -> str:
    """The model that is asked where nobody names one: the first of the list."""
    names = [as_text(item.get("id")) or as_text(item.get("name")) for item in as_objects(as_object(listed.json()).get("data"))]
    if not names or not names[0]:
        perhaps = "" if target.key else ", or give it a key with --key"
        raise UsageError(
            f"{target.url}/models lists no model ({describe(listed)}): say which with --model{perhaps}", field="model"
        )
    return names[0]


async def _is_unspoken(target: CheckedServer, dialect: CheckedDialect, model: str) -> str:
    """Why a dialect is not spoken; empty if it is, however badly."""
    context = ProbeContext(target, dialect, model)
    try:
        exchange = await context.send(context.body("Hi"))
    except Gone as broken:
        return str(broken)
    except Late:
        return ""  # the probes will tell
    if exchange.status in (401, 403):
        raise KeyWanted(target.url, exchange.status)
    return describe(exchange) if exchange.status in _NOT_SPOKEN else ""
