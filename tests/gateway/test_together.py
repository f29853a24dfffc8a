"""One consumer group, three protocols at once: what one holds, no other is given."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Any

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.gateway.serving import Process, serving
from tests.sqs_client import sqs_client

if TYPE_CHECKING:
    from pathlib import Path

QUEUE = "together"
MESSAGES = 60
HELD = 10
"""What each of the three holds, unsettled: the prefetch, a batch, the receive maximum."""
SECONDS = 20


class Amqp:
    def __init__(self, node: Process) -> None:
        self._connection = node.amqp()
        self._channel = self._connection.channel()
        self._channel.queue_declare(QUEUE, durable=True)
        self._channel.confirm_delivery()
        self._taken: list[tuple[int, str]] = []

    def publish(self) -> None:
        for number in range(MESSAGES):
            self._channel.basic_publish("", QUEUE, b"%d" % number)

    def take(self) -> set[str]:
        """Takes as many as it may hold."""
        self._channel.basic_qos(prefetch_count=HELD)
        self._channel.basic_consume(QUEUE, self._on_message)
        for _ in range(SECONDS * 10):
            if len(self._taken) >= HELD:
                break
            self._connection.process_data_events(time_limit=0.1)
        return {body for _, body in self._taken}

    def _on_message(self, _channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        self._taken.append((method.delivery_tag, body.decode()))

    def held(self) -> list[str]:
        """All that it has been given so far."""
        self._connection.process_data_events(time_limit=0.2)
        return [body for _, body in self._taken]

    def settle(self) -> None:
        self._channel.basic_ack(self._taken[-1][0], multiple=True)
        self._channel.cancel()
        self._connection.close()


class Sqs:
    def __init__(self, node: Process) -> None:
        self._client = sqs_client(f"http://127.0.0.1:{node.listeners['sqs.http']}")
        self._url = self._client.get_queue_url(QueueName=QUEUE)["QueueUrl"]
        self._handles: list[str] = []

    def take(self, seconds: int = SECONDS) -> list[str]:
        answer = self._client.receive_message(
            QueueUrl=self._url, MaxNumberOfMessages=HELD, WaitTimeSeconds=seconds
        )
        found = answer.get("Messages", [])
        self._handles += [each["ReceiptHandle"] for each in found]
        return [each["Body"] for each in found]

    def settle(self) -> None:
        for handle in self._handles:
            self._client.delete_message(QueueUrl=self._url, ReceiptHandle=handle)
        self._handles.clear()


class Mqtt:
    def __init__(self, node: Process) -> None:
        self._messages: queue.Queue[mqtt.MQTTMessage] = queue.Queue()
        self._client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, "together", protocol=mqtt.MQTTv5, manual_ack=True
        )
        self._client.username_pw_set("guest", "guest")
        self._client.on_message = lambda _client, _data, message: self._messages.put(message)
        connect = Properties(PacketTypes.CONNECT)
        connect.ReceiveMaximum = HELD
        self._client.connect("127.0.0.1", node.listeners["mqtt.tcp"], properties=connect)
        self._client.loop_start()
        self._taken: list[mqtt.MQTTMessage] = []

    def take(self) -> set[str]:
        self._client.subscribe(f"$share/default/{QUEUE}", qos=1)
        self._taken += [self._messages.get(timeout=SECONDS) for _ in range(HELD)]
        return {message.payload.decode() for message in self._taken}

    @property
    def has_more(self) -> bool:
        return not self._messages.empty()

    def settle(self) -> None:
        """Acknowledgements count behind the end of the subscription too ([MQTT-3.10.4-3])."""
        ended = threading.Event()
        self._client.on_unsubscribe = lambda *_: ended.set()
        self._client.unsubscribe(f"$share/default/{QUEUE}")
        assert ended.wait(SECONDS)
        for message in self._taken:
            self._client.ack(message.mid, message.qos)
        # They have no answer; what is answered behind them says that they have been read.
        self._client.publish("together/settled", b"", qos=1).wait_for_publish(SECONDS)
        self._client.disconnect()
        self._client.loop_stop()


def test_what_one_protocol_holds_no_other_is_given(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        amqp = Amqp(node)
        amqp.publish()
        sqs, device = Sqs(node), Mqtt(node)
        by_amqp, by_sqs, by_mqtt = amqp.take(), set(sqs.take()), device.take()
        assert [len(each) for each in (by_amqp, by_sqs, by_mqtt)] == [HELD] * 3
        assert len(by_amqp | by_sqs | by_mqtt) == 3 * HELD
        # Whoever holds what it may is given no more, however long it waits.
        assert (len(amqp.held()), device.has_more) == (HELD, False)
        for each in (sqs, amqp, device):
            each.settle()
        rest: list[str] = []
        while len(rest) < MESSAGES - 3 * HELD:
            rest += sqs.take()
        sqs.settle()
        assert sorted(rest, key=int) == sorted(
            {str(number) for number in range(MESSAGES)} - by_amqp - by_sqs - by_mqtt, key=int
        )
        assert sqs.take(1) == []
