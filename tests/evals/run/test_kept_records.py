"""What was measured stays when a folder of results is opened again."""

import subprocess
import sys
from pathlib import Path

from callsmith.evals.run.record import RECORDS, CaseRecord, Records, read_records

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
