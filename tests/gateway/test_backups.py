"""Backups of a node that runs, while clients publish and dead-letter; verified, and restored."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import random
import shutil
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import pika
import pytest

import gateway.cli
from gateway.backups.repository import COPIED_BYTES, Repository
from gateway.commands.common.output import ExitCode
from kernel.common.feature_levels import LATEST
from tests.gateway.cluster import until
from tests.gateway.serving import Process, refused, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DURABLE = pika.BasicProperties(delivery_mode=2)
FILLER = b"." * 40_000
"""So that a segment fills with some four hundred."""

BEFORE, BESIDE = 500, 100
"""Messages confirmed before a backup begins, and behind it before the node is killed."""


GIVES_WAY_S = 400
"""A command that has a CPU when nobody else wants it, on a machine that tests keep busy."""


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


def weir(*arguments: str) -> Ran:
    """The command line, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as left,
    ):
        gateway.cli.main(arguments)
    assert isinstance(left.value.code, int)
    return Ran(left.value.code, out.getvalue(), err.getvalue())


def told(ran: Ran) -> Any:
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


class Load:
    """Publishes to `work`; of three messages that come one is rejected, one acked, one held."""

    def __init__(self, node: Process) -> None:
        self._node = node
        self._over = threading.Event()
        self._more = threading.Condition()
        self.confirmed = 0
        """So many, from number 0 on."""
        self._threads = [
            threading.Thread(target=each, daemon=True) for each in (self._publish, self._consume)
        ]

    def __enter__(self) -> Self:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for each in self._threads:
            each.join(30)

    def until(self, confirmed: int) -> None:
        with self._more:
            assert self._more.wait_for(lambda: self.confirmed >= confirmed, 60)

    def _publish(self) -> None:
        with self._node.amqp() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            while not self._over.is_set():
                channel.basic_publish("", "work", b"%d " % self.confirmed + FILLER, DURABLE)
                with self._more:
                    self.confirmed += 1
                    self._more.notify_all()

    def _consume(self) -> None:
        with self._node.amqp() as connection:
            channel = connection.channel()
            for method, _, body in channel.consume("work", inactivity_timeout=0.1):
                if self._over.is_set():
                    return
                number = int(body.split()[0]) if method is not None else 2
                if number % 3 == 0:
                    channel.basic_reject(method.delivery_tag, requeue=False)
                elif number % 3 == 1:
                    channel.basic_ack(method.delivery_tag)


def drained(node: Process, queue: str) -> Counter[int]:
    """Numbers of all messages in a queue, which is empty then."""
    found: Counter[int] = Counter()
    with node.amqp() as connection:
        channel = connection.channel()
        while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
            found[int(got[2].split()[0])] += 1
    return found


@dataclass
class Made:
    """Two backups of a node under load, the second one incremental; the node was killed then."""

    repository: Path
    first: Any
    second: Any
    before: int
    """Confirmed before the second one began."""
    after: int
    """Confirmed when it was there."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    root = tmp_path_factory.mktemp("backups")
    repository, data = root / "kept", root / "data"
    with serving(data) as node:
        for name in ("dead", "work"):
            assert node.api("POST", "/topics", {"name": name, "type": "work"}).status == 201
        target = {"dead_letter": {"router": None, "key": "dead"}}
        assert node.api("PATCH", "/topics/work/groups/default", target).status == 200
        assert node.api("POST", "/users", {"name": "ann", "password": "a good one"}).status == 201
        key = node.api("POST", "/keys", {"user": "ann"})
        assert key.status == 201
        with Load(node) as load:
            create = ("backup", "create", str(repository), "-o", "json")
            load.until(BEFORE)
            first = told(weir(*create, "--data", str(data)))
            refused = weir(*create, "--data", str(data))
            assert (refused.code, "--incremental" in refused.err) == (1, True)
            killed = {"maker": (repository / "maker").read_text()}
            assert node.api("POST", "/backups", killed).status == 201  # and it says no more
            other = weir("backup", "create", str(root / "other"), "--data", str(data))
            assert (other.code, "one at a time" in other.err) == (1, True)
            before = load.confirmed
            second = told(weir(*create, "--incremental", "--data", str(data)))
            after = load.confirmed
            load.until(after + BESIDE)
            assert not list((data / "pinned").iterdir())
        node.kill()
    shutil.rmtree(data)
    yield Made(repository, first, second, before, after)
    shutil.rmtree(root)


def test_everything_promised_before_is_there_once_after_a_restore(
    made: Made, tmp_path: Path
) -> None:
    verified = weir("backup", "verify", str(made.repository))
    assert verified.code == 0, verified.out
    assert "the last, number 2" in verified.err
    data = tmp_path / "restored"
    told(weir("backup", "restore", str(made.repository), "--data", str(data), "-o", "json"))
    assert weir("doctor", "--data", str(data)).code == 0
    again = weir("backup", "restore", str(made.repository), "--data", str(data))
    assert (again.code, "not empty" in again.err) == (1, True)
    with serving(data) as node:
        assert [each["name"] for each in node.api("GET", "/users").json["users"]] == ["ann"]
        (key,) = node.api("GET", "/keys?user=ann").json["keys"]
        assert key["user"] == "ann"
        work, dead = drained(node, "work"), drained(node, "dead")
        both = work + dead
        assert max(both.values()) == 1
        assert max(both) <= made.after
        for number in range(made.before):
            if number % 3 == 2:
                assert work[number] == 1, f"{number} is lost"
            elif number % 3 == 0:
                assert both[number] == 1, f"{number} is lost, or there twice"
        assert len(dead) > BEFORE // 6
        assert not any(number % 3 for number in dead)
        # It goes on, and the next backup has nothing in common with what came after the last one.
        assert node.api("POST", "/topics/work/messages", {"body": "0"}).status == 201
        kept = shutil.copytree(made.repository, tmp_path / "kept")
        create = ("backup", "create", str(kept), "--incremental", "-o", "json")
        third = told(weir(*create, "--data", str(data)))
        assert third["copied_bytes"] == third["bytes"]
        assert node.terminate() == 0
    shutil.rmtree(data)


def test_what_is_there_is_not_copied_again(made: Made) -> None:
    assert made.first["copied_bytes"] == made.first["bytes"]
    assert made.second["copied_bytes"] < made.second["bytes"]
    listed = told(weir("backup", "ls", str(made.repository), "-o", "json"))["backups"]
    assert [each["number"] for each in listed] == [1, 2]


def test_a_flipped_byte_a_missing_and_an_older_file_are_found(made: Made) -> None:
    repository = Repository(made.repository)
    first, second = repository.backups()
    verify = ("backup", "verify", str(made.repository))
    segments = [each for each in second.files if each.name.endswith(".seg")]
    path = repository.path_of(segments[-1].sha256)
    whole = path.read_bytes()

    def fault() -> str:
        ran = weir(*verify)
        assert ran.code == ExitCode.UNHEALTHY, ran.err
        return ran.out

    path.write_bytes(whole[:5_000] + bytes([whole[5_000] ^ 1]) + whole[5_001:])
    assert f"{segments[-1].name} of backup 2 is not what was written" in fault()
    older = [each for each in first.files if each.name == segments[-1].name]
    path.write_bytes(repository.path_of(older[0].sha256).read_bytes() if older else b"")
    assert "is not what was written" in fault()
    path.unlink()
    assert f"{segments[-1].name} of backup 2 is missing" in fault()
    path.write_bytes(whole)
    name = repository.names()[0]
    kept = (made.repository / "backups" / name).read_bytes()
    (made.repository / "backups" / name).unlink()
    assert "others are missing" in fault()
    (made.repository / "backups" / name).write_bytes(kept.replace(b'"number": 1', b'"number": 7'))
    assert "its sum does not match" in fault()
    (made.repository / "backups" / name).write_bytes(kept)
    sound = weir(*verify)
    assert (sound.code, "newer one missing" in sound.err) == (0, False)
    last = made.repository / "backups" / repository.names()[1]
    kept = last.read_bytes()
    last.unlink()
    behind = weir(*verify)
    assert (behind.code, "newer one missing" in behind.err) == (0, True)
    last.write_bytes(kept)


def test_a_backup_is_elsewhere_and_an_older_build_refuses_that_of_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, kept = tmp_path / "data", str(tmp_path / "kept")
    with serving(data) as node:  # one that is new has all features on, in its log at first
        inside = weir("backup", "create", str(data / "kept"), "--data", str(data))
        assert (inside.code, "is in the data directory" in inside.err) == (1, True), inside
        until(lambda: not os.listdir(data / "pinned"), "nothing is pinned")
        backup = told(weir("backup", "create", kept, "--data", str(data), "-o", "json"))
        assert node.terminate() == 0
    assert Repository(tmp_path / "kept").backups()[0].level == LATEST
    monkeypatch.setenv("WEIR_TEST_UNDERSTANDS", "0")
    said = f"backup {backup['number']} has features up to level {LATEST} on"
    verified = weir("backup", "verify", kept)
    assert (verified.code, said in verified.out) == (ExitCode.UNHEALTHY, True), verified
    restored = weir("backup", "restore", kept, "--data", str(tmp_path / "restored"))
    assert (restored.code, said in restored.err) == (1, True), restored
    assert not (tmp_path / "restored").exists()
    monkeypatch.delenv("WEIR_TEST_UNDERSTANDS")
    assert weir("backup", "verify", kept).code == 0


def test_a_directory_without_a_backup_and_one_beside_a_server_are_told(tmp_path: Path) -> None:
    nothing = weir("backup", "verify", str(tmp_path))
    assert (nothing.code, "no backup" in nothing.err) == (ExitCode.NOT_FOUND, True)
    assert weir("backup", "create", str(tmp_path / "b"), "--data", str(tmp_path)).code == 1
    assert os.listdir(tmp_path / "b" / "backups") == [] if (tmp_path / "b").exists() else True


def copied(repository: Path) -> list[str]:
    """Files of nodes in a directory of backups, whole or not."""
    own = {"lock", "maker"}
    files = (each for each in repository.rglob("*") if each.is_file())
    return [each.name for each in files if each.name not in own and each.suffix != ".json"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place))
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount")
    try:
        yield place
    finally:
        subprocess.run(("umount", str(place)), check=True)


@pytest.mark.timeout(2 * GIVES_WAY_S)
def test_a_full_disk_and_a_killed_command_leave_nothing_and_the_next_backup_is_made(
    tmp_path: Path, small_disk: Path
) -> None:
    data, kept = tmp_path / "data", tmp_path / "kept"
    create = ("backup", "create", "--data", str(data))
    with serving(data) as node:
        with node.amqp() as connection:
            channel = connection.channel()
            channel.queue_declare("work", durable=True)
            channel.confirm_delivery()
            for _ in range(200):
                channel.basic_publish("", "work", FILLER, DURABLE)
        full = weir(*create, str(small_disk / "kept"))
        assert (full.code, "No space left" in full.err) == (1, True), full.err
        assert str(small_disk / "kept") in full.err
        assert Repository(small_disk / "kept").backups() == []
        assert copied(small_disk / "kept") == []
        pinned = data / "pinned"
        slow = (sys.executable, "-m", "gateway", *create, str(kept), "--rate", "1")
        with subprocess.Popen(slow, stderr=subprocess.DEVNULL) as killed:
            until(lambda: pinned.is_dir() and os.listdir(pinned), "it copies", GIVES_WAY_S)
            until(lambda: copied(kept), "a file is being copied", GIVES_WAY_S)
            killed.kill()
        again = told(weir(*create, str(kept), "-o", "json"))
        assert again["number"] == 1
        (backup,) = Repository(kept).backups()
        assert sorted(copied(kept)) == sorted({each.sha256 for each in backup.files})
        until(lambda: not os.listdir(pinned), "nothing stays pinned")
    assert weir("backup", "verify", str(kept)).code == 0
    restore = ("backup", "restore", str(kept), "--data", str(small_disk / "data"))
    for _ in range(2):
        full = weir(*restore)
        assert (full.code, "No space left" in full.err) == (1, True), full.err
        assert str(small_disk / "data") in full.err
    code, said = refused(small_disk / "data")
    assert (code, "restoring it did not end" in said) == (1, True), said


@pytest.mark.parametrize("length", [0, 1, 4_096, COPIED_BYTES, COPIED_BYTES + 1, 3 * COPIED_BYTES])
@pytest.mark.parametrize("is_direct", [True, False])
def test_a_copy_is_what_was_read_of_whatever_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int, *, is_direct: bool
) -> None:
    """Also on a file system that writes nothing past the page cache."""
    if not is_direct:
        monkeypatch.setattr("gateway.backups.repository._DIRECT", 0)
    content = random.Random(length).randbytes(length)
    source = tmp_path / "source"
    source.write_bytes(content + b"behind")
    (tmp_path / "backups").mkdir()
    repository = Repository(tmp_path / "backups")
    made = repository.add(source, "segment", length, length)
    (copied,) = (tmp_path / "backups" / "unfinished").iterdir()
    assert copied.read_bytes() == content
    assert made.sha256 == copied.name == hashlib.sha256(content).hexdigest()
    assert made.tail == hashlib.sha256(content[-64 * 1024 :]).hexdigest()
