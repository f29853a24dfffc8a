"""One queue, four protocols: each writes a message, then each reads what another one wrote.

    .venv/bin/weir queue create kitchen
    .venv/bin/python examples/four_protocols.py

The queue is made by `weir queue create`, so that it is part of MQTT's topic tree too; a queue that
SQS or AMQP clients make is reached by all but MQTT publishers.
"""

from __future__ import annotations

import threading

import boto3
import paho.mqtt.client as mqtt
import pika
from rocketmq import (
    ClientConfiguration,
    Credentials,
    FilterExpression,
    Message,
    Producer,
    SimpleConsumer,
)

QUEUE = "kitchen"

sqs = boto3.client(
    "sqs",
    endpoint_url="http://127.0.0.1:9324",
    region_name="us-east-1",
    aws_access_key_id="weir",
    aws_secret_access_key="weir-secret",
)
url = sqs.get_queue_url(QueueName=QUEUE)["QueueUrl"]

amqp = pika.BlockingConnection(pika.URLParameters("amqp://guest:guest@127.0.0.1:5672/%2F"))
channel = amqp.channel()
channel.confirm_delivery()

device = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "oven", protocol=mqtt.MQTTv5)
device.username_pw_set("guest", "guest")
device.connect("127.0.0.1", 1883)
device.loop_start()

configuration = ClientConfiguration("127.0.0.1:8081", Credentials("weir", "weir-secret"))
producer = Producer(configuration)
producer.startup()
# Everybody takes turns in the group `default`, which SQS and AMQP always consume as.
consumer = SimpleConsumer(configuration, "default", {QUEUE: FilterExpression()}, await_duration=5)
consumer.startup()

# Each call returns when the message is on disk.
sqs.send_message(QueueUrl=url, MessageBody="from SQS")
channel.basic_publish("", QUEUE, b"from AMQP", pika.BasicProperties(delivery_mode=2))
message = Message()
message.topic, message.body = QUEUE, b"from RocketMQ"
producer.send(message)
device.publish(QUEUE, b"from MQTT", qos=1).wait_for_publish(5)

method, _, body = channel.basic_get(QUEUE)
print("AMQP received:", body.decode())
channel.basic_ack(method.delivery_tag)

received = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"][0]
print("SQS received:", received["Body"])
sqs.delete_message(QueueUrl=url, ReceiptHandle=received["ReceiptHandle"])

for each in consumer.receive(1, 30):
    print("RocketMQ received:", each.body.decode())
    consumer.ack(each)
consumer.shutdown()
producer.shutdown()

done = threading.Event()


def on_message(_client: mqtt.Client, _data: object, delivered: mqtt.MQTTMessage) -> None:
    print("MQTT received:", delivered.payload.decode())
    done.set()


# The consumer group `default` again, as a shared subscription.
device.on_message = on_message
device.subscribe(f"$share/default/{QUEUE}", qos=1)
done.wait(5)
device.disconnect()
device.loop_stop()
amqp.close()
