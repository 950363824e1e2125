"""Reports of a tuning: the ways on the held-out half, and each against the template's own."""

from collections.abc import Sequence
from pathlib import Path

from callsmith.core.types.escaped_text import in_json
from callsmith.evals.scores.comparison import Comparison, compare
from callsmith.evals.scores.report import PAIRED_NOTE, Section, Table, comparison_table, markdown, show_share
from callsmith.evals.scores.tuning import Tuning, Way

_NOTE = (
    "The held-out half, each way with the threshold that was best on the other half. Shares with Wilson's 95 % interval in "
    "brackets. Tokens (mean) and seconds (median) are those of answers with calls."
)


def ways_table(tuning: Tuning) -> Table:
    """Each way on the held-out half."""
    shares = [tuning.shares(way) for way in tuning.ways]
    names = list(dict.fromkeys(name for found in shares for name in found))
    heads = ["tool prompt", "threshold", *names, "schema-valid calls", "errors", "prompt tokens", "tokens", "seconds"]
    return heads, [
        [
            way.prompt,
            "–" if way.threshold is None else f"{way.threshold:g}",
            *(show_share(found.get(name)) for name in names),
            *_costs(way),
        ]
        for way, found in zip(tuning.ways, shares, strict=True)
    ]


def _costs(way: Way) -> list[str]:
    scores = way.scores
    costs = [f"{scores.prompt_tokens:.0f}", f"{scores.completion_tokens:.0f}", f"{scores.seconds:.2f}"]
    return [show_share(scores.valid), str(scores.errors), *(costs if scores.valid.n else ["–"] * 3)]


def against_template(tuning: Tuning) -> list[Comparison]:
    """Each other way against the template's own, on the held-out half; the one that was chosen first."""
    first = tuning.template
    others = sorted((way for way in tuning.ways if way is not first), key=lambda way: (way is not tuning.best, -way.value))
    if first is None:
        return []
    return [compare([*first.records, *way.records], first.records[0].setup, way.records[0].setup) for way in others]


def preset_lines(tuning: Tuning) -> Sequence[str]:
    """The lines of a preset that follow."""
    threshold = [] if tuning.best.threshold is None else [f"threshold = {tuning.best.threshold}"]
    return [f'tool_prompt = "{tuning.best.prompt}"', *threshold, "auto_guarded = true"]


def write_tuning(folder: Path, name: str, tuning: Tuning) -> Path:
    """Write the report of a model, as Markdown and as JSON beside it; returns where it is."""
    comparisons = against_template(tuning)
    sections: list[Section] = [("Ways", _NOTE, ways_table(tuning))]
    sections += [(f"{one.second} against {one.first}", PAIRED_NOTE, comparison_table(one)) for one in comparisons]
    document = {**tuning.as_json(), "comparisons": [one.as_json() for one in comparisons]}
    (folder / f"{name}.json").write_text(in_json(document, 2) + "\n", "utf-8")
    path = folder / f"{name}.md"
    chosen = "\n".join(["", "```toml", *preset_lines(tuning), "```", ""])
    path.write_text(markdown(f"Tuning of {name}", sections) + chosen, "utf-8")
    return path
