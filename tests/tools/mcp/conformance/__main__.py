"""Runs the client half of the MCP conformance suite against our host, one scenario after another, and prints a table.

python -m tests.tools.mcp.conformance [scenario …]

The suite itself would start all scenarios at once, which a small machine takes for failures. It is found on the PATH. What a
revision of the specification requires has to pass; of what it does not, expected-failures.yml names what does not.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
REVISIONS = ("2025-11-25", "2026-07-28")
SECONDS = 120
_EXPECTED = re.compile(r"^\s*- (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Scenario:
    revision: str
    name: str
    scored: bool


@dataclass(frozen=True)
class Outcome:
    scenario: Scenario
    passed: int
    failed: int
    ok: bool

    def row(self, expected: bool) -> str:
        outcome = "passed" if self.ok else "failed, as expected" if expected else "FAILED"
        scored = "" if self.scenario.scored else "not scored"
        checks = f"{self.passed:>4} of {self.passed + self.failed:<4}"
        return f"{self.scenario.revision}  {self.scenario.name:<42}{checks}{scored:<12}{outcome}"


def scenarios(revision: str) -> Iterator[Scenario]:
    """What a revision requires of clients, then what it only reports."""
    listing = subprocess.run(
        ["conformance", "list", "--requirements", revision], check=True, capture_output=True, text=True
    ).stdout
    required, _, reported = listing.partition("never scored")
    _, _, required = required.partition("Client scenarios")
    yield from (Scenario(revision, name, True) for name in re.findall(r"^\s+- (\S+)", required, re.MULTILINE))
    yield from (Scenario(revision, name, False) for name in re.findall(r"^\s+- (\S+) \[client\]", reported, re.MULTILINE))


def tried(scenario: Scenario, folder: Path) -> Outcome:
    command = ["conformance", "client", "--command", f"{sys.executable} -m tests.tools.mcp.conformance.driver"]
    command += ["--scenario", scenario.name, "--spec-version", scenario.revision, "--timeout", str(SECONDS * 1000)]
    command += [] if scenario.scored else ["--force"]  # extensions belong to no revision
    out = folder / scenario.revision
    ran = subprocess.run([*command, "-o", str(out)], capture_output=True, text=True, timeout=2 * SECONDS, check=False)
    checks = [check for path in out.glob(f"{scenario.name}-20*/checks.json") for check in json.loads(path.read_text())]
    states = [check["status"] for check in checks]
    if ran.returncode:
        print(ran.stdout[-6000:], ran.stderr[-2000:], sep="\n")
        print(*(path.read_text()[-4000:] for path in out.glob(f"{scenario.name}-20*/std*.txt")), sep="\n")
    return Outcome(scenario, states.count("SUCCESS"), states.count("FAILURE"), ran.returncode == 0 and "SUCCESS" in states)


def main(only: list[str]) -> int:
    expected = set(_EXPECTED.findall((HERE / "expected-failures.yml").read_text("utf-8")))
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for revision in REVISIONS:
            for scenario in scenarios(revision):
                if only and scenario.name not in only:
                    continue
                outcome = tried(scenario, Path(folder))
                foreseen = scenario.name in expected and not scenario.scored
                wrong += outcome.ok == foreseen
                print(outcome.row(foreseen), flush=True)
    print(f"{wrong} not as they should be" if wrong else "all as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
