"""Backups and restores that end on the way, that others disturb, and of builds before this one."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from gateway.backups import restoring
from gateway.backups.creating import TOUCH_MS, Pins, Progress, create
from gateway.backups.manifest import BackupError, decode
from gateway.backups.repository import Repository
from gateway.commands.common.output import ExitCode
from gateway.reporting.node_metering import ARCHIVE_DIRECTORY
from kernel.common.feature_levels import LATEST
from tests.gateway.cluster import until
from tests.gateway.serving import Process, environment, refused, serving
from tests.gateway.test_backups import DURABLE, GIVES_WAY_S, drained, told, weir

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.backups.manifest import BackupFile

OF_THE_FIRST_BUILD = b"""{
 "format": 1,
 "number": 1,
 "id": "250c7a6087565b16",
 "weir": "0.1.0",
 "taken_ms": 1780000000000,
 "store": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
 "timeline": "",
 "sequence": 7,
 "level": 4,
 "files": [
  {
   "name": "store.meta",
   "length": 73,
   "size": 73,
   "sha256": "0000000000000000000000000000000000000000000000000000000000000000",
   "tail": "1111111111111111111111111111111111111111111111111111111111111111"
  }
 ],
 "previous": "",
 "sum": "7958ed45fd364374c79aa2856ad6e66bce75dec898ff7d6e905ed9e91a0ccf94"
}
"""
"""As the first build with backups wrote it."""


def publish(node: Process, first: int, count: int) -> None:
    with node.amqp() as connection:
        channel = connection.channel()
        channel.queue_declare("work", durable=True)
        channel.confirm_delivery()
        for number in range(first, first + count):
            channel.basic_publish("", "work", b"%d" % number, DURABLE)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of ten messages."""
    root = tmp_path_factory.mktemp("faults")
    with serving(root / "data") as node:
        publish(node, 0, 10)
        told(
            weir("backup", "create", str(root / "kept"), "--data", str(root / "data"), "-o", "json")
        )
    return root / "kept"


@pytest.mark.parametrize("whole", [0, 1, 2])
def test_a_restore_that_was_killed_is_begun_anew_and_no_server_begins_in_what_it_left(
    kept: Path, whole: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even an empty one: of a store with `secrets.key` alone there is nothing to be seen."""
    data, real = tmp_path / "data", restoring._restore
    restored: list[str] = []

    def killed(repository: Repository, file: BackupFile, place: Path) -> None:
        if len(restored) == whole:
            raise KeyboardInterrupt
        restored.append(file.name)
        real(repository, file, place)

    command = ("backup", "restore", str(kept), "--data", str(data))
    monkeypatch.setattr(restoring, "_restore", killed)
    with pytest.raises(KeyboardInterrupt):
        restoring.restore(Repository(kept), Repository(kept).backups()[0], data, "word", LATEST)
    monkeypatch.undo()
    (data / "journal").mkdir(exist_ok=True)
    (data / "journal" / "00000009.seg").write_bytes(b"of another backup")
    code, said = refused(data)
    assert (code, "restoring it did not end" in said) == (1, True), said
    told(weir(*command, "-o", "json"))
    assert not (data / "journal" / "00000009.seg").exists()
    again = weir(*command)
    assert (again.code, "not empty" in again.err) == (1, True)
    assert weir("doctor", "--data", str(data)).code == 0
    with serving(data) as node:
        assert sorted(drained(node, "work")) == list(range(10))


def test_each_kind_of_file_is_missed_if_it_is_not_what_was_written(
    kept: Path, tmp_path: Path
) -> None:
    repository = Repository(kept)
    (backup,) = repository.backups()
    kinds = {each.name.partition("/")[0]: each for each in backup.files}
    assert kinds.keys() >= {"secrets.key", "journal", "ckpt", "store.meta"}
    for file in kinds.values():
        path = repository.path_of(file.sha256)
        whole = path.read_bytes()
        for spoilt in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[:-1], whole + b"0", None):
            if spoilt is None:
                path.unlink()
            else:
                path.write_bytes(spoilt)
            found = weir("backup", "verify", str(kept))
            assert (found.code, file.name in found.out) == (ExitCode.UNHEALTHY, True), found
            made = weir("backup", "restore", str(kept), "--data", str(tmp_path / "data"))
            assert (made.code, file.name in made.err) == (1, True), made
        path.write_bytes(whole)
    assert weir("backup", "verify", str(kept)).code == 0


def test_no_byte_of_what_a_backup_says_of_itself_changes_unseen(kept: Path) -> None:
    (name,) = Repository(kept).names()
    content = (kept / "backups" / name).read_bytes()
    whole = decode(content, name)
    drawn = random.Random(7)
    for at in range(len(content)):
        changed = bytearray(content)
        changed[at] ^= 1 << drawn.randrange(8)
        try:
            found = decode(bytes(changed), name)
        except BackupError:
            continue
        assert found == whole, f"byte {at}"


@pytest.mark.timeout(2 * GIVES_WAY_S)
def test_two_commands_at_once_are_told_apart_and_the_first_one_gives_way(tmp_path: Path) -> None:
    data, made = tmp_path / "data", tmp_path / "made"
    with serving(data) as node:
        publish(node, 0, 1)
        with node.amqp() as connection:
            connection.channel().basic_publish("", "work", bytes(10_000_000), DURABLE)
        command = ("backup", "create", str(made), "--data", str(data))
        slow = (sys.executable, "-m", "gateway", *command, "--rate", "1")
        with subprocess.Popen(slow, env=environment(), stderr=subprocess.DEVNULL) as first:
            until((made / "unfinished").exists, "it copies", GIVES_WAY_S)
            assert os.sched_getscheduler(first.pid) == os.SCHED_IDLE
            second = weir(*command)
            assert (second.code, "another backup is being made in" in second.err) == (1, True)
            first.kill()
        assert told(weir(*command, "-o", "json"))["number"] == 1
    assert weir("backup", "verify", str(made)).code == 0


def test_what_copies_gives_way_before_it_loads_the_command_line() -> None:
    program = """
import os, sys
os.sched_setscheduler = lambda *_: print(sorted({"typer", "msgspec", "asyncio"} & set(sys.modules)))
sys.argv = ["weir", "backup", sys.argv[1], "--help"]
from gateway.__main__ import main
main()
"""
    for command, said in (("create", "[]"), ("cluster", "[]"), ("restore", "")):
        run = (sys.executable, "-c", program, command)
        ran = subprocess.run(run, capture_output=True, text=True, check=True)
        first = ran.stdout.splitlines()[0]
        assert first == said or not said, ran.stdout
        assert said or first != "[]"


def test_an_archive_of_the_metering_that_is_not_that_of_the_log_is_told(tmp_path: Path) -> None:
    data, kept = tmp_path / "data", tmp_path / "kept"
    made = ("backup", "create", str(kept), "--incremental", "--data", str(data))
    with serving(data) as node:
        publish(node, 0, 1)
        assert weir(*made).code == 0
        assert weir("backup", "verify", str(kept)).code == 0, "it knows of none yet"
        assert node.api("POST", "/metering/export").json["flushed"]
        assert weir(*made).code == 0
        assert weir("backup", "verify", str(kept)).code == 0
        (data / ARCHIVE_DIRECTORY).rename(tmp_path / "moved")
        assert weir(*made).code == 0
        found = weir("backup", "verify", str(kept))
        assert found.code == ExitCode.UNHEALTHY
        assert "metering of backup 3 is not the archive of its log" in found.out


class Node:
    """Answers as a server of the first build with backups does, whose pin may go."""

    def __init__(self, data: Path, *more: str) -> None:
        """`more`: files that it has besides."""
        self.now_ms = 0
        self.asked: list[str] = []
        (data / "pinned").mkdir(parents=True)
        self.names = [*more, "journal/1.seg", "ckpt", "store.meta"]
        for name in self.names:
            (data / "pinned" / name.rpartition("/")[2]).write_bytes(name.encode())
        self.pin: dict[str, Any] = {
            "number": 4,
            "data": str(data),
            "key_file": str(data / "secrets.key"),
            "store": "aa",
            "sequence": 1,
            "level": 0,
            "taken_ms": 1,
            "archive_bytes": 0,
            "files": [
                {
                    "name": each,
                    "pinned": f"pinned/{each.rpartition('/')[2]}",
                    "length": -1,
                    "size": -1,
                }
                for each in self.names
            ],
        }
        self.pins = Pins(self._make, self._touch, lambda _: self.asked.append("drop"), self._now)
        self.is_pinned = True

    def _make(self, _maker: str) -> Any:
        return dict(self.pin)

    def _touch(self, number: int) -> None:
        self.asked.append("touch")
        if not self.is_pinned:
            raise BackupError(f"pin {number} was dropped")

    def _now(self) -> int:
        return self.now_ms


def test_a_server_of_the_first_build_with_backups_is_backed_up_and_its_backup_reads(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path / "data")
    made = create(Repository(tmp_path / "kept"), node.pins, Progress(), "a word", incremental=False)
    assert [each.name for each in made.files] == node.names
    assert node.asked == ["touch", "drop"], "asked at its end, and no more in five seconds"
    assert decode(OF_THE_FIRST_BUILD, "its name").level == 4


def test_a_pin_is_asked_for_in_time_however_slowly_a_file_is_copied(tmp_path: Path) -> None:
    node = Node(tmp_path / "data")
    (tmp_path / "data" / "pinned" / "1.seg").write_bytes(bytes(4 * 256 * 1024))

    def a_busy_machine() -> None:
        node.now_ms += TOUCH_MS

    repository = Repository(tmp_path / "kept", a_busy_machine)
    create(repository, node.pins, Progress(), "a word", incremental=False)
    assert node.asked.count("touch") >= 4


def test_a_pin_that_was_dropped_is_what_is_told_of_a_file_that_is_gone(tmp_path: Path) -> None:
    node = Node(tmp_path / "data")
    (tmp_path / "data" / "pinned" / "ckpt").unlink()
    node.is_pinned = False
    repository = Repository(tmp_path / "kept")
    with pytest.raises(BackupError, match="pin 4 was dropped"):
        create(repository, node.pins, Progress(), "a word", incremental=False)
    assert node.asked[-1] == "drop"
    assert not repository.backups()


def test_backups_of_before_an_upgrade_and_behind_it_are_in_one_directory(tmp_path: Path) -> None:
    data, kept = tmp_path / "data", tmp_path / "kept"
    made = ("backup", "create", str(kept), "--incremental", "--data", str(data), "-o", "json")
    with serving(data, WEIR_TEST_UNDERSTANDS="0") as node:
        publish(node, 0, 10)
        told(weir(*made))
        assert node.terminate() == 0
    with serving(data) as node:
        publish(node, 10, 10)
        told(weir(*made))
        assert weir("cluster", "features", "enable", "--all", "--data", str(data)).code == 0
        publish(node, 20, 10)
        told(weir(*made))
    assert weir("backup", "verify", str(kept)).code == 0
    assert [each.level for each in Repository(kept).backups()] == [0, 0, LATEST]
    for number in (1, 2, 3):
        place = tmp_path / f"{number}"
        restore = ("backup", "restore", str(kept), "--backup", f"{number}", "--data", str(place))
        told(weir(*restore, "-o", "json"))
        with serving(place) as node:
            assert sorted(drained(node, "work")) == list(range(10 * number))


@pytest.mark.parametrize("content", [b"", b'{"cluster": "\xff"}', b'{"cluster": "c", "number": 3}'])
def test_a_store_that_does_not_say_which_one_it_is_was_damaged_before_it_was_copied(
    content: bytes, tmp_path: Path
) -> None:
    node = Node(tmp_path / "data", "cluster.json")
    (tmp_path / "data" / "pinned" / "cluster.json").write_bytes(content)
    node.pin |= {"cut": "0123456789abcdef", "node": 2}
    repository = Repository(tmp_path / "kept")
    create(repository, node.pins, Progress(), "a word", incremental=False)
    found = weir("backup", "verify", str(repository.directory))
    assert found.code == ExitCode.UNHEALTHY
    assert "cluster.json of backup 1" in found.out
