"""Every block of code in the documentation runs, or is checked by a rule for its language. None is left out silently."""

import ast
import asyncio
import itertools
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import typer.main

import callsmith
from callsmith.cli.main import app as cli
from callsmith.core.errors import CallsmithError
from callsmith.models.presets import presets_in
from callsmith.models.remote.providers import providers_in
from callsmith.server.settings_sources import SettingsSource, merge_settings, read_settings_file
from tests.docs.blocks import ROOT, Block, Command, blocks, commands, curl_request, mentioned_commands
from tests.docs.scenes import SCENES, Scene, an_app
from tests.journeys.test_readme import PRINTS
from tests.server.asking import http

# What is done with a block of each language. There are no others.
RULES = {
    "python": "run, page by page, in the scene of tests/docs/scenes.py; that of pages in ELSEWHERE elsewhere",
    "pycon": "run, and what it prints is compared, by tests/test_api_page.py",
    "console": "callsmith: parsed by the real command line; curl: sent to a server; make, pip: target and extras are there",
    "json": "parsed",
    "toml": "loaded as settings, or as what TOML names",
    "yaml": "a step of a workflow: the action it uses is there and has these inputs; settings of another program: parsed",
    "text": "nothing: what a terminal or a wire shows, and drawings",
}
# Python that is only compiled, with its imports tried: by words in it.
NOT_RUN = {
    "class Model(Protocol): ": "signatures alone",
    "await asyncio.Event().wait()": "needs a NATS server and runs for ever: tests/bus/nats has the same",
    'async with open_bus("nats://': "needs a NATS server: tests/bus/nats has the same",
}
# TOML that is not settings: by its first line.
TOML: dict[str, Callable[[str], object]] = {
    "[my-llama]": presets_in,
    "[mine]": providers_in,
    "# ~/.codex/config.toml": tomllib.loads,
}
# Pages whose Python runs elsewhere.
ELSEWHERE = {
    "README.md": "on a real model, by make test-readme",
    "docs/adapters.md": "where the frameworks are installed, by make test-clients and make test-crewai",
    "docs/cookbook.md": "where the frameworks are installed, by make test-clients",
}
# Programs of others: their commands are shown, and not checked.
PROGRAMS = {
    "aider": "Aider's own",
    "apt-get": "Debian's",
    "cat": "the system's",
    "claude": "Claude Code's own",
    "cn": "Continue's own",
    "codex": "Codex's own",
    "git": "Git's own",
    "llm": "llm's own",
    "open-webui": "Open WebUI's own",
    "opencode": "OpenCode's own",
    "nats-server": "a NATS server's own",
    "litellm": "LiteLLM's own",
    "smg": "SMG's own",
    "transformers": "Hugging Face's own",
    "vllm": "vLLM's own",
    "python": "SGLang's own",
}


# Requests that a page shows of a server that is not as it is here, and what comes of them.
STATUSES = {
    "/v1/approvals/confirm_…": 404,  # nothing waits
    "/v1/upstreams": 400,  # its model is of no other server
}
# Words that pages shorten, in full.
FULL = {"ed25519:…": "ed25519:oW1vGiMrkPsBQY28OOqpYfW53uz_r8M7Lq-rm1JYS3o"}
WRONG = typer.BadParameter.__mro__[1]  # what a command line that cannot be parsed raises; typer has no public name for it


def test_every_block_has_a_language_with_a_rule():
    assert {str(block): block.language for block in blocks() if block.language not in RULES} == {}


def test_every_reason_and_program_is_of_use():
    python, first = [block.text for block in blocks("python")], {block.text.split("\n")[0] for block in blocks("toml")}
    assert [words for words in NOT_RUN if not any(words.strip() in text for text in python)] == []
    assert set(TOML) <= first
    assert set(PROGRAMS) <= {command.words[0] for command in commands()}


@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_json_parses(block: Block):
    json.loads(re.sub(r"([{\[])…([}\]])", r"\1\2", block.text))


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_a_step_uses_an_action_that_is_there(block: Block):
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    if isinstance(settings := yaml.safe_load(block.text), dict):
        return  # of another program
    (step,) = settings
    path = re.fullmatch(r"OWNER/callsmith/(.+)@v[\d.]+", step["uses"])
    assert path
    inputs = yaml.safe_load((ROOT / path[1] / "action.yml").read_text("utf-8"))["inputs"]
    assert {name for name, entry in inputs.items() if entry.get("required")} <= set(step["with"]) <= set(inputs)


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_toml_is_what_the_page_says(block: Block, tmp_path: Path):
    tomllib.loads(block.text)
    if load := TOML.get(block.text.split("\n")[0]):
        load(block.text)
    else:
        (tmp_path / "callsmith.toml").write_text(block.text.replace("…", "ab" * 32))
        merge_settings(read_settings_file(tmp_path / "callsmith.toml"))


def reason_not_to_run(block: Block) -> str | None:
    return next((why for words, why in NOT_RUN.items() if words.strip() in block.text), None)


@pytest.mark.parametrize("block", [block for block in blocks("python") if reason_not_to_run(block)], ids=str)
def test_python_that_is_not_run_compiles_and_imports_what_there_is(block: Block):
    tree = ast.parse(block.text)
    compile(tree, str(block), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module([*imports], []), str(block), "exec"), {})


@pytest.mark.parametrize("page", sorted({block.page for block in blocks("python")} - ELSEWHERE.keys()))
def test_the_python_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    to_run = [block for block in blocks("python") if block.page == page and not reason_not_to_run(block)]
    scene = SCENES.get(page, Scene())
    with scene.playing(monkeypatch) as names, asyncio.Runner() as runner:
        for block in to_run:
            text = scene.code_for(block.text)
            for short, full in {**FULL, "http://127.0.0.1:8000": names["server"]}.items():
                text = text.replace(short, full)
            code = compile(text, str(block), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if (waiting := eval(code, names)) is not None:
                runner.run(waiting)


def test_every_python_example_of_the_readme_and_the_python_guide_is_run_by_make_test_readme():
    for block in blocks("python"):
        if block.page in ("README.md", "docs/python.md"):
            assert sum(mark in block.text for mark in PRINTS) == 1, block


@pytest.mark.parametrize("command", [command for command in commands() if command.words[0] == "callsmith"], ids=str)
def test_a_command_is_one_that_the_command_line_knows(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for word in command.words:
        if re.fullmatch(r"[\w.-]+\.(toml|json|jsonl|txt|jinja)", word):
            (tmp_path / word).touch()
    parse(*command.words)


@pytest.mark.parametrize(
    "line", ["callsmith serv", "callsmith serve --modle x", "callsmith models fetsch x", "callsmith serve --set x=1"]
)
def test_a_wrong_command_would_be_found(line: str):
    with pytest.raises((CallsmithError, WRONG)):
        parse(*line.split())


def parse(program: str, *words: str) -> None:
    """Parse a command line as far as it goes without running anything; of `serve` the settings too."""
    command, rest, context = cast(Any, typer.main.get_command(cli)), list(words), None
    while True:
        context = command.make_context(program, rest, parent=context)
        rest = [*context._protected_args, *context.args]
        if not hasattr(command, "resolve_command") or not rest:
            break
        program, command, rest = command.resolve_command(context, rest)
    pairs = [value.partition("=") for name, value in itertools.pairwise(words) if name == "--set"]
    merge_settings(SettingsSource("--set", {name: value for name, _, value in pairs}, is_text=True))


@pytest.mark.parametrize("command", mentioned_commands(), ids=str)
def test_a_command_in_a_sentence_is_one_with_these_options(command: Command):
    group, words = cast(Any, typer.main.get_command(cli)), list(command.words[1:])
    context = typer.Context(group)
    while words and hasattr(group, "resolve_command") and not words[0].startswith("-"):
        _, group, words = group.resolve_command(context, words)
    known = {name for option in group.get_params(context) for name in option.opts}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize("command", [command for command in commands() if command.words[0] != "callsmith"], ids=str)
def test_a_command_of_another_program_is_checked_or_named(command: Command):
    program, *words = command.words
    if program == "make":
        target = re.escape(next(word for word in words if "=" not in word))
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), f"no such target: {target}"
    elif program in {"pip", "pipx", "uvx"}:
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        match = re.search(r"\[(.*)\]", " ".join(words))
        assert words[0] == {"pip": "install", "pipx": "run", "uvx": "--from"}[program]
        assert set(match[1].split(",") if match else ()) <= set(extras)
    elif program != "curl":
        assert program in PROGRAMS


@pytest.mark.parametrize("command", [command for command in commands() if command.words[0] == "curl"], ids=str)
async def test_a_request_that_a_page_shows_is_answered(command: Command):
    request = curl_request(command)
    headers = {"content-type": "application/json", **request.headers}  # curl's own type is taken too, but httpx sends none
    async with http(an_app(*Scene().replies)) as client:
        answer = await client.request(request.method, request.path, headers=headers, content=request.body)
    assert answer.status_code == STATUSES.get(request.path, 200), answer.text


def test_public_names_are_imported_from_where_the_pages_say():
    """A page imports a public name from callsmith itself."""
    for block in blocks("python"):
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.ImportFrom) and node.module == "callsmith":
                assert {name.name for name in node.names} <= set(callsmith.__all__), block
