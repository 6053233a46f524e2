"""The dashboard and the alert rules in deploy/ query existing metrics, verified with a real Prometheus
too."""

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from evaltap.evaluator.pipeline.live.exposition import Family, exposition
from evaltap.evaluator.pipeline.live.figures import figures
from evaltap.evaluator.pipeline.live.running import serving
from evaltap.evaluator.pipeline.live.status import LiveStatus
from evaltap.evaluator.store.database import Store
from support.builders.waiting import wait_for
from support.servers.broker import free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana/evaltap.json").read_text())
RULES = DEPLOY / "prometheus/evaltap.rules.yml"
FIGURES = Path(__file__).parents[2] / "docs/how-to/run-as-a-service.md"


def queries() -> list[str]:
    """Return every expression of the dashboard and of the rules, with the variables filled in."""
    found = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    found += [one["expr"] for one in DASHBOARD["annotations"]["list"]]
    groups = yaml.safe_load(RULES.read_text())["groups"]
    found += [rule["expr"] for group in groups for rule in group["rules"]]
    return [expression.replace("$app", ".*") for expression in found]


def families() -> list[Family]:
    with Store(":memory:") as store:
        return figures(store)


def names(text: str) -> set[str]:
    return {
        re.sub(r"(latency_seconds)_(bucket|sum|count)$", r"\1", name)
        for name in re.findall(r"\bevaltap_[a-z_]+", text)
    }


def test_every_expression_names_a_figure_and_every_figure_is_documented() -> None:
    known = {one.name for one in families()}
    asked = {name for expression in queries() for name in names(expression)}

    assert asked <= known
    assert known - asked == set(), "a figure that nobody looks at"
    said = FIGURES.read_text()
    for name in known:
        short = name.removeprefix("evaltap_pass_ratio")
        assert f"`{name}`" in said or f"`{short}`" in said, name


def test_the_dashboard_can_be_imported() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {one["name"] for one in DASHBOARD["templating"]["list"]} == {"datasource", "app"}
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in panels)
    places = [panel["gridPos"] for panel in panels]
    for place in places:
        assert place["x"] + place["w"] <= 24
        assert sum(other["x"] < place["x"] + place["w"] and place["x"] < other["x"] + other["w"]
                   and other["y"] < place["y"] + place["h"] and place["y"] < other["y"] + other["h"]
                   for other in places) == 1, "panels overlap"  # fmt: skip


def example() -> str:
    """Return figures with a sample of each family."""
    found = families()
    for number, family in enumerate(found):
        if not family.samples:
            values = {"part": "_bucket", "le": "+Inf", "window": "24h", "status": "error"}
            family.add([values.get(label, f"{label}-1") for label in family.labels], number + 1)
            if family.suffixes:
                for part in ("_sum", "_count"):
                    family.add((part, "app-1", "model-1", ""), number + 1)
    return exposition(found)


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[str]:
    """Run a Prometheus that reads the example figures; yields its address."""
    if shutil.which("prometheus") is None:
        pytest.skip("no prometheus on PATH; apt-get install prometheus")
    status = LiveStatus()
    status.metrics = example()
    address = f"127.0.0.1:{free_port()}"
    with serving(status, "127.0.0.1", 0) as url:
        settings = {
            "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
            "rule_files": [str(RULES)],
            "scrape_configs": [
                {"job_name": "evaltap", "static_configs": [{"targets": [url.removeprefix("http://")]}]}
            ],
        }  # fmt: skip
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(settings))
        process = subprocess.Popen(
            ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--web.listen-address={address}",
             f"--storage.tsdb.path={tmp_path}/data"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            wait_for(lambda: bool(asked(address, "evaltap_build_info")))
            time.sleep(1.0)  # rates need two samples
            yield address
        finally:
            process.terminate()
            process.wait(30)


def asked(address: str, query: str) -> Any:
    """Return what Prometheus answers to a query, None while it is not there."""
    named = urllib.parse.urlencode({"query": query})
    try:
        with urllib.request.urlopen(f"http://{address}/api/v1/query?{named}", timeout=10) as answer:
            found = json.loads(answer.read())
    except OSError:
        return None
    assert found["status"] == "success", query
    return found["data"]["result"]


@pytest.mark.slow
def test_a_real_prometheus_answers_every_query(prometheus: str) -> None:
    for query in queries():
        found = asked(prometheus, query)
        assert found is not None, query
        # What counts increases, and absence, may well hold nothing here.
        if not re.search(r"increase|rate\(|absent|offset|> 3600", query):
            assert found, query
    for alert in ("EvaltapWatchFiring", "EvaltapDeadLetters", "EvaltapTurnsDropped"):
        assert asked(prometheus, f'ALERTS{{alertname="{alert}"}}'), f"{alert}: it has just appeared"


@pytest.mark.slow
def test_promtool_takes_the_figures_and_the_rules() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("no promtool on PATH; apt-get install prometheus")
    checked = subprocess.run(
        ["promtool", "check", "rules", str(RULES)], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    metrics = subprocess.run(
        ["promtool", "check", "metrics"], input=example(), capture_output=True, text=True
    )
    assert metrics.returncode == 0, metrics.stdout + metrics.stderr
