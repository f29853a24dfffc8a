"""kombu and Celery with their defaults."""

from __future__ import annotations

import queue
import threading
import time

import amqp
import celery
import celery.contrib.testing.worker
import kombu
import kombu.simple
import pytest
from kombu.transport import native_delayed_delivery

from tests.adapters.amqp.broker import Broker

pytestmark = pytest.mark.interop


def test_kombu_publishes_and_consumes_with_its_own_declarations(threaded_broker: Broker) -> None:
    exchange = kombu.Exchange("media", "topic", durable=True)
    videos = kombu.Queue("videos", exchange, routing_key="video.#")
    with kombu.Connection(threaded_broker.url()) as connection:
        producer = connection.Producer(serializer="json")
        received: list[object] = []

        def take(body: object, message: kombu.Message) -> None:
            received.append((body, message.headers.get("n")))
            message.ack()

        producer.publish(
            {"name": "a"},
            exchange=exchange,
            routing_key="video.a",
            declare=[videos],
            headers={"n": 1},
            retry=True,
        )
        producer.publish({"name": "b"}, exchange=exchange, routing_key="audio.b")
        with connection.Consumer(videos, callbacks=[take]) as consumer:
            consumer.qos(prefetch_count=5)
            while not received:
                connection.drain_events(timeout=5)
        assert received == [({"name": "a"}, 1)]


def test_kombu_simple_queue_expects_the_brokers_cancel(threaded_broker: Broker) -> None:
    with kombu.Connection(threaded_broker.url()) as connection:
        simple = connection.SimpleQueue("simple")
        simple.put({"hello": "world"})
        message = simple.get(timeout=5)
        assert message.payload == {"hello": "world"}
        message.ack()
        with pytest.raises(queue.Empty):
            simple.get_nowait()
        simple.queue.delete()
        ends = time.monotonic() + 5
        while threaded_broker.adapter.statistics().gauges["consumers"]:
            assert time.monotonic() < ends
            time.sleep(0.01)
        # It cancels its consumer now, and finds that the broker has done so already.
        with pytest.raises(amqp.ConsumerCancelled):
            simple.close()


@pytest.fixture
def app(threaded_broker: Broker) -> celery.Celery:
    made = celery.Celery("test", broker=threaded_broker.url(), backend="rpc://")
    made.conf.task_default_queue = "celery"
    made.conf.broker_connection_retry_on_startup = True
    made.set_current()

    @made.task(name="test.add")
    def add(left: int, right: int) -> int:
        return left + right

    @made.task(name="test.flaky", bind=True, max_retries=2, acks_late=True)
    def flaky(self: celery.Task, fails: int) -> int:
        if self.request.retries < fails:
            raise self.retry(countdown=0.1)
        return int(self.request.retries)

    return made


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_celery_works_with_its_defaults(app: celery.Celery, threaded_broker: Broker) -> None:
    with celery.contrib.testing.worker.start_worker(
        app, perform_ping_check=False, pool="solo", shutdown_timeout=20
    ):
        results = [app.tasks["test.add"].delay(number, 1) for number in range(20)]
        assert [result.get(timeout=20) for result in results] == list(range(1, 21))
        assert app.tasks["test.flaky"].delay(2).get(timeout=20) == 2
        # Remote control goes over the pidbox: fanout, auto-delete, x-expires, x-message-ttl.
        replies = app.control.ping(timeout=1)
        assert len(replies) == 1
        assert next(iter(replies[0].values())) == {"ok": "pong"}
    deadline = time.monotonic() + 5
    while threading.active_count() > 20 and time.monotonic() < deadline:
        time.sleep(0.05)
    # The exchange and the queue of one name live side by side
    # (docs/design/model.md#topics-and-queues).
    client = threaded_broker.store.client
    assert client.topic("default", "celery") is not None
    assert client.router("default", "celery") is not None


def test_native_delays_of_kombu(threaded_broker: Broker) -> None:
    """28 quorum queues, the last with a TTL of 134,217,728,000 ms; and one message by them."""
    with kombu.Connection(threaded_broker.url()) as connection:
        native_delayed_delivery.declare_native_delayed_delivery_exchanges_and_queues(
            connection, "quorum"
        )
        exchange = kombu.Exchange("tasks", "topic", durable=True)
        tasks = kombu.Queue("tasks", exchange, routing_key="tasks.new")(connection.channel())
        tasks.declare()
        native_delayed_delivery.bind_queue_to_native_delayed_delivery_exchange(connection, tasks)
        key = native_delayed_delivery.calculate_routing_key(1, "tasks.new")
        producer = connection.Producer(serializer="json")
        began = time.monotonic()
        producer.publish({"name": "late"}, exchange="celery_delayed_27", routing_key=key)
        received: list[object] = []

        def take(body: object, message: kombu.Message) -> None:
            received.append(body)
            message.ack()

        with connection.Consumer(tasks, callbacks=[take]):
            while not received:
                connection.drain_events(timeout=5)
        assert received == [{"name": "late"}]
        assert time.monotonic() - began >= 0.9
