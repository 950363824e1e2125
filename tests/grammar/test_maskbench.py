"""A sample of MaskBench's schemas as written: nothing valid is refused, and what is accepted without being valid is listed."""

import json
import lzma
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest

pytest.importorskip("llguidance")

from callsmith.models.schema_judge import SchemaJudge
from tests.formats.reader.corpus import CORPUS
from tests.grammar.judging import is_explained

FILE = CORPUS / "maskbench.jsonl.xz"
EVERY = 120  # one of so many schemas, by the hash of its line


def sample(every: int) -> Iterator[dict[str, Any]]:
    with lzma.open(FILE, "rb") as lines:
        for line in lines:
            if int.from_bytes(sha256(line).digest()[:8]) % every == 0:
                yield json.loads(line)


def check(every: int) -> tuple[int, int, int, list[str]]:
    """How many schemas there were, how many instances were accepted and refused rightly, and what went wrong."""
    schemas = accepted = refused = 0
    wrong: list[str] = []
    with SchemaJudge(as_written=True) as judge:
        for case in sample(every):
            schemas += 1
            verdict = judge.judge(case["schema"], [test["data"] for test in case["tests"]])
            if not verdict.compiled:
                wrong.append(f"{case['name']} does not compile: {verdict.error}")
            unenforced = tuple((path, keyword) for keyword, path in verdict.unenforced)
            for at, (test, is_accepted) in enumerate(zip(case["tests"], verdict.accepts, strict=False)):
                if test["valid"] and not is_accepted:
                    wrong.append(f"{case['name']}: instance {at} is valid and refused")
                if is_accepted and not test["valid"] and not is_explained(case["schema"], unenforced, test["data"]):
                    wrong.append(f"{case['name']}: instance {at} is accepted, and nothing that is listed explains it")
                accepted += test["valid"] and is_accepted
                refused += not test["valid"] and not is_accepted
    return schemas, accepted, refused, wrong


@pytest.mark.skipif(not FILE.is_file(), reason=f"MaskBench is not there: set CALLSMITH_CORPUS ({FILE} is missing)")
def test_a_sample_of_maskbench_is_judged_as_its_labels_say_but_for_what_is_listed():
    schemas, accepted, refused, wrong = check(EVERY)
    assert wrong == []
    assert schemas > 60
    assert accepted > 60
    assert refused > 100
