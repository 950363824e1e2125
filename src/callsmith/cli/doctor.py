"""`callsmith doctor`: checks the installation, and says how to fix what is missing."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from callsmith.cli.inputs.options import ConfigOption, example
from callsmith.cli.inputs.setting_options import SettingsCommand, settings_of
from callsmith.cli.terminal.output import echo
from callsmith.core.errors import CallsmithError, MissingExtra, ModelError, Unavailable

if TYPE_CHECKING:
    from callsmith.server.settings import Settings

Status: TypeAlias = Literal["ok", "warn", "fail"]

_REQUIREMENT = re.compile(r"([\w.-]+)[^;]*; extra == '([\w-]+)'")
COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}

app = typer.Typer()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The outcome of one check, and how to fix it."""

    status: Status
    what: str
    message: str
    remedy: str = ""


class DoctorCommand(SettingsCommand):
    """`callsmith doctor`, with the option for the model."""

    only = ("llm.model",)


@app.command(cls=DoctorCommand, epilog=example("callsmith doctor --model qwen2.5-coder-1.5b"))
def doctor(
    context: typer.Context,
    config: ConfigOption = None,
    url: Annotated[str | None, typer.Option("--url", help="A server that should be running.", show_default=False)] = None,
) -> None:
    """Check the installation: one line for each check, with a fix for what is wrong. Exit code 1 if something is."""
    failed = False
    for finding in _findings(settings_of(context).llm.model, config, url):
        failed = failed or finding.status == "fail"
        echo(f"{finding.status:5}", fg=COLOURS[finding.status], nl=False)
        echo(f"{finding.what:9} {finding.message}")
        if finding.remedy:
            echo(f"{'':15}→ {finding.remedy}")
    raise typer.Exit(1 if failed else 0)


def _findings(model: str | None, config: Path | None, url: str | None) -> Iterator[Diagnosis]:
    yield Diagnosis("ok", "python", ".".join(map(str, sys.version_info[:3])))  # an older one could not read this
    yield from _extras()
    yield _attempt("llama.cpp", _library)
    yield _attempt("gpu", _gpu)
    yield _attempt("grammars", _grammars)
    finding, settings = _config(config)
    yield finding
    configured = [llm.model for llm in (settings.llm, *settings.models.values()) if llm.model] if settings else []
    for spec in [model] if model else configured or [_default(settings)]:
        yield from _weights(spec)
    if settings:
        yield _port(settings.host, settings.port)
    if url:
        yield _reachable(url)


def _default(settings: "Settings | None") -> str:
    """The model that would be taken without a name, if nothing is fetched for it."""
    from callsmith.engines.memory import model_memory
    from callsmith.models.weights.default_choice import choose_default, find_candidates

    policy = settings.llm.default_model if settings else "ask"
    here, room = find_candidates(), model_memory()
    return choose_default(policy, installed=here, room=room, can_ask=False, ask_hub=lambda models: None).name


def extras() -> dict[str, list[str]]:
    """The optional parts that are in `all`, each with the packages it needs on every machine."""
    from importlib.metadata import requires

    packages_by_extra: dict[str, list[str]] = {}
    for requirement in filter(None, map(_REQUIREMENT.fullmatch, requires("callsmith") or ())):
        packages_by_extra.setdefault(requirement[2], []).append(requirement[1])
    everything = set(packages_by_extra.pop("all", ()))
    return {extra: packages for extra, packages in packages_by_extra.items() if everything.issuperset(packages)}


def _extras() -> Iterator[Diagnosis]:
    for extra, packages in extras().items():
        missing = [package for package in packages if _version(package) is None]
        if missing:
            remedy = f"If you need it: pip install 'callsmith[{extra}]'"
            yield Diagnosis("warn", "extra", f"{extra}: {', '.join(missing)} not installed", remedy)
        else:
            yield Diagnosis("ok", "extra", f"{extra}: {', '.join(f'{package} {_version(package)}' for package in packages)}")


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _attempt(what: str, look: Callable[[], str | Diagnosis]) -> Diagnosis:
    """Run one check; an error it raises becomes its outcome."""
    try:
        outcome = look()
        return outcome if isinstance(outcome, Diagnosis) else Diagnosis("ok", what, outcome)
    except MissingExtra as error:
        return Diagnosis("warn", what, str(error))
    except ModelError as error:
        return Diagnosis("fail", what, error.message, error.hint)
    except (CallsmithError, ImportError) as error:
        return Diagnosis("fail", what, str(error))


def _library() -> Diagnosis:
    from callsmith.engines.llama.libllama import load
    from callsmith.engines.llama_builds.builds import BUILDS, this_machine
    from callsmith.engines.llama_builds.locate import VARIABLE, locate

    machine = this_machine()
    located = locate(machine)
    neglected = load().neglects(machine.features)  # loading proves that it is laid out as we know it
    text = f"{located.path}, of a build that is known; {located.why}"
    if neglected:
        install = f"callsmith engines install{f', and unset {VARIABLE}' if os.environ.get(VARIABLE) else ''}"
        remedy = f"To answer faster: {install}" if not all(map(machine.obstacle, BUILDS)) else ""
        return Diagnosis("warn", "llama.cpp", f"{text}, but without the code for this processor's {neglected}", remedy)
    return Diagnosis("ok", "llama.cpp", text)


def _gpu() -> Diagnosis:
    from callsmith.engines.llama.libllama import load
    from callsmith.engines.llama.placement import gpus
    from callsmith.engines.llama_builds.builds import this_machine
    from callsmith.engines.llama_builds.locate import unused_gpu

    if devices := gpus(load()):
        free = ", ".join(f"{device}, {device.free / 2**30:.0f} GiB free" for device in devices)
        return Diagnosis("ok", "gpu", free)
    why, _, remedy = unused_gpu(this_machine()).partition(". Run: ")
    return (
        Diagnosis("warn", "gpu", why, remedy and f"Run: {remedy}") if why else Diagnosis("ok", "gpu", "none that could be used")
    )


def _grammars() -> str:
    if _version("llguidance") is None:
        raise MissingExtra("llama", "holding a model to a grammar")
    import_module("llguidance")
    return f"llguidance {_version('llguidance')}"


def _config(config: Path | None) -> "tuple[Diagnosis, Settings | None]":
    from callsmith.cli.serve import load_settings

    try:
        effective = load_settings(config, [], [])
    except ImportError as error:
        return Diagnosis("warn", "settings", f"not looked at: {error}"), None
    except CallsmithError as error:
        return Diagnosis("fail", "settings", str(error)), None
    origins = sorted(set(effective.origins.values()))
    return Diagnosis("ok", "settings", f"from {', '.join(origins)}" if origins else "all standard"), effective.settings


def _weights(spec: str) -> Iterator[Diagnosis]:
    from callsmith.models.opening import CHECKPOINT_SCHEME, WEIGHTS_SCHEME, find_weights, split_spec
    from callsmith.models.remote.providers import parse_spec
    from callsmith.models.weights.catalogue import catalogue
    from callsmith.models.weights.fetch import WeightStore
    from callsmith.models.weights.hub_names import parse

    try:
        if remote := parse_spec(spec):
            yield Diagnosis("ok", "model", f"{remote.model or 'the only one'} at {', '.join(remote.urls)}: no weights needed")
            return
        scheme, rest = split_spec(spec)
        is_weights = scheme == WEIGHTS_SCHEME or (scheme == CHECKPOINT_SCHEME and parse(spec) is not None)
    except CallsmithError as error:
        yield Diagnosis("fail", "model", str(error))
        return
    if not is_weights:
        yield Diagnosis("ok", "model", f"{scheme}: no weights needed")
        return

    def look() -> str:
        if rest in catalogue():
            return f"{WeightStore().verify(rest)}, sha256 as in the catalogue"
        return find_weights(spec)[1]

    finding = _attempt("model", look)
    yield finding
    if finding.status == "ok" and (file := Path(find_weights(spec)[1])).is_file():
        yield _memory(file)


def _memory(file: Path) -> Diagnosis:
    from callsmith.core.types.quantities import write_size
    from callsmith.engines import memory
    from callsmith.engines.split_gguf import split_parts

    if placed := _placement(file):
        return Diagnosis("ok", "memory", placed)
    size = sum(part.stat().st_size for part in split_parts(file))

    free, needed = memory.free_memory(), int(size * memory.ROOM)
    if free is None:
        return Diagnosis("ok", "memory", f"about {write_size(needed)} are needed; what is free is not known here")
    text = f"{write_size(free)} free, about {write_size(needed)} needed"
    if free < needed:
        return Diagnosis("warn", "memory", text, "Take a smaller model, or stop something else: it will be very slow, or end.")
    return Diagnosis("ok", "memory", text)


def _placement(file: Path) -> str:
    """Which GPUs would be used for the model in this file; empty if none."""
    from callsmith.engines.llama.libllama import load
    from callsmith.engines.llama.placement import gpus, place

    try:
        return str(place(file, gpus(load())))
    except CallsmithError:
        return ""  # a line above says so


def _port(host: str, port: int) -> Diagnosis:
    from callsmith.cli.serve import bind_listener

    try:
        bind_listener(host, port).close()
    except Unavailable as error:
        remedy = "If that is not your server: callsmith serve --port 0 takes a free one."
        return Diagnosis("warn", "port", error.message, remedy)
    return Diagnosis("ok", "port", f"{host}:{port} is free")


def _reachable(url: str) -> Diagnosis:
    from http.client import HTTPException
    from urllib.request import urlopen

    base = url.rstrip("/").removesuffix("/v1")
    remedy = f"Start one: callsmith serve. Then look at {base}/health."
    try:
        with urlopen(f"{base}/health", timeout=5) as response:
            status = json.load(response)["status"]
    except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
        return Diagnosis("fail", "server", f"{base} does not answer as callsmith does: {getattr(error, 'reason', error)}", remedy)
    return Diagnosis("ok" if status == "ok" else "warn", "server", f"{base} says: {status}")
