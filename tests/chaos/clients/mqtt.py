"""paho-mqtt, MQTT 5: QoS 1 and QoS 2 to a session that is kept."""

from __future__ import annotations

import time
from collections import deque
from typing import ClassVar

import paho.mqtt.client as paho
from paho.mqtt.enums import MessageState
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.chaos.clients.port import ANSWER_SECONDS, POLL_SECONDS, Refused, Taken

KEPT_SECONDS = 3_600
IN_FLIGHT = 20
LOOP_SECONDS = 0.05


class Link:
    """A client whose loop runs while it is asked something, and that lives through reconnects."""

    def __init__(self, name: str) -> None:
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv5, manual_ack=True
        )
        self.client.username_pw_set("guest", "guest")
        self.client.on_connect = self._answered
        self.client.connect_timeout = ANSWER_SECONDS
        self.refused: int | None = None
        """Reason code of a PUBREC that said no: paho goes on to PUBREL as if it had said yes."""
        self._real_pubrec = self.client._handle_pubrec
        self.client._handle_pubrec = self._pubrec
        self._answer: paho.ReasonCode | None = None
        self.kept = False

    def _answered(self, _client, _data, flags, reason, _properties) -> None:
        self._answer = reason
        self.kept = flags.session_present

    def _pubrec(self) -> paho.MQTTErrorCode:
        packet = self.client._in_packet["packet"]
        if len(packet) > 2 and packet[2] >= 0x80:
            self.refused = packet[2]
        return self._real_pubrec()

    def connect(self, port: int, *, fresh: bool) -> None:
        """Raises OSError, TimeoutError."""
        properties = Properties(PacketTypes.CONNECT)
        properties.ReceiveMaximum = IN_FLIGHT
        properties.SessionExpiryInterval = 0 if fresh else KEPT_SECONDS
        self._answer = None
        # paho forgets at the second attempt to connect that a PUBREC came, and publishes anew.
        for message in self.client._out_messages.values():
            if message.state == MessageState.MQTT_MS_RESEND_PUBREL:
                message.state = MessageState.MQTT_MS_WAIT_FOR_PUBCOMP
        self.client.connect("127.0.0.1", port, 60, clean_start=fresh, properties=properties)
        self.run(lambda: self._answer is not None, ANSWER_SECONDS)
        if self._answer is None or self._answer.is_failure:
            raise ConnectionError(f"CONNACK {self._answer}")

    def run(self, done, seconds: float) -> None:
        """Until something is so, or for so long. ConnectionError."""
        ends = time.monotonic() + seconds
        while not done() and time.monotonic() < ends:
            code = self.client.loop(LOOP_SECONDS)
            if code != paho.MQTT_ERR_SUCCESS:
                raise ConnectionError(paho.error_string(code))

    def close(self) -> None:
        """Abruptly, as a client that gives its connection up."""
        if (socket := self.client.socket()) is not None:
            socket.close()
            self.client._sock = None


class MqttPublisher:
    """QoS 1: a new session each time; what is unanswered is sent anew by the lane."""

    copies = 1

    def __init__(self, ports: dict[str, int], topic: str, lane: str) -> None:
        self._topic = topic
        self._link = Link("")
        self._link.client.on_publish = self._published
        self._refusal: str | None = None
        self._link.connect(ports["mqtt"], fresh=True)

    def _published(self, _client, _data, _mid, reason, _properties) -> None:
        if reason.is_failure:
            self._refusal = str(reason)

    def send(self, ident: str, key: str) -> None:
        self._refusal = None
        sent = self._link.client.publish(f"{self._topic}/{key}", ident, qos=1)
        self._link.run(sent.is_published, ANSWER_SECONDS)
        if self._refusal is not None:
            raise Refused(self._refusal)
        if not sent.is_published():
            raise TimeoutError("no PUBACK")

    def close(self) -> None:
        self._link.close()


class MqttExactPublisher:
    """QoS 2 in a session that is kept: the library repeats what is unanswered, in any process."""

    copies = 1
    _links: ClassVar[dict[str, Link]] = {}
    _unanswered: ClassVar[dict[str, tuple[str, paho.MQTTMessageInfo]]] = {}

    def __init__(self, ports: dict[str, int], topic: str, lane: str) -> None:
        self._topic = topic
        self._lane = lane
        self._link = self._links.setdefault(lane, Link(f"{lane}-publisher"))
        known = self._unanswered.get(lane) is not None
        self._link.connect(ports["mqtt"], fresh=False)
        if known and not self._link.kept:
            raise AssertionError("the session of a QoS 2 publisher is gone")

    def send(self, ident: str, key: str) -> None:
        before, sent = self._unanswered.get(self._lane, ("", None))
        if sent is None or before != ident:
            sent = self._link.client.publish(f"{self._topic}/{key}", ident, qos=2)
            self._unanswered[self._lane] = (ident, sent)
        self._link.run(sent.is_published, ANSWER_SECONDS)
        if not sent.is_published():
            raise TimeoutError("no PUBCOMP")
        if self._link.refused is not None:
            code, self._link.refused = self._link.refused, None
            del self._unanswered[self._lane]
            raise Refused(f"PUBREC {code:#x}")

    def close(self) -> None:
        self._link.close()


class MqttConsumer:
    """A session that is kept, named after the lane."""

    qos = 1
    _links: ClassVar[dict[str, Link]] = {}

    def __init__(self, ports: dict[str, int], topic: str, lane: str) -> None:
        self._arrived: deque[Taken] = deque()
        self._link = self._links.setdefault(lane, Link(f"{lane}-consumer"))
        self._link.client.on_message = self._came
        self._link.connect(ports["mqtt"], fresh=False)

    def _came(self, _client, _data, message: paho.MQTTMessage) -> None:
        at = time.monotonic()
        self._arrived.append(Taken(message.payload.decode(), message.dup, at, message))

    def take(self) -> list[Taken]:
        self._link.run(lambda: self._arrived, POLL_SECONDS)
        found = list(self._arrived)
        self._arrived.clear()
        return found

    def ack(self, taken: list[Taken]) -> bool:
        for each in taken:
            self._link.client.ack(each.handle.mid, each.handle.qos)
        self._link.run(lambda: False, 0.001)
        return False

    def close(self) -> None:
        self._link.close()


def subscribe(port: int, topic: str, lane: str, qos: int) -> None:
    """Make the session of a lane's consumer, before anything is published."""
    link = Link(f"{lane}-consumer")
    link.connect(port, fresh=False)
    answers: list[object] = []
    link.client.on_subscribe = lambda _client, _data, _mid, reasons, _properties: answers.extend(
        reasons
    )
    link.client.subscribe(f"{topic}/#", qos=qos)
    link.run(lambda: answers, ANSWER_SECONDS)
    if [getattr(each, "value", each) for each in answers] != [qos]:
        raise ConnectionError(f"SUBACK {answers}")
    link.close()
