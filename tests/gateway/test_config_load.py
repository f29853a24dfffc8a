"""What the settings are after the merge, and where each value is said to come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gateway.config.loading import load

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.loading import Loaded

AMQP_PORT = ("protocols", "amqp", "listeners", "tcp", "port")


def written(folder: Path, text: str) -> Path:
    file = folder / "weir.yaml"
    file.write_text(text)
    return file


def amqp_port(loaded: Loaded) -> int:
    return loaded.settings.protocols["amqp"].listeners["tcp"].port


def test_the_shipped_file_is_usable_and_the_origin_of_every_value_is_default() -> None:
    loaded = load(environ={})
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.settings.node.role == "all"
    assert amqp_port(loaded) == 5672


def test_the_shipped_ports_are_those_of_the_design() -> None:
    settings = load(environ={}).settings
    ports = {
        f"{name}.{listener}": where.port
        for name, protocol in settings.protocols.items()
        for listener, where in protocol.listeners.items()
    }
    assert ports == {
        "amqp.tcp": 5672,
        "amqp.tls": 5671,
        "sqs.http": 9324,
        "sqs.tls": 9325,
        "mqtt.tcp": 1883,
        "mqtt.tls": 8883,
        "mqtt.websocket": 8083,
        "rocketmq.grpc": 8081,
        "rocketmq.tls": 8082,
    }
    assert (settings.node.admin.port, settings.node.store.port) == (15673, 7400)


def test_every_shipped_address_is_on_loopback() -> None:
    settings = load(environ={}).settings
    hosts = {
        listener.host
        for protocol in settings.protocols.values()
        for listener in protocol.listeners.values()
    }
    assert hosts | {settings.node.admin.host, settings.node.store.host} == {"127.0.0.1"}


def test_a_flag_beats_a_variable_beats_a_file_beats_the_default(tmp_path: Path) -> None:
    file = written(tmp_path, "amqp:\n  port: 1001\n")
    variable = {"WEIR_AMQP__PORT": "1002"}
    flag = ["amqp.port=1003"]
    for loaded, port, origin in (
        (load(environ={}), 5672, "default"),
        (load(file, environ={}), 1001, f"{file}:2"),
        (load(file, environ=variable), 1002, "WEIR_AMQP__PORT"),
        (load(file, flag, variable), 1003, "--set amqp.port"),
    ):
        assert amqp_port(loaded) == port
        assert loaded.origins[AMQP_PORT] == origin


def test_of_two_flags_for_one_setting_the_later_wins() -> None:
    assert amqp_port(load(assignments=["amqp.port=1", "amqp.port=2"], environ={})) == 2


@pytest.mark.parametrize(
    "spelling",
    ["amqp.port", "amqp.listeners.tcp.port", "protocols.amqp.listeners.tcp.port"],
)
def test_the_short_and_the_long_form_of_a_path_are_one_setting(spelling: str) -> None:
    loaded = load(assignments=[f"{spelling}=15999"], environ={})
    assert amqp_port(loaded) == 15999
    assert loaded.origins[AMQP_PORT] == f"--set {spelling}"


def test_the_alias_of_a_limit_is_its_value() -> None:
    settings = load(assignments=["amqp.limits.frame_max=8192"], environ={}).settings
    assert settings.protocols["amqp"].limit("frame_max") == 8192
    assert settings.protocols["amqp"].limits["frame_max"].unit == "bytes"


def test_an_overlay_changes_only_what_it_names(tmp_path: Path) -> None:
    file = written(tmp_path, "protocols:\n  amqp:\n    limits:\n      heartbeat_s: {value: 5}\n")
    changed = load(file, environ={})
    shipped = load(environ={})
    different = {path for path, value in changed.values.items() if value != shipped.values[path]}
    assert different == {("protocols", "amqp", "limits", "heartbeat_s", "value")}


def test_an_empty_overlay_changes_nothing(tmp_path: Path) -> None:
    for text in ("", "# only a comment\n", "amqp: {}\n"):
        loaded = load(written(tmp_path, text), environ={})
        assert loaded.settings == load(environ={}).settings


def test_variables_without_a_double_underscore_are_not_settings() -> None:
    loaded = load(environ={"WEIR_ADMIN_PASSWORD": "x", "PATH": "y", "WEIRD__THING": "z"})
    assert loaded.settings == load(environ={}).settings


def test_text_is_read_by_the_type_of_its_setting() -> None:
    settings = load(
        assignments=["node.data=007", "amqp.listeners.tcp.enabled=true", "amqp.port=0"],
        environ={},
    ).settings
    assert settings.node.data == "007"
    assert settings.protocols["amqp"].listeners["tcp"].enabled is True
    assert amqp_port(load(assignments=["amqp.port=0"], environ={})) == 0


def test_a_file_may_add_a_listener(tmp_path: Path) -> None:
    file = written(tmp_path, "amqp:\n  listeners:\n    inside: {host: 127.0.0.2, port: 5672}\n")
    listeners = load(file, environ={}).settings.protocols["amqp"].open_listeners()
    assert list(listeners) == ["tcp", "tls", "inside"]
    assert listeners["inside"].host == "127.0.0.2"


def test_a_file_may_bring_a_protocol_of_someone_else_with_all_its_keys(tmp_path: Path) -> None:
    text = """
protocols:
  stomp:
    adapter: acme_stomp.server:Stomp
    enabled: true
    versions: ["1.2"]
    listeners:
      tcp: {host: 127.0.0.1, port: 61613}
    limits:
      frame_max: {value: 4096, unit: bytes, reason: small on purpose}
    options: {strict: true, greeting: hello, patience: 3}
"""
    loaded = load(written(tmp_path, text), ["stomp.options.patience=4", "stomp.port=0"], {})
    stomp = loaded.settings.protocols["stomp"]
    assert stomp.adapter == "acme_stomp.server:Stomp"
    assert stomp.limit("frame_max") == 4096
    assert (stomp.flag("strict"), stomp.text("greeting"), stomp.number("patience")) == (
        True,
        "hello",
        4,
    )
    assert stomp.listeners["tcp"].port == 0
    with pytest.raises(TypeError):
        stomp.number("strict")
    with pytest.raises(KeyError):
        stomp.flag("absent")


def test_open_listeners_are_those_enabled_of_protocols_enabled() -> None:
    settings = load(environ={}).settings
    assert list(settings.open_listeners()) == [
        ("protocols", "amqp", "listeners", "tcp"),
        ("protocols", "amqp", "listeners", "tls"),
        ("protocols", "sqs", "listeners", "http"),
        ("protocols", "sqs", "listeners", "tls"),
        ("protocols", "mqtt", "listeners", "tcp"),
        ("protocols", "mqtt", "listeners", "tls"),
        ("protocols", "mqtt", "listeners", "websocket"),
        ("protocols", "rocketmq", "listeners", "grpc"),
        ("protocols", "rocketmq", "listeners", "tls"),
        ("node", "admin"),
    ]
