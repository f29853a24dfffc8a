"""What deploy/ holds for containers and systemd: read as those read it, and by Weir's own rules."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.admin.address import read_address, write_address
from gateway.config.loading import Loaded, load
from tests.tidy.source_tree import ROOT

DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
PASSWORD = "${WEIR_ADMIN_PASSWORD:?choose a password for the user admin}"
ROLES = {"serve": "all", "store": "store", "gateway": "gateway"}


def containerfile() -> dict[str, str]:
    """The last instruction of each kind."""
    lines = (ROOT / "Containerfile").read_text().replace("\\\n", " ").splitlines()
    return dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))


def words(service: dict[str, Any]) -> list[str]:
    """What a service of our image runs, behind `weir`."""
    if "entrypoint" in service:
        return shlex.split(service["command"][0].rpartition("exec weir ")[2])
    found: list[str] = service.get("command") or yaml.safe_load(containerfile()["CMD"])
    return found


def loaded(service: dict[str, Any]) -> Loaded:
    """Its settings, as it would read them. Raises ConfigError."""
    role, *options = words(service)
    config = ROOT / "deploy/container/weir.yaml" if "--config" in options else None
    environment = {
        name: value
        for name, value in service["environment"].items()
        if "WEIR_NODE__" in name or "ROCKETMQ" in name
    }
    return load(config, [f"node.role={ROLES[role]}"], environment)


OURS = [
    name for name, each in SERVICES.items() if each["image"] == "weir-mq" and "environment" in each
]


@pytest.mark.parametrize("name", OURS)
def test_a_container_has_settings_that_it_can_serve_by(name: str) -> None:
    settings = loaded(SERVICES[name]).settings
    assert settings.node.admin.advertised == f"{name}:15673"
    assert settings.node.admin.host == "0.0.0.0"


def test_the_containers_are_one_node_or_three_stores_and_two_gateways() -> None:
    roles = {name: loaded(SERVICES[name]).settings.node.role for name in OURS}
    assert roles == {
        "weir": "all",
        **{f"store{number}": "store" for number in (1, 2, 3)},
        **{f"gateway{number}": "gateway" for number in (1, 2)},
    }
    stores = {
        name: loaded(SERVICES[name]).settings.node.cluster for name in OURS if "store" in name
    }
    places = {each.number: f"{each.number}@{each.address}" for each in stores.values()}
    assert sorted(places) == [1, 2, 3]
    for store in stores.values():
        assert {*store.peers, places[store.number]} == {*places.values()}
    for name in ("gateway1", "gateway2"):
        assert {*loaded(SERVICES[name]).settings.node.cluster.peers} == {*places.values()}


def test_containers_have_no_rights_no_writable_root_and_publish_to_this_machine_alone() -> None:
    for name, service in SERVICES.items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
        if service["image"] == "weir-mq":
            assert service["read_only"] is True, name
            assert service["cap_drop"] == ["ALL"], name
    published = [
        port
        for each in SERVICES.values()
        if "single" in each["profiles"]
        for port in each.get("ports", ())
    ]
    assert len(published) == len(set(published))
    published = [
        port
        for each in SERVICES.values()
        if "cluster" in each["profiles"]
        for port in each.get("ports", ())
    ]
    assert len(published) == len(set(published))


def test_containers_name_only_volumes_services_and_files_that_there_are() -> None:
    for name, service in SERVICES.items():
        before = service.get("depends_on", {})
        assert {*before} <= SERVICES.keys(), name
        for other in before:
            # One of another profile is an error, unless it need not be there.
            is_needed = isinstance(before, list) or before[other].get("required", True)
            if is_needed:
                assert {*service["profiles"]} <= {*SERVICES[other]["profiles"]}, (name, other)
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            is_there = (
                (DEPLOY / source).exists()
                if source.startswith(".")
                else source in COMPOSE["volumes"]
            )
            assert is_there, f"{name}: {volume}"


@pytest.mark.parametrize(
    ("profile", "service"), [("single", "prometheus"), ("cluster", "prometheus-cluster")]
)
def test_what_a_profile_runs_is_scraped_by_its_own_token_and_nothing_else(
    profile: str, service: str
) -> None:
    # A target that is not there is an alarm (WeirDown), so it must not stand there.
    settings = yaml.safe_load((DEPLOY / f"prometheus/{profile}.yml").read_text())
    jobs = {job["job_name"]: job for job in settings["scrape_configs"]}
    assert jobs.keys() == {name for name in OURS if profile in SERVICES[name]["profiles"]}
    prometheus = SERVICES[service]
    assert prometheus["profiles"] == [profile]
    assert f"--config.file=/etc/prometheus/{profile}.yml" in prometheus["command"]
    mounted = {volume.rsplit(":", 1)[0] for volume in prometheus["volumes"]}
    assert len(mounted) == 1 + len(jobs)
    for name, job in jobs.items():
        assert job["static_configs"] == [{"targets": [f"{name}:15673"]}]
        assert job["authorization"]["credentials_file"] == f"/tokens/{name}/admin.token"
        assert f"{name}:/tokens/{name}" in mounted
    user = prometheus["user"]
    assert user == containerfile()["USER"], "the tokens are readable by their owner only"


def test_grafana_finds_the_prometheus_of_either_profile() -> None:
    sources = DEPLOY / "grafana/provisioning/datasources/prometheus.yaml"
    (source,) = yaml.safe_load(sources.read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert SERVICES["prometheus-cluster"]["networks"]["default"]["aliases"] == ["prometheus"]


def test_the_image_serves_by_settings_of_its_own_as_a_user_without_rights() -> None:
    found = containerfile()
    assert yaml.safe_load(found["ENTRYPOINT"]) == ["weir"]
    _serve, _config, place = yaml.safe_load(found["CMD"])
    assert found["COPY"] == f"deploy/container/weir.yaml {place}"
    assert found["USER"] == "10001:10001"
    settings = load(DEPLOY / "container/weir.yaml", environ={}).settings
    hosts = {listener.host for listener in settings.open_listeners().values()}
    assert hosts == {"0.0.0.0"}, "a container's loopback is reached by nobody"
    ports = {listener.port for listener in settings.open_listeners().values()}
    assert ports == {int(port) for port in found["EXPOSE"].split()}


def test_what_is_built_into_the_image_holds_no_data_and_no_keys() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    for rule in rules[1:]:
        assert rule.startswith("**/") or (ROOT / rule.removeprefix("!")).exists(), rule


def test_a_server_at_all_addresses_is_found_by_loopback(tmp_path: Path) -> None:
    for url, found in (
        ("http://0.0.0.0:15673", "http://127.0.0.1:15673"),
        ("https://[::]:1", "https://[::1]:1"),
        ("http://10.0.0.0:15673", "http://10.0.0.0:15673"),
    ):
        write_address(tmp_path, url)
        assert read_address(tmp_path) == found


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_one_that_systemd_takes(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    # The program is not where it will be.
    copied = tmp_path / unit.name
    copied.write_text(unit.read_text().replace("/opt/weir/bin/weir", "/bin/true"))
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copied)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    about = [line for line in ran.stderr.splitlines() if unit.stem in line]
    assert (ran.returncode, about) == (0, [])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_closed_in_as_far_as_systemd_calls_well(unit: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    # From 0 (nothing is left) to 100; what is left is the network and @system-service.
    ran = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(unit)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def section(unit: Path) -> dict[str, str]:
    parser = RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(unit.read_text())
    return dict(parser["Service"])


def test_all_units_are_closed_in_alike_and_have_time_to_stop() -> None:
    apart = {
        "User",
        "EnvironmentFile",
        "ExecStart",
        "StateDirectory",
        "LimitNOFILE",
        "RestartPreventExitStatus",
    }
    common = {
        unit.stem: {k: v for k, v in section(unit).items() if k not in apart} for unit in UNITS
    }
    assert len(common) == 3
    assert len({tuple(each.items()) for each in common.values()}) == 1
    shared = next(iter(common.values()))
    assert shared["CapabilityBoundingSet"] == ""
    assert shared["ProtectSystem"] == "strict"
    assert shared["Type"] == "notify", "tests/gateway/test_service_manager.py"
    assert shared["TimeoutStartSec"] == "infinity", "a long journal takes long to read"
    assert int(shared["TimeoutStopSec"]) > 20, "clients hear goodbye for so long"


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_runs_a_command_with_settings_that_stand_beside_it(unit: Path) -> None:
    command = shlex.split(section(unit)["ExecStart"])
    role, options = command[1], dict(zip(command[2::2], command[3::2], strict=True))
    beside = unit.parent / Path(options["--config"]).name
    settings = load(beside, [f"node.role={ROLES[role]}"], {}).settings
    assert settings.node.role == ROLES[role]
    assert options["--data"].removeprefix("/var/lib/") == section(unit)["StateDirectory"]
