"""An archive goes on only with the log it was made from, and only if all its lines are there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from metering.exporter import RESTORED_MARK, Archive, ExportError, export_queue
from metering.lineage import check_lineage, trim_restored
from metering.schema import HOUR_US, ManifestEntry, ManifestError, parse_manifest
from metering.schema.manifest import MANIFEST_NAME, Head, forked_epochs, heads_of
from metering.topic import MeteringTopic
from tests.metering.samples import START_US
from tests.metering.test_exporter import Log
from tests.simulator.world import World, simulated


class Exporter:
    """A log that keeps the head of its archive."""

    def __init__(self, directory: Path, log: Log, kept: Head | None = None) -> None:
        self.directory = directory
        self.log = log
        self.kept = kept

    def export(self, *, is_kept: bool = True) -> list[ManifestEntry]:
        async def run(archive: Archive) -> list[ManifestEntry]:
            await trim_restored(archive, self.log, 0, self.kept)
            await check_lineage(archive, self.log, 0, self.kept)
            return await export_queue(archive, self.log, 0, now_us=START_US, final=True)

        with Archive(self.directory) as archive:
            entries = asyncio.run(run(archive))
            if is_kept:
                self.kept = archive.heads[-1]
        return entries

    @property
    def manifest(self) -> Path:
        return self.directory / MANIFEST_NAME


def exported(directory: Path, files: int = 3) -> Exporter:
    """An archive of some files, a message each."""
    exporter = Exporter(directory, Log())
    for number in range(files):
        exporter.log.append(START_US + number * HOUR_US, a=number + 1)
        exporter.export()
    return exporter


def test_lines_are_chained_and_the_log_keeps_their_head(tmp_path: Path) -> None:
    exporter = exported(tmp_path)
    content = exporter.manifest.read_bytes()
    heads = heads_of(content)
    entries = parse_manifest(content)
    assert [each.previous for each in entries] == [each.sha256 for each in heads[:-1]]
    assert exporter.kept == heads[-1] == Head(3, heads[-1].sha256)
    assert exporter.export() == []


Change = Callable[[list[bytes]], list[bytes]]


def recount(line: bytes) -> bytes:
    assert b'"rows":1' in line
    return line.replace(b'"rows":1', b'"rows":0')


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[1:],
        lambda lines: lines[:1] + lines[2:],
        lambda lines: lines[:-1],
        lambda lines: [],
        lambda lines: [recount(lines[0]), *lines[1:]],
        lambda lines: [*lines[:-1], recount(lines[-1])],
    ],
    ids=["first lost", "one lost", "last lost", "all lost", "first changed", "last changed"],
)
def test_a_line_that_was_lost_or_changed_stops_the_export(tmp_path: Path, change: Change) -> None:
    exporter = exported(tmp_path)
    lines = exporter.manifest.read_bytes().splitlines(keepends=True)
    exporter.manifest.write_bytes(b"".join(change(lines)))
    with pytest.raises(ExportError, match="manifest"):
        exporter.export()


def test_what_a_reader_without_the_log_sees_of_it(tmp_path: Path) -> None:
    lines = exported(tmp_path).manifest.read_bytes().splitlines(keepends=True)
    for changed in (lines[1:], [recount(lines[0]), *lines[1:]], [lines[0], lines[2]]):
        with pytest.raises(ManifestError, match="one of them was lost or changed"):
            parse_manifest(b"".join(changed))


def test_a_log_that_was_put_back_under_a_newer_archive_stops_the_export(tmp_path: Path) -> None:
    exporter = exported(tmp_path)
    backup = Exporter(tmp_path, Log(), heads_of(b"")[0])
    backup.log.append(a=1)
    before = exporter.manifest.read_bytes()
    with pytest.raises(ExportError, match="ahead of its log, which ends at offset 1 and not at 3"):
        backup.export()
    for number in range(5):  # it has gone on, beyond where the archive ends
        backup.log.append(START_US + HOUR_US, b=number)
    with pytest.raises(ExportError, match="was made from other messages"):
        backup.export()
    backup.kept = None  # and if it is so old that it knows of no head
    with pytest.raises(ExportError, match="was made from other messages"):
        backup.export()
    assert exporter.manifest.read_bytes() == before


def test_a_crash_before_the_log_heard_of_a_file_is_no_obstacle(tmp_path: Path) -> None:
    exporter = exported(tmp_path)
    exporter.log.append(START_US + 3 * HOUR_US, a=9)
    exporter.export(is_kept=False)
    exporter.log.append(START_US + 4 * HOUR_US, a=9)
    assert len(exporter.export()) == 1
    assert exporter.kept == heads_of(exporter.manifest.read_bytes())[5]


def test_a_manifest_of_an_older_build_is_gone_on_with(tmp_path: Path) -> None:
    exporter = exported(tmp_path)
    old = [replace(each, previous="") for each in parse_manifest(exporter.manifest.read_bytes())]
    exporter.manifest.write_bytes(b"".join(each.to_line() for each in old))
    exporter.kept = None
    exporter.log.append(START_US + 3 * HOUR_US, a=9)
    (entry,) = exporter.export()
    content = exporter.manifest.read_bytes()
    assert entry.previous == heads_of(content)[3].sha256
    lines = content.splitlines(keepends=True)
    for changed in ([recount(lines[0]), *lines[1:]], lines[1:], [*lines, old[0].to_line()]):
        with pytest.raises(ManifestError):
            parse_manifest(b"".join(changed))


def test_records_tell_two_lives_of_a_log_apart(tmp_path: Path) -> None:
    (entry, *others) = parse_manifest(exported(tmp_path).manifest.read_bytes())
    assert forked_epochs([entry, *others]) == []
    (source,) = entry.sources
    lives = [replace(entry, sources=(replace(source, incarnation=life),)) for life in (5, 9)]
    assert forked_epochs(lives) == [("n1", 1)]
    later = replace(entry, sources=(replace(source, incarnation=9, epoch=2),))
    assert forked_epochs([lives[0], later]) == []
    assert parse_manifest(lives[0].to_line()) == [lives[0]]


@simulated()
async def test_the_log_keeps_the_head_of_each_node_s_archive(world: World) -> None:
    topic = MeteringTopic(world.client, world.clock, "n1")
    assert topic.kept_head() is None
    head = Head(7, "ab" * 32)
    await topic.keep_head(head)
    await world.crash()
    topic = MeteringTopic(world.client, world.clock, "n1")
    assert topic.kept_head() == head
    assert MeteringTopic(world.client, world.clock, "n10").kept_head() is None
    await topic.keep_head(None)
    assert topic.kept_head() is None


def put_back(directory: Path, messages: int, known: int) -> Exporter:
    """An archive of three files, copied after the moment at which its log had so many messages, and
    knew of so many lines; other messages have come since.
    """
    exporter = exported(directory)
    exporter.kept = heads_of(exporter.manifest.read_bytes())[known] if known else None
    log = Log()
    log.messages = exporter.log.messages[:messages]
    for number in range(messages, 4):
        log.append(START_US + number * HOUR_US, b=number + 1)
    exporter.log = log
    (directory / RESTORED_MARK).write_bytes(b"cut")
    return exporter


@pytest.mark.parametrize(("messages", "known"), [(1, 1), (2, 1), (2, 0), (0, 0), (3, 3)])
def test_lines_of_what_a_restored_log_has_lost_are_left_out_of_its_archive(
    tmp_path: Path, messages: int, known: int
) -> None:
    exporter = put_back(tmp_path, messages, known)
    before = exporter.manifest.read_bytes().splitlines(keepends=True)
    made = exporter.export()
    after = exporter.manifest.read_bytes().splitlines(keepends=True)
    assert after[:messages] == before[:messages]
    assert [each.from_offset for each in made] == list(range(messages, 4))
    names = {each.name for each in parse_manifest(b"".join(after))}
    assert {each.name for each in tmp_path.glob("*.parquet")} == names
    assert not (tmp_path / RESTORED_MARK).exists()
    (tmp_path / RESTORED_MARK).write_bytes(b"cut")  # it ended before the mark was gone
    assert exporter.export() == []
    assert exporter.manifest.read_bytes().splitlines(keepends=True) == after


def test_an_archive_that_is_older_than_its_log_or_was_not_restored_with_it_is_left_as_it_is(
    tmp_path: Path,
) -> None:
    exporter = put_back(tmp_path, 3, 3)
    content = exporter.manifest.read_bytes()
    exporter.manifest.write_bytes(content[: content.index(b"\n") + 1])
    with pytest.raises(ExportError, match="has 1 lines, the log knows of 3"):
        exporter.export()
    assert (tmp_path / RESTORED_MARK).exists()
    assert len(list(tmp_path.glob("*.parquet"))) == 3
    exporter = put_back(tmp_path / "other", 1, 1)
    (tmp_path / "other" / RESTORED_MARK).unlink()
    with pytest.raises(ExportError, match="put back to an earlier state"):
        exporter.export()
    assert len(list((tmp_path / "other").glob("*.parquet"))) == 3
