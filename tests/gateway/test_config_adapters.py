"""protocols.yaml and the adapters say the same: names, defaults, mechanisms."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from enum import Enum

import msgspec

from adapters.amqp.handshake import MECHANISMS, AmqpSettings
from adapters.mqtt.config import SessionConfig
from adapters.mqtt.environment import MqttSettings
from adapters.rocketmq.settings import RocketmqSettings
from gateway.config.declared import declared_in
from gateway.config.loading import load


def test_amqp_shows_every_setting_of_its_adapter_with_its_default() -> None:
    shown = load(environ={}).settings.protocols["amqp"].values()
    known = {field.name: field.default for field in fields(AmqpSettings)}
    # An empty version stands for Weir's own, which the gateway fills in.
    assert shown.pop("version") == ""
    # Tenants hold the virtual hosts.
    for name in ("version", "virtual_hosts"):
        del known[name]
    assert shown == known


def test_what_amqp_is_set_to_makes_settings_of_its_adapter() -> None:
    changes = ["amqp.limits.frame_max=8192", "amqp.options.product=RabbitMQ"]
    protocol = load(assignments=changes, environ={}).settings.protocols["amqp"]
    settings = msgspec.convert(protocol.values(), AmqpSettings)
    assert (settings.frame_max, settings.product) == (8192, "RabbitMQ")


def test_amqp_offers_the_mechanisms_it_shows() -> None:
    shown = load(environ={}).settings.protocols["amqp"].auth.methods
    assert tuple(shown) == MECHANISMS


def test_rocketmq_shows_every_setting_of_its_adapter_with_its_default() -> None:
    shown = load(environ={}).settings.protocols["rocketmq"].values()
    known = {field.name: field.default for field in fields(RocketmqSettings)}
    # Listeners hold the advertised addresses and whether all are loopback, tenants the namespaces.
    for name in ("advertised", "is_loopback", "namespaces"):
        del known[name]
    known |= {name: value.value for name, value in known.items() if isinstance(value, Enum)}
    assert shown == known


def test_mqtt_shows_every_setting_of_its_adapter_with_its_default() -> None:
    shown = load(environ={}).settings.protocols["mqtt"].values()
    known = {
        field.name: field.default
        for settings in (MqttSettings, SessionConfig)
        for field in fields(settings)
        if field.name not in {"session", "authentication_methods"}
    }
    # Of whoever signs clients in, not of the protocol.
    assert shown.pop("anonymous_user") == ""
    assert shown == known


def test_every_adapter_is_declared_by_its_key_with_an_origin_of_its_own() -> None:
    declared = declared_in(load(environ={}).settings.protocols)
    # On disk, and on every bill: none of these may ever change.
    assert {name: (each.name, each.origin) for name, each in declared.items()} == {
        "amqp": ("amqp", 1),
        "mqtt": ("mqtt", 2),
        "sqs": ("sqs", 3),
        "rocketmq": ("rocketmq", 4),
    }


def test_declarations_are_known_without_what_serves_clients() -> None:
    """A process that only checks the settings, or only stores, pays for none of it."""
    script = (
        "import sys; from gateway.config.loading import load; load(environ={});"
        "print([each for each in sys.modules if each == 'grpc' or each.endswith('.server')])"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]", ran.stdout
