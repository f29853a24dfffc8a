"""A whole node as a process: start, refusal to start, orderly end, kill and restart."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import socket
import threading
import time
from typing import TYPE_CHECKING

import pika
import pika.exceptions
import pytest

from gateway.app import words_for
from gateway.process.data_lock import DataDirectoryInUse, lock_data_directory
from gateway.process.running import GATEWAY_FILE
from gateway.serving.node import DRAIN_SECONDS
from tests.gateway.serving import Process, refused, serving
from tests.rings import HAS_RINGS

if TYPE_CHECKING:
    from pathlib import Path

QUEUE = "orders"
PLAIN = "node.insecure.plain_text=true"
GOODBYE = 320
"""AMQP's reply code connection-forced: the server is stopping."""


class Publisher:
    """Publishes numbers one by one with confirms, in a thread, until its connection ends."""

    def __init__(self, node: Process, first: int) -> None:
        self.confirmed: list[int] = []
        self.ended: BaseException | None = None
        self._connection = node.amqp()
        self._channel = self._connection.channel()
        self._channel.queue_declare(QUEUE, durable=True)
        self._channel.confirm_delivery()
        self._next = first
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        persistent = pika.BasicProperties(delivery_mode=2)
        try:
            while True:
                self._channel.basic_publish("", QUEUE, b"%d" % self._next, persistent)
                self.confirmed.append(self._next)
                self._next += 1
        except (pika.exceptions.AMQPError, OSError) as ended:
            self.ended = ended

    def wait_for(self, count: int) -> None:
        ends = time.monotonic() + 20
        while len(self.confirmed) < count:
            assert time.monotonic() < ends
            assert self.ended is None, self.ended
            time.sleep(0.01)

    def join(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive()


def read_all(node: Process) -> list[int]:
    """Every number in the queue, in order."""
    connection = node.amqp()
    channel = connection.channel()
    found = []
    while (got := channel.basic_get(QUEUE, auto_ack=True))[0] is not None:
        found.append(int(got[2]))
    connection.close()
    return found


def test_sigterm_says_goodbye_and_keeps_what_was_confirmed(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        publisher = Publisher(node, 0)
        publisher.wait_for(50)
        began = time.monotonic()
        assert node.terminate() == 0
        assert time.monotonic() - began < DRAIN_SECONDS
        publisher.join()
        assert isinstance(publisher.ended, pika.exceptions.ConnectionClosedByBroker)
        assert publisher.ended.reply_code == GOODBYE
        ours = {"starting", "serving", "draining", "drained", "stopped"}
        events = [line["event"] for line in node.logged() if line["event"] in ours]
        way_down = events[events.index("draining") :]
        assert way_down == ["draining", *["drained"] * len(node.protocols), "stopped"]
    with serving(tmp_path) as node:
        found = read_all(node)
        assert found == sorted(found)
        assert set(publisher.confirmed) <= set(found)


def test_a_restart_after_sigterm_replays_nothing(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        Publisher(node, 0).wait_for(10)
        assert node.terminate() == 0
    with serving(tmp_path) as node:
        serve_line = json.loads(node.said[-1])
        assert (serve_line["clean"], serve_line["replayed"]) == (True, 0)


def test_kill_under_load_loses_nothing_that_was_confirmed(tmp_path: Path) -> None:
    """However the journal is written."""
    confirmed: list[int] = []
    for round_number, ring in enumerate(("true", "false")):
        with serving(tmp_path, f"node.io_uring={ring}") as node:
            by = "io_uring" if ring == "true" and HAS_RINGS else "a thread"
            assert f'"written_by":"{by}"' in "".join(node.said).replace(": ", ":")
            publisher = Publisher(node, round_number * 100_000)
            publisher.wait_for(60)
            node.kill()
            publisher.join()
            confirmed += publisher.confirmed
    with serving(tmp_path) as node:
        assert json.loads(node.said[-1])["clean"] is False
        found = read_all(node)
        assert len(found) == len(set(found))
        assert found == sorted(found)
        assert set(confirmed) <= set(found)


def test_a_client_that_does_not_answer_holds_nothing_up_for_long(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        silent = node.amqp()  # pika reads nothing while nobody calls it
        began = time.monotonic()
        assert node.terminate() == 0
        assert time.monotonic() - began < DRAIN_SECONDS
        (closed,) = [line for line in node.logged() if line["event"] == "connection closed"]
        assert "320" in closed["reason"]
        with pytest.raises(pika.exceptions.AMQPError):
            silent.channel()


def test_sigint_ends_it_too(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        node.process.send_signal(2)
        assert node.process.wait(30) == 0


def test_a_taken_port_is_said_with_the_setting_that_changes_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, said = refused(tmp_path, f"amqp.port={port}")
        assert code == 1
        assert f"{port}" in said
        assert "--set amqp.listeners.tcp.port=PORT" in said
        assert "Traceback" not in said
        code, said = refused(tmp_path, f"amqp.listeners.tls.port={port}")
        assert code == 1
        assert f"127.0.0.1:{port}, the listener tls." in said
        assert "--set amqp.listeners.tls.port=PORT" in said
        code, said = refused(tmp_path, f"rocketmq.port={port}")
        assert code == 1
        assert "rocketmq cannot listen: Address already in use" in said
        assert "--set rocketmq.listeners.grpc.port=PORT" in said
        assert "Traceback" not in said
        assert "add_port" not in said, "gRPC's own words"
        code, said = refused(tmp_path, f"node.admin.port={port}")
        assert code == 1
        assert f"the admin address 127.0.0.1:{port} cannot be bound" in said
        assert "--set node.admin.port=" in said
        assert "Traceback" not in said


def test_an_address_of_another_machine_is_said_with_the_setting(tmp_path: Path) -> None:
    code, said = refused(
        tmp_path, PLAIN, "amqp.listeners.tcp.host=192.0.2.1", WEIR_ADMIN_PASSWORD="a long password"
    )
    assert code == 1
    assert "192.0.2.1:0, the listener tcp. This machine has no such address" in said
    assert "--set amqp.listeners.tcp.host=HOST" in said


def test_a_start_that_needs_a_password_is_told_as_it_was_typed(tmp_path: Path) -> None:
    code, said = refused(tmp_path, PLAIN, "amqp.listeners.tcp.host=0.0.0.0")
    assert code == 1
    assert f"&& weir serve --data {tmp_path} --set " in said
    assert "amqp.listeners.tcp.host=0.0.0.0" in said.splitlines()[-2]


def test_a_data_directory_that_cannot_be_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for data, reason in (("file", "is a file"), ("file/below", "Not a directory")):
        code, said = refused(tmp_path / data)
        assert code == 1
        assert f"the data directory {tmp_path / data} cannot be made: " in said
        assert reason in said
        assert "Errno" not in said
    (tmp_path / GATEWAY_FILE).write_text("gateway-1")
    code, said = refused(tmp_path)
    assert code == 1
    assert "is the data directory of a gateway" in said


def test_a_damaged_disk_is_told_with_what_is_left_to_do(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        assert node.terminate() == 0
    for snapshot in (tmp_path / "snap").glob("*.snap"):
        snapshot.unlink()
    code, said = refused(tmp_path)
    assert code == 1
    assert re.search(r"the journal is damaged \(group 0: snap/0000-\w+\.snap is missing", said)
    assert "hint: nothing was changed" in said
    assert "Traceback" not in said


def test_errors_of_the_system_are_told_in_words() -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "journal/1")
    assert words_for(full, "d") == (
        "No space left on device: journal/1. Make room on the disk of d, or name a directory on "
        "another: --data DIR"
    )
    assert words_for(OSError("as it was said"), "d") == "as it was said"
    foreign = PermissionError(errno.EACCES, "Permission denied", "d/lock")
    assert words_for(foreign, "d") == (
        f"Permission denied: d/lock. Weir runs as user {os.geteuid()} here, to whom d has to belong"
    )


def test_a_second_process_on_one_data_directory_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        code, said = refused(tmp_path)
        assert code == 1
        assert f"in use by process {node.process.pid}" in said
        assert "--data DIR" in said
        assert "Traceback" not in said
        assert node.http("GET", "/livez").status == 200
        node.kill()
    with serving(tmp_path) as node:
        assert node.http("GET", "/readyz").status == 200


def test_the_lock_ends_with_its_release_and_not_with_its_file(tmp_path: Path) -> None:
    lock = lock_data_directory(tmp_path)
    with pytest.raises(DataDirectoryInUse, match=f"process {os.getpid()}"):
        lock_data_directory(tmp_path)
    lock.release()
    lock.release()
    again = lock_data_directory(tmp_path)
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    again.release()


def test_a_lock_without_a_pid_names_nobody(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(DataDirectoryInUse, match="another process"):
            lock_data_directory(tmp_path)


def test_other_machines_are_not_served_without_a_user(tmp_path: Path) -> None:
    code, said = refused(tmp_path, PLAIN, "amqp.host=0.0.0.0")
    assert code == 1
    assert "it has no user yet" in said
    assert "WEIR_ADMIN_PASSWORD" in said


def test_the_first_password_makes_the_administrator_who_stays(tmp_path: Path) -> None:
    with serving(tmp_path, PLAIN, "amqp.host=0.0.0.0", WEIR_ADMIN_PASSWORD="correct horse") as node:
        users = node.api("GET", "/users").json["users"]
        assert [(each["name"], each["policies"]) for each in users] == [
            ("admin", ["administrator"])
        ]
        port = node.listeners["amqp.tcp"]
        login = pika.PlainCredentials("admin", "correct horse")
        connection = pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", port, credentials=login)
        )
        connection.close()
        assert node.terminate() == 0
    # A user exists, so that neither the password nor the check stands in the way any more.
    with serving(tmp_path, PLAIN, "amqp.host=0.0.0.0") as node:
        assert len(node.api("GET", "/users").json["users"]) == 1
        assert "development logins" not in "".join(node.said)
