"""protocols.yaml and the adapters say the same: names, defaults, mechanisms."""

from __future__ import annotations

import importlib
from dataclasses import fields
from enum import Enum

import msgspec
import pytest

from adapters.amqp.handshake import MECHANISMS, AmqpSettings
from adapters.mqtt.config import SessionConfig
from adapters.mqtt.environment import MqttSettings
from adapters.rocketmq.settings import RocketmqSettings
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


@pytest.mark.parametrize(
    "name", [name for name, p in load(environ={}).settings.protocols.items() if p.enabled]
)
def test_the_adapter_of_a_served_protocol_is_there(name: str) -> None:
    adapter = load(environ={}).settings.protocols[name].adapter
    assert adapter is not None
    module, _, attribute = adapter.partition(":")
    assert isinstance(getattr(importlib.import_module(module), attribute), type)
