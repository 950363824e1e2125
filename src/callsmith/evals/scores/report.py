"""Reports of results: Markdown, one page of HTML that needs nothing else, and JSON."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import combinations
from pathlib import Path
from typing import Any

from callsmith.core.types.escaped_text import in_html, in_json, in_markdown
from callsmith.evals.plot import Bar, bars
from callsmith.evals.run.record import CaseRecord
from callsmith.evals.scores.scores import Comparison, Scores, by_setup, compare, score
from callsmith.evals.scores.statistics import Paired, Share

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
Section = tuple[str, str, Table]  # a part of a report: its title, a note, a table
_NOTE = (
    "Shares with Wilson's 95 % interval in brackets. An answer that failed is wrong, also where no call was right. "
    "Seconds are the median of a case, while others were answered at the same time."
)
PAIRED_NOTE = "The same cases only. Difference in points with Newcombe's paired 95 % interval; p of McNemar's exact test."
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{border-bottom:1px solid #ccc;padding:.25rem .7rem;text-align:right}"
    "td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}details{margin:.5rem 0}"
)


def write_reports(folder: Path, records: Sequence[CaseRecord], plan: Mapping[str, Any]) -> dict[str, Scores]:
    """Write results.json, report.md and report.html into the folder; returns the scores by setup."""
    scores = {setup: score(setup, setup_records) for setup, setup_records in by_setup(records).items()}
    comparisons = all_comparisons(records)
    document = {
        "run": plan,
        "scores": [item.as_json() for item in scores.values()],
        "comparisons": [comparison.as_json() for comparison in comparisons],
    }
    (folder / "results.json").write_text(in_json(document, 2) + "\n", "utf-8")
    sections = _sections(scores, comparisons)
    (folder / "report.md").write_text(markdown(f"Evaluation, {datetime.now().astimezone():%Y-%m-%d}", sections), "utf-8")
    (folder / "report.html").write_text(_html(sections, scores, comparisons), "utf-8")
    return scores


def all_comparisons(records: Sequence[CaseRecord]) -> list[Comparison]:
    """Each setup against each that comes before it, as far as they share cases."""
    setups = by_setup(records)
    cases = {setup: {(record.case, record.digest) for record in setup_records} for setup, setup_records in setups.items()}
    return [compare(records, one, two) for one, two in combinations(setups, 2) if cases[one] & cases[two]]


def scores_table(scores: Iterable[Scores]) -> Table:
    """The groups of each setup; irrelevance always beside, for forcing calls raises one and ruins the other."""
    listed = list(scores)
    groups = list(dict.fromkeys(name for item in listed for name in item.groups)) or ["all"]
    heads = ["setup", *groups, "schema-valid calls", "errors", "tokens", "seconds"]
    rows = [
        [
            item.setup,
            *(show_share(item.groups.get(name) if item.groups else item.overall) for name in groups),
            show_share(item.valid),
            str(item.errors),
            f"{item.completion_tokens:.0f}",
            f"{item.seconds:.2f}",
        ]
        for item in listed
    ]
    return heads, rows


def categories_table(scores: Iterable[Scores]) -> Table:
    """Each category in each setup."""
    listed = list(scores)
    names = list(dict.fromkeys(name for item in listed for name in item.categories))
    return ["category", *(item.setup for item in listed)], [
        [name, *(show_share(item.categories.get(name)) for item in listed)] for name in names
    ]


def comparison_table(comparison: Comparison) -> Table:
    """The differences of a comparison: overall, by group, by category."""
    groups = [(f"{name} (group)" if name in comparison.categories else name, pair) for name, pair in comparison.groups.items()]
    heads = ["", "n", "difference", "95 %", "p", "gained", "lost"]
    return heads, [_pair_row(*row) for row in (("all", comparison.overall), *groups, *comparison.categories.items())]


def show_share(share: Share | None) -> str:
    """`87.5 % (80.1–92.4) of 120`; a dash where there is nothing."""
    if share is None or not share.n:
        return "–"
    low, high = share.interval
    return f"{100 * share.value:.1f} % ({100 * low:.1f}–{100 * high:.1f}) of {share.n}"


def _pair_row(name: str, paired: Paired) -> list[str]:
    low, high = paired.interval
    interval = f"{100 * low:+.1f} to {100 * high:+.1f}"
    p = "< 0.0001" if paired.p < 0.0001 else f"{paired.p:.4f}"
    return [name, str(paired.n), f"{100 * paired.difference:+.1f}", interval, p, str(paired.second), str(paired.first)]


def _sections(scores: Mapping[str, Scores], comparisons: Sequence[Comparison]) -> list[Section]:
    """Each part of the report: a title, a note and a table."""
    sections: list[Section] = [
        ("Scores", _NOTE, scores_table(scores.values())),
        ("Categories", "", categories_table(scores.values())),
        ("What is wrong in wrong answers", "", _errors_table(scores)),
    ]
    for comparison in comparisons:
        sections.append((f"{comparison.second} against {comparison.first}", PAIRED_NOTE, comparison_table(comparison)))
    return sections


def _errors_table(scores: Mapping[str, Scores]) -> Table:
    names = list(dict.fromkeys(name for item in scores.values() for name in item.error_types))
    rows = [[name, *(str(item.error_types.get(name, 0)) for item in scores.values())] for name in names]
    counts = {"cut off": "cut_off", "repaired": "repaired", "asked again": "retries"}
    rows += [[name, *(str(getattr(item, field)) for item in scores.values())] for name, field in counts.items()]
    return ["", *scores], rows


def markdown(title: str, sections: Sequence[Section]) -> str:
    """The parts of a report as Markdown."""
    parts = [f"# {in_markdown(title)}"]
    for title, note, (heads, rows) in sections:
        head, *body = ("| " + " | ".join(map(in_markdown, row)) + " |" for row in (heads, *rows))
        lines = [head, "|".join(["", " --- ", *(" ---: " for _ in heads[1:]), ""]), *body]
        parts.append("\n\n".join(filter(None, [f"## {in_markdown(title)}", note, "\n".join(lines)])))
    return "\n\n".join(parts) + "\n"


def _html(sections: Sequence[Section], scores: Mapping[str, Scores], comparisons: Sequence[Comparison]) -> str:
    body = [f"<h1>Evaluation, {datetime.now().astimezone():%Y-%m-%d}</h1>", _plot("Right answers", scores, "groups")]
    body.append(_plot("Right answers by category", scores, "categories"))
    for title, note, (heads, rows) in sections:
        head = "".join(f"<th>{in_html(head)}</th>" for head in heads)
        cells = "".join("<tr>" + "".join(f"<td>{in_html(item)}</td>" for item in row) + "</tr>" for row in rows)
        body.append(f"<h2>{in_html(title)}</h2><p>{in_html(note)}</p><table><tr>{head}</tr>{cells}</table>")
    for comparison in comparisons:
        for word, ids in (("gained", comparison.gains), ("lost", comparison.losses)):
            summary = f"{comparison.second} against {comparison.first}: {len(ids)} {word}"
            body.append(f"<details><summary>{in_html(summary)}</summary><p>{in_html(', '.join(ids))}</p></details>")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Evaluation</title><style>{_STYLE}</style>'
        f"<body>{''.join(body)}</body></html>\n"
    )


def _plot(title: str, scores: Mapping[str, Scores], kind: str) -> str:
    shares: dict[str, dict[str, Share]] = {setup: getattr(setup_scores, kind) for setup, setup_scores in scores.items()}
    names = list(dict.fromkeys(name for by_name in shares.values() for name in by_name))
    if not names:
        return ""
    rows = {setup: [_bar(by_name.get(name)) for name in names] for setup, by_name in shares.items()}
    return bars(title, names, rows, " %", top=100.0)


def _bar(share: Share | None) -> Bar | None:
    if share is None or not share.n:
        return None
    low, high = share.interval
    return Bar(100 * share.value, 100 * low, 100 * high)
