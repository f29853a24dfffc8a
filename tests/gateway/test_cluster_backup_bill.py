"""A gateway's backup beside those of its stores: the bill has no gap and no double."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from typing import TYPE_CHECKING

from gateway.backups.repository import Repository
from gateway.commands.common.output import ExitCode
from gateway.reporting.node_metering import ARCHIVE_DIRECTORY
from metering.exporter import RESTORED_MARK
from metering.schema import Action
from metering.schema.manifest import forked_epochs, sequence_gaps
from tests.gateway.cluster import STORES
from tests.gateway.test_backups import DURABLE, drained, told, weir
from tests.gateway.test_cluster_backup import cluster_of_three, restored
from tests.metering.served.reading import entries_of, records_of, usage_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.gateway.serving import Process

EXPORTED, COUNTED, LOST, LATER = 20, 15, 30, 7
"""Messages: in the archive before the cut; before the cut, but not in the archive; after the cut,
and in the archive that is copied; after the restore."""

BILL = "an invoice"


def publish(gateway: Process, count: int) -> None:
    with gateway.amqp() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("work", durable=True)
        for number in range(count):
            channel.basic_publish("", "work", b"%d" % number, DURABLE)


def exported(gateway: Process) -> Path:
    """Everything counted is in the archive."""
    answer = gateway.api("POST", "/metering/export")
    assert (answer.status, answer.json["flushed"]) == (200, True), answer.body
    return gateway.data / ARCHIVE_DIRECTORY


def published(archive: Path) -> int:
    rows = usage_of(records_of(archive))
    return sum(row.messages for row in rows if (row.topic, row.action) == ("work", Action.PUBLISH))


def a_bill(directory: Path) -> None:
    """As `weir bill --out` leaves it, one run that has ended and one that has not."""
    for run in ("run=1", "run=2.partial"):
        made = directory / "period=2026-11" / run
        made.mkdir(parents=True)
        (made / "summary.json").write_text(BILL)
    (directory / "period=2026-11" / "CURRENT").write_text("1\n")


def lost(folder: Path, backups: Path, bills: Path) -> str:
    """A cluster and its backups; name of the gateway."""
    with ExitStack() as stack:
        cluster, gateway = cluster_of_three(folder, stack)
        publish(gateway, EXPORTED)
        exported(gateway)
        publish(gateway, COUNTED)
        here = [word for each in cluster.stores.values() for word in ("--here", str(each.data))]
        twice = weir("backup", "cluster", str(backups), *here, *here)
        assert (twice.code, "twice" in twice.err) == (ExitCode.USAGE, True), twice.err
        two = told(weir("backup", "cluster", str(backups), *here[:4], "-o", "json"))
        (left,) = two["left"]
        assert (left["member"], two["cut"] in left["command"]) == ("store-3", True)
        third = ("--data", str(cluster.stores[3].data), "--cut", two["cut"])
        assert weir("backup", "create", str(backups / "store-3"), *third).code == 0
        publish(gateway, LOST)
        exported(gateway)
        create = ("backup", "create", str(backups / "g"), "--data", str(gateway.data))
        billed = ("--bills", str(bills), "-o", "json")
        refused = weir(*create)
        assert (refused.code != 0, "weir cluster cut" in refused.err) == (True, True), refused.err
        made = told(weir(*create, "--cut", two["cut"], *billed))
        assert made["number"] == 1
        again = told(weir(*create, "--cut", two["cut"], "--incremental", *billed))
        assert again["copied_bytes"] == 0
        wrong = ("backup", "create", str(backups / "wrong"), "--data", str(gateway.data))
        assert weir(*wrong, "--cut", "yesterday").code == ExitCode.USAGE
        assert weir(*wrong, "--cut", f"{1:016x}").code == 0, "it cannot know"
        (gateway.data / ARCHIVE_DIRECTORY).rename(gateway.data / "elsewhere")
        strange = ("backup", "create", str(backups / "strange"), "--data", str(gateway.data))
        assert weir(*strange, "--cut", two["cut"]).code == 0
        return (gateway.data / "gateway.id").read_text()


def check_faults(backups: Path, every: Sequence[str]) -> None:
    """Any file of the gateway's backup that is not as it was is found."""
    repository = Repository(backups / "g")
    (_, last) = repository.backups()
    verify = ("backup", "verify", str(backups / "g"))
    assert {each.name.partition("/")[0] for each in last.files} >= {
        ARCHIVE_DIRECTORY,
        "gateway.id",
        "secrets.key",
    }
    for file in last.files:
        path = repository.path_of(file.sha256)
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        flipped = weir(*verify)
        assert flipped.code == ExitCode.UNHEALTHY
        assert f"{file.name} of backup" in flipped.out
        path.unlink()
        assert "is missing" in weir(*verify).out
        path.write_bytes(whole)
    assert weir("backup", "verify", *every).code == 0
    wrong = weir("backup", "verify", *every[:-1], str(backups / "wrong"))
    assert (wrong.code, "of several cuts" in wrong.out) == (ExitCode.UNHEALTHY, True)
    strange = weir("backup", "verify", *every[:-1], str(backups / "strange"))
    assert strange.code == ExitCode.UNHEALTHY
    assert "metering of backup 1 is not the archive of its log" in strange.out
    both = weir("backup", "verify", *every, every[-1])
    assert (both.code, "one gateway" in both.out) == (ExitCode.UNHEALTHY, True)


def test_stores_and_their_gateway_are_restored_and_each_message_is_billed_once(
    tmp_path: Path,
) -> None:
    backups, bills, anew = tmp_path / "backups", tmp_path / "bills", tmp_path / "anew"
    a_bill(bills)
    name = lost(tmp_path / "lost", backups, bills)
    for number in STORES:
        (backups / f"store-{number}").rename(backups / str(number))
    check_faults(backups, [str(backups / each) for each in ("1", "2", "3", "g")])
    shutil.rmtree(tmp_path / "lost")
    with ExitStack() as stack:
        cluster = restored(anew, backups, stack)
        restore = ("backup", "restore", str(backups / "g"), "--data", str(anew / "g"))
        where = weir(*restore, "--at", "1@127.0.0.1:1")
        assert (where.code, "gateway's" in where.err) == (1, True), where.err
        assert weir(*restore).code == 0
        assert (anew / "g" / "gateway.id").read_text() == name
        assert (anew / "g" / "bills" / "period=2026-11" / "run=1" / "summary.json").exists()
        assert not list((anew / "g" / "bills").glob("*/*.partial"))
        archive = anew / "g" / ARCHIVE_DIRECTORY
        assert published(archive) == EXPORTED + COUNTED + LOST, "not compared with its log yet"
        for number in STORES:
            cluster.start_store(number)
        key = f"node.key_file={anew / 'g' / 'secrets.key'}"
        gateway = cluster.start_gateway("g", key).serves()
        publish(gateway, LATER)
        assert exported(gateway) == archive
        assert published(archive) == EXPORTED + COUNTED + LATER
        assert not (archive / RESTORED_MARK).exists()
        assert exported(gateway) == archive
        entries = entries_of(archive)
        assert (forked_epochs(entries), sequence_gaps(entries)) == ([], [])
        assert published(archive) == sum(drained(gateway, "work").values())
