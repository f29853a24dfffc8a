"""`weir serve` over a disk that has lost something: what it says, gives up, and goes on with."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

import pika
import pytest

from kernel.log.checkpoint import Checkpoint
from kernel.log.mark import MARK_NAME, read_mark
from kernel.log.meta import read_meta
from kernel.log.record import seed_of
from kernel.log.segment_reader import SegmentReader
from kernel.store.disk import DirectoryDisk
from tests.gateway.serving import Process, refused, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
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
        node.kill()
    assert checkpoint_of(data).position.segment >= 2
    return data


@pytest.fixture
def copy(kept: Path, tmp_path: Path) -> Path:
    return shutil.copytree(kept, tmp_path / "data")


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
