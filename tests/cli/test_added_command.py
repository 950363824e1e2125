"""A command is one file: put into the folder of the commands, it is one."""

import subprocess
import sys
from pathlib import Path

COMMAND = '''
"""`callsmith greet`: says hello."""

import typer

app = typer.Typer()


@app.command()
def greet(name: str) -> None:
    """Say hello."""
    typer.echo(f"Hello {name}.")
'''
RUN = "import callsmith.cli; callsmith.cli.__path__.append({folder!r}); from callsmith.cli.main import app; app({words!r})"


def test_a_command_put_into_the_folder_is_listed_and_runs(tmp_path: Path):
    (tmp_path / "greet.py").write_text(COMMAND, "utf-8")

    def run(*words: str) -> str:
        code = RUN.format(folder=str(tmp_path), words=words)
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert "greet    Say hello." in run("--help")
    assert run("greet", "World") == "Hello World.\n"
