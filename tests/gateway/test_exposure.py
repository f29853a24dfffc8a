"""What is open to other machines is refused unless it is meant, and said at every start."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gateway.config.exposure import exposures
from gateway.config.loading import load
from gateway.config.path import ConfigError
from tests.gateway.serving import refused, serving

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = "node.insecure.plain_text=true"
UNKNOWN = "node.insecure.no_sign_in=true"
PASSWORD = {"WEIR_ADMIN_PASSWORD": "a long password"}
CERTIFICATE = ("node.tls.certificate=chain.pem", "node.tls.private_key=key.pem")


def open_settings(*assignments: str) -> list[str]:
    """The settings that open something, if they are taken."""
    found = load(assignments=assignments, environ={}).settings
    return [".".join(each.path) for each in exposures(found)]


def problems(*assignments: str) -> str:
    with pytest.raises(ConfigError) as refusal:
        load(assignments=assignments, environ={})
    return str(refusal.value)


def test_nothing_is_open_by_default() -> None:
    assert open_settings() == []
    assert open_settings("sqs.options.sign_in=off") == [], "on loopback"


@pytest.mark.parametrize(
    "listener",
    [
        "protocols.amqp.listeners.tcp",
        "protocols.mqtt.listeners.websocket",
        "protocols.sqs.listeners.http",
        "node.admin",
    ],
)
def test_plain_text_off_loopback_is_refused_unless_it_is_meant(listener: str) -> None:
    host = f"{listener}.host=10.0.0.1"
    said = problems(host)
    assert f"{listener}.host" in said
    assert "node.insecure.plain_text=true" in said
    assert open_settings(host, PLAIN) == [f"{listener}.host"]
    assert open_settings(host, f"{listener}.tls=true", *CERTIFICATE) == []


def test_a_port_for_both_is_plain_text_too() -> None:
    here = "protocols.rocketmq.listeners.grpc"
    assert "plain_too: false" in problems(f"{here}.host=10.0.0.1", *CERTIFICATE)
    settled = (f"{here}.host=10.0.0.1", f"{here}.plain_too=false", *CERTIFICATE)
    assert open_settings(*settled) == []


def test_a_cluster_between_machines_is_plain_text_without_its_own_tls() -> None:
    store = ("node.role=store", "node.cluster.number=1", "node.cluster.address=s1:7400")
    said = problems(*store, "node.store.host=10.0.0.1")
    assert "node.cluster.tls" in said
    assert open_settings(*store, "node.store.host=10.0.0.1", PLAIN) == ["node.store.host"]


@pytest.mark.parametrize("mode", ["off", "identify"])
@pytest.mark.parametrize("protocol", ["sqs", "rocketmq"])
def test_who_is_not_asked_who_they_are_is_let_in_only_if_it_is_meant(
    protocol: str, mode: str
) -> None:
    listener = {"sqs": "http", "rocketmq": "grpc"}[protocol]
    open_here = (f"{protocol}.options.sign_in={mode}", PLAIN, *CERTIFICATE)
    reached = (*open_here, f"{protocol}.listeners.{listener}.host=10.0.0.1")
    assert UNKNOWN in problems(*reached)
    assert f"protocols.{protocol}.options.sign_in" in open_settings(*reached, UNKNOWN)


def test_what_is_open_is_said_at_every_start(tmp_path: Path) -> None:
    reached = ("sqs.listeners.http.host=0.0.0.0", "sqs.options.sign_in=off")
    code, said = refused(tmp_path, *reached, **PASSWORD)
    assert code != 0
    assert "node.insecure.plain_text" in said
    assert "node.insecure.no_sign_in" in said
    for _ in range(2):
        with serving(tmp_path, *reached, PLAIN, UNKNOWN, **PASSWORD) as node:
            assert node.terminate() == 0
            said = node.rest()
        lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        warned = [each["setting"] for each in lines if each["event"] == "not secured"]
        assert warned == ["sqs.listeners.http.host", "sqs.options.sign_in"]
        assert said.count("NOT SECURED: ") == 2
