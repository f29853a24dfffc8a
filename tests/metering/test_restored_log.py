"""Data directories that are not as their archive left them: put back from a backup, or damaged."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gateway.commands.common.output import CommandError
from gateway.commands.tools.bill import refreshed_archive
from gateway.reporting.node_metering import ARCHIVE_DIRECTORY
from metering.schema import Action, parse_manifest
from metering.schema.manifest import MANIFEST_NAME
from tests.gateway.serving import Process, serving
from tests.metering.served.drivers import PERSISTENT
from tests.metering.served.reading import records_of, usage_of

QUEUE = "kept"


def publish(node: Process, count: int) -> None:
    with node.amqp() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(QUEUE, durable=True)
        for _ in range(count):
            channel.basic_publish("", QUEUE, b"x", PERSISTENT)


def published(archive: Path) -> int:
    rows = usage_of(records_of(archive))
    return sum(row.messages for row in rows if row.action == Action.PUBLISH)


def test_a_log_older_than_its_archive_stops_the_bill_until_a_new_archive_begins(
    tmp_path: Path,
) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    archive = data / ARCHIVE_DIRECTORY
    with serving(data) as node:
        publish(node, 20)
        assert node.api("POST", "/metering/export").status == 200
    shutil.copytree(data, backup, symlinks=True, ignore=shutil.ignore_patterns("*.sock"))
    with serving(data) as node:
        publish(node, 180)
        assert node.api("POST", "/metering/export").status == 200
    assert published(archive) == 200

    newer = tmp_path / "newer"
    archive.rename(newer)
    shutil.rmtree(data)
    shutil.rmtree(backup / ARCHIVE_DIRECTORY)
    backup.rename(data)
    newer.rename(archive)
    with serving(data) as node:
        publish(node, 180)
        refused = node.api("POST", "/metering/export")
        assert refused.status == 503
        assert "--new-archive" in refused.body.decode()
        with pytest.raises(CommandError, match="put back to an earlier state"):
            refreshed_archive(data)
    with pytest.raises(CommandError, match="put back to an earlier state"):
        refreshed_archive(data)
    with pytest.raises(CommandError, match="holds an archive: move it away first"):
        refreshed_archive(data, anew=True)
    assert published(archive) == 200, "nothing was added to it"

    archive.rename(newer)
    with serving(data):
        with pytest.raises(CommandError, match="0 lines, the log knows of"):
            refreshed_archive(data)
        assert published(refreshed_archive(data, anew=True)) == 200, "as this log has served"
    assert published(refreshed_archive(data)) == 200


def test_a_flush_that_does_not_read_any_more_does_not_stop_the_bill(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        for _ in range(3):
            publish(node, 5)
            assert node.api("POST", "/metering/export").status == 200
        assert node.terminate() == 0
    shutil.rmtree(tmp_path / ARCHIVE_DIRECTORY)
    segment = min((tmp_path / "journal").glob("*.seg"))
    content = bytearray(segment.read_bytes())
    first = content.index(b"WM\x01")
    content[content.index(b"WM\x01", first + 1) + 40] ^= 1
    segment.write_bytes(content)
    archive = refreshed_archive(tmp_path, anew=True)
    entries = parse_manifest((archive / MANIFEST_NAME).read_bytes())
    assert sum(each.missing for each in entries) == 1
    assert published(archive) == 15, "what the lost flush has told is told by the next one"
