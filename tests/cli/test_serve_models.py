"""`callsmith serve` with several models."""

import pytest

from callsmith.cli.inputs.served_models import open_models
from callsmith.core.errors import Unavailable, UnknownName, UsageError
from callsmith.server.settings import Llm, Settings
from tests.small import small_file


def test_models_are_named_on_the_command_line(callsmith):
    result = callsmith(
        *("serve", "--print-config", "--model", "big=scripted:Hello, you", "--model", "small=ollama:qwen3"),
        *("--alias", "fast=small", "--alias", "claude-*=big", "--unload-after", "5m", "--memory", "2GB"),
    )
    assert '[models."big"]\nmodel = "scripted:Hello, you"  # --model\n' in result.out
    assert '[models."small"]\nmodel = "ollama:qwen3"  # --model\n' in result.out
    assert '[aliases]\n"fast" = "small"\n"claude-*" = "big"' in result.out
    assert 'unload_after = "5m"  # --unload-after' in result.out and 'memory = "2GB"  # --memory' in result.out


@pytest.mark.parametrize("spec", ["scripted:1 + 1=2", "http://host/v1?a=b#model", "./x=y.gguf"])
def test_one_model_may_have_an_equals_sign(callsmith, spec):
    assert f'\nmodel = "{spec}"  # --model\n' in callsmith("serve", "--print-config", "--model", spec).out


def test_a_file_with_an_equals_sign_is_a_file(callsmith, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a=b.gguf").touch()
    assert 'model = "a=b.gguf"' in callsmith("serve", "--print-config", "-m", "a=b.gguf").out


def test_a_model_in_the_environment_is_one_whatever_it_has_in_it(callsmith, monkeypatch):
    monkeypatch.setenv("CALLSMITH_MODEL", "scripted:Hello, my friend")
    assert 'model = "scripted:Hello, my friend"' in callsmith("serve", "--print-config").out
    assert callsmith("chat", "Hi").out.strip() == "Hello, my friend"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--model", "a=scripted:1", "--model", "a=scripted:2"), "--model: 'a' is given twice"),
        (("--model", "scripted:1", "--model", "scripted:2"), "--model: give each but one a name, as NAME=VALUE"),
        (("--model", "scripted:1", "--alias", "fast"), "--alias fast: expected NAME=VALUE"),
        (("--model", "scripted:1", "--alias", "fast=tiny"), "the alias 'fast' means 'tiny', which is no model"),
        (("--model", "a=scripted:1", "--alias", "x=y", "--alias", "y=x"), "aliases go round in a circle"),
        (("--model", "a=no-such-model", "--model", "b=scripted:1"), "unknown model 'no-such-model'"),
        (("--model", "scripted:1", "--unload-after", "soon"), "'soon' is no duration"),
        (("--model", "a=scripted:1", "--name", "b"), "--name is for one model without a name"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_served(callsmith, arguments, words):
    result = callsmith("serve", "--port", "0", *arguments)
    assert result.code == 2 and words in result.err


def test_one_model_is_loaded_at_once_and_several_are_not():
    (only,) = open_models(Settings(llm=Llm(model="scripted:Hi"))).values()
    assert only.status.state == "loaded"
    settings = Settings(llm=Llm(model="scripted:Hi"), models={"two": Llm(model="scripted:Ho")})
    models = open_models(settings)
    assert {name: model.status.state for name, model in models.items()} == {"scripted": "unloaded", "two": "unloaded"}


def test_what_is_known_without_loading_is_known_and_mistakes_are_too():
    with pytest.raises(UnknownName):
        open_models(Settings(models={"a": Llm(model="scripted:Hi"), "b": Llm(model="no-such-model")}))
    with pytest.raises(UsageError, match="two models are called 'a'"):
        open_models(Settings(llm=Llm(model="scripted:Hi", name="a"), models={"a": Llm(model="scripted:Ho")}))


@pytest.mark.weights
def test_a_model_that_would_never_fit_is_told_before_anything_is_served():
    small_file()
    with pytest.raises(Unavailable, match=r"tiny needs about .* MB, and models may take 50 MB together"):
        open_models(Settings(llm=Llm(memory="50MB"), models={"a": Llm(model="scripted:Hi"), "tiny": Llm(model="smollm2-135m")}))
