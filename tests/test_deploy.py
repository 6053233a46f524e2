"""The files in deploy/ work, as far as that can be tested without a container engine.

Files follow the schemas of Compose and Kubernetes; every `evaltap` command in them exists; the settings start
a real Kafka, topics.sh creates its topics there, the Collector accepts its file; the steps of the Dockerfile
are run in a folder.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema

from evaltap.cli.declared import options_of
from evaltap.cli.main import build_parser, main, named
from evaltap.evaluator.ingest.topics.clients import create_topics
from evaltap.evaluator.store.database import Store
from evaltap.schemas.files.documents import read_metrics
from support.builders.topics import location
from support.builders.waiting import wait_for
from support.servers import apache, otel_collector
from support.servers.broker import Broker, free_port

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
COMPOSE = sorted(DEPLOY.glob("compose*.yaml"))
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
KUBERNETES = "1.32"
TOPICS = {"evaltap.cases", "evaltap.cases.dlq", "evaltap.scores", "otlp_spans", "otlp_logs"}


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every Kubernetes object with a name for the test."""
    for path in MANIFESTS:
        for document in yaml.safe_load_all(path.read_text()):
            yield f"{path.name} {document['kind']}", document


def services() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every Compose service with a name for the test."""
    for path in COMPOSE:
        for name, service in yaml.safe_load(path.read_text())["services"].items():
            yield f"{path.name} {name}", service


def containers() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield every container of a workload, with its pod."""
    for name, document in documents():
        pod = document.get("spec", {}).get("template", {}).get("spec")
        for container in pod["containers"] if pod else ():
            yield name, pod, container


def commands() -> Iterator[Any]:
    """Yield the arguments of every `evaltap` that is started anywhere."""
    for name, service in services():
        ours = "apache" not in service.get("image", "") and "otel/" not in service.get("image", "")
        if ours and "command" in service:
            yield pytest.param(service["command"], id=name)
    for name, _, container in containers():
        yield pytest.param(container["args"], id=name)
    unit = (DEPLOY / "evaltap-consume.service").read_text()
    started = re.search(r"^ExecStart=\S*evaltap (.*)$", unit.replace("\\\n", ""), re.MULTILINE)
    assert started
    yield pytest.param(shlex.split(started.group(1)), id="systemd")


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_compose_files_follow_the_compose_specification(path: Path) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text()), get_builtin_schema("vendor.compose-spec"))


@pytest.mark.parametrize("document", [pytest.param(one, id=name) for name, one in documents()])
def test_manifests_follow_the_schemas_of_kubernetes(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, KUBERNETES, strict=True)


@pytest.mark.parametrize("arguments", list(commands()))
def test_every_command_is_one_that_evaltap_takes(arguments: list[str]) -> None:
    options = build_parser(named(arguments)).parse_args(arguments)

    assert options_of(options.options, vars(options))


@pytest.mark.parametrize("arguments", list(commands()))
def test_every_evaluator_serves_page_and_probes_and_watches(arguments: list[str]) -> None:
    options = build_parser(named(arguments)).parse_args(arguments)

    if named(arguments) == "consume":
        assert options.serve[1] == 9464
        assert options.ui.endswith(":4710")
        assert options.monitor


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_files_that_containers_mount_are_there(path: Path) -> None:
    for service in yaml.safe_load(path.read_text())["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert not source.startswith(".") or (DEPLOY / source).is_file(), source


def test_no_container_is_root_or_can_become_it() -> None:
    found = list(containers())

    assert len(found) >= 2
    for name, pod, container in found:
        assert pod["securityContext"]["runAsNonRoot"], name
        assert not container["securityContext"]["allowPrivilegeEscalation"], name
        assert container["securityContext"]["readOnlyRootFilesystem"], name
        assert container["resources"]["limits"]["memory"], name
    assert re.search(r"^USER 10001", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)


def test_images_are_pinned() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    images = re.findall(r"^ARG PYTHON=(\S+)", text, re.MULTILINE)
    assert {*re.findall(r"^FROM (\S+)", text, re.MULTILINE)} == {"${PYTHON}"}
    images += [service["image"] for _, service in services() if "image" in service]

    assert len(images) > 3
    assert not [image for image in images if not re.search(r":\d+\.\d+", image)]


def locked(name: str) -> dict[str, int]:
    """Return the packages of a lock with the number of their hashes."""
    text = (DEPLOY / name).read_text()
    parts = re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]
    return {
        re.split(r"==", part)[0]: len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", part))
        for part in parts
    }


def test_the_image_installs_by_hash_whatever_the_project_wants() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = re.findall(r"^ARG EXTRAS=(\S+)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    wanted = [*project["dependencies"]]
    for extra in extras[0].split(","):
        wanted += project["optional-dependencies"][extra]

    found = locked("requirements.lock")

    assert all(found.values())
    assert {re.match(r"[\w-]+", one)[0].lower() for one in wanted} <= found.keys()  # type: ignore[index]  # they match
    assert all(locked("build.lock").values())


def test_ci_installs_by_hash_whatever_the_groups_want() -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = document["project"]["optional-dependencies"]

    for group, wanted in document["dependency-groups"].items():
        found = locked(f"{group}.lock")
        included = [one for one in wanted if isinstance(one, dict)]
        wanted = [one for one in wanted if isinstance(one, str)]
        for one in included:
            wanted += document["dependency-groups"][one["include-group"]]
        names = {name for one in wanted for name in _names(one, extras)}
        assert all(found.values()), group
        assert names <= found.keys(), group
    assert all(locked("local-judge-weights.lock").values())
    assert {"editables", "hatchling", "setuptools"} <= locked("build.lock").keys()


def _names(requirement: str, extras: dict[str, list[str]]) -> Iterator[str]:
    """Yield the packages that a requirement names, with those of the project's own extras."""
    own = re.fullmatch(r"evaltap\[([\w,-]+)\]", requirement)
    if own is None:
        yield re.match(r"[\w-]+", requirement)[0].lower()  # type: ignore[index]  # they match
    for extra in own[1].split(",") if own else ():
        for one in extras[extra]:
            yield from _names(one, extras)


def test_in_ci_run_installs_nothing_without_a_hash(tmp_path: Path) -> None:
    for name in ("run", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "deploy").mkdir()
    for lock in DEPLOY.glob("*.lock"):
        shutil.copy(lock, tmp_path / "deploy" / lock.name)
    calls, python = tmp_path / "calls", tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    python.chmod(0o755)

    subprocess.run(
        ["./run", "chaos"], cwd=tmp_path, env={"PATH": os.environ["PATH"], "CI": "1"}, check=True
    )

    installs = [line for line in calls.read_text().splitlines() if " pip install " in f" {line} "]
    assert [line.split()[-1] for line in installs] == [
        "deploy/installer.lock", "deploy/build.lock", "deploy/dev.lock", ".",
        "deploy/installer.lock", "deploy/build.lock", "deploy/local-judge.lock",
        "deploy/installer.lock", "deploy/build.lock", "deploy/local-judge-weights.lock",
    ]  # fmt: skip
    assert all(
        "--no-deps" in line and ("--require-hashes" in line or line.endswith("-e ."))
        for line in installs
    )


def test_the_bill_of_materials_and_the_notice_say_what_is_locked_and_under_which_licence() -> None:
    materials = json.loads((DEPLOY / "sbom.cdx.json").read_text())
    named = {one["name"]: one for one in materials["components"]}
    notice = (ROOT / "NOTICE").read_text()

    assert (materials["bomFormat"], materials["specVersion"]) == ("CycloneDX", "1.6")
    assert named.keys() == locked("requirements.lock").keys()
    for name, one in named.items():
        licence = one["licenses"][0]["license"]["name"]
        assert licence
        assert "GPL" not in licence
        assert f"- {name} {one['version']}: {licence}" in notice


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="has no systemd")
def test_the_service_is_exposed_to_little() -> None:
    unit = DEPLOY / "evaltap-consume.service"
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=30", str(unit)]
    said = subprocess.run(command, capture_output=True, text=True)

    assert said.returncode == 0, said.stdout[-300:]


def test_pods_and_services_have_limits_and_reach_little() -> None:
    for name, pod, container in containers():
        limits = container["resources"]["limits"]
        assert limits["memory"], name
        assert limits["ephemeral-storage"], name
        assert container.get("livenessProbe"), name
        volumes = [volume["emptyDir"] for volume in pod["volumes"] if "emptyDir" in volume]
        assert all(volume.get("sizeLimit") for volume in volumes), name
    for name, document in documents():
        if document["kind"] == "NetworkPolicy":
            egress = document["spec"].get("egress", ())
            assert all(rule.get("to") for rule in egress), f"{name}: a port of any address"
    for name, service in services():
        if "evaltap" in service.get("image", ""):
            assert service["mem_limit"], name
            assert service["pids_limit"], name


def ray_objects() -> list[dict[str, Any]]:
    """Return the manifest of the Ray cluster, and those of the objects beside it."""
    found = [*yaml.safe_load_all((DEPLOY / "ray" / "raycluster.yaml").read_text())]
    assert (found[0]["apiVersion"], found[0]["kind"]) == ("ray.io/v1", "RayCluster")
    return found


def test_the_ray_cluster_follows_the_schemas_and_its_pods_the_rules_of_the_others() -> None:
    cluster, *others = ray_objects()
    spec = cluster["spec"]
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]

    assert len(groups) == 2
    for group in groups:
        template = group["template"]
        metadata = {**template["metadata"], "name": "pod"}
        pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata}
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)
        assert template["spec"]["securityContext"]["runAsNonRoot"]
        (container,) = template["spec"]["containers"]
        assert container["image"] == "evaltap"
        assert not container["securityContext"]["allowPrivilegeEscalation"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["resources"]["limits"]["memory"]
    assert others
    for one in others:
        kubernetes_validate.validate(one, KUBERNETES, strict=True)


def test_the_evaluator_finds_the_ray_cluster_and_its_command_is_one() -> None:
    overlay = yaml.safe_load((DEPLOY / "ray" / "kustomization.yaml").read_text())
    (patch,) = overlay["patches"]
    added = [step["value"] for step in yaml.safe_load(patch["patch"])]
    base = next(pod for name, _, pod in containers() if "evaluator" in name)
    options = build_parser("consume").parse_args([*base["args"], *added])
    cluster = ray_objects()[0]
    most = sum(group["maxReplicas"] for group in cluster["spec"]["workerGroupSpecs"])

    assert options.engine == "ray"
    assert options.ray_address == f"ray://{cluster['metadata']['name']}-head-svc:10001"
    assert options.ray_workers == most, "one processor each: more would wait for ever"


def test_kustomize_puts_the_manifests_together() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not here")

    command = ["kubectl", "kustomize", str(DEPLOY)]
    built = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)

    objects = [one for one in yaml.safe_load_all(built.stdout) if one]
    for one in objects:
        kubernetes_validate.validate(one, KUBERNETES, strict=True)
    maps = {one["metadata"]["name"] for one in objects if one["kind"] == "ConfigMap"}
    named = set(re.findall(r"\bevaltap(?:-metrics)?-[a-z0-9]{10}\b", built.stdout))
    assert named == maps, "workloads name the maps that were generated"
    assert "image: evaltap:0.1.0" in built.stdout


def test_kustomize_adds_the_ray_cluster_to_the_manifests(tmp_path: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not here")
    deploy = shutil.copytree(DEPLOY, tmp_path / "deploy")
    with (deploy / "kustomization.yaml").open("a") as file:
        file.write("components: [ray]\n")

    command = ["kubectl", "kustomize", str(deploy)]
    built = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)

    objects = {
        (one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(built.stdout)
    }
    evaluator = objects["StatefulSet", "evaluator"]["spec"]["template"]["spec"]["containers"][0]
    assert "--engine=ray" in evaluator["args"]
    assert {one["metadata"].get("namespace", "evaltap") for one in objects.values()} == {"evaltap"}
    assert ("RayCluster", "evaltap") in objects
    assert "image: evaltap\n" not in built.stdout, "all have the tag"


def workload(one: dict[str, Any]) -> dict[str, Any]:
    """Return an object without what its tool adds: a namespace, generated names, a checksum."""
    text = re.sub(r"\b(evaltap(?:-metrics)?)-[a-z0-9]{10}\b", r"\1", json.dumps(one))
    plain: dict[str, Any] = json.loads(text)
    plain["metadata"].pop("namespace", None)
    plain.get("spec", {}).get("template", {}).get("metadata", {}).pop("annotations", None)
    return plain


def built(*command: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the objects that `helm` or `kubectl` prints."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not here")
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    found = [one for one in yaml.safe_load_all(said.stdout) if one]
    return {(one["kind"], one["metadata"]["name"]): workload(one) for one in found}


def test_the_chart_is_the_manifests() -> None:
    values = [f"--set-file={name}={DEPLOY / name}.json" for name in ("metrics", "monitor")]
    chart = built("helm", "template", "evaltap", str(DEPLOY / "helm"), *values)
    manifests = built("kubectl", "kustomize", str(DEPLOY))

    for one in chart.values():
        kubernetes_validate.validate(one, KUBERNETES, strict=True)
    kinds = ("Service", "StatefulSet", "NetworkPolicy")
    for (kind, name), one in manifests.items():
        if kind in kinds:
            assert chart[kind, name] == one
        elif kind == "ConfigMap":
            assert chart[kind, one["metadata"]["name"]]["data"] == one["data"]
    other = built(
        "helm", "template", "evaltap", str(DEPLOY / "helm"), "--set=collect.enabled=false"
    )
    assert not [name for _, name in other if name == "collect"]


def test_a_chart_without_a_judge_and_brokers_reaches_none() -> None:
    none = [f"--set-json=networkPolicy.{name}=[]" for name in ("judge", "brokers")]
    policies = [
        one["spec"]
        for (kind, _), one in built(
            "helm", "template", "evaltap", str(DEPLOY / "helm"), *none
        ).items()
        if kind == "NetworkPolicy"
    ]

    rules = [rule for one in policies for rule in one.get("egress") or ()]
    assert rules
    assert all(rule["to"] for rule in rules), "a rule without addresses allows all of them"


def test_the_defaults_of_the_chart_are_metrics_and_watches(tmp_path: Path) -> None:
    values = yaml.safe_load((DEPLOY / "helm" / "values.yaml").read_text())
    for name in ("metrics", "monitor"):
        (tmp_path / f"{name}.json").write_text(values[name])

    assert read_metrics(tmp_path / "metrics.json")
    assert main(["monitor", "check", str(tmp_path / "monitor.json")]) == 0


EVALUATORS = [one for one in commands() if one.values[0][0] == "consume" and "otlp" not in str(one)]


@pytest.mark.parametrize("arguments", EVALUATORS)
def test_every_evaluator_has_the_page_watches_and_metrics(arguments: list[str]) -> None:
    options = build_parser("consume").parse_args(arguments)

    assert options.monitor.name == "monitor.json"
    assert options.serve[1] == 9464
    assert options.ui.endswith(":4710")


def status_of(url: str, host: str = "") -> int:
    """Return the status of an answer; 0 without one."""
    request = urllib.request.Request(url, headers={"Host": host} if host else {})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


@pytest.mark.slow
def test_the_evaluator_of_compose_serves_the_page_and_health(
    broker: Broker, tmp_path: Path
) -> None:
    page, health = free_port(), free_port()
    command = dict(services())["compose.yaml evaluator"]["command"]
    places = {
        "kafka://kafka:9092/evaltap.cases": broker.log(),
        "/var/lib/evaltap": str(tmp_path),
        "/etc/evaltap": str(DEPLOY),
        "0.0.0.0:4710": f"0.0.0.0:{page}",
        "0.0.0.0:9464": f"0.0.0.0:{health}",
    }
    for written, here in places.items():
        command = [one.replace(written, here) for one in command]
    command = [one for one in command if not one.startswith("--dlq-topic")]
    create_topics(location(broker.log()), {broker.name("evaltap.cases"): 1})  # as topics.sh does
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    program = [sys.executable, "-c", "from evaltap.cli.main import main; main()", *command]
    with subprocess.Popen(program, env=environment) as process:
        try:
            wait_for(lambda: status_of(f"http://127.0.0.1:{health}/readyz") == 200, 120)
            assert status_of(f"http://localhost:{page}/") in (200, 303)
            assert status_of(f"http://localhost:{page}/", host=f"evil.example:{page}") == 421
        finally:
            process.terminate()
            assert process.wait(60) in (0, 3)


def test_the_metrics_are_metrics() -> None:
    metrics = read_metrics(DEPLOY / "metrics.json")

    assert [metric.metric_name for metric in metrics] == ["tool_use", "rule_avg_score"]


@pytest.mark.slow
def test_the_example_agent_records_what_is_scored(broker: Broker, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "EVALTAP_LOG": broker.log(),
        "EVALTAP_SPOOL_DIR": str(tmp_path / "spool"),
        "TURNS": "20",
        "PAUSE_SECONDS": "0",
    }
    program = [sys.executable, str(DEPLOY / "agent.py")]
    subprocess.run(program, env=environment, check=True, capture_output=True, timeout=60)

    db = str(tmp_path / "cases.duckdb")
    metrics = str(DEPLOY / "metrics.json")
    arguments = ["consume", "--log", broker.log(), "--db", db, "--metrics", metrics]
    code = main([*arguments, "--until-idle", "--fail-on", "never"])

    with Store(db) as store:
        scored = store.rows("SELECT metric_name, count(*) FROM scores GROUP BY ALL ORDER BY ALL")
    assert code == 0
    assert scored == [("rule_avg_score", 20), ("tool_use", 20)]


# -- with the real parts ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Kafka with the settings of compose.yaml; only names of hosts, ports and folders are others."""
    apache.skip_where_missing()
    folder = tmp_path_factory.mktemp("composed") / "kafka"
    broker = Broker(folder, _Composed())
    broker.start()
    yield broker
    broker.stop()


class _Composed:
    """Apache Kafka as its image makes settings of variables: KAFKA_LOG_DIRS becomes log.dirs."""

    def command(self, folder: Path, port: int) -> list[str]:
        compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
        control = str(free_port())
        settings = {}
        for variable, value in compose["services"]["kafka"]["environment"].items():
            name = variable.removeprefix("KAFKA_").lower().replace("_", ".")
            value = value.replace("//:", "//127.0.0.1:").replace("kafka:9", "127.0.0.1:9")
            settings[name] = value.replace(":9092", f":{port}").replace(":9093", f":{control}")
        settings["log.dirs"] = str(folder / "data")
        return apache.command(folder, settings)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_topics_are_made_on_a_kafka_with_the_settings_of_compose(
    composed: Broker, tmp_path: Path
) -> None:
    # What the script of Kafka's archive calls, without the archive.
    script = tmp_path / "kafka-topics.sh"
    tool = shlex.join(apache.tool("org.apache.kafka.tools.TopicCommand"))
    script.write_text(f'#!/bin/sh\nexec {tool} "$@"\n')
    script.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}",
                   "BOOTSTRAP": composed.address, "PARTITIONS": "3"}  # fmt: skip

    made = subprocess.run(["sh", str(DEPLOY / "topics.sh")], env=environment,
                          capture_output=True, text=True, timeout=280)  # fmt: skip

    assert made.returncode == 0, made.stdout + made.stderr
    assert _is_healthy(composed)
    from kafka import KafkaAdminClient

    admin: Any = KafkaAdminClient(bootstrap_servers=composed.address)
    found = {topic["name"]: topic for topic in admin.describe_topics(sorted(TOPICS))}
    admin.close()
    assert {name: len(topic["partitions"]) for name, topic in found.items()} == dict.fromkeys(
        TOPICS, 3
    )


def _is_healthy(broker: Broker) -> bool:
    """Run the health check of the Compose file, by the class that its script calls."""
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    check = compose["services"]["kafka"]["healthcheck"]["test"]
    script, *arguments = shlex.split(check[1].replace("localhost:9092", broker.address))
    assert script == "/opt/kafka/bin/kafka-broker-api-versions.sh"
    command = [*apache.tool("org.apache.kafka.tools.BrokerApiVersionsCommand"), *arguments]
    return subprocess.run(command, capture_output=True, timeout=60).returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(1_500)
def test_the_collector_takes_its_file() -> None:
    reason = otel_collector.missing()
    if reason is not None:
        pytest.skip(reason)
    command = [str(otel_collector.program()), "validate", f"--config={DEPLOY / 'collector.yaml'}"]
    environment = {**os.environ, "KAFKA_BROKERS": "127.0.0.1:9092"}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)

    assert said.returncode == 0, said.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_steps_of_the_dockerfile_make_an_evaltap(tmp_path: Path) -> None:
    place = tmp_path / "opt"
    source = tmp_path / "src"
    source.mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(Path(sys.executable).resolve())
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
    } | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    build = (DEPLOY / "Dockerfile").read_text().split("\nFROM ")[1]
    environment |= dict(re.findall(r"^ARG (\w+)=(.*)$", build, re.MULTILINE))
    environment["PIP_COMPILE"] = "0"  # Python compiles what it imports
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text()

    steps = re.findall(r"^(COPY|RUN) (.*)$", build, re.MULTILINE)
    assert len(steps) >= 6
    for step, rest in steps:
        if step == "COPY":
            *names, target = rest.split()
            for name in names:
                assert f"!{name}\n" in ignored, f"{name} does not reach the build"
                _copy(ROOT / name, source / target)
        else:
            command = rest.replace("/opt/", f"{place}/")
            subprocess.run(command, shell=True, cwd=source, env=environment, check=True)

    evaltap = place / "evaltap/bin/evaltap"
    for arguments in ("consume", "collect"):
        said = subprocess.run([evaltap, arguments, "--help"], env=environment, cwd=tmp_path,
                              capture_output=True, text=True, timeout=60)  # fmt: skip
        assert (said.returncode, said.stderr) == (0, "")


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)
