"""A node with a tenant, in which a user has exactly the rights that a test gives, and a stranger of
another tenant has all there are there.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import pika
import pika.exceptions
from botocore.exceptions import ClientError
from pika.adapters.blocking_connection import BlockingChannel

from tests.adapters.mqtt.broker import WireClient
from tests.adapters.rocketmq.support import Wire
from tests.gateway.cluster import Cluster
from tests.gateway.serving import Process, serving
from tests.sqs_client import sqs_client

CONFIG = """
tenants:
  acme: {known_as: {amqp: acme, sqs: "111122223333", rocketmq: acme}}
"""
TENANT = "acme"
ACCOUNT = "111122223333"
PASSWORD = "a long password"
WAIT_S = 10

USER, ROOT, STRANGER = "acme:user", "acme:root", "stranger"

HELD_S = 0.3
"""Until a poll that was begun waits at the server."""

EVERYTHING = ("allow publish,consume,configure,inspect *",)


class Refused(Exception):
    """The right is missing: what the protocol says of that."""


class Actor:
    """Somebody with connections by every protocol, to the names of the tenant `acme`."""

    def __init__(self, site: Site, login: str) -> None:
        self.site = site
        self.login = login
        self.name = ""
        """What the row that is tried calls its things."""
        self._stack = contextlib.ExitStack()
        self._loop: asyncio.Runner | None = None
        self._channel: BlockingChannel | None = None
        self._amqp: pika.BlockingConnection | None = None
        self.mqtt: WireClient | None = None
        """The MQTT connection that it has."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.mqtt is not None:
            self.mqtt.writer.close()
        self._stack.close()

    def run(self, work: Coroutine[object, object, None]) -> None:
        """Carry it out in the loop that the actor has."""
        if self._loop is None:
            self._loop = self._stack.enter_context(asyncio.Runner())
        self._loop.run(work)

    def __call__(self, text: str) -> str:
        """A name of the row: `{n}` stands for what is the row's own."""
        return text.replace("{n}", self.name)

    # --- AMQP -------------------------------------------------------------------------------

    @property
    def channel(self) -> BlockingChannel:
        """An open channel with confirms."""
        if self._channel is None or not self._channel.is_open:
            if self._amqp is None or not self._amqp.is_open:
                self._amqp = self._connect()
            self._channel = self._amqp.channel()
            self._channel.confirm_delivery()
        return self._channel

    def _connect(self) -> pika.BlockingConnection:
        port = self.site.node.listeners["amqp.tcp"]
        credentials = pika.PlainCredentials(self.login, PASSWORD)
        parameters = pika.ConnectionParameters("127.0.0.1", port, TENANT, credentials, heartbeat=0)
        connection = pika.BlockingConnection(parameters)
        self._stack.callback(_close, connection)
        return connection

    # --- SQS --------------------------------------------------------------------------------

    @cached_property
    def sqs(self) -> Any:
        """A client of boto3."""
        return self.site.sqs_of(self.login)

    def url(self, text: str) -> str:
        """The URL of a queue of the tenant."""
        return f"{self.site.sqs_url}/{ACCOUNT}/{self(text)}"

    def arn(self, text: str) -> str:
        """The ARN of a queue of the tenant."""
        return f"arn:aws:sqs:eu-central-1:{ACCOUNT}:{self(text)}"

    # --- RocketMQ ---------------------------------------------------------------------------

    @cached_property
    def rocketmq(self) -> Wire:
        """Raw calls, for the namespace of the tenant."""
        key_id, secret = self.site.key_of(self.login)
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        signature = hmac.new(secret.encode(), now.encode(), "sha1").hexdigest()
        headers = {
            "x-mq-language": "PYTHON",
            "x-mq-protocol": "GRPC_V2",
            "x-mq-client-version": "5.1.2",
            "x-mq-date-time": now,
            "x-mq-client-id": f"host@1@0@{self.login}",
            "x-mq-namespace": TENANT,
            "authorization": f"MQv2-HMAC-SHA1 Credential={key_id},"
            f" SignedHeaders=x-mq-date-time, Signature={signature}",
        }
        wire = Wire(f"127.0.0.1:{self.site.node.listeners['rocketmq.grpc']}", headers)
        self._stack.callback(wire.close)
        return wire


def _close(connection: pika.BlockingConnection) -> None:
    if connection.is_open:
        connection.close()


class Site:
    """The node, and what the user of the tenant may do there now."""

    def __init__(self, node: Process) -> None:
        self.node = node
        self.place = "node"
        """What it is: one of `PLACES`."""
        self._keys: dict[str, tuple[str, str]] = {}
        self._sqs: dict[str, Any] = {}
        self.handles: dict[str, str] = {}
        """Of tasks that rows have begun."""
        for tenant, name, policy in (
            (TENANT, "user", "user"),
            (TENANT, "root", "full"),
            ("default", "stranger", "full"),
        ):
            if policy == "user":
                self.allow()
            body = {"name": name, "password": PASSWORD, "policies": [policy]}
            made = node.api("POST", f"/users?tenant={tenant}", body)
            assert made.status == 201, made.body

    @property
    def sqs_url(self) -> str:
        return f"http://127.0.0.1:{self.node.listeners['sqs.http']}"

    def allow(self, *needs: str) -> None:
        """From now on the user has these rights and no others."""
        self.rules([f"allow {need}" for need in needs] or ["allow inspect topic:nothing-at-all"])

    def rules(self, lines: Iterable[str]) -> None:
        """The rules of the user."""
        put = self.node.api("PUT", f"/policies/user?tenant={TENANT}", {"rules": list(lines)})
        assert put.status < 300, put.body

    def key_of(self, login: str) -> tuple[str, str]:
        """(id, secret) of a key of somebody."""
        if login not in self._keys:
            tenant, _, name = login.rpartition(":")
            made = self.node.api("POST", f"/keys?tenant={tenant or 'default'}", {"user": name})
            assert made.status == 201, made.body
            self._keys[login] = made.json["key_id"], made.json["secret"]
        return self._keys[login]

    def sqs_of(self, login: str) -> Any:
        if login not in self._sqs:
            self._sqs[login] = sqs_client(self.sqs_url, *self.key_of(login))
        return self._sqs[login]

    def admin(self, method: str, path: str, body: Any = None) -> Any:
        """What an administrator of the tenant asks of the admin API."""
        mark = "&" if "?" in path else "?"
        answer = self.node.api(method, f"{path}{mark}tenant={TENANT}", body)
        assert answer.status < 300, answer.body
        return answer.json if answer.body else None


PLACES = ("node", "gateway")


@contextlib.contextmanager
def running_site(directory: Path, place: str = "node") -> Iterator[Site]:
    """A node of its own, or a gateway of a cluster."""
    config = directory / "weir.yaml"
    config.write_text(CONFIG)
    with contextlib.ExitStack() as stack:
        if place == "node":
            yield Site(stack.enter_context(serving(directory / "data", config=config)))
            return
        cluster = Cluster(directory, stack)
        cluster.found()
        cluster.start_store(1)
        yield Site(cluster.start_gateway("a", config=config).serves())


def in_thread(work: Callable[[], None]) -> Callable[[], bool]:
    """Begin what waits; tells whether it has ended, and raises what it has raised."""
    pool = ThreadPoolExecutor(1)
    begun = pool.submit(work)
    pool.shutdown(wait=False)
    time.sleep(HELD_S)

    def has_ended() -> bool:
        if begun.done():
            begun.result()
        return begun.done()

    return has_ended


def tried(do: Callable[[Actor], object], actor: Actor) -> None:
    """Do it. Raises Refused if the protocol says that a right is missing."""
    try:
        do(actor)
    except pika.exceptions.ChannelClosedByBroker as error:
        if error.reply_code == 403:
            raise Refused(error.reply_text) from None
        raise
    except pika.exceptions.ProbableAccessDeniedError as error:
        raise Refused(str(error)) from None
    except ClientError as error:
        code = error.response["Error"]["Code"]
        theirs = {"AWS.SimpleQueueService.NonExistentQueue", "ResourceNotFoundException"}
        if "AccessDenied" in code or (actor.login == STRANGER and code in theirs):
            raise Refused(str(error)) from None
        raise
