"""The report of a check: as text for people, as JSON, and as JUnit's XML for CI."""

from collections import Counter
from itertools import groupby
from typing import Final
from xml.etree import ElementTree

from callsmith.core.values import Json
from callsmith.evals.check.advice import advice
from callsmith.evals.check.run import DIALECTS, Finding, Report, Verdict

MARKS: Final[dict[Verdict, str]] = {"right": "✓", "wrong": "✗", "weak": "~", "skipped": "-"}


def summary(report: Report) -> list[str]:
    """A line a dialect, and one of all."""
    lines: list[str] = []
    for name, findings in groupby(report.findings, lambda one: one.dialect.name):
        lines.append(f"{DIALECTS[name].title:<20}{_counted(list(findings))}")
    for name in report.unspoken:
        lines.append(f"{DIALECTS[name].title:<20}not spoken here")
    lines.append(f"{'all':<20}{_counted(report.findings)}, {report.seconds:.0f} s")
    if report.stopped:
        lines.append(f"{'stopped':<20}after {len(report.findings)} of {report.probes} probes: {report.stopped}")
    return lines


def _counted(findings: list[Finding]) -> str:
    counts = Counter(one.verdict for one in findings)
    parts = [f"{counts['right']} right", f"{counts['wrong']} wrong"]
    parts += [f"{counts['weak']} the model did not do"] if counts["weak"] else []
    parts += [f"{counts['skipped']} not to be found out"] if counts["skipped"] else []
    return ", ".join(parts)


def explained(report: Report, finding: Finding) -> list[str]:
    """What is wrong, how often if it was tried several times, and what can be done about it."""
    tried = sum(finding.counts.values())
    often = f" ({finding.counts[finding.verdict]} of {tried} times)" if tried > 1 else ""
    lines = [f"{MARKS[finding.verdict]} {finding.name}: {finding.probe.title}{often}", f"    {finding.reason}"]
    if finding.verdict == "wrong" and (advised := advice(report.server, finding.probe.name)):
        lines.append(f"    {advised}")
    return lines


def markdown(report: Report) -> str:
    """The report card: a row an API, and one a probe of what is not right in any of them."""
    columns: tuple[Verdict, ...] = ("right", "wrong", "weak", "skipped")
    lines = [
        f"# {report.server}: {report.model}",
        "",
        "| | right | wrong | not done by the model | not found out |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, findings in groupby(report.findings, lambda one: one.dialect.name):
        counts = Counter(one.verdict for one in findings)
        lines.append(f"| {DIALECTS[name].title} | {' | '.join(str(counts[one]) for one in columns)} |")
    lines += [f"| {DIALECTS[name].title} | not spoken | | | |" for name in report.unspoken]
    if report.stopped:
        lines += ["", f"Stopped after {len(report.findings)} of {report.probes} probes: {report.stopped}."]
    seen: dict[tuple[str, str], list[Finding]] = {}
    for one in report.of("wrong", "weak"):
        seen.setdefault((MARKS[one.verdict], one.probe.name), []).append(one)
    if not seen:
        return "\n".join([*lines, "", "Nothing is wrong."]) + "\n"
    lines += ["", "| | probe | in | what should hold | what was found |", "|---|---|---|---|---|"]
    for (mark, name), found in seen.items():
        where = ", ".join(one.dialect.name for one in found)
        lines.append(f"| {mark} | `{name}` | {where} | {found[0].probe.title} | {_cell(found[0].reason)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text[:200].replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def as_json(report: Report) -> Json:
    """All of it, with the exchanges."""
    return {
        "url": report.url,
        "server": report.server,
        "model": report.model,
        "dialects": report.dialects,
        "unspoken": report.unspoken,
        "counts": dict(Counter(one.verdict for one in report.findings)),
        "seconds": round(report.seconds, 1),
        "stopped": report.stopped or None,
        "findings": [
            {
                "name": one.name,
                "title": one.probe.title,
                "verdict": one.verdict,
                "reason": one.reason or None,
                "advice": (advice(report.server, one.probe.name) or None) if one.verdict == "wrong" else None,
                "counts": dict(one.counts),
                "seconds": round(one.seconds, 3),
                "exchanges": list(one.exchanges),
            }
            for one in report.findings
        ],
    }


def as_junit(report: Report) -> str:
    """A test case a probe: what is wrong has failed, what the model did not do is skipped."""
    wrong, skipped = report.of("wrong"), report.of("weak", "skipped")
    counts = {"tests": len(report.findings), "failures": len(wrong), "skipped": len(skipped), "errors": 0}
    suite = ElementTree.Element(
        "testsuite", {"name": f"callsmith check {report.url}", **{key: str(value) for key, value in counts.items()}}
    )
    for one in report.findings:
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": one.dialect.name, "name": one.probe.name, "time": f"{one.seconds:.3f}"}
        )
        if one.verdict == "wrong":
            ElementTree.SubElement(case, "failure", {"message": one.reason}).text = "\n".join(explained(report, one))
        elif one.verdict != "right":
            ElementTree.SubElement(case, "skipped", {"message": one.reason})
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)
