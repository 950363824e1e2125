"""The examples under deploy/: they parse, fit the schemas of those who read them, and say only what the server knows."""

import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
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
CHART = DEPLOY / "helm"
GITHUB = DEPLOY.parent / ".github"
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


def validate_manifest(manifest: dict[str, Any]) -> None:
    """Hold a manifest against the strict schema of Kubernetes, which refuses what it does not know."""
    kind, version = manifest["kind"].lower(), manifest["apiVersion"].removesuffix(".k8s.io").replace(".k8s.io/", "/")
    name = "-".join([kind, *version.split("/")])
    path = _schema(f"kubernetes_validate/kubernetes-json-schema/v*-local-strict/{name}.json")
    files = (path, path.with_name("_definitions.json"))
    own, shared = (json.loads(file.read_text("utf-8").replace(f'"{DEFINED}#', '"#')) for file in files)
    schema = {name: value for name, value in own.items() if name != "$id"} | {"$defs": shared["$defs"]}
    jsonschema_rs.validator_for(schema).validate(manifest)
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validator_for(schema).validate({**manifest, "specc": {}})


@pytest.mark.deploy
@pytest.mark.parametrize("kind", KINDS)
def test_the_manifest_fits_the_strict_schema_of_kubernetes(kind: str):
    validate_manifest(manifests()[kind])


def test_the_values_of_the_chart_fit_their_schema_which_refuses_others():
    schema = jsonschema_rs.validator_for(json.loads((CHART / "values.schema.json").read_text("utf-8")))
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    schema.validate(values)
    assert set(values) == set(json.loads((CHART / "values.schema.json").read_text("utf-8"))["properties"]) - {"global"}
    for wrong in ({"replica": 3}, {"replicas": 0}, {"service": {"port": "80"}}, {"image": {"repository": "a"}}, {"config": ""}):
        with pytest.raises(jsonschema_rs.ValidationError):
            schema.validate({**values, **wrong})


@pytest.fixture
def helm(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Helm itself, as a library."""
    monkeypatch.syspath_prepend(_schema("helm_python").parent)
    return importlib.import_module("helm_python")


def render(helm: Any, release: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    """What the chart comes to."""
    with helm.Chart.load(CHART) as chart:
        files = chart.render(values, name=release)
    return [item for path, text in files.items() if path.endswith(".yaml") for item in yaml.safe_load_all(text) if item]


@pytest.mark.deploy
def test_helm_finds_nothing_wrong_with_the_chart(helm: Any):
    findings = helm.lint(CHART, strict=True)
    assert (findings["total_charts_linted"], findings["errors"]) == (1, [])
    assert [finding["error"] for finding in findings["messages"]] == ["icon is recommended"]


@pytest.mark.deploy
def test_helm_refuses_values_that_the_chart_does_not_know(helm: Any):
    with pytest.raises(helm.HelmError, match="replica"):
        render(helm, "callsmith", {"replica": 3})


@pytest.mark.deploy
def test_helm_says_how_to_reach_the_server(helm: Any):
    with helm.Chart.load(CHART) as chart:
        notes = chart.render({}, name="gate", namespace="tools")["callsmith/templates/NOTES.txt"]
    assert "http://gate.tools/v1" in notes and "port-forward service/gate 8000:80\n" in notes


@pytest.mark.deploy
def test_the_manifests_are_what_the_chart_renders_as_it_is(helm: Any):
    rendered = render(helm, "callsmith", {})
    assert {item["kind"]: item for item in rendered} == manifests()
    assert len(rendered) == len(KINDS)


@pytest.mark.deploy
def test_the_chart_with_other_values_fits_the_schemas_of_kubernetes(helm: Any):
    chosen = {
        "image": {"repository": "example.com/callsmith", "tag": "1"},
        "store": {"url": "", "existingSecret": "database"},
        "env": [{"name": "OTEL_SERVICE_NAME", "value": "callsmith"}],
        "autoscaling": {"enabled": False},
        "replicas": 2,
        "minAvailable": 0,
        "service": {"type": "LoadBalancer", "port": 8080},
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "host": "a.example.com",
            "tlsSecret": "cert",
            "annotations": {"a": "b"},
        },
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "podAnnotations": {"c": "d"},
        "imagePullSecrets": [{"name": "pull"}],
    }
    rendered = {item["kind"]: item for item in render(helm, "gate", chosen)}
    assert set(rendered) == {"ConfigMap", "Deployment", "Service", "Ingress"}
    for manifest in rendered.values():
        validate_manifest(manifest)
        assert manifest["metadata"]["name"] == "gate"
    pod = rendered["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert rendered["Deployment"]["spec"]["replicas"] == 2
    assert (container["image"], pod["nodeSelector"]) == ("example.com/callsmith:1", {"disk": "ssd"})
    assert container["env"] == [
        {"name": "CALLSMITH_SERVER__STORE", "valueFrom": {"secretKeyRef": {"name": "database", "key": "store"}}},
        {"name": "OTEL_SERVICE_NAME", "value": "callsmith"},
    ]
    assert rendered["Ingress"]["spec"]["tls"] == [{"hosts": ["a.example.com"], "secretName": "cert"}]
    chosen["store"] = {"url": "", "existingSecret": ""}
    chosen["env"] = []
    (deployment,) = (item for item in render(helm, "gate", chosen) if item["kind"] == "Deployment")
    assert "env" not in deployment["spec"]["template"]["spec"]["containers"][0]


def action() -> Any:
    """The action that checks a server."""
    return yaml.safe_load((GITHUB / "actions" / "check" / "action.yml").read_text("utf-8"))


@pytest.mark.deploy
@pytest.mark.parametrize("kind", ["workflow", "action"])
def test_workflows_and_the_action_fit_the_schemas_of_github(kind: str):
    schema = json.loads(_schema(f"check_jsonschema/builtin_schemas/vendor/github-{kind}s.json").read_text("utf-8"))
    paths = sorted((GITHUB / f"{kind}s").rglob("*.yml"))
    assert paths
    for path in paths:
        # YAML 1.1 reads the key `on` as true.
        document = {"on" if key is True else key: value for key, value in yaml.safe_load(path.read_text("utf-8")).items()}
        jsonschema_rs.validator_for(schema).validate(document)
        with pytest.raises(jsonschema_rs.ValidationError):
            jsonschema_rs.validator_for(schema).validate({**document, "jobz": {}, "runs": "?", "jobs": "?"})


def test_every_action_of_others_is_pinned_to_a_commit():
    used = [match for path in GITHUB.rglob("*.yml") for match in re.findall(r"uses: (\S+)", path.read_text("utf-8"))]
    assert used and [name for name in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", name)] == []


def test_workflows_run_only_what_the_project_has():
    targets = set(re.findall(r"^([\w-]+):", (DEPLOY.parent / "Makefile").read_text("utf-8"), re.MULTILINE))
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text("utf-8"))
    for path in (GITHUB / "workflows").glob("*.yml"):
        text = path.read_text("utf-8")
        assert set(re.findall(r"run: make ([\w-]+)", text)) <= targets
        assert [name for name in re.findall(r"python3? (deploy/\S+)", text) if not (DEPLOY.parent / name).exists()] == []
        for extras in re.findall(r'"\.\[(.*?)\]"', text):
            assert set(extras.split(",")) <= set(project["project"]["optional-dependencies"])


@pytest.mark.deploy
@pytest.mark.parametrize(("path", "code"), [("/v1", 0), ("/nothing", 1)])
def test_the_action_checks_a_server(tmp_path: Path, path: str, code: int):
    """Its steps as a runner runs them, against a server of ours; callsmith is the one that the action comes with."""
    serve = [sys.executable, "-m", "callsmith", "serve", "--port", "0", "--model", "scripted:Hello"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        match = re.search(r"at (http://\S+)/v1\.", server.stdout.readline())
        assert match
        defaults = {name: entry.get("default", "") for name, entry in action()["inputs"].items()}
        inputs = defaults | {
            "url": match[1] + path,
            "args": "--dialect chat --only answers.models --only answers.unknown_*",
            "python": sys.executable,
        }
        environment = os.environ | {"RUNNER_TEMP": str(tmp_path), "GITHUB_ACTION_PATH": str(GITHUB / "actions" / "check")}
        files = {name: tmp_path / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        environment |= {name: str(file) for name, file in files.items()}
        environment.pop("PYTHONPATH", None)
        done = None
        for step in action()["runs"]["steps"]:
            given = {name: inputs[value.removeprefix("${{ inputs.").removesuffix(" }}")] for name, value in step["env"].items()}
            done = subprocess.run(
                ["bash", "-e", "-o", "pipefail", "-c", step["run"]],
                cwd=tmp_path,
                env=environment | given,
                capture_output=True,
                text=True,
                check=False,
            )
        server.terminate()
    assert done is not None and (done.returncode != 0) == bool(code), done.stdout + done.stderr
    installed = subprocess.run(
        [tmp_path / "callsmith" / "bin" / "pip", "inspect"], env=environment, capture_output=True, text=True, check=True
    )
    (ours,) = (one for one in json.loads(installed.stdout)["installed"] if one["metadata"]["name"] == "callsmith")
    assert ours["direct_url"]["url"] == DEPLOY.parent.as_uri()
    if code == 0:
        outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text("utf-8").splitlines())
        assert files["GITHUB_STEP_SUMMARY"].read_text("utf-8") == Path(outputs["report"]).read_text("utf-8") != ""
        assert "<testsuite" in Path(outputs["junit"]).read_text("utf-8")


@pytest.mark.deploy
def test_the_bill_of_materials_fits_the_schema_of_cyclonedx(tmp_path: Path):
    folder = _schema("cyclonedx/schema/_res/bom-1.6.SNAPSHOT.schema.json").parent
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*wheel, "--wheel-dir", str(tmp_path), str(DEPLOY.parent)], check=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as archive:
        (name,) = (name for name in archive.namelist() if "/sboms/" in name)
        bill = json.loads(archive.read(name))
    own, *others = (
        (f"http://cyclonedx.org/schema/{file}", json.loads((folder / file).read_text("utf-8")))
        for file in ("bom-1.6.SNAPSHOT.schema.json", "spdx.SNAPSHOT.schema.json", "jsf-0.82.SNAPSHOT.schema.json")
    )
    validator = jsonschema_rs.Draft7Validator(own[1], registry=jsonschema_rs.Registry(others))
    validator.validate(bill)
    with pytest.raises(jsonschema_rs.ValidationError):
        validator.validate({**bill, "specVersion": 16})
