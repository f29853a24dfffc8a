"""Clients that Debian has, unmodified, against a whole broker: RabbitMQ's for Java, Bunny for Ruby,
AnyEvent::RabbitMQ for Perl, and the command-line tools of rabbitmq-c.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.adapters.amqp.broker import broker_in_thread

FOLDER = Path(__file__).parents[2] / "debian"
JARS = [
    Path("/usr/share/java") / name for name in ("amqp-client.jar", "slf4j-api.jar", "slf4j-nop.jar")
]
RUN_S = 60


def run(*command: str) -> list[str]:
    """The lines that a command prints."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_S, check=False, cwd=FOLDER
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(
    not (JARS[0].exists() and shutil.which("javac")),
    reason="Debian's librabbitmq-client-java, or a JDK, is not installed here",
)
def test_rabbitmqs_client_for_java(tmp_path: Path) -> None:
    path = ":".join(str(each) for each in JARS if each.exists())
    with broker_in_thread(tmp_path / "data") as broker:
        said = run("java", "-XX:TieredStopAtLevel=1", "-cp", path, "Client.java", broker.url())
    assert said == [
        "confirmed true",
        "first 5 1.5 [1, x, {}] 86400000 false",
        "others 499",
        "committed",
        "left 0",
        "pong",
        "406",
        "open true",
        "closed",
    ]


def _has_bunny() -> bool:
    if shutil.which("ruby") is None:
        return False
    asked = subprocess.run(["ruby", "-e", "require 'bunny'"], capture_output=True, check=False)
    return asked.returncode == 0


@pytest.mark.skipif(not _has_bunny(), reason="Debian's ruby-bunny is not installed here")
def test_bunny_of_ruby(tmp_path: Path) -> None:
    with broker_in_thread(tmp_path / "data") as broker:
        said = run("ruby", "client.rb", broker.url())
    assert said == [
        "confirmed true 0",
        'came [{"true"=>true, "list"=>[1, "x"]}]',
        'dead 10 ["rejected"]',
        "returned 312 nobody's",
        "refused",
        "left 0",
        "closed",
    ]


def _has_anyevent() -> bool:
    if shutil.which("perl") is None:
        return False
    asked = subprocess.run(
        ["perl", "-MAnyEvent::RabbitMQ", "-e1"], capture_output=True, check=False
    )
    return asked.returncode == 0


@pytest.mark.skipif(
    not _has_anyevent(), reason="Debian's libanyevent-rabbitmq-perl is not installed here"
)
def test_anyevent_rabbitmq_of_perl_names_its_login_with_each_message(tmp_path: Path) -> None:
    with broker_in_thread(tmp_path / "data") as broker:
        said = run("perl", "client.pl", str(broker.port), "acme:alice", "secret", "acme")
    assert said == [
        "confirmed 1001",
        "taken 1001, the largest 10485760, by acme:alice",
        "dead 100",
    ]


@pytest.mark.skipif(
    shutil.which("amqp-publish") is None, reason="Debian's amqp-tools is not installed here"
)
def test_the_tools_of_rabbitmq_c(tmp_path: Path) -> None:
    with broker_in_thread(tmp_path / "data") as broker:
        url = ("-u", broker.url())
        assert run("amqp-declare-queue", *url, "-d", "-q", "tools") == ["tools"]
        for body in ("one", "two"):
            run("amqp-publish", *url, "-r", "tools", "-p", "-b", body)
        assert run("amqp-get", *url, "-q", "tools") == ["one"]
        assert run("amqp-consume", *url, "-q", "tools", "-c", "1", "cat") == ["two"]
        assert run("amqp-delete-queue", *url, "-q", "tools") == ["0"]
