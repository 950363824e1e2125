"""The binding refuses a library it does not know."""

import ctypes as C
import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("xllamacpp")

from callsmith.core.errors import MissingExtra, Unavailable
from callsmith.engines.llama import libllama
from callsmith.engines.llama.libllama import ContextParams, ContextParamsV05, ModelParams, check_layout, declare, load
from callsmith.engines.llama_builds import locate as locating
from callsmith.engines.llama_builds.locate import locate

FITTING = check_layout(load().c)


def test_the_pinned_build_fits() -> None:
    assert FITTING is ContextParams or os.environ["CALLSMITH_LIBLLAMA"] != "pinned"
    assert check_layout(load().c, contexts=libllama.CONTEXTS[::-1]) is FITTING


def test_threads_that_need_it_at_the_same_time_load_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def make() -> object:
        time.sleep(0.05)
        made.append(object())
        return made[-1]

    monkeypatch.setattr(libllama, "_load", cache(make))
    with ThreadPoolExecutor(4) as pool:
        loaded = [*pool.map(lambda _: load(), range(4))]
    assert len(made) == 1 and loaded == made * 4


@pytest.mark.parametrize("measured", [True, False])
@pytest.mark.parametrize("struct", [ContextParams, ContextParamsV05])
def test_the_layout_is_chosen_that_has_the_size_and_the_defaults_in_their_places(
    monkeypatch: pytest.MonkeyPatch, struct: type[C.Structure], measured: bool
) -> None:
    monkeypatch.setattr(libllama, "_measure", lambda dll, name: defaults_of(ModelParams if "model" in name else struct, measured))
    assert check_layout(load().c) is struct


def defaults_of(struct: type[C.Structure], measured: bool) -> tuple[bytes, int | None]:
    """What a library with this struct would write, and what lies behind it."""
    known = libllama.KNOWN["llama_model_default_params" if struct is ModelParams else "llama_context_default_params"]
    fields = {name for name, _ in struct._fields_}
    values = struct(**{name: value for name, value in known.items() if name in fields})
    return bytes(values).ljust(1024, b"\xaa"), C.sizeof(struct) if measured else None


def planted(original: type[C.Structure], *, without: str = "", after: str = "") -> type[C.Structure]:
    """The struct with one field missing, or with one too many."""
    fields: list[tuple[str, type]] = []
    for name, kind in original._fields_:
        if name != without:
            fields.append((name, kind))
        if name == after:
            fields.append(("planted", kind))
    return type("Planted", (C.Structure,), {"_fields_": fields})


def forget(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    """Check all defaults but this one, so that only its absence can be noticed."""
    known = {name: {key: value for key, value in values.items() if key != field} for name, values in libllama.KNOWN.items()}
    monkeypatch.setattr(libllama, "KNOWN", known)


SET = {"n_ctx", "n_batch", "n_ubatch", "n_threads", "n_threads_batch"}


def is_harmless(wrong: type[C.Structure], right: type[C.Structure]) -> bool:
    """The compiler's padding has swallowed the difference: size, and all that callsmith may set, are where they were."""
    names = SET & {name for name, _ in right._fields_} & {name for name, _ in wrong._fields_}
    moved = [name for name in names if getattr(wrong, name).offset != getattr(right, name).offset]
    return C.sizeof(wrong) == C.sizeof(right) and not moved


@pytest.mark.parametrize(("which", "struct"), [("model", ModelParams), ("contexts", FITTING)])
def test_a_struct_with_a_field_more_or_less_is_refused_with_the_command_that_mends_it(
    monkeypatch: pytest.MonkeyPatch, which: str, struct: type[C.Structure]
) -> None:
    for name, _ in struct._fields_:
        for wrong in (planted(struct, without=name), planted(struct, after=name)):
            with monkeypatch.context() as patch:
                forget(patch, name)
                try:
                    check_layout(load().c, **{which: (wrong,) if which == "contexts" else wrong})
                except Unavailable as refused:
                    assert "is not one that callsmith knows" in refused.message
                    assert refused.hint == "pip install 'xllamacpp==2026.10.11549'"
                else:
                    assert is_harmless(wrong, struct), name


def test_where_sizes_cannot_be_measured_shifted_defaults_still_give_it_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libllama.platform, "machine", lambda: "riscv64")
    check_layout(load().c)
    others = [context for context in libllama.CONTEXTS if context is not FITTING]
    for wrong in (planted(FITTING, after="n_ctx"), *others):
        with pytest.raises(Unavailable, match="llama_context_default_params gives"):
            check_layout(load().c, contexts=(wrong,))


def test_a_library_without_the_functions_is_refused() -> None:
    with pytest.raises(Unavailable, match="it has no llama_backend_init"):
        declare(C.CDLL(None))


def test_the_library_may_be_named_and_must_then_be_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CALLSMITH_LIBLLAMA", str(tmp_path / "libllama.so"))
    with pytest.raises(Unavailable, match="names no library"):
        locate()
    (tmp_path / "libllama.so").write_bytes(b"no library")
    with pytest.raises(Unavailable, match="cannot be loaded"):
        libllama.Library(locate().path)


def test_what_the_system_lacks_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def load_nothing(path: str) -> None:
        raise OSError("libgomp.so.1: cannot open shared object file: No such file or directory")

    monkeypatch.setattr(libllama.C, "CDLL", load_nothing)
    with pytest.raises(Unavailable, match=r"libgomp\.so\.1") as refused:
        libllama.Library(tmp_path / "libllama.so")
    assert refused.value.hint == "Install it: apt-get install libgomp1, or dnf install libgomp"


def test_a_folder_may_be_named_with_the_library_somewhere_in_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CALLSMITH_LIBLLAMA", str(tmp_path))
    with pytest.raises(Unavailable, match="names no library"):
        locate()
    (tmp_path / "bins").mkdir()
    for name in ("libllama-common.so", "libllama.v0.5.0.so"):
        (tmp_path / "bins" / name).write_bytes(b"")
    assert locate().path == tmp_path / "bins" / "libllama.v0.5.0.so"


def test_code_that_a_processor_could_use_and_the_library_lacks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    library = load()
    assert "NEON" in library.uses or "SSE3" in library.uses
    monkeypatch.setattr(library, "uses", "CPU : NEON = 1 | ARM_FMA = 1 | ")
    assert library.neglects("fp asimd asimddp") == "dot products"
    assert library.neglects("fp asimd") == ""
    monkeypatch.setattr(library, "uses", "CPU : NEON = 1 | DOTPROD = 1 | ")
    assert library.neglects("fp asimd asimddp") == ""


def test_without_the_package_the_extra_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLSMITH_LIBLLAMA", "pinned")
    monkeypatch.setattr(locating, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"callsmith\[llama\]"):
        locate()


@pytest.mark.parametrize(
    ("platform", "set_by_user", "spins"),
    [
        ("linux", {}, "20000"),
        ("linux", {"OMP_WAIT_POLICY": "active"}, None),
        ("linux", {"GOMP_SPINCOUNT": "7"}, "7"),
        ("win32", {}, None),
    ],
)
def test_waiting_threads_of_openmp_sleep_after_a_while(
    monkeypatch: pytest.MonkeyPatch, platform: str, set_by_user: dict[str, str], spins: str | None
) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in set_by_user.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(libllama.sys, "platform", platform)
    with libllama.openmp_policy():
        assert os.environ.get("GOMP_SPINCOUNT") == spins
        assert os.environ.get("OMP_WAIT_POLICY") == set_by_user.get("OMP_WAIT_POLICY")
    assert os.environ.get("GOMP_SPINCOUNT") == set_by_user.get("GOMP_SPINCOUNT")
