"""paho-mqtt, MQTT 5."""

from __future__ import annotations

import base64
import itertools
import json
import queue
import threading
import time
from decimal import Decimal
from typing import ClassVar

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.gateway.serving import Process
from tests.matrix.contract import Can, Got, Neutral

PROPERTIES = {"tag": "weir.tag", "ordering_key": "weir.key", "message_id": "weir.message_id"}
NUMBERS = itertools.count()


class MqttPeer:
    """Writes to the name of a topic in the tree; reads as a member of the share `default`."""

    name = "mqtt"
    can = Can.BINARY | Can.EMPTY | Can.ORDERING_KEY | Can.MESSAGE_ID | Can.NO_MESSAGE_ID
    values: ClassVar[dict[str, object]] = {"text": "grüße", "digits": "5"}

    def __init__(self, node: Process, home: str) -> None:
        self._port = node.listeners["mqtt.tcp"]
        self._writer = self._connect()

    def close(self) -> None:
        self._writer.disconnect()
        self._writer.loop_stop()

    def _connect(self, *, manual_ack: bool = False) -> paho.Client:
        client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            f"matrix-{next(NUMBERS)}",
            protocol=paho.MQTTv5,
            manual_ack=manual_ack,
        )
        client.username_pw_set("guest", "guest")
        connected = threading.Event()
        client.on_connect = lambda *_: connected.set()
        properties = Properties(PacketTypes.CONNECT)
        properties.ReceiveMaximum = 1  # what it has not acked stays for others
        client.connect("127.0.0.1", self._port, properties=properties)
        client.loop_start()
        assert connected.wait(10)
        return client

    def write(self, topic: str, message: Neutral, *, delay_s: int = 0) -> str | None:
        assert not delay_s, "MQTT has no delay"
        properties = Properties(PacketTypes.PUBLISH)
        given = [(name, str(value)) for name, value in message.attributes.items()]
        for field, name in PROPERTIES.items():
            if (value := getattr(message, field)) is not None:
                given.append((name, value))
        if message.keys:
            given.append(("weir.keys", " ".join(sorted(message.keys))))
        if given:
            properties.UserProperty = given
        if message.content_type is not None:
            properties.ContentType = message.content_type
        if message.correlation_id is not None:
            properties.CorrelationData = message.correlation_id.encode()
        if message.reply_to is not None:
            properties.ResponseTopic = message.reply_to
        sent = self._writer.publish(topic, message.body, qos=1, properties=properties)
        sent.wait_for_publish(3)
        assert sent.is_published(), "no PUBACK came"
        return message.message_id

    def _take(self, topic: str, seconds: float, *, ack: bool) -> paho.MQTTMessage:
        """The next message, on a connection of its own: what it has not acked goes back then."""
        client = self._connect(manual_ack=True)
        arrived: queue.Queue[paho.MQTTMessage] = queue.Queue()
        client.on_message = lambda _client, _data, message: arrived.put(message)
        asks = Properties(PacketTypes.SUBSCRIBE)
        asks.UserProperty = [("weir.uid", "1")]
        client.subscribe(f"$share/default/{topic}", qos=1, properties=asks)
        try:
            message = arrived.get(timeout=seconds)
            if ack:
                client.ack(message.mid, message.qos)
                time.sleep(0.05)  # until the PUBACK is out
            return message
        except queue.Empty:
            raise AssertionError(f"nothing came over MQTT within {seconds} s") from None
        finally:
            client.disconnect()
            client.loop_stop()

    def read(self, topic: str, *, seconds: float = 10) -> Got:
        message = self._take(topic, seconds, ack=True)
        properties = message.properties
        attributes = dict(getattr(properties, "UserProperty", []))
        uid = attributes.pop("weir.uid", None)
        found = {field: attributes.pop(name, None) for field, name in PROPERTIES.items()}
        found["message_id"] = found["message_id"] or uid
        correlation = getattr(properties, "CorrelationData", None)
        return Got(
            body=message.payload,
            keys=frozenset(str(attributes.pop("weir.keys", "")).split()),
            attempt=1 + message.dup,
            content_type=getattr(properties, "ContentType", None),
            correlation_id=None if correlation is None else correlation.decode(),
            reply_to=getattr(properties, "ResponseTopic", None),
            uid=uid,
            attributes=attributes,
            **found,
        )

    def refuse(self, topic: str, *, seconds: float = 10) -> None:
        self._take(topic, seconds, ack=False)

    def shows(self, value: object) -> object:
        if isinstance(value, str | Decimal):
            return str(value)
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        return json.dumps(value, separators=(",", ":"))
