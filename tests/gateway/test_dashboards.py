"""Alerts and dashboards: of metrics that there are; run by Debian's prometheus where it is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.free_ports import free_ports
from tests.gateway import monitoring
from tests.gateway.monitoring import ALERTS, DASHBOARDS, NAMES, OF_CLUSTERS, QUERIES, RULES_FILE
from tests.gateway.serving import Process, serving
from tests.tidy.source_tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

FAULTS: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("weir.rules.test.yml").read_text()
)
SECONDS = 60

with_prometheus = pytest.mark.skipif(
    shutil.which("promtool") is None or shutil.which("prometheus") is None,
    reason="no prometheus here: rules and queries are not run (Debian: apt-get install prometheus)",
)


# --- What needs no Prometheus -------------------------------------------------------------------


def test_every_metric_of_a_rule_or_a_panel_is_in_a_scrape(node: Process) -> None:
    node.api("POST", "/topics", {"name": "graphed"})
    there = monitoring.scraped(node.http("GET", "/metrics").body.decode())
    assert {*NAMES} - OF_CLUSTERS - there == set()
    assert len(NAMES) > 50, "they were found"


def test_every_alert_has_a_fault_that_it_is_tried_on_a_severity_and_a_page() -> None:
    assert set(FAULTS) == set(ALERTS)
    page = (ROOT / "docs/operations/troubleshooting.md").read_text()
    anchors = {
        re.sub(r"[^\w -]", "", each).strip().lower().replace(" ", "-")
        for each in re.findall(r"^## (.*)$", page, re.MULTILINE)
    }
    told = (ROOT / "docs/operations/dashboards.md").read_text()
    for name, alert in ALERTS.items():
        place, _, anchor = alert["annotations"]["page"].partition("#")
        assert place == "docs/operations/troubleshooting.md"
        assert anchor in anchors, name
        assert alert["labels"]["severity"] in {"critical", "warning", "info"}
        assert f"`{name}`" in told


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_of_a_dashboard_have_a_place_and_a_source(name: str) -> None:
    dashboard = DASHBOARDS[name]
    assert name == dashboard["uid"] + ".json"
    panels = dashboard["panels"]
    assert len({each["id"] for each in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert all(each["datasource"]["uid"] == "prometheus" for each in panel.get("targets", ()))
    for one, other in combinations([each["gridPos"] for each in panels], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, dashboard["title"]


# --- By promtool --------------------------------------------------------------------------------


def promtool_test(name: str, fault: dict[str, Any]) -> dict[str, Any]:
    """A test that an alert does not fire at `before`, and does at `at`."""
    alert = ALERTS[name]
    labels = {**alert["labels"], **fault.get("labels", {})}
    series = [{"series": key, "values": str(value)} for key, value in fault["series"].items()]
    return {
        "name": name,
        "interval": "1m",
        "input_series": series,
        "alert_rule_test": [
            {"alertname": name, "eval_time": fault["before"], "exp_alerts": []},
            {
                "alertname": name,
                "eval_time": fault["at"],
                "exp_alerts": [{"exp_labels": labels}],
            },
        ],
    }


@with_prometheus
def test_each_alert_fires_on_its_fault_and_not_before_its_time(tmp_path: Path) -> None:
    # Annotations have values in them; what they say is not what is tested.
    rules = yaml.safe_load(RULES_FILE.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations", None)
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules))
    tests = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "30s",
        "tests": [promtool_test(name, fault) for name, fault in FAULTS.items()],
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests))
    for words in (["check", "rules", str(RULES_FILE)], ["test", "rules", "tests.yml"]):
        ran = subprocess.run(
            ["promtool", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr


# --- By prometheus, which scrapes a node --------------------------------------------------------


class Prometheus:
    def __init__(self, folder: Path, node: Process) -> None:
        (self.port,) = free_ports(1)
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES_FILE)],
            "scrape_configs": [
                {
                    "job_name": "weir",
                    "scrape_timeout": "1s",
                    "authorization": {"credentials_file": str(node.data / "admin.token")},
                    "static_configs": [{"targets": [node.admin_url.partition("://")[2]]}],
                }
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        self.log = (folder / "log").open("w+")
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stderr=self.log,
            stdout=subprocess.DEVNULL,
        )

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer. Raises AssertionError if it is an error's."""
        query = urllib.parse.urlencode(parameters)
        address = f"http://127.0.0.1:{self.port}/api/v1/{path}?{query}"
        try:
            with urllib.request.urlopen(address, timeout=SECONDS) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None
        assert found["status"] == "success"
        assert not found.get("warnings")
        return found["data"]

    def rules_health(self) -> list[str]:
        groups = self.ask("rules")["groups"]
        return [rule["health"] for each in groups for rule in each["rules"]]

    def wait(self, query: str) -> list[dict[str, Any]]:
        """What a query finds, once it finds something."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            assert self.process.poll() is None, (self.log.seek(0), self.log.read())
            try:
                found = self.ask("query", query=query)["result"]
            except (OSError, AssertionError):
                found = []
            if found:
                return list(found)
            time.sleep(0.1)
        raise AssertionError(f"nothing came of {query}")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(SECONDS)
        self.log.close()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Process]:
    """A node of its own: of the one that all tests share not every topic is among those shown."""
    with serving(tmp_path / "node") as process:
        yield process


@with_prometheus
def test_prometheus_evaluates_each_rule_and_each_panel_and_fires_on_a_dead_letter(
    alone: Process, tmp_path: Path
) -> None:
    with alone.amqp() as connection:
        channel = connection.channel()
        channel.queue_declare("graphed-dead", durable=True)
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graphed-dead"}
        channel.queue_declare("graphed-work", durable=True, arguments=dead)
        prometheus = Prometheus(tmp_path, alone)
        try:
            prometheus.wait('up == 1 and on() weir_topic_messages{topic="graphed-work"} == 0')
            channel.basic_publish("", "graphed-work", b"no")
            method, _, _ = channel.basic_get("graphed-work")
            while method is None:
                method, _, _ = channel.basic_get("graphed-work")
            channel.basic_reject(method.delivery_tag, requeue=False)
            (fired,) = prometheus.wait('ALERTS{alertname="WeirDeadLetters",alertstate="firing"}')
            assert fired["metric"]["topic"] == "graphed-work"
            for query in sorted(QUERIES):
                prometheus.ask("query", query=query)
            health = prometheus.rules_health()
            while "unknown" in health:  # not evaluated yet
                health = prometheus.rules_health()
            assert health == ["ok"] * len(monitoring.RULES)
            # The node is well: nothing fires but what has been done to it.
            firing = {
                each["labels"]["alertname"]
                for each in prometheus.ask("alerts")["alerts"]
                if each["state"] == "firing"
            }
            assert firing == {"WeirDeadLetters"}
        finally:
            prometheus.stop()
