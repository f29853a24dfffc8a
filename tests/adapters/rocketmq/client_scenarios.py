"""What rocketmq-python-client does against a broker: a program, run by test_real_client.

    python client_scenarios.py SCENARIO ADDRESS

prints one line of JSON, what the scenario returned. It runs in a process of its own because the
client keeps threads and an event loop for ever, and writes its log into the home directory.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType


def configuration(address: str, secret: str = "weir-secret") -> ClientConfiguration:
    return ClientConfiguration(address, Credentials("weir", secret), request_timeout=3)


def made(topic: str, body: bytes, **fields: object) -> Message:
    message = Message()
    message.topic = topic
    message.body = body
    for name, value in fields.items():
        setattr(message, name, value)
    return message


def producer(address: str, *topics: str, **options: object) -> Producer:
    client = Producer(configuration(address), topics or None, **options)
    client.startup()
    return client


def consumer(address: str, topic: str, group: str, expression: str = "*", **options: object):
    client = SimpleConsumer(
        configuration(address),
        group,
        {topic: FilterExpression(expression)},
        await_duration=options.pop("await_duration", 3),
        **options,
    )
    client.startup()
    return client


def drain(client: SimpleConsumer, count: int, *, ack: bool = True) -> list[Message]:
    """Receive until so many messages have come, or nothing comes any more."""
    found: list[Message] = []
    while len(found) < count:
        some = client.receive(32, 10)
        if not some:
            break
        found += some
        if ack:
            for message in some:
                client.ack(message)
    return found


def simple(address: str) -> object:
    """Send with everything a message can have, receive, ack, find nothing more."""
    sender = producer(address, "simple")
    reader = consumer(address, "simple", "simple-group")
    message = made("simple", "grüße\0".encode(), tag="blue", keys="k1")
    message.add_property("color", "blau")
    receipt = sender.send(message)
    (got,) = drain(reader, 1)
    started = time.monotonic()
    nothing = reader.receive(32, 10)
    return {
        "sent_id": receipt.message_id,
        "id": got.message_id,
        "body": got.body.decode(),
        "tag": got.tag,
        "keys": sorted(got.keys),
        "properties": got.properties,
        "attempt": got.delivery_attempt,
        "corrupted": got.corrupted,
        "born_host": bool(got.born_host),
        "nothing": nothing,
        "waited_s": time.monotonic() - started,
    }


def no_wait(address: str) -> object:
    """A consumer that waits 0 s sends no polling time: the call must still end by itself."""
    reader = consumer(address, "empty", "no-wait-group", await_duration=0)
    started = time.monotonic()
    return {"got": reader.receive(1, 10), "waited_s": time.monotonic() - started}


def fifo(address: str) -> object:
    """Messages of two groups, each in its order, while the other group is held up."""
    sender = producer(address, "fifo")
    for number in range(6):
        sender.send(made("fifo", b"%d" % number, message_group=f"g{number % 2}"))
    reader = consumer(address, "fifo", "fifo-group")
    found = drain(reader, 6)
    orders: dict[str, list[str]] = {}
    for message in found:
        orders.setdefault(message.message_group, []).append(message.body.decode())
    return orders


def delay(address: str) -> object:
    """Two seconds ahead: not before, and not much later."""
    sender = producer(address, "delay")
    due_s = int(time.time()) + 2
    sender.send(made("delay", b"later", delivery_timestamp=due_s))
    reader = consumer(address, "delay", "delay-group", await_duration=5)
    (got,) = drain(reader, 1)
    return {"late_s": time.time() - due_s, "stamp": got.delivery_timestamp, "due": due_s}


def redelivery(address: str) -> object:
    """An invisible time that is changed, and one that runs out."""
    sender = producer(address, "redelivery")
    sender.send(made("redelivery", b"again"))
    reader = consumer(address, "redelivery", "redelivery-group")
    (first,) = reader.receive(1, 10)
    reader.change_invisible_duration(first, 1)
    (second,) = reader.receive(1, 10)
    reader.change_invisible_duration(second, 0)
    (third,) = reader.receive(1, 10)
    reader.ack(third)
    try:
        reader.ack(first)
        stale = "acked"
    except Exception as error:  # noqa: BLE001 - told to the test
        stale = type(error).__name__
    return {
        "attempts": [each.delivery_attempt for each in (first, second, third)],
        "stale": stale,
    }


def errors(address: str) -> object:
    """What an application sees of refusals."""

    def attempt(action) -> object:
        try:
            return action()
        except Exception as error:  # noqa: BLE001 - told to the test
            return [type(error).__name__, str(error)]

    sender = producer(address)
    stranger = Producer(configuration(address, "wrong"), None)
    stranger.startup()
    return {
        "unknown": attempt(lambda: sender.send(made("nowhere", b"x"))),
        "type": attempt(lambda: sender.send(made("simple", b"x", message_group="g"))),
        "secret": attempt(lambda: stranger.send(made("simple", b"x"))),
    }


def big(address: str) -> object:
    """The largest body there may be, there and back."""
    sender = producer(address, "big")
    reader = consumer(address, "big", "big-group")
    body = os.urandom(4 * 1024 * 1024)
    sender.send(made("big", body))
    (got,) = drain(reader, 1)
    return {"same": got.body == body, "corrupted": got.corrupted}


class Checker(TransactionChecker):
    """Commits what begins with `good`, rolls back what begins with `bad`, and keeps what it saw."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def check(self, message: Message) -> TransactionResolution:
        text = message.body.decode()
        self.seen.append(text)
        if text.startswith("good"):
            return TransactionResolution.COMMIT
        return TransactionResolution.ROLLBACK


def transaction(address: str) -> object:
    """A message that is committed, one that is rolled back."""
    sender = producer(address, "transaction", checker=Checker())
    reader = consumer(address, "transaction", "transaction-group", await_duration=1)
    committed, dropped = sender.begin_transaction(), sender.begin_transaction()
    receipts = [
        sender.send(made("transaction", body), begun).transaction_id
        for body, begun in ((b"committed", committed), (b"dropped", dropped))
    ]
    early = reader.receive(32, 10)
    dropped.rollback()
    committed.commit()
    return {
        "different": len(set(receipts)) == 2,
        "early": [message.body.decode() for message in early or ()],
        "got": [message.body.decode() for message in drain(reader, 2)],
    }


def transaction_left(address: str) -> object:
    """Sends two half messages, says so, and is killed before it decides."""
    sender = producer(address, "checked", checker=Checker())
    for body in (b"good", b"bad"):
        sender.send(made("checked", body), sender.begin_transaction())
    sys.stdout.write("half\n")
    sys.stdout.flush()
    time.sleep(60)
    return None


def transaction_checked(address: str) -> object:
    """Another producer of the topic, which is asked what became of these messages."""
    checker = Checker()
    sender = producer(address, "checked", checker=checker)
    reader = consumer(address, "checked", "checked-group", await_duration=5)
    got = drain(reader, 1)
    deadline = time.monotonic() + 20
    while len(set(checker.seen)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    return {
        "client": sender.client_id != "",
        "asked": sorted(set(checker.seen)),
        "got": [message.body.decode() for message in got],
        "more": [message.body.decode() for message in reader.receive(32, 10) or ()],
    }


def many(address: str) -> object:
    """Sends under way at the same time, as far as the client has them."""
    sender = producer(address, "many")
    reader = consumer(address, "many", "many-group")
    under_way = [sender.send_async(made("many", b"%d" % number)) for number in range(200)]
    idents = {each.result(10).message_id for each in under_way}
    found = drain(reader, 200)
    return {
        "sent": len(idents),
        "received": len({message.body for message in found}),
        "same": idents == {message.message_id for message in found},
    }


class Listener(MessageListener):
    """Fails each body that begins with `!` as often as `failures` says, and notes all."""

    def __init__(self, wanted: int, failures: int) -> None:
        self.seen: list[tuple[str, int]] = []
        self.done = threading.Event()
        self._wanted = wanted
        self._failures = failures
        self._lock = threading.Lock()

    def consume(self, message: Message) -> ConsumeResult:
        with self._lock:
            body = message.body.decode()
            before = sum(1 for each, _ in self.seen if each == body)
            self.seen.append((body, message.delivery_attempt))
            if len(self.seen) >= self._wanted:
                self.done.set()
        fails = body.startswith("!") and before < self._failures
        return ConsumeResult.FAILURE if fails else ConsumeResult.SUCCESS


def push(address: str) -> object:
    """A push consumer: messages come by themselves, a failed one comes again."""
    listener = Listener(wanted=5, failures=1)
    pushed = PushConsumer(
        configuration(address), "push-group", listener, {"push": FilterExpression("*")}
    )
    pushed.startup()
    time.sleep(1.5)
    sender = producer(address, "push")
    for body in (b"a", b"b", b"!c", b"d"):
        sender.send(made("push", body))
    listener.done.wait(15)
    pushed.shutdown()
    return {"seen": sorted(listener.seen)}


def push_fifo(address: str) -> object:
    """A push consumer in order: it tries again itself, then gives the message up."""
    listener = Listener(wanted=5, failures=9)
    pushed = PushConsumer(
        configuration(address), "push-fifo-group", listener, {"push-fifo": FilterExpression("*")}
    )
    pushed.startup()
    time.sleep(1.5)
    sender = producer(address, "push-fifo")
    for body in (b"a", b"!b", b"c"):
        sender.send(made("push-fifo", body, message_group="one"))
    listener.done.wait(5)
    deadline = time.monotonic() + 15
    while len(listener.seen) < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    pushed.shutdown()
    return {"seen": listener.seen}


def tags(address: str) -> object:
    """Only what the filter names; the rest counts as consumed."""
    sender = producer(address, "tags")
    reader = consumer(address, "tags", "tags-group", "Aa || c")
    for tag in ("Aa", "BB", "c", None):
        message = made("tags", (tag or "none").encode())
        if tag:
            message.tag = tag
        sender.send(message)
    return sorted(each.body.decode() for each in drain(reader, 3))


def sql(address: str) -> object:
    """Only that for which the expression is true: properties, tags, a property that is missing."""
    sender = producer(address, "sql")
    wanted = FilterExpression("price > 10 AND (TAGS = 'a' OR name IS NULL)", FilterType.SQL)
    reader = SimpleConsumer(configuration(address), "sql-group", {"sql": wanted}, await_duration=3)
    reader.startup()
    for body, tag, properties in (
        ("both", "a", {"price": "11", "name": "x"}),
        ("price", "b", {"price": "10.5"}),
        ("name", "b", {"price": "11", "name": "x"}),
        ("cheap", "a", {"price": "9"}),
        ("nothing", "a", {}),
    ):
        message = made("sql", body.encode(), tag=tag)
        for name, value in properties.items():
            message.add_property(name, value)
        sender.send(message)
    return sorted(each.body.decode() for each in drain(reader, 3))


def priority(address: str) -> object:
    """What is more urgent overtakes what waits."""
    sender = producer(address, "priority")
    for level in (0, 9, 4):
        sender.send(made("priority", str(level).encode(), priority=level))
    reader = consumer(address, "priority", "priority-group")
    return [each.body.decode() for _ in range(3) for each in reader.receive(1, 10)]


def recalled(address: str) -> object:
    """Of two delayed messages one is taken back."""
    sender = producer(address, "recall")
    due = int(time.time()) + 3
    receipts = [
        sender.send(made("recall", body, delivery_timestamp=due)) for body in (b"back", b"kept")
    ]
    told = sender.recall_message("recall", receipts[0].recall_handle)
    reader = consumer(address, "recall", "recalled-group", await_duration=6)
    found = [each.body.decode() for each in drain(reader, 1)]
    return {"recalled": told == receipts[0].message_id, "received": found}


def across_restart(address: str) -> object:
    """The broker is started anew between the two halves; nothing is set up again here."""
    sender = producer(address, "restart")
    reader = consumer(address, "restart", "restart-group")
    sender.send(made("restart", b"before"))
    first = [each.body.decode() for each in drain(reader, 1)]
    print("half", flush=True)  # noqa: T201 - the test reads it
    sys.stdin.readline()
    deadline = time.monotonic() + 15
    while True:
        try:
            sender.send(made("restart", b"after"))
            break
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    second = [each.body.decode() for each in drain(reader, 1)]
    return {"first": first, "second": second}


def stall(address: str) -> object:
    """When each call was answered (monotonic seconds) while the disk held its syncs."""
    sender = producer(address, "stall")
    reader = consumer(address, "stall", "stall-group")
    for _ in range(2):
        sender.send(made("stall", b"x"))
    acked, changed = drain(reader, 2, ack=False)
    print("half", flush=True)  # noqa: T201 - the test reads it
    sys.stdin.readline()
    ends = time.monotonic() + 2.5
    answered: dict[str, list[float]] = {}

    def note(name: str, action: Callable[[], object]) -> None:
        action()
        answered.setdefault(name, []).append(time.monotonic())

    def beat() -> None:
        (endpoints,) = sender.route_manager.get_all_endpoints().values()
        while time.monotonic() < ends:
            answer = sender.rpc_client.heartbeat_async(
                endpoints, sender._heartbeat_req(), metadata=sender.sign(), timeout=3
            )
            note("heartbeat", answer.result)
            time.sleep(0.1)

    def look() -> None:
        while time.monotonic() < ends:
            note("route", lambda: producer(address, "stall").shutdown())
            time.sleep(0.1)

    work = [
        threading.Thread(target=note, args=("send", lambda: sender.send(made("stall", b"y")))),
        threading.Thread(target=note, args=("ack", lambda: reader.ack(acked))),
        threading.Thread(
            target=note,
            args=("change", lambda: reader.change_invisible_duration(changed, 30)),
        ),
        threading.Thread(target=beat),
        threading.Thread(target=look),
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    return answered


def flood(address: str) -> object:
    """Sends numbers from four threads and prints each that was acknowledged, until it is killed."""
    sender = producer(address, "flood")
    numbers = itertools.count()

    def send() -> None:
        while True:
            number = next(numbers)
            try:
                sender.send(made("flood", b"%d" % number))
            except Exception:  # noqa: BLE001 - the broker was killed
                return
            os.write(1, b"%d\n" % number)

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return "ended"


def idle(address: str) -> object:
    """A push consumer that waits, until the test says that it may go."""
    listener = Listener(wanted=1, failures=0)
    pushed = PushConsumer(
        configuration(address), "idle-group", listener, {"idle": FilterExpression("*")}
    )
    pushed.startup()
    time.sleep(1)
    print("half", flush=True)  # noqa: T201 - the test reads it
    sys.stdin.readline()
    return listener.seen


def moving(address: str) -> object:
    """Sends, receives and is pushed to, all the time. After each line that it is told it says how
    many messages it has sent; at the end of its input, how many have not come.
    """
    pushed, received, sent = Listener(wanted=0, failures=0), set[str](), list[str]()
    push_consumer = PushConsumer(
        configuration(address), "moving-push", pushed, {"moving": FilterExpression("*")}
    )
    push_consumer.startup()
    reader = consumer(address, "moving", "moving-simple", await_duration=1)
    sender = producer(address, "moving")
    problems: list[str] = []
    is_over = threading.Event()

    def attempt(action: Callable[[], object]) -> None:
        while not is_over.wait(0.05):
            try:
                action()
            except Exception as error:  # noqa: BLE001 - told to the test
                problems.append(f"{action.__name__}: {error}")

    def send() -> None:
        body = str(len(sent))
        sender.send(made("moving", body.encode()))
        sent.append(body)

    def receive() -> None:
        for message in reader.receive(32, 10):
            received.add(message.body.decode())
            reader.ack(message)

    def missing() -> list[str]:
        both = received.intersection(body for body, _ in pushed.seen)
        return [each for each in sent if each not in both]

    threads = [threading.Thread(target=attempt, args=(each,)) for each in (send, receive)]
    for thread in threads:
        thread.start()
    for _ in sys.stdin:
        print(len(sent), flush=True)  # noqa: T201 - the test reads it
    deadline = time.monotonic() + 20
    is_over.set()
    for thread in threads:
        thread.join()
    while missing() and time.monotonic() < deadline:
        receive()
    return {"sent": len(sent), "missing": missing(), "problems": problems}


def tls(address: str) -> object:
    """Over TLS, with the certificate that the environment names."""
    sender = producer(address, "simple", tls_enable=True)
    reader = consumer(address, "simple", "tls-group", tls_enable=True)
    sender.send(made("simple", b"secret"))
    return [each.body.decode() for each in drain(reader, 1)]


if __name__ == "__main__":
    scenario, target = sys.argv[1:]
    result = globals()[scenario](target)
    print(json.dumps(result), flush=True)  # noqa: T201 - the test reads it
    # The client's threads never end.
    os._exit(0)
