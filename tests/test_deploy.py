"""The examples under deploy/: they parse, fit the schemas of those who read them, and say only what the server knows."""

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from callsmith.server.app import create_app
from callsmith.server.settings_sources import (
    EffectiveSettings,
    SettingsSource,
    merge_settings,
    read_environment,
    read_settings_file,
    setting_options,
)
from tests.fakes import FakeModel
from tests.server.asking import http, says

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

DEPLOY = Path(__file__).parent.parent / "deploy"
COMPOSE = DEPLOY / "compose" / "compose.yaml"
KUBERNETES = DEPLOY / "kubernetes" / "callsmith.yaml"
DOCKERFILE = DEPLOY / "Dockerfile"
SCHEMAS = Path(__file__).parent.parent / ".venv-deploy"
DEFINED = "/api/_definitions.json"  # what the schemas of Kubernetes refer to
KINDS = ("Secret", "ConfigMap", "Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler")
GIVEN = {"POSTGRES_PASSWORD": "secret", "UPSTREAM": "http://vllm:8000/v1#m", "KEY_SHA256": "ab" * 32}


def composed() -> Any:
    """The Compose file with its variables filled in."""
    text = re.sub(r"\$\{(\w+)(?::\?[^}]*)?\}", lambda match: GIVEN[match[1]], COMPOSE.read_text("utf-8"))
    return yaml.safe_load(text)


def manifests() -> dict[str, Any]:
    """What is described for Kubernetes, by kind."""
    return {item["kind"]: item for item in yaml.safe_load_all(KUBERNETES.read_text("utf-8"))}


def served(arguments: list[str], environment: dict[str, str], file: Path | None = None) -> EffectiveSettings:
    """The settings that `callsmith serve` with these arguments comes to; an unknown option or setting is an error."""
    options = {name: setting_option for setting_option in setting_options() for name in setting_option.flag.names}
    command, *rest = arguments
    assert command == "serve"
    values: dict[str, Any] = {}
    sources = [read_environment(environment)]
    while rest:
        name, value, *rest = rest
        if name == "--config":
            assert file is not None and value == f"/etc/callsmith/{file.name}"
            sources.insert(0, read_settings_file(file))
        else:
            values[options[name].name] = value
    return merge_settings(*sources, SettingsSource("the command line", values, is_text=True))


def test_what_compose_starts_is_known_to_the_server():
    gateway = composed()["services"]["gateway"]
    settings = served(gateway["command"], gateway["environment"]).settings
    assert settings.store == "postgresql://callsmith@database/callsmith"
    assert settings.llm.model == GIVEN["UPSTREAM"]
    assert (settings.host, list(settings.keys)) == ("0.0.0.0", ["app"])
    assert gateway["deploy"]["replicas"] == 3


def test_what_compose_mounts_and_builds_is_there():
    services = composed()["services"]
    build = services["gateway"]["build"]
    assert (COMPOSE.parent / build["context"] / build["dockerfile"]).resolve() == DOCKERFILE
    conf = services["balancer"]["volumes"][0].partition(":")[0]
    text = (COMPOSE.parent / conf).read_text("utf-8")
    assert text.count("{") == text.count("}")
    assert "server gateway:8000" in text
    assert "proxy_buffering off;" in text


async def test_what_kubernetes_starts_is_known_to_the_server_and_its_probes_are_answered_without_a_key(tmp_path: Path):
    resources = manifests()
    pod = resources["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    file = tmp_path / "callsmith.toml"
    file.write_text(resources["ConfigMap"]["data"]["callsmith.toml"], "utf-8")
    environment = {
        item["name"]: resources["Secret"]["stringData"][item["valueFrom"]["secretKeyRef"]["key"]] for item in container["env"]
    }
    settings = served(container["args"], environment, file).settings
    assert settings.store is not None and settings.store.startswith("postgresql://")
    assert settings.port == container["ports"][0]["containerPort"]
    assert resources["Service"]["spec"]["selector"] == resources["Deployment"]["spec"]["selector"]["matchLabels"]
    async with http(create_app({"m": FakeModel(says("a"))}, settings=settings)) as asking:
        for probe in ("readinessProbe", "startupProbe"):
            assert (await asking.get(container[probe]["httpGet"]["path"])).status_code == 200
        assert (await asking.get("/v1/models")).status_code == 401


def test_the_image_starts_the_server_with_options_it_knows_and_extras_there_are():
    lines = DOCKERFILE.read_text("utf-8").splitlines()
    command = next(json.loads(line.removeprefix("CMD ")) for line in lines if line.startswith("CMD "))
    assert served(command, {}).settings.host == "0.0.0.0"
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text("utf-8"))["project"]
    extras = next(line for line in lines if line.startswith("ARG EXTRAS=")).partition("=")[2].split(",")
    assert set(extras) <= set(project["optional-dependencies"])
    assert {"postgres", "remote", "server"} <= set(extras)
    copied = [path for line in lines if line.startswith("COPY ") and "--from" not in line for path in line.split()[1:-1]]
    assert [path for path in copied if not (DEPLOY.parent / path).exists()] == []


def _schema(path: str) -> Path:
    """A file of the packages that `make test-deploy` brings."""
    folder = Path(os.environ.get("CALLSMITH_DEPLOY_SCHEMAS", SCHEMAS))
    paths = sorted(folder.glob(path), key=lambda schema_path: [int(n) for n in re.findall(r"\d+", schema_path.parent.name)])
    if not paths:
        pytest.skip(f"{folder} has no {path}: make test-deploy brings it")
    return paths[-1]


@pytest.mark.deploy
def test_the_compose_file_fits_the_schema_of_compose():
    schema = json.loads(_schema("compose/config/compose_spec.json").read_text("utf-8"))
    jsonschema_rs.validator_for(schema).validate(composed())
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validator_for(schema).validate({"services": {"a": {"imag": "b"}}})


@pytest.mark.deploy
@pytest.mark.parametrize("kind", KINDS)
def test_the_manifest_fits_the_strict_schema_of_kubernetes(kind: str):
    manifest = manifests()[kind]
    name = "-".join([kind.lower(), *manifest["apiVersion"].split("/")])
    path = _schema(f"kubernetes_validate/kubernetes-json-schema/v*-local-strict/{name}.json")
    files = (path, path.with_name("_definitions.json"))
    own, shared = (json.loads(file.read_text("utf-8").replace(f'"{DEFINED}#', '"#')) for file in files)
    schema = {name: value for name, value in own.items() if name != "$id"} | {"$defs": shared["$defs"]}
    jsonschema_rs.validator_for(schema).validate(manifest)
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validator_for(schema).validate({**manifest, "specc": {}})
