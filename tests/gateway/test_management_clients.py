"""Programs that people have for RabbitMQ's management API, unchanged, at ours."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.free_ports import free_ports
from tests.gateway.management import ask, managed

with warnings.catch_warnings():  # its own source has escapes that Python warns of
    warnings.simplefilter("ignore")
    import pyrabbit2
    import pyrabbit2.http

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.gateway.serving import Process

RABBITMQADMIN = shutil.which("rabbitmqadmin")
FLOWER = Path(sys.executable).with_name("celery")
PASSWORD = "a long password"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with managed(tmp_path_factory.mktemp("clients"), "tenants: {acme: {}}") as process:
        user = {"name": "root", "policies": ["administrator"], "password": PASSWORD}
        process.api("POST", "/users", user)
        yield process


@pytest.mark.skipif(RABBITMQADMIN is None, reason="Debian's rabbitmq-server is not installed")
def test_rabbitmqadmin_administers_users_permissions_and_definitions(
    node: Process, tmp_path: Path
) -> None:
    def admin(*arguments: str) -> str:
        assert RABBITMQADMIN is not None
        login = ("-u", "root", "-p", PASSWORD, "-P", str(node.listeners["management"]))
        ran = subprocess.run(
            [sys.executable, "-W", "ignore", RABBITMQADMIN, *login, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    admin("declare", "user", "name=ada", "password=lovelace", "tags=administrator")
    told = ["configure=^ada-.*", "write=.*", "read=^(a|b)$"]
    admin("declare", "permission", "vhost=/", "user=ada", *told)
    listed = json.loads(admin("-f", "raw_json", "list", "permissions"))
    row = {"configure": "^ada-.*", "write": ".*", "read": "^(a|b)$"}
    assert {"user": "ada", "vhost": "/", **row} in listed
    assert "administrator" in admin("list", "users")
    assert ask(node, "GET", "/whoami", login="ada:lovelace").json["tags"] == ["administrator"]
    admin("declare", "vhost", "name=made")
    assert "made" in admin("list", "vhosts")
    admin("declare", "vhost_limit", "vhost=made", "name=max-queues", "value=5")
    assert "5" in admin("list", "vhost_limits")
    admin("declare", "queue", "name=kept", "durable=true")
    file = tmp_path / "definitions.json"
    admin("export", str(file))
    assert "kept" in {each["name"] for each in json.loads(file.read_text())["queues"]}
    admin("delete", "queue", "name=kept")
    admin("delete", "permission", "vhost=/", "user=ada")
    admin("import", str(file))
    assert "kept" in admin("list", "queues")
    assert {"user": "ada", "vhost": "/", **row} in json.loads(
        admin("-f", "raw_json", "list", "permissions")
    )
    admin("delete", "vhost_limit", "vhost=made", "name=max-queues")
    admin("delete", "permission", "vhost=/", "user=ada")
    admin("delete", "user", "name=ada")
    admin("delete", "vhost", "name=made")
    assert "ada" not in admin("list", "users")


@pytest.mark.skipif(
    shutil.which("check_rabbitmq_overview") is None,
    reason="Debian's nagios-plugins-rabbitmq is not installed",
)
def test_the_checks_of_nagios(node: Process) -> None:
    """They sign in only for the realm that RabbitMQ names."""
    queue = {"durable": True}
    assert ask(node, "PUT", "/queues/%2F/checked", queue, f"root:{PASSWORD}").status == 201

    def check(name: str, *arguments: str, password: str = PASSWORD) -> tuple[int, str]:
        port = str(node.listeners["management"])
        server = ("-H", "127.0.0.1", "--port", port, "-u", "root", "-p", password)
        command = [f"check_rabbitmq_{name}", *server, *arguments]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        return ran.returncode, ran.stdout.partition(" - ")[0]

    assert check("overview") == (0, "RABBITMQ_OVERVIEW OK")
    assert check("aliveness") == (0, "RABBITMQ_ALIVENESS OK")
    assert check("objects") == (0, "RABBITMQ_OBJECTS OK")
    assert check("connections") == (0, "RABBITMQ_CONNECTIONS OK")
    queued = ("--queue", "checked", "-w", "1,1,1,-1", "-c", "2,2,2,-1")
    assert check("queue", *queued) == (0, "RABBITMQ_QUEUE OK")
    for _ in range(3):
        sent = {"routing_key": "checked", "payload": "x", "payload_encoding": "string"}
        body = {"properties": {}, **sent}
        path = "/exchanges/%2F/amq.default/publish"
        assert ask(node, "POST", path, body, f"root:{PASSWORD}").json == {"routed": True}
    assert check("queue", *queued) == (2, "RABBITMQ_QUEUE CRITICAL")
    assert check("overview", password="not it") == (2, "RABBITMQ_OVERVIEW CRITICAL")


def test_pyrabbit2_does_its_calls(node: Process) -> None:
    client = pyrabbit2.Client(f"127.0.0.1:{node.listeners['management']}", "root", PASSWORD)
    assert client.is_alive("%2F")
    assert client.get_whoami()["name"] == "root"
    assert client.get_overview()["management_version"]
    assert {"/", "acme"} <= set(client.get_vhost_names())
    client.create_user("py", password="rabbit", tags="management")
    assert "py" in {each["name"] for each in client.get_users()}
    client.set_vhost_permissions("/", "py", "^py-", ".*", "^py-")
    row = {"configure": "^py-", "write": "^py-", "read": ".*"}
    assert client.get_permission("/", "py") == {"user": "py", "vhost": "/", **row}
    assert client.get_user_permissions("py")[0] in client.get_vhost_permissions("/")
    with pytest.raises(pyrabbit2.http.HTTPError):
        client.set_vhost_permissions("/", "py", "^[a-z]+$", ".*", ".*")
    client.create_queue("/", "py-q", durable=True)
    client.create_exchange("/", "py-x", "direct", durable=True)
    client.create_binding("/", "py-x", "py-q", "key")
    assert client.publish("/", "py-x", "key", "hello") is True
    assert client.get_queue_depth("/", "py-q") == 1
    (message,) = client.get_messages("/", "py-q")
    assert message["payload"] == "hello"
    assert "py-q" in {each["name"] for each in client.get_definitions()["queues"]}
    with node.amqp() as connection:
        connection.channel()
        (shown,) = client.get_connections()
        (channel,) = client.get_channels()
        assert client.get_channel(channel["name"])["number"] == 1
        client.delete_connection(shown["name"])
        with contextlib.suppress(Exception):
            connection.process_data_events(time_limit=5)
        assert not connection.is_open
    client.delete_permission("/", "py")
    client.delete_user("py")
    client.create_vhost("py-host")
    client.delete_vhost("py-host")


APPLICATION = """
import celery

app = celery.Celery("counted", broker={broker!r})
"""


@pytest.mark.interop
def test_flower_shows_the_queues_of_a_worker(node: Process, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    broker = f"amqp://guest:guest@127.0.0.1:{node.listeners['amqp.tcp']}//"
    (tmp_path / "counted.py").write_text(APPLICATION.format(broker=broker))
    assert ask(node, "PUT", "/queues/%2F/celery", {}).status == 201
    body = {"properties": {}, "routing_key": "celery", "payload": "x", "payload_encoding": "string"}
    for _ in range(3):
        assert ask(node, "POST", "/exchanges/%2F/amq.default/publish", body).json["routed"]
    api = f"http://guest:guest@127.0.0.1:{node.listeners['management']}/api/"
    command = [str(FLOWER), "-A", "counted", "flower", f"--port={port}", "--address=127.0.0.1"]
    with (
        (tmp_path / "said").open("wb") as said,
        subprocess.Popen(
            [*command, f"--broker-api={api}"],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            stdout=said,
            stderr=subprocess.STDOUT,
        ) as flower,
    ):
        try:
            page = ""
            deadline = time.monotonic() + 60
            while "celery</td>" not in "".join(page.split()):
                assert time.monotonic() < deadline, page + (tmp_path / "said").read_text()
                assert flower.poll() is None, (tmp_path / "said").read_text()
                with (
                    contextlib.suppress(OSError),
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/broker", timeout=20) as got,
                ):
                    page = got.read().decode()
                time.sleep(0.2)
            assert "<td>3</td>" in page, page
        finally:
            flower.terminate()
            flower.wait(30)
