"""A shell and an editor in one folder, for `callsmith chat --tools examples.sandbox.tools`: all but looking needs an approval.

The folder is $SANDBOX, or `sandbox` in the current folder. Where bubblewrap is installed, commands see the system read-only, the
folder alone writable, and no network. Elsewhere they only begin in the folder, with the rights of this program: then your
approval is all that stands between the model and your files. Paths and links that lead out of the folder are refused.
"""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from callsmith import tool

FOLDER = Path(os.environ.get("SANDBOX", "sandbox")).resolve()
FOLDER.mkdir(exist_ok=True)
BWRAP = shlex.split("bwrap --ro-bind / / --tmpfs /tmp --dev /dev --proc /proc --unshare-all --die-with-parent")


def inside(path: str) -> Path:
    """The path in the folder, links followed; an error if it leads out."""
    found = (FOLDER / path).resolve()
    if not found.is_relative_to(FOLDER):
        raise ValueError(f"{path} is outside of the folder")
    return found


@tool(side_effects=True)
def bash(command: str) -> str:
    """Run a shell command in the folder, for at most 30 seconds."""
    walls = [*BWRAP, "--bind", str(FOLDER), str(FOLDER), "--chdir", str(FOLDER)] if shutil.which("bwrap") else []
    clean = {"PATH": os.environ.get("PATH", ""), "HOME": str(FOLDER)}  # no keys of yours
    done = subprocess.run([*walls, "sh", "-c", command], cwd=FOLDER, env=clean, capture_output=True, text=True, timeout=30)
    return f"exit status {done.returncode}\n{(done.stdout + done.stderr)[-10_000:]}"


@tool
def view(path: str = ".") -> str:
    """Show a file of the folder, or list a folder in it."""
    found = inside(path)
    return "\n".join(sorted(one.name for one in found.iterdir())) if found.is_dir() else found.read_text("utf-8")[:50_000]


@tool(side_effects=True)
def create(path: str, text: str) -> str:
    """Write a new file."""
    with inside(path).open("x", encoding="utf-8") as file:
        file.write(text)
    return f"{path} is written"


@tool(side_effects=True)
def replace_text(path: str, old: str, new: str) -> str:
    """Replace a passage of a file; it must occur exactly once."""
    file = inside(path)
    if (count := file.read_text("utf-8").count(old)) != 1:
        raise ValueError(f"the passage occurs {count} times, not once")
    file.write_text(file.read_text("utf-8").replace(old, new), encoding="utf-8")
    return f"{path} is changed"
