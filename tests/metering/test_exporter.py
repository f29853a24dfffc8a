from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from metering import exporter as module
from metering.exporter import Archive, ExportError, LogMessage, export_queue
from metering.schema import HOUR_US, ManifestEntry, SourceRange, encode, parse_manifest
from metering.window import to_batch
from tests.metering.samples import START_US, window

SETTLED_US = START_US + HOUR_US + module.HOUR_SETTLES_US


class Log:
    """A log of flushes in memory; `append` returns itself for chaining."""

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.messages: list[LogMessage] = []
        self.seq = 0

    def append(self, appended_at_us: int = START_US, **counts: int) -> Log:
        item = window(0, **(counts or {"a": 1}))
        batch = to_batch(
            item, item.rows, node="n1", epoch=1, first_seq=self.seq, emitted_at_us=appended_at_us
        )
        self.seq += batch.rows
        offset = self.first + len(self.messages)
        self.messages.append(LogMessage(offset, appended_at_us, encode(batch)))
        return self

    async def bounds(self, queue: int) -> tuple[int, int]:
        return self.first, self.first + len(self.messages)

    async def read(self, queue: int, from_offset: int, limit: int) -> Sequence[LogMessage]:
        return self.messages[from_offset - self.first :][: min(limit, 3)]


def export(
    directory: Path, log: Log, *, now_us: int = START_US, final: bool = False
) -> list[ManifestEntry]:
    with Archive(directory) as archive:
        return asyncio.run(export_queue(archive, log, 0, now_us=now_us, final=final))


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.parquet")}


def test_a_file_ends_where_the_hour_of_append_ends(tmp_path: Path) -> None:
    log = Log().append().append().append(START_US + HOUR_US).append(START_US + HOUR_US)
    entries = export(tmp_path, log)
    assert [entry.name for entry in entries] == ["p0-0-2.parquet"]
    assert [entry.name for entry in export(tmp_path, log, now_us=SETTLED_US)] == []
    later_us = SETTLED_US + HOUR_US
    assert [entry.name for entry in export(tmp_path, log, now_us=later_us)] == ["p0-2-4.parquet"]
    assert export(tmp_path, log, now_us=later_us, final=True) == []


def test_an_open_hour_waits_unless_it_is_final(tmp_path: Path) -> None:
    log = Log().append().append()
    assert export(tmp_path, log, now_us=SETTLED_US - 1) == []
    assert [entry.name for entry in export(tmp_path, log, final=True)] == ["p0-0-2.parquet"]
    log.append()
    assert [entry.name for entry in export(tmp_path, log, final=True)] == ["p0-2-3.parquet"]


@pytest.mark.parametrize(
    ("limit", "value"), [("OFFSETS_PER_FILE_MAX", 2), ("ROWS_PER_FILE_MAX", 3)]
)
def test_a_file_has_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(module, limit, value)
    log = Log()
    for _ in range(5):
        log.append(a=1, b=2)
    entries = export(tmp_path, log)
    assert [(entry.from_offset, entry.to_offset) for entry in entries] == [(0, 2), (2, 4)]


def test_the_manifest_says_what_is_in_the_file(tmp_path: Path) -> None:
    log = Log(first=7).append(a=1, b=2).append(c=3)
    (entry,) = export(tmp_path, log, final=True)
    content = (tmp_path / "p0-7-9.parquet").read_bytes()
    assert entry.sha256 == hashlib.sha256(content).hexdigest()
    assert entry.size_bytes == len(content)
    assert (entry.rows, entry.kinds) == (3, {"api": 3})
    assert entry.sources == (SourceRange("n1", 1, 0, 2),)
    assert (entry.window_start_us, entry.window_end_us) == (START_US, START_US + 10_000_000)
    assert parse_manifest((tmp_path / "manifest.jsonl").read_bytes()) == [entry]


def test_the_file_holds_the_records_in_order_with_their_offsets(tmp_path: Path) -> None:
    log = Log().append(b=1, a=2).append(c=3)
    log.messages.append(LogMessage(2, START_US, log.messages[0].body))
    export(tmp_path, log, final=True)
    table = pq.read_table(tmp_path / "p0-0-3.parquet")
    rows = list(
        zip(*(table[name].to_pylist() for name in ("seq", "log_offset", "topic")), strict=True)
    )
    assert rows == [(0, 0, "b"), (0, 2, "b"), (1, 0, "a"), (1, 2, "a"), (2, 1, "c")]
    assert table["window_start"].to_pylist()[0].timestamp() == START_US / 1e6
    assert set(table["schema_version"].to_pylist()) == {1}


def test_the_same_log_makes_the_same_bytes(tmp_path: Path) -> None:
    log = Log().append(a=1, b=2).append(START_US + HOUR_US, c=3)
    export(tmp_path / "one", log, final=True)
    export(tmp_path / "two", log, final=True)
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert (tmp_path / "one/manifest.jsonl").read_bytes() == (
        tmp_path / "two/manifest.jsonl"
    ).read_bytes()


class CrashError(Exception):
    pass


def crash_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Let the process 'die' at the n-th of the exporter's steps towards the disk."""
    left = steps

    def counted(original: Callable[..., object]) -> Callable[..., object]:
        def step(*args: object, **kwargs: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise CrashError
            return original(*args, **kwargs)

        return step

    monkeypatch.setattr(module, "_sync", counted(module._sync))
    monkeypatch.setattr(Path, "rename", counted(Path.rename))
    monkeypatch.setattr(Archive, "_append", counted(Archive._append))


@pytest.mark.parametrize("steps", range(8))
def test_a_crash_at_any_step_is_made_good_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    log = Log().append(a=1, b=2).append(START_US + HOUR_US, c=3)
    export(tmp_path / "whole", log, final=True)
    with monkeypatch.context() as patches:
        crash_after(patches, steps)
        with pytest.raises(CrashError):
            export(tmp_path / "cut", log, final=True)
    export(tmp_path / "cut", log, final=True)
    assert files(tmp_path / "cut") == files(tmp_path / "whole")
    assert (tmp_path / "cut/manifest.jsonl").read_bytes() == (
        tmp_path / "whole/manifest.jsonl"
    ).read_bytes()
    assert not list((tmp_path / "cut").glob("*.writing"))


def test_half_a_manifest_line_is_cut_off_and_written_again(tmp_path: Path) -> None:
    log = Log().append().append(START_US + HOUR_US)
    export(tmp_path, log, final=True)
    manifest = tmp_path / "manifest.jsonl"
    whole = manifest.read_bytes()
    manifest.write_bytes(whole[:-20])
    export(tmp_path, log, final=True)
    assert manifest.read_bytes() == whole


def stored(directory: Path, log: Log) -> ManifestEntry:
    """Store all of the log as one file, as a rerun of a past export would."""
    cut = module.ExportCut(0, log.first)
    for message in log.messages:
        assert cut.offer(message)
    with Archive(directory) as archive:
        return archive.store(cut)


def test_exporting_the_same_offsets_again_changes_nothing(tmp_path: Path) -> None:
    log = Log().append().append()
    first = stored(tmp_path, log)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert stored(tmp_path, log) == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"PAR1 no more")])
def test_a_lost_or_damaged_file_is_restored(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    log = Log().append().append()
    entry = stored(tmp_path, log)
    before = files(tmp_path)
    damage(tmp_path / entry.name)
    assert stored(tmp_path, log) == entry
    assert files(tmp_path) == before


def test_a_file_that_another_writer_version_made_is_not_replaced_by_other_bytes(
    tmp_path: Path,
) -> None:
    log = Log().append().append()
    entry = stored(tmp_path, log)
    manifest = tmp_path / "manifest.jsonl"
    old = manifest.read_bytes().replace(entry.sha256.encode(), b"0" * 64)
    manifest.write_bytes(old.replace(entry.writer.encode(), b"pyarrow 1"))
    with pytest.raises(ExportError, match="pyarrow 1 wrote: export again with that version"):
        stored(tmp_path, log)
    assert not list(tmp_path.glob("*.writing"))


def test_other_messages_at_archived_offsets_stop_the_export(tmp_path: Path) -> None:
    stored(tmp_path, Log().append(a=1))
    with pytest.raises(ExportError, match="made from other messages than the log holds now"):
        stored(tmp_path, Log().append(a=2))


def test_a_file_that_overlaps_the_archive_stops_the_export(tmp_path: Path) -> None:
    log = Log().append(a=1).append(a=1)
    stored(tmp_path, log)
    with pytest.raises(ExportError, match="archived up to offset 2; a file from 0 to 3"):
        stored(tmp_path, log.append())


def test_a_leftover_that_is_not_its_equal_is_never_overwritten(tmp_path: Path) -> None:
    log = Log().append(a=1)
    stored(tmp_path / "other", Log().append(a=2))
    leftover = tmp_path / "p0-0-1.parquet"
    leftover.write_bytes((tmp_path / "other" / leftover.name).read_bytes())
    with pytest.raises(ExportError, match="without a manifest line and was made from other"):
        stored(tmp_path, log)
    leftover.write_bytes(b"junk")
    with pytest.raises(ExportError, match="is no Parquet file"):
        stored(tmp_path, log)


def test_a_message_that_is_not_records_stops_the_export_at_its_offset(tmp_path: Path) -> None:
    log = Log().append()
    log.messages.append(LogMessage(1, START_US, b"something else entirely"))
    with pytest.raises(ExportError, match="queue 0 offset 1: these are not metering records"):
        export(tmp_path, log, final=True)
    assert files(tmp_path) == {}


def test_messages_that_the_log_has_given_up_are_stepped_over_and_counted(tmp_path: Path) -> None:
    log = Log().append().append().append().append(START_US + HOUR_US).append(START_US + HOUR_US)
    kept = log.messages
    log.messages = [kept[0], kept[2], kept[4]]
    log.bounds = lambda queue: given((0, 5))  # type: ignore[method-assign,assignment]
    log.read = (
        lambda queue, first, limit: given(  # type: ignore[method-assign,assignment]
            [each for each in log.messages if each.offset >= first][:limit]
        )
    )
    entries = export(tmp_path, log, final=True)
    places = [(each.from_offset, each.to_offset, each.missing) for each in entries]
    assert places == [(0, 3, 1), (3, 5, 1)]
    assert parse_manifest((tmp_path / "manifest.jsonl").read_bytes()) == entries
    assert [each.rows for each in entries] == [2, 1]
    log.messages = [kept[0]]
    assert [each.to_offset for each in export(tmp_path / "end", log, final=True)] == [1]


async def given(value: object) -> object:
    return value


def test_offsets_that_go_back_stop_the_export(tmp_path: Path) -> None:
    log = Log().append().append()
    log.messages[1] = LogMessage(0, START_US, log.messages[1].body)
    with pytest.raises(ExportError, match="offset 0 follows 0; nothing was exported"):
        export(tmp_path, log, final=True)


def test_a_log_that_was_cut_behind_the_archive_stops_the_export(tmp_path: Path) -> None:
    export(tmp_path, Log().append(), final=True)
    with pytest.raises(ExportError, match="3 messages are lost to the bill"):
        export(tmp_path, Log(first=4).append(), final=True)


def test_one_exporter_at_a_time(tmp_path: Path) -> None:
    with Archive(tmp_path), pytest.raises(ExportError, match="another exporter"):
        Archive(tmp_path).__enter__()
    with Archive(tmp_path):
        pass


def test_a_broken_manifest_stops_the_export(tmp_path: Path) -> None:
    (tmp_path / "manifest.jsonl").write_bytes(b"{}\n")
    with pytest.raises(ExportError, match=r"manifest\.jsonl: manifest line 1: schema None"):
        export(tmp_path, Log().append(), final=True)
