"""What the rest of Weir knows about the MQTT adapter (`adapters.base.Declaration`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from adapters.base import WEIR, Declaration, Trial
from adapters.mqtt.origin import ORIGIN_BYTE
from adapters.mqtt.session.client_ids import subscriber_name

if TYPE_CHECKING:
    from adapters.base import Adapter, Services
    from kernel.api.origins import OriginReader


def make(services: Services) -> Adapter:
    """The adapter, from its entry in protocols.yaml."""
    import msgspec

    from adapters.mqtt.access.plugins import load_plugins
    from adapters.mqtt.access.sign_in import StoreSignIn
    from adapters.mqtt.environment import MqttSettings
    from adapters.mqtt.server import MqttAdapter

    entry = services.settings
    values = entry.values()
    plugins = entry.text("amqtt_plugins")
    return MqttAdapter(
        services.client,
        load_plugins(Path(plugins))
        if plugins
        else StoreSignIn(services.users, entry.text("anonymous_user")),
        services.listeners(),
        clock=services.clock,
        random=services.random,
        settings=msgspec.convert({**values, "session": values}, MqttSettings),
        meter=services.meter,
        version=services.version,
        memory=services.memory,
        quotas=services.quotas,
    )


def reader() -> OriginReader:
    """Of what MQTT clients wrote."""
    from adapters.mqtt.messages.stored import MQTT_ORIGIN

    return MQTT_ORIGIN


MQTT: Final = Declaration(
    name="mqtt",
    title="MQTT",
    origin=ORIGIN_BYTE,
    make=make,
    reader=reader,
    trials=(
        Trial(
            "mosquitto_pub", "tcp", "mosquitto_pub -L mqtt://guest:guest@{address}/hello -q 1 -m hi"
        ),
        Trial(WEIR, "tcp", "{weir} bench mqtt --url mqtt://guest:guest@{address} --duration 5"),
    ),
    plain_class="qos0",
    tells_address_only_to_move=True,
    session_name=subscriber_name,
)
