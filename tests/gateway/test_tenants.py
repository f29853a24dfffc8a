"""Two tenants at one node: by every protocol, each sees its own and nothing of the other."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import botocore.exceptions
import pika
import pika.exceptions
import pyarrow.parquet as pq
import pytest
from starlette.requests import Request

import gateway.cli
from auth.users.records import Create, User
from auth.users.store import AuthStore
from gateway.access.tenant_book import TenantBook
from gateway.admin.http.callers import OPERATOR, set_caller
from gateway.admin.resources.tenants import KnownTenants
from kernel.common.errors import Code, KernelError
from kernel.store.drivers.system import SystemClock
from metering.schema import parse_manifest
from metering.schema.manifest import MANIFEST_NAME
from tests.gateway.serving import Process, serving
from tests.gateway.test_mqtt import client
from tests.sqs_client import sqs_client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIG = """
tenants:
  acme: {known_as: {amqp: acme-host, sqs: "111122223333", rocketmq: acme-space}}
  globex: {}
"""

ROCKETMQ = """
import json, os, sys
from rocketmq import (
    ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer,
)

address, *tenants = sys.argv[1:]
tenants = [json.loads(each) for each in tenants]


def configuration(key, namespace):
    return ClientConfiguration(address, Credentials(*key), namespace, 5)


producers = []
for each in tenants:
    producers.append(Producer(configuration(each["key"], each["namespace"])))
    producers[-1].startup()
    message = Message()
    message.topic, message.body = "receipts", each["name"].encode()
    producers[-1].send(message)
got = {}
for each in tenants:
    own = configuration(each["key"], each["namespace"])
    consumer = SimpleConsumer(own, "readers", {"receipts": FilterExpression()}, await_duration=2)
    consumer.startup()
    found = consumer.receive(16, 30)
    for message in found:
        consumer.ack(message)
    got[each["name"]] = [message.body.decode() for message in found]
got["strangers"] = []
for one, other in (tenants, tenants[::-1]):
    stranger = Producer(configuration(one["key"], other["namespace"]))
    stranger.startup()
    try:
        stranger.send(message)
        got["strangers"].append("was let in")
    except Exception as error:
        got["strangers"].append(str(error))
print(json.dumps(got), flush=True)
os._exit(0)
"""


@dataclass(frozen=True)
class Tenant:
    """A tenant with one user, and what each protocol calls it."""

    name: str
    user: str
    virtual_host: str
    account: str
    namespace: str
    key: tuple[str, str]

    @property
    def login(self) -> str:
        return f"{self.name}:{self.user}"

    @property
    def password(self) -> str:
        return f"{self.user}'s password"

    def amqp(self, node: Process, virtual_host: str = "") -> pika.BlockingConnection:
        return pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1",
                node.listeners["amqp.tcp"],
                virtual_host or self.virtual_host,
                pika.PlainCredentials(self.login, self.password),
            )
        )

    def sqs(self, node: Process) -> Any:
        return sqs_client(f"http://127.0.0.1:{node.listeners['sqs.http']}", *self.key)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("tenants")
    config = folder / "weir.yaml"
    config.write_text(CONFIG)
    with serving(folder / "data", "node.metering.flush_interval_s=3600", config=config) as process:
        yield process


@pytest.fixture(scope="module")
def tenants(node: Process) -> tuple[Tenant, Tenant]:
    found = []
    for name, user, *names in (
        ("acme", "alice", "acme-host", "111122223333", "acme-space"),
        ("globex", "bob", "globex", "globex", "globex"),
    ):
        asked = {"name": user, "password": f"{user}'s password", "policies": ["full"]}
        assert node.api("POST", f"/users?tenant={name}", asked).status == 201
        key = node.api("POST", f"/keys?tenant={name}", {"user": user}).json
        found.append(Tenant(name, user, *names, key=(key["key_id"], key["secret"])))
    return found[0], found[1]


def weir(node: Process, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        gateway.cli.main([*words, "--data", str(node.data)])
    said = capsys.readouterr()
    assert isinstance(caught.value.code, int)
    return caught.value.code, said.out, said.err


def test_amqp_a_queue_of_one_name_is_one_for_each_virtual_host(
    node: Process, tenants: tuple[Tenant, Tenant]
) -> None:
    with contextlib.ExitStack() as stack:
        channels = []
        for tenant in tenants:
            channel = stack.enter_context(tenant.amqp(node)).channel()
            channel.queue_declare("orders", durable=True)
            channel.confirm_delivery()
            channel.basic_publish("", "orders", tenant.name.encode())
            channel.exchange_declare("news", "topic", durable=True)
            channel.queue_bind("orders", "amq.topic", "kitchen.*")
            channels.append(channel)
        # A key that both have bound, in the tree that MQTT has in common.
        channels[0].basic_publish("amq.topic", "kitchen.oven", b"only acme's")
        for channel, bodies in zip(
            channels, ((b"acme", b"only acme's"), (b"globex",)), strict=True
        ):
            got = [channel.basic_get("orders", auto_ack=True)[2] for _ in range(len(bodies) + 1)]
            assert got == [*bodies, None]


def test_amqp_only_the_own_virtual_host_is_opened(
    node: Process, tenants: tuple[Tenant, Tenant]
) -> None:
    acme, globex = tenants
    for tenant, virtual_host in (
        (acme, "globex"),
        (acme, "acme"),
        (acme, "/"),
        (globex, "acme-host"),
        (globex, "/"),
    ):
        with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="530"):
            tenant.amqp(node, virtual_host)
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="530"):
        pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", node.listeners["amqp.tcp"], "acme-host")
        )


def test_sqs_a_queue_url_names_the_account_and_no_other_one_is_served(
    node: Process, tenants: tuple[Tenant, Tenant]
) -> None:
    urls, clients = [], [tenant.sqs(node) for tenant in tenants]
    for tenant, sqs in zip(tenants, clients, strict=True):
        url = sqs.create_queue(QueueName="jobs")["QueueUrl"]
        assert url.endswith(f"/{tenant.account}/jobs")
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
        assert arn["QueueArn"].split(":")[4:] == [tenant.account, "jobs"]
        sqs.send_message(QueueUrl=url, MessageBody=tenant.name)
        urls.append(url)
    for tenant, sqs, own, foreign in zip(tenants, clients, urls, urls[::-1], strict=True):
        listed = sqs.list_queues(QueueNamePrefix="jobs")["QueueUrls"]
        assert listed == [own]
        for refused in (
            lambda sqs=sqs, url=foreign: sqs.receive_message(QueueUrl=url),
            lambda sqs=sqs, url=foreign: sqs.delete_queue(QueueUrl=url),
            lambda sqs=sqs, url=foreign: sqs.get_queue_url(
                QueueName="jobs", QueueOwnerAWSAccountId=url.split("/")[-2]
            ),
        ):
            with pytest.raises(botocore.exceptions.ClientError, match="NonExistentQueue"):
                refused()
        (message,) = sqs.receive_message(QueueUrl=own, MaxNumberOfMessages=10)["Messages"]
        assert message["Body"] == tenant.name
        sqs.delete_message(QueueUrl=own, ReceiptHandle=message["ReceiptHandle"])


def test_mqtt_one_client_id_and_one_topic_are_two(
    node: Process, tenants: tuple[Tenant, Tenant]
) -> None:
    acme, globex = tenants
    with (
        client(node, "sensor", acme.login, acme.password, kept=True) as one,
        client(node, "sensor", globex.login, globex.password, kept=True) as other,
    ):
        assert one.subscribe("#") == other.subscribe("#") == 1
        assert one.publish("kitchen/oven", b"acme", retain=True) == 0
        assert other.publish("kitchen/oven", b"globex", retain=True) == 0
        # Each hears its own first: that of the other would have come before.
        assert one.take().payload == b"acme"
        assert other.take().payload == b"globex"
        assert one.publish("kitchen/oven", b"last", retain=False) == 0
        assert one.take().payload == b"last"
        assert one.messages.empty()
        assert other.messages.empty()
        assert one.client.is_connected(), "a client id of another tenant takes none over"
        assert other.client.is_connected()
    # What is retained and what waits for a session belong to a tenant, too.
    with client(node, "reader", globex.login, globex.password) as reader:
        reader.subscribe("kitchen/#")
        assert reader.take().payload == b"globex"
        assert reader.publish("kitchen/oven", b"while away") == 0
    with (
        client(node, "sensor", acme.login, acme.password, kept=True) as one,
        client(node, "sensor", globex.login, globex.password, kept=True) as other,
    ):
        assert other.take().payload == b"while away"
        assert one.publish("end", b"") == 0
        assert one.take().topic == "end"


def test_mqtt_a_login_is_of_its_tenant_alone(node: Process, tenants: tuple[Tenant, Tenant]) -> None:
    acme, globex = tenants
    for login, password in (
        (acme.user, acme.password),
        (f"globex:{acme.user}", acme.password),
        (f"acme:{globex.user}", globex.password),
        ("acme:guest", "guest"),
    ):
        with client(node, "stranger", login, password) as stranger:
            assert stranger.connected == 0x86, "bad user name or password"


def test_rocketmq_a_topic_of_one_name_is_one_for_each_namespace(
    node: Process, tenants: tuple[Tenant, Tenant], tmp_path: Path
) -> None:
    for tenant in tenants:
        whose = f"?tenant={tenant.name}"
        assert node.api("POST", f"/topics{whose}", {"name": "receipts"}).status == 201
        group = {"name": "readers", "start": "earliest"}
        assert node.api("POST", f"/topics/receipts/groups{whose}", group).status == 201
    facts = [
        json.dumps({"name": each.name, "key": each.key, "namespace": each.namespace})
        for each in tenants
    ]
    ran = subprocess.run(
        [sys.executable, "-c", ROCKETMQ, f"127.0.0.1:{node.listeners['rocketmq.grpc']}", *facts],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    got = json.loads(ran.stdout.splitlines()[-1])
    strangers = got.pop("strangers")
    assert got == {"acme": ["acme"], "globex": ["globex"]}
    assert all("failed to fetch topic" in each for each in strangers)
    # What it was told stands in the client's log.
    (log,) = tmp_path.rglob("rocketmq_client.log")
    told = log.read_text()
    for user, namespace in (
        ("alice of tenant acme", "globex"),
        ("bob of tenant globex", "acme-space"),
    ):
        assert f"40300, user {user} has no right to the namespace '{namespace}'" in told


def test_the_admin_api_shows_one_tenant_at_a_time(
    node: Process, tenants: tuple[Tenant, Tenant]
) -> None:
    acme, globex = tenants
    api = node.api
    assert api("POST", "/topics?tenant=acme", {"name": "own"}).status == 201
    assert api("GET", "/topics/own?tenant=acme").status == 200
    missing = api("GET", "/topics/own?tenant=globex")
    assert (missing.status, missing.json["error"]["message"]) == (
        404,
        "no topic own in tenant globex",
    )
    for path in ("/topics/own", "/topics/own?tenant=default"):
        assert api("GET", path).json["error"]["message"] == "no topic own"
    for of, names in (("acme", {"own"}), ("globex", set()), ("default", set())):
        listed = api("GET", f"/topics?tenant={of}&prefix=own").json["topics"]
        assert {each["name"] for each in listed} == names
        assert {
            each["topic"] for each in api("GET", f"/groups?tenant={of}").json["groups"]
        } >= set()
    assert api("DELETE", "/topics/own?tenant=globex").status == 404
    assert [each["name"] for each in api("GET", "/users?tenant=acme").json["users"]] == ["alice"]
    assert api("GET", "/users/alice").status == 404
    assert api("GET", f"/keys/{acme.key[0]}?tenant=globex").status == 404
    assert api("DELETE", f"/keys/{acme.key[0]}").status == 404
    assert api("GET", f"/keys/{globex.key[0]}?tenant=globex").json["user"] == "bob"
    rules = {"rules": ["allow publish topic:own"]}
    assert api("PUT", "/policies/writers?tenant=acme", rules).status == 201
    assert api("GET", "/policies/writers?tenant=globex").status == 404
    assert api("PATCH", "/users/bob?tenant=globex", {"policies": ["writers"]}).status == 404
    assert api("POST", "/routers?tenant=acme", {"name": "fan"}).status == 201
    assert api("POST", "/routers/fan/routes?tenant=acme", {"topic": "own"}).status == 201
    assert api("GET", "/routers/fan/routes?tenant=globex").status == 404
    assert len(api("GET", "/routers/fan/routes?tenant=acme").json["routes"]) == 1
    assert api("DELETE", "/topics/own?tenant=acme").status == 200


@pytest.mark.parametrize("path", ["/topics", "/groups", "/routers", "/users", "/keys", "/policies"])
def test_the_admin_api_knows_the_tenants_there_are(
    node: Process, tenants: tuple[Tenant, Tenant], path: str
) -> None:
    unknown = node.api("GET", f"{path}?tenant=amce")
    assert unknown.status == 404
    assert unknown.json["error"]["message"] == (
        "there is no tenant amce: `weir tenant add` makes one, or the settings name it below "
        "`tenants`; known: acme, default, globex"
    )
    for name, said in (("", "is empty"), ("a:b", "colon"), ("x" * 129, "129 bytes")):
        misspelled = node.api("GET", f"{path}?tenant={name}")
        assert misspelled.status == 400
        assert said in misspelled.json["error"]["message"]


def test_a_tenant_whose_row_is_gone_is_known_by_its_users() -> None:
    store = AuthStore()
    known = KnownTenants(TenantBook({}, {}, SystemClock()), store, {})
    request = Request(
        {"type": "http", "method": "POST", "query_string": b"tenant=former", "headers": []}
    )
    set_caller(request.scope, OPERATOR)
    with pytest.raises(KernelError) as caught:
        known.of(request)
    assert caught.value.code is Code.NOT_FOUND
    assert store.apply(Create(User(tenant="former", name="eve"))) is None
    assert known.of(request) == "former"


def test_the_command_line_is_about_the_tenant_it_is_told(
    node: Process,
    tenants: tuple[Tenant, Tenant],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ran(*words: str) -> Any:
        code, out, err = weir(node, capsys, *words, "--output", "json")
        assert code == 0, err
        return json.loads(out)

    ran("queue", "create", "desk", "--tenant", "acme")
    ran("message", "send", "desk", "hello", "--tenant", "acme")
    monkeypatch.setenv("WEIR_TENANT", "acme")
    assert [each["body"] for each in ran("message", "peek", "desk")["messages"]] == ["hello"]
    assert [each["name"] for each in ran("user", "ls")["users"]] == ["alice"]
    monkeypatch.setenv("WEIR_TENANT", "globex")
    code, _, err = weir(node, capsys, "queue", "info", "desk")
    assert (code, "no topic desk in tenant globex" in err) == (4, True)
    code, _, err = weir(node, capsys, "user", "create", "carol", "--tenant", "amce")
    assert (code, "there is no tenant amce" in err) == (4, True)
    rows = ran("tenant", "ls")["tenants"]
    assert [(each["name"], each["virtual_host"], each["users"]) for each in rows] == [
        ("acme", "acme-host", 1),
        ("default", "/", 0),
        ("globex", "globex", 1),
    ]


def test_what_is_served_is_metered_for_its_tenant(
    node: Process, tenants: tuple[Tenant, Tenant]
) -> None:
    for tenant, messages in zip(tenants, (3, 2), strict=True):
        sqs = tenant.sqs(node)
        url = sqs.create_queue(QueueName="metered")["QueueUrl"]
        for _ in range(messages):
            sqs.send_message(QueueUrl=url, MessageBody="x")
    assert node.api("POST", "/metering/export", {}).json["flushed"]
    archive = node.data / "metering"
    published: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for entry in parse_manifest((archive / MANIFEST_NAME).read_bytes()):
        for row in pq.read_table(archive / entry.name).to_pylist():
            if (row["kind"], row["action"], row["topic"]) == ("store", "publish", "metered"):
                published[row["tenant"]] = max(published[row["tenant"]], row["cum_messages"])
            if row["api_action"] == "CreateQueue":
                calls[row["tenant"]] += row["requests"]
    assert published == {"acme": 3, "globex": 2}
    assert set(+calls) == {"acme", "globex"}
