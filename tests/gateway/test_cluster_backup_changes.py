"""Backups of a cluster while it changes under load: topics get other queues, replicas and leaders
move, groups are added, a store joins and takes its share, and leaves again. Each cut is restored.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from metering.schema.manifest import forked_epochs, sequence_gaps
from tests.gateway.cluster import STORES, Cluster, until
from tests.gateway.test_backups import DURABLE, drained, told, weir
from tests.gateway.test_cluster_backup import cluster_of_three
from tests.gateway.test_cluster_backup_bill import exported, published
from tests.metering.served.reading import entries_of
from tests.sqs_client import sqs_client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.gateway.serving import Process

FOURTH = 4
ALL = (*STORES, FOURTH)
KEYS = 5
ENOUGH = 60
"""Messages of each kind before a cut."""

FEW = 5
"""Dead letters: no more are rejected than the consumer may hold of others."""

FIFO = "ordered.fifo"
TRIES = 40
"""Of a cut, while who belongs to the cluster is changing, or a store is slow."""


def sqs(gateway: Process) -> tuple[Any, str]:
    """A client, and the URL of the queue with message groups."""
    client = sqs_client(
        f"http://127.0.0.1:{gateway.listeners['sqs.http']}", retries={"total_max_attempts": 8}
    )
    attributes = {
        "FifoQueue": "true",
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perMessageGroupId",
    }
    return client, client.create_queue(QueueName=FIFO, Attributes=attributes)["QueueUrl"]


@dataclass
class Counts:
    """What was answered with ok by a moment."""

    work: int = 0
    """Messages 0, 1, ... confirmed."""
    sent: dict[str, int] = field(default_factory=dict)
    """So many of each message group."""
    deleted: dict[str, int] = field(default_factory=dict)
    """And of these, so many from the first one on."""


class Load:
    """AMQP: publishes to `work`, rejects every third message, and acks one of the others. SQS:
    sends to message groups in turn, receives, and deletes half of what comes.
    """

    def __init__(self, gateway: Process) -> None:
        self._gateway = gateway
        self._over = threading.Event()
        self.work = 0
        self.rejected = 0
        self.sent: dict[str, int] = defaultdict(int)
        self.deleted: dict[str, int] = defaultdict(int)
        self.problems: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(each,), daemon=True)
            for each in (self._publish, self._consume, self._send, self._receive)
        ]

    def start(self) -> None:
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        self._over.set()
        for each in self._threads:
            each.join(30)
        assert not self.problems, self.problems

    def counts(self) -> Counts:
        return Counts(self.work, self.sent.copy(), self.deleted.copy())

    def more(self) -> None:
        """Wait until there is more of everything."""
        work, sent = self.work, self._sent()

        def is_more() -> bool:
            assert not self.problems, self.problems
            is_enough = self.work >= work + ENOUGH and self._sent() >= sent + ENOUGH
            return is_enough and self.rejected >= FEW

        until(is_more, lambda: f"{self.work}, {self._sent()} after {work}, {sent}")

    def _sent(self) -> int:
        return sum(self.sent.copy().values())

    def _run(self, part: Callable[[], None]) -> None:
        try:
            part()
        except BaseException as problem:
            self.problems.append(problem)
            raise

    def _publish(self) -> None:
        with self._gateway.amqp() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            while not self._over.is_set():
                channel.basic_publish("", "work", b"%d" % self.work, DURABLE)
                self.work += 1
                time.sleep(0.005)

    def _consume(self) -> None:
        with self._gateway.amqp() as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=50)
            for method, _, body in channel.consume("work", inactivity_timeout=0.1):
                if method is not None and int(body) % 3 == 0:
                    channel.basic_reject(method.delivery_tag, requeue=False)
                    self.rejected += 1
                elif method is not None and int(body) % 3 == 1:
                    channel.basic_ack(method.delivery_tag)
                if self._over.is_set():
                    return

    def _send(self) -> None:
        client, url = sqs(self._gateway)
        at = 0
        while not self._over.is_set():
            group = f"g{at % KEYS}"
            number = self.sent[group]
            client.send_message(
                QueueUrl=url,
                MessageBody=f"{number}",
                MessageGroupId=group,
                MessageDeduplicationId=f"{group}-{number}",
            )
            self.sent[group] = number + 1
            at += 1
            time.sleep(0.005)

    def _receive(self) -> None:
        client, url = sqs(self._gateway)
        while not self._over.is_set():
            for group, number, handle in received(client, url, count=2):
                client.delete_message(QueueUrl=url, ReceiptHandle=handle)
                assert number == self.deleted[group], f"{group} is out of order"
                self.deleted[group] = number + 1
            time.sleep(0.05)


def received(client: Any, url: str, count: int = 10, wait_s: int = 0) -> list[tuple[str, int, str]]:
    found = client.receive_message(
        QueueUrl=url,
        MaxNumberOfMessages=count,
        WaitTimeSeconds=wait_s,
        MessageSystemAttributeNames=["MessageGroupId"],
    ).get("Messages", ())
    return [
        (each["Attributes"]["MessageGroupId"], int(each["Body"]), each["ReceiptHandle"])
        for each in found
    ]


class Changes:
    """What an operator asks for, at once and in threads, so that a cut may be in its middle."""

    def __init__(self, cluster: Cluster, gateway: Process) -> None:
        self._cluster, self._gateway = cluster, gateway
        self._threads: list[threading.Thread] = []
        self._refused: list[object] = []

    def resize(self, queues: int, *, spread: bool) -> None:
        """Both topics."""
        for name in ("work", FIFO):
            body = {"queues": queues, "by_key": True, "spread": spread}
            self._begin(partial(self._resize, name, body))

    def move(self) -> None:
        """Another leader for each group, and for one a replica elsewhere if a store has none."""
        self._begin(self._move)

    def end(self) -> None:
        """All of it was done."""
        for each in self._threads:
            each.join(60)
        assert not self._refused, self._refused
        self._threads.clear()

    def _begin(self, part: Callable[[], None]) -> None:
        self._threads.append(threading.Thread(target=part, daemon=True))
        self._threads[-1].start()

    def _resize(self, name: str, body: Any) -> None:
        found = self._gateway.api("POST", f"/topics/{name}/resize", body)
        if found.status != 200:
            self._refused.append(found.body)

    def _move(self) -> None:
        """What moves already, or is between two leaders, stays where it is."""
        store = self._cluster.stores[1]
        status = self._cluster.status()
        members = {each["number"] for each in status["nodes"] if each["state"] == "member"}
        for each in status["groups"]:
            path = f"/cluster/groups/{each['group']}"
            store.api("POST", f"{path}/transfer", {"to": 0})
            voters = {one["node"] for one in each["replicas"] if one["voter"]}
            if each["group"] and members - voters:
                asked = {"to": min(members - voters), "from": max(voters), "same_host": True}
                store.api("POST", f"{path}/move", asked)


@dataclass
class Kept:
    """A cut that was copied."""

    before: Counts
    after: Counts
    made: dict[str, tuple[str, int]]
    """Directory of the backups and number, by store or gateway."""


def copied(cluster: Cluster, gateway: Process, load: Load, backups: Path) -> Kept:
    """Cut and copy, as often as it takes."""
    here = [word for each in cluster.stores.values() for word in ("--here", str(each.data))]
    here += ["--here", str(gateway.data)]
    refused = set()
    for _ in range(TRIES):
        before = load.counts()
        ran = weir("backup", "cluster", str(backups), *here, "-o", "json")
        if ran.code == 0:
            made = told(ran)
            assert made["left"] == []
            places = {each["member"]: (each["directory"], each["number"]) for each in made["made"]}
            return Kept(before, load.counts(), places)
        refused.add(ran.err)
        time.sleep(0.2)
    pytest.fail(f"refused {TRIES} times: {refused}")


def prepared(gateway: Process) -> None:
    """The topics."""
    for name in ("dead", "work"):
        assert gateway.api("POST", "/topics", {"name": name, "type": "work"}).status == 201
    target = {"dead_letter": {"router": None, "key": "dead"}}
    assert gateway.api("PATCH", "/topics/work/groups/default", target).status == 200
    of = ("--queues", "2", "--deduplication", "5m", "--data", str(gateway.data))
    assert weir("queue", "create", FIFO, *of).code == 0
    ordered = gateway.api("PATCH", f"/topics/{FIFO}/groups/default", {"ordered": True})
    assert ordered.status == 200, ordered.body


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Kept]]:
    root = tmp_path_factory.mktemp("changes")
    found: dict[str, Kept] = {}
    with ExitStack() as stack:
        cluster, gateway = cluster_of_three(root / "lost", stack, ALL)
        prepared(gateway)
        load, changes = Load(gateway), Changes(cluster, gateway)
        load.start()

        def cut(what: str, queues: int, *, spread: bool) -> None:
            load.more()
            changes.resize(queues, spread=spread)
            changes.move()
            found[what] = copied(cluster, gateway, load, root / "backups")
            changes.end()

        cluster.start_store(FOURTH).serves()
        asked = cluster.stores[FOURTH].api("POST", "/cluster/join", {"same_host": True})
        assert asked.status == 202, asked.body
        cut("a store joins", 4, spread=False)
        until(lambda: len(cluster.status()["nodes"]) == len(ALL), "it has joined")
        assert cluster.stores[1].api("POST", "/cluster/groups", {"count": 2}).status == 202
        cut("groups are added", 2, spread=True)
        left = cluster.stores[1].api("DELETE", f"/cluster/stores/{FOURTH}")
        assert left.status == 202, left.body
        cut("a store leaves", 3, spread=True)
        load.more()
        load.stop()
    shutil.rmtree(root / "lost")
    yield found
    shutil.rmtree(root)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", ["a store joins", "groups are added", "a store leaves"])
def test_a_cut_while_the_cluster_changes_has_all_that_was_promised_before(
    kept: dict[str, Kept], what: str, tmp_path: Path
) -> None:
    cut = kept[what]
    word: list[str] = []
    with ExitStack() as stack:
        numbers = sorted(int(name.partition("-")[2]) for name in cut.made if "store" in name)
        cluster = Cluster(tmp_path, stack, stores=numbers)
        at = [w for n, (h, p) in cluster.addresses.items() for w in ("--at", f"{n}@{h}:{p}")]
        for name, (directory, number) in cut.made.items():
            verified = weir("backup", "verify", directory, "--backup", str(number))
            assert verified.code == 0, verified
            restore = ("backup", "restore", directory, "--backup", str(number), "-o", "json")
            if not name.startswith("store-"):
                assert weir(*restore, "--data", str(tmp_path / "g")).code == 0
                continue
            data = tmp_path / name.partition("-")[2]
            facts: Any = told(weir(*restore, "--data", str(data), *at, *word))
            word = ["--timeline", facts["timeline"]]
        for number in numbers:
            cluster.start_store(number)
        key = f"node.key_file={tmp_path / 'g' / 'secrets.key'}"
        gateway = cluster.start_gateway("g", key).serves()
        until(lambda: all(cluster.leaders().values()), lambda: f"all are led: {cluster.status()}")
        check_work(cut, gateway)
        check_fifo(cut, gateway)
        archive = exported(gateway)
        entries = entries_of(archive)
        assert (forked_epochs(entries), sequence_gaps(entries)) == ([], [])
        assert cut.before.work <= published(archive) <= cut.after.work + 1


def check_work(cut: Kept, gateway: Process) -> None:
    """All that was confirmed and not acked is there once, as a dead letter or not."""
    work, dead = Counter[int](), Counter[int]()
    promised = {number for number in range(cut.before.work) if number % 3 != 1}

    def has_all() -> bool:
        work.update(drained(gateway, "work"))
        dead.update(drained(gateway, "dead"))
        return promised <= work.keys() | dead.keys()

    until(has_all, lambda: f"lost: {sorted(promised - work.keys() - dead.keys())}")
    has_all()
    both = work + dead
    assert max(both.values()) == 1, "there twice"
    assert max(both) <= cut.after.work
    assert dead
    assert not any(number % 3 for number in dead)


def check_fifo(cut: Kept, gateway: Process) -> None:
    """What was sent and not deleted is there once, and in order."""
    client, url = sqs(gateway)
    came: dict[str, list[int]] = defaultdict(list)

    def has_all() -> bool:
        for group, number, handle in received(client, url, wait_s=1):
            came[group].append(number)
            client.delete_message(QueueUrl=url, ReceiptHandle=handle)
        return all(came[group][-1:] >= [count - 1] for group, count in cut.before.sent.items())

    until(has_all, lambda: f"{dict(came)} of {cut}")
    for group, numbers in came.items():
        first, last = numbers[0], numbers[-1]
        assert numbers == list(range(first, last + 1)), f"{group} is not in order"
        assert first <= cut.after.deleted.get(group, 0), f"{group} has lost what was not deleted"
        assert first >= cut.before.deleted.get(group, 0), f"{group} has what was deleted"
        assert last <= cut.after.sent[group]
