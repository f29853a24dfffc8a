"""What deploy/prometheus and deploy/grafana ask of Prometheus."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from tests.tidy.source_tree import ROOT

RULES_FILE = ROOT / "deploy/prometheus/weir.rules.yml"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES_FILE.read_text())["groups"] for rule in group["rules"]
]
ALERTS = {each["alert"]: each for each in RULES if "alert" in each}
DASHBOARDS: dict[str, dict[str, Any]] = {
    file.name: json.loads(file.read_text())
    for file in sorted((ROOT / "deploy/grafana").glob("*.json"))
}

_NAME = re.compile(r"\b(?:weir[a-z_:0-9]*|up)\b(?!\")")
_TEXT = re.compile(r'"[^"]*"')
_SUFFIX = re.compile(r"_(?:bucket|sum|count)$")


def panel_queries(dashboard: dict[str, Any]) -> list[str]:
    """The queries of its panels and variables, with values for what Grafana fills in."""
    asked = [each["query"] for each in dashboard["templating"]["list"]]
    found = [re.fullmatch(r"label_values\((.*), \w+\)", each) for each in asked]
    queries = [each[1] for each in found if each is not None]
    assert len(queries) == len(asked)
    queries += [
        target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())
    ]
    filled = [each.replace("$__rate_interval", "1m") for each in queries]
    return [re.sub(r"\$\w+", ".*", each) for each in filled]


QUERIES = {each["expr"] for each in RULES} | {
    query for dashboard in DASHBOARDS.values() for query in panel_queries(dashboard)
}


def names_in(query: str) -> set[str]:
    """The metrics of a query, as `# TYPE` has them."""
    return {_SUFFIX.sub("", each) for each in _NAME.findall(_TEXT.sub('""', query))}


def scraped(text: str) -> set[str]:
    """The metrics of a scrape."""
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}


# Not in a scrape: what Prometheus makes itself, and what the rules record.
MADE = {"up"} | {each["record"] for each in RULES if "record" in each}
NAMES = {name for query in QUERIES for name in names_in(query)} - MADE
OF_CLUSTERS = {each for each in NAMES if re.match("weir_(?:cluster|gateway|store_gateways)_", each)}
"""What only stores and gateways of a cluster have."""
