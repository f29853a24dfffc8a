"""`weir serve` over a disk that has lost something: what it says, gives up, and goes on with."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pika
import pytest

from kernel.log.format.checkpoint import Checkpoint
from kernel.log.format.mark import MARK_NAME, read_mark
from kernel.log.format.meta import read_meta
from kernel.log.format.record import seed_of
from kernel.log.format.segment_reader import SegmentReader
from kernel.store.drivers.disk import DirectoryDisk
from tests.gateway.serving import Process, environment, refused, serving
from tests.matrix.conftest import PEERS
from tests.matrix.contract import Neutral

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

DURABLE = pika.BasicProperties(delivery_mode=2)
LARGE_BYTES = 500_000
"""Some thirty of them fill a segment."""

MARK_SECONDS = 20
"""Longer than the mark, or a checkpoint, takes to reach the disk on a busy machine."""


def publish(node: Process, queue: str, bodies: Iterable[bytes]) -> None:
    connection = node.amqp()
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    for body in bodies:
        channel.basic_publish("", queue, body, DURABLE)
    connection.close()


def read_all(node: Process, queue: str) -> list[bytes]:
    connection = node.amqp()
    channel = connection.channel()
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2])
    connection.close()
    return found


def wait_for(check: Callable[[], bool]) -> None:
    ends = time.monotonic() + MARK_SECONDS
    while not check():
        assert time.monotonic() < ends
        time.sleep(0.05)


def segment(data: Path, number: int) -> Path:
    return data / "journal" / f"{number:08d}.seg"


def records(data: Path, number: int) -> list[tuple[int, int]]:
    """(offset, length) of the records of a segment."""
    disk = DirectoryDisk(data)
    meta = read_meta(disk)
    assert meta is not None
    file = disk.open(f"journal/{number:08d}.seg")
    try:
        reader = SegmentReader(file, file.size(), seed_of(meta.store))
        return [(at, header.length) for at, header in reader.records(4096)]
    finally:
        file.close()


def change(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def checkpoint_of(data: Path) -> Checkpoint:
    found = Checkpoint.read(DirectoryDisk(data))
    assert found is not None
    return found


MARK_S = 0.5
"""The mark is written some milliseconds behind the last commit: what is damaged here is older."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose checkpoint stands in the second segment, with a journal that goes on."""
    data = tmp_path_factory.mktemp("damaged") / "kept"
    with serving(data) as node:
        publish(node, "others", [b"%03d" % number for number in range(20)])
        publish(node, "large", (os.urandom(LARGE_BYTES) for _ in range(60)))
        assert node.terminate() == 0
    with serving(data) as node:
        publish(node, "large", (os.urandom(LARGE_BYTES) for _ in range(50)))
        publish(node, "others", [b"%03d" % number for number in range(20, 40)])
        time.sleep(MARK_S)
        node.kill()
    assert checkpoint_of(data).position.segment >= 2
    return data


@pytest.fixture
def copy(kept: Path, tmp_path: Path) -> Iterator[Path]:
    yield shutil.copytree(kept, tmp_path / "data")
    shutil.rmtree(tmp_path / "data")  # 100 MB


def last_segment(data: Path) -> int:
    meta = read_meta(DirectoryDisk(data))
    assert meta is not None
    return read_mark(DirectoryDisk(data), meta.store)[0].segment


@pytest.mark.parametrize("files", ["segment and index", "segment"])
def test_a_deleted_segment_below_the_checkpoint_is_named_and_nothing_is_served(
    copy: Path, files: str
) -> None:
    segment(copy, 1).unlink()
    if files == "segment and index":
        segment(copy, 1).with_suffix(".loc").unlink()
    before = sorted(each.name for each in (copy / "journal").iterdir())
    for _ in range(2):
        code, said = refused(copy)
        assert code == 1
        assert "entries that messages stand in are gone" in said
        assert "there is no segment 1" in said
        assert "weir doctor" in said
    kept = set(before) - {"00000001.loc"}
    assert {each.name for each in (copy / "journal").iterdir()} >= kept


def test_a_segment_below_the_checkpoint_that_is_cut_is_named(copy: Path) -> None:
    os.truncate(segment(copy, 1), 8 << 20)
    code, said = refused(copy)
    assert code == 1
    assert "cut short is the file of segment 1" in said


def test_the_last_segment_deleted_is_no_end(copy: Path) -> None:
    last = last_segment(copy)
    assert last > checkpoint_of(copy).position.segment
    segment(copy, last).unlink()
    code, said = refused(copy)
    assert code == 1
    assert f"segment {last} is missing" in said


def test_an_empty_journal_is_no_empty_store(copy: Path) -> None:
    for each in (copy / "journal").iterdir():
        each.unlink()
    assert refused(copy)[0] == 1
    (copy / "ckpt").unlink()
    code, said = refused(copy)
    assert code == 1
    assert "no segment is there, and there were some" in said


def test_zeros_over_what_was_confirmed_last_are_said(copy: Path) -> None:
    last = last_segment(copy)
    lost = records(copy, last)[-15:]
    change(segment(copy, last), lost[0][0], bytes(lost[-1][0] + lost[-1][1] - lost[0][0]))
    code, said = refused(copy)
    assert code == 1
    assert f"15 records unreadable after being synced: segment {last} at {lost[0][0]}" in said


def test_the_mark_of_an_idle_node_is_on_the_disk_soon(tmp_path: Path) -> None:
    """A copy of what is durable cannot be had here: that the file was synced is seen by strace in
    nobody's way, so the file is looked at, and the simulated disk looks at the rest."""
    with serving(tmp_path) as node:
        publish(node, "some", [b"one"])
        disk = DirectoryDisk(tmp_path)
        meta = read_meta(disk)
        assert meta is not None
        wait_for(lambda: read_mark(disk, meta.store)[0].sequence > 0)
        node.kill()
    (tmp_path / MARK_NAME).unlink()
    with serving(tmp_path) as node:  # as a directory of an older build
        assert read_all(node, "some") == [b"one"]


def damage_an_entry(data: Path, number: int) -> None:
    """Change one byte in the middle of a segment's longest record."""
    offset, length = max(records(data, number), key=lambda record: record[1])
    at = offset + length // 2
    with segment(data, number).open("rb") as file:
        file.seek(at)
        (before,) = file.read(1)
    change(segment(data, number), at, bytes([before ^ 0x10]))


def damage_is(node: Process, event: str) -> None:
    """It logs so; a machine whose disk is full, or slow, has other alarms beside."""
    while node.wait_for(event)["check"] != "damage":
        pass


@pytest.mark.parametrize("index", ["with its index", "without"])
def test_one_damaged_byte_costs_one_entry_and_is_said_once(copy: Path, index: str) -> None:
    """Before, the first read ended the process, and so did every one after it, for all tenants."""
    damage_an_entry(copy, 1)
    if index == "without":
        segment(copy, 1).with_suffix(".loc").unlink()
    with serving(copy) as node:
        assert len(read_all(node, "large")) == 109
        assert read_all(node, "others") == [b"%03d" % number for number in range(40)]
        health = node.api("GET", "/health")
        assert health.status == 200
        (damage,) = [each for each in health.json["checks"] if each["name"] == "damage"]
        assert "1 messages were given up with 1 log entries" in damage["reason"]
        assert node.http("GET", "/readyz", token=None).status == 200
        metrics = node.http("GET", "/metrics", token=None).body
        assert b"weir_store_lost_messages 1.0" in metrics
        damage_is(node, "alarm")
        for kept in ("entry", "json"):
            assert len(list((copy / "lost").glob(f"*.{kept}"))) == 1
        assert node.terminate() == 0
        said = [(line["event"], line.get("check")) for line in node.logged()]
        assert (said.count(("given up", None)), said.count(("alarm", "damage"))) == (1, 1)
    with serving(copy) as node:
        damage_is(node, "alarm")
        shutil.rmtree(copy / "lost")
        damage_is(node, "alarm over")
        assert node.terminate() == 0


def test_all_four_protocols_go_on_beside_a_damaged_entry(copy: Path, tmp_path: Path) -> None:
    damage_an_entry(copy, 1)
    with serving(copy) as node:
        assert node.protocols == {"amqp", "mqtt", "rocketmq", "sqs"}
        assert len(read_all(node, "large")) == 109
        for kind in PEERS:
            topic = f"beside-{kind.name}"
            assert node.api("POST", "/topics", {"name": topic}).status == 201
            peer = kind(node, str(tmp_path))
            peer.write(topic, Neutral(body=b"hello"))
            assert peer.read(topic).body == b"hello"
            peer.close()
        assert node.process.poll() is None


# --- A disk that does not read -------------------------------------------------------------------

BAD_SECTOR = """
import errno, os
import kernel.store.entry_reader
kernel.store.entry_reader.PAUSES_SECONDS = (0.01, 0.02)
name, begin, end = os.environ["BAD_SECTOR"].split(":")
begin, end = int(begin), int(end)
read = os.pread
def bad(descriptor, length, offset):
    if offset < end and os.readlink(f"/proc/self/fd/{descriptor}").endswith(name):
        if offset >= begin:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        length = min(length, begin - offset)
    return read(descriptor, length, offset)
os.pread = bad
"""
"""As Linux reads: up to the page that has it, and from there EIO."""


def bad_sector(tmp_path: Path, data: Path, number: int) -> dict[str, str]:
    """The environment of a process for which the longest record of a segment has one."""
    offset, length = max(records(data, number), key=lambda record: record[1])
    begin = (offset + length // 2) // 4096 * 4096
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(BAD_SECTOR)
    return {
        "PYTHONPATH": os.pathsep.join([str(site), *sys.path]),
        "BAD_SECTOR": f"{number:08d}.seg:{begin}:{begin + 4096}",
    }


def test_a_bad_sector_costs_one_entry_and_is_said_once(copy: Path, tmp_path: Path) -> None:
    """Before, the first read ended the process, and so did every one after it, for all tenants."""
    bad = bad_sector(tmp_path, copy, 1)
    with serving(copy, **bad) as node:
        assert len(read_all(node, "large")) == 109
        assert read_all(node, "others") == [b"%03d" % number for number in range(40)]
        given_up = node.wait_for("given up")
        assert given_up["reason"].startswith("the disk does not read 4096 of its")
        (kept,) = (copy / "lost").glob("*.entry")
        assert kept.read_bytes().count(b"\xff" * 4096) == 1
        assert node.terminate() == 0


def test_a_bad_sector_that_no_snapshot_has_behind_it_is_for_the_doctor(
    copy: Path, tmp_path: Path
) -> None:
    last = last_segment(copy)
    bad = bad_sector(tmp_path, copy, last)
    code, said = refused(copy, **bad)
    assert code == 1
    assert f"segment {last} at" in said
    at = bad["BAD_SECTOR"].split(":")[1]
    assert f"which the disk does not read (EIO at {at})" in said
    code, found, _ = doctor(copy, **bad)
    assert (code, set(found)) == (3, {"journal"})
    assert f"(EIO at {at})" in found["journal"]
    assert doctor(copy, "--repair", **bad)[0] == 0
    assert (copy / "lost" / segment(copy, last).name).stat().st_size > LARGE_BYTES
    with serving(copy, **bad) as node:
        assert 60 <= len(read_all(node, "large")) < 110


# --- weir doctor ----------------------------------------------------------------------------------


def doctor(data: Path, *flags: str, **variables: str) -> tuple[int, dict[str, str], str]:
    """(exit code, what was found: where and what, stderr)."""
    ran = subprocess.run(
        [sys.executable, "-m", "gateway", "doctor", "--data", str(data), "-o", "json", *flags],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment(**variables),
    )
    found = json.loads(ran.stdout)["findings"] if ran.stdout else []
    return ran.returncode, {each["where"]: each["what"] for each in found}, ran.stderr


def digest_of(data: Path) -> dict[str, bytes]:
    """Everything in the directory but the lock."""
    return {
        str(each.relative_to(data)): hashlib.sha256(each.read_bytes()).digest()
        for each in sorted(data.rglob("*"))
        if each.is_file() and each.name != "lock"
    }


def test_the_doctor_finds_nothing_in_what_is_sound_and_takes_the_lock(copy: Path) -> None:
    before = digest_of(copy)
    assert doctor(copy)[:2] == (0, {})
    assert digest_of(copy) == before
    assert doctor(copy, "--repair")[:2] == (0, {})
    assert digest_of(copy) == before
    with serving(copy):
        code, _, said = doctor(copy)
        assert code == 1
        assert "in use by process" in said


def test_the_doctor_gives_up_what_a_deleted_segment_held(copy: Path) -> None:
    segment(copy, 1).unlink()
    before = digest_of(copy)
    code, found, _ = doctor(copy)
    assert code == 3
    assert set(found.values()) == {"is gone with its segment"}
    assert digest_of(copy) == before, "nothing is changed without --repair"
    code, repaired, said = doctor(copy, "--repair")
    assert (code, repaired) == (0, found)
    assert "is repaired" in said
    assert doctor(copy)[:2] == (0, {})
    with serving(copy) as node:
        left = read_all(node, "large")
        assert 70 <= len(left) < 90
        assert read_all(node, "others")[-1] == b"039"
        health = node.api("GET", "/health").json
        assert f"with {len(found)} log entries" in str(health["checks"])


def test_the_doctor_goes_on_without_the_end_of_the_journal(copy: Path) -> None:
    last = last_segment(copy)
    lost = records(copy, last)[-15:]
    change(segment(copy, last), lost[0][0], bytes(lost[-1][0] + lost[-1][1] - lost[0][0]))
    code, found, _ = doctor(copy)
    assert code == 3
    assert "15 records unreadable after being synced" in found["journal"]
    assert doctor(copy, "--repair")[0] == 0
    assert (copy / "lost" / segment(copy, last).name).exists()
    with serving(copy) as node:
        assert len(read_all(node, "large")) == 110
        assert read_all(node, "others")[:20] == [b"%03d" % number for number in range(20)]
        publish(node, "others", [b"later"])
        node.kill()
    with serving(copy) as node:
        assert read_all(node, "others") == [b"later"]


def test_the_doctor_goes_on_behind_a_damaged_entry_that_no_snapshot_has(copy: Path) -> None:
    """Its commands may be lost: what the group was asked from there on goes with it."""
    last = last_segment(copy)
    assert last > checkpoint_of(copy).position.segment
    damage_an_entry(copy, last)
    assert refused(copy)[0] == 1
    code, found, _ = doctor(copy)
    assert (code, set(found)) == (3, {"journal"})
    assert doctor(copy, "--repair")[0] == 0
    for body in (b"one", b"two"):
        with serving(copy) as node:
            assert 60 <= len(read_all(node, "large")) < 110 or body == b"two"
            publish(node, "after", [body])
            assert body in read_all(node, "after")  # acks may be lost with the process
            node.kill()
    assert doctor(copy)[:2] == (0, {})


def test_the_doctor_gives_up_a_damaged_entry_before_anybody_reads_it(copy: Path) -> None:
    damage_an_entry(copy, 1)
    code, found, _ = doctor(copy)
    ((_where, what),) = found.items()
    assert (code, what.startswith("does not read: segment 1 at")) == (3, True)
    assert doctor(copy, "--repair")[0] == 0
    with serving(copy) as node:
        assert len(read_all(node, "large")) == 109


@pytest.mark.parametrize("name", ["ckpt", "store.meta", "snap"])
def test_what_the_doctor_cannot_repair_it_says_and_leaves_alone(copy: Path, name: str) -> None:
    """There is one of each, and everything else follows from it."""
    path = copy / name
    if name == "snap":
        path = max((copy / "snap").glob("*.snap"), key=lambda each: each.stat().st_size)
    content = bytearray(path.read_bytes())
    content[50] ^= 1
    path.write_bytes(content)
    before = digest_of(copy)
    code, found, _ = doctor(copy)
    assert code == 3
    assert any(each.startswith(name) for each in found)
    code, _, said = doctor(copy, "--repair")
    assert code == 1
    assert "cannot be repaired" in said
    assert digest_of(copy) == before
    code, said = refused(copy)
    assert code == 1
    assert name in said


def test_a_flipped_byte_in_an_index_or_the_mark_costs_nothing(copy: Path) -> None:
    for path in (copy / "synced", *(copy / "journal").glob("*.loc")):
        content = bytearray(path.read_bytes())
        content[40] ^= 1
        path.write_bytes(content)
    assert doctor(copy)[:2] == (0, {})
    with serving(copy) as node:
        assert len(read_all(node, "large")) == 110
