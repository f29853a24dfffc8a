"""TLS: every port works at once on loopback; elsewhere with a certificate of one's own."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import paho.mqtt.client as mqtt
import pika
import pytest
from botocore.exceptions import SSLError

from tests.gateway.serving import Process, refused, serving
from tests.sqs_client import sqs_client


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serving(tmp_path_factory.mktemp("tls")) as process:
        yield process


def trusting(node: Process) -> ssl.SSLContext:
    """A client that trusts the node's own certificate, and checks the name."""
    return ssl.create_default_context(cafile=node.data / "tls" / "loopback.crt")


def test_amqp_over_tls(node: Process) -> None:
    options = pika.SSLOptions(trusting(node), "localhost")
    parameters = pika.ConnectionParameters(
        "127.0.0.1", node.listeners["amqp.tls"], ssl_options=options
    )
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("safe", durable=True)
    channel.basic_publish("", "safe", b"sealed")
    assert channel.basic_get("safe", auto_ack=True)[2] == b"sealed"
    connection.close()


def test_mqtt_over_tls(node: Process) -> None:
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "tls", protocol=mqtt.MQTTv5)
    client.username_pw_set("guest", "guest")
    client.tls_set_context(trusting(node))
    connected = threading.Event()
    client.on_connect = lambda *_: connected.set()
    client.connect("localhost", node.listeners["mqtt.tls"])
    client.loop_start()
    assert connected.wait(10)
    sent = client.publish("safe/place", b"sealed", qos=1)
    sent.wait_for_publish(10)
    assert sent.is_published()
    client.disconnect()
    client.loop_stop()


def test_sqs_over_tls(node: Process) -> None:
    """Signed and checked as over HTTP; the queue's URL leads back to the TLS port."""
    url = f"https://localhost:{node.listeners['sqs.tls']}"
    sqs = sqs_client(url, verify=str(node.data / "tls" / "loopback.crt"))
    queue = sqs.create_queue(QueueName="safe")["QueueUrl"]
    assert queue.startswith(url + "/")
    sqs.send_message(QueueUrl=queue, MessageBody="sealed " + "x" * 500_000)
    (message,) = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=5)["Messages"]
    assert message["Body"] == "sealed " + "x" * 500_000
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    sqs.close()


def test_an_sqs_client_that_does_not_know_the_certificate_refuses_it(node: Process) -> None:
    sqs = sqs_client(f"https://localhost:{node.listeners['sqs.tls']}")
    with pytest.raises(SSLError):
        sqs.list_queues()
    sqs.close()
    told = node.wait_for("a TLS handshake failed")
    assert (told["listener"], told["openssl"]) == ("sqs.tls", "TLSV1_ALERT_UNKNOWN_CA")


def test_plain_http_on_the_tls_port_of_sqs_harms_nobody(node: Process) -> None:
    with socket.create_connection(("127.0.0.1", node.listeners["sqs.tls"]), timeout=10) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" not in plain.recv(4_096)
    test_sqs_over_tls(node)
    told = node.wait_for("a TLS handshake failed")
    assert (told["listener"], told["openssl"]) == ("sqs.tls", "HTTP_REQUEST")
    metrics = node.http("GET", "/metrics").body
    assert b'weir_tls_failures_total{listener="sqs.tls"}' in metrics


def test_grpc_over_tls(node: Process) -> None:
    root = (node.data / "tls" / "loopback.crt").read_bytes()
    address = f"localhost:{node.listeners['rocketmq.tls']}"
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(root)) as channel:
        grpc.channel_ready_future(channel).result(timeout=10)


def test_an_own_certificate_is_used_and_a_bad_one_is_told(node: Process, tmp_path: Path) -> None:
    pem = node.data / "tls" / "loopback.pem"
    given = (f"node.tls.certificate={pem}", f"node.tls.private_key={pem}")
    with serving(tmp_path / "own", *given) as other:
        assert not (other.data / "tls").exists()
        port = other.listeners["amqp.tls"]
        seen = ssl.get_server_certificate(("127.0.0.1", port))
    assert seen.strip() in pem.read_text()
    bad = tmp_path / "bad.pem"
    bad.write_text("nonsense")
    code, said = refused(
        tmp_path / "bad", f"node.tls.certificate={bad}", f"node.tls.private_key={bad}"
    )
    assert code == 1
    assert "no usable certificate" in said
    assert "Traceback" not in said
