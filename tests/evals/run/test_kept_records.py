"""What was measured stays when a folder of results is opened again, and is not mixed with what other weights answer."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.errors import UsageError
from callsmith.evals.cases.case import Case, read_case
from callsmith.evals.run.record import RECORDS, CaseRecord, Records, case_digest, read_records

ON_A_FULL_DISK = """
import resource, sys
from pathlib import Path
from callsmith.evals.run.record import Records

resource.setrlimit(resource.RLIMIT_FSIZE, (50, 50))
Records(Path(sys.argv[1])).close()
"""


def test_opening_results_that_were_cut_off_loses_none_even_where_nothing_can_be_written(tmp_path: Path):
    records = Records(tmp_path)
    for number in range(10):
        records.add(CaseRecord(f"case {number}", "sums", "m/free", "d"))
    records.close()
    with (tmp_path / RECORDS).open("ab") as file:
        file.write(b'{"case": "case 10", "cate')  # as a full disk leaves it
    subprocess.run([sys.executable, "-c", ON_A_FULL_DISK, str(tmp_path)], check=False, capture_output=True)
    assert len(read_records(tmp_path)) == 10
    assert (tmp_path / RECORDS).read_bytes().endswith(b"}\n")


@pytest.mark.parametrize("changed", [{"weights": {"quantization": "Q8_0", "size": 2}}, {"format": "pythonic"}])
def test_answers_of_other_weights_under_the_same_name_are_refused(tmp_path: Path, changed: dict[str, Any]):
    about = {"name": "Mine", "format": "hermes", "weights": {"quantization": "Q4_K_M", "size": 1}, "placement": "the processor"}
    records = Records(tmp_path)
    records.describe("m/free", {"model": "mine.gguf"}, about)
    records.close()
    again = Records(tmp_path)
    again.describe("m/free", {"model": "mine.gguf"}, {**about, "name": "Another name", "placement": "a GPU"})
    with pytest.raises(UsageError, match=f"results of another setup 'm/free'.*{next(iter(changed))}"):
        again.describe("m/free", {"model": "mine.gguf"}, {**about, **changed})
    again.close()


def asking(city: str, image: str) -> Case:
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": json.dumps({"city": city})}}
    shown = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Is it warm there?"}, shown]},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "17 degrees"},
    ]
    return read_case({"id": "one", "messages": messages, "expect": "no_call"})


def test_a_case_with_another_call_or_image_in_its_history_is_another_case():
    asked = case_digest(asking("Oslo", "AAAA"))
    assert asked == case_digest(asking("Oslo", "AAAA"))
    assert len({asked, case_digest(asking("Lima", "AAAA")), case_digest(asking("Oslo", "BBBB"))}) == 3


def test_a_case_of_words_alone_is_the_same_case_as_before():
    words = read_case({"id": "one", "messages": [{"role": "user", "content": "Hi"}], "expect": "no_call"})
    assert case_digest(words) == "e82fd3566a9e"


@pytest.mark.parametrize("line", [b"\0\0\0\n", b"<<<<<<< HEAD\n", b'{"case": 1}\n'])
def test_a_record_that_cannot_be_read_is_named_by_its_line(tmp_path: Path, line: bytes):
    records = Records(tmp_path)
    records.add(CaseRecord("one", "sums", "m/free", "d"))
    records.close()
    with (tmp_path / RECORDS).open("ab") as file:
        file.write(line)
    for read in (read_records, Records):
        with pytest.raises(UsageError, match=r"records.jsonl, line 2: .*; without it its case is asked again"):
            read(tmp_path)
