"""`weir backup`: backups of a server that runs, verified and restored."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from gateway.commands.common.api import connect
from gateway.commands.common.options import FormatOption, ServerOptions, with_groups
from gateway.commands.common.output import CommandError, ExitCode, Format, Table, put, say
from kernel.store.drivers.system import SystemClock, SystemRandom

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gateway.backups.manifest import Backup
    from gateway.backups.verifying import Verified
    from gateway.commands.common.api import Api

app = typer.Typer(
    help="Backups of a server that runs: make, verify, restore.", no_args_is_help=True
)

WORD_MAX = 64
"""Stores say it when they connect."""

GATEWAY = "gateway-"
"""So the names of gateways begin."""

RATE_MIB = 150
"""At twice as much publishers wait five times as long on one disk (benchmarks/RESULTS.md)."""

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of the backups.")]
BillsOption = Annotated[
    Path | None,
    typer.Option("--bills", metavar="DIR", help="Have the runs of `weir bill` in it as well."),
]
Number = Annotated[
    int | None, typer.Option("--backup", metavar="NUMBER", help="Which one; the last.", min=1)
]


@app.command()
@with_groups
def create(
    directory: Directory,
    incremental: Annotated[
        bool,
        typer.Option("--incremental", help="Add to the backups that are there what is new since."),
    ] = False,
    rate: Annotated[
        int, typer.Option("--rate", metavar="MIB", help="MiB a second to copy, at most.", min=1)
    ] = RATE_MIB,
    cut: Annotated[
        str | None,
        typer.Option("--cut", help="Of a cluster: what `weir cluster cut` has said."),
    ] = None,
    bills: BillsOption = None,
    *,
    server: ServerOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Make a backup of a server that runs, on its machine: all of it as of one moment."""
    copy = _Copy(server.connect(), directory, rate, cut)
    facts = _made(copy, incremental=incremental, bills=bills)
    put(facts, Table(tuple(facts), [tuple(map(str, facts.values()))]), output)


@app.command("cluster")
@with_groups
def create_of_cluster(
    directory: Directory,
    here: Annotated[
        list[Path],
        typer.Option(
            "--here",
            metavar="DATA",
            help="Data directory of a store or gateway on this machine. Repeatable.",
        ),
    ],
    without: Annotated[
        list[int] | None,
        typer.Option("--without", metavar="NUMBER", help="Leave out a store that is down."),
    ] = None,
    rate: Annotated[
        int, typer.Option("--rate", metavar="MIB", help="MiB a second to copy, at most.", min=1)
    ] = RATE_MIB,
    bills: BillsOption = None,
    *,
    output: FormatOption = Format.TABLE,
) -> None:
    """Cut all stores of a cluster, make the backups of those on this machine, each in a directory
    of its own below DIR and incremental if it has some, and say what is to be run elsewhere.
    """
    from gateway.backups.repository import Repository

    with _told():
        members = dict(zip(map(_member, here), here, strict=True))
    if len(members) < len(here):
        raise CommandError("--here names a store or gateway twice", ExitCode.USAGE)
    apis = {name: connect(None, data) for name, data in members.items()}
    cut = next(iter(apis.values())).post("/cluster/cuts", {"without": without or []})
    stores = {f"store-{each['number']}" for each in cut["stores"]}
    not_cut = [name for name in apis if name not in stores and not name.startswith(GATEWAY)]
    for name in not_cut:
        del apis[name]
    if not apis:
        raise CommandError(f"{', '.join(not_cut)}: none of them is in the cut")
    made: list[dict[str, Any]] = []
    with _pinned(apis, cut["cut"]) as pinned:
        for name, api in apis.items():
            place = directory / name
            with _told():
                known = bool(Repository(place).names())
            issued = bills if name.startswith(GATEWAY) else None
            copy = _Copy(api, place, rate, cut["cut"], lambda: _touch(apis, pinned))
            cost = _made(copy, incremental=known, bills=issued)
            made.append({"member": name, "directory": str(place), **cost})
            del pinned[name]
    left = [
        {
            "member": f"store-{each['number']}",
            "host": each["host"],
            "address": each["address"],
            "command": f"weir backup create DIR --cut {cut['cut']}",
        }
        for each in cut["stores"]
        if f"store-{each['number']}" not in members
    ]
    columns = ("member", "number", "copied_bytes", "milliseconds")
    rows = [tuple(str(each[column]) for column in columns) for each in made]
    facts = {"cut": cut["cut"], "made": made, "left": left, "not_cut": not_cut}
    put(facts, Table(columns, rows), output)
    for name in not_cut:
        say(f"{name} is not in the cut: left out, or none of the cluster (any more)")
    for each in left:
        say(f"within ten minutes, at {each['member']} ({each['host']}): {each['command']}")
    if not any(name.startswith(GATEWAY) for name in members):
        say(f"at the gateway whose archive is billed: weir backup create DIR --cut {cut['cut']}")


@contextmanager
def _pinned(apis: Mapping[str, Api], cut: str) -> Iterator[dict[str, int]]:
    """Numbers of what is pinned of a cut, by who has it. What is still among them at the end, since
    something failed, is let go.
    """
    pinned: dict[str, int] = {}
    try:
        for name, api in apis.items():
            pinned[name] = api.post("/backups", {"cut": cut})["number"]
        yield pinned
    finally:
        for name, number in pinned.items():
            if number:
                with suppress(CommandError):
                    apis[name].delete(f"/backups/{number}")


def _touch(apis: Mapping[str, Api], pinned: Mapping[str, int]) -> None:
    """What is still to be copied stays, however long that of the first one takes."""
    for name, number in pinned.items():
        if number:
            apis[name].get(f"/backups/{number}")


def _member(data: Path) -> str:
    """What a directory of a cluster's process is called below that of its backups. Raises
    CommandError.
    """
    from gateway.process.running import GATEWAY_FILE
    from kernel.cluster.roster import read_home
    from kernel.store.drivers.disk import DirectoryDisk

    if (data / GATEWAY_FILE).exists():
        return (data / GATEWAY_FILE).read_text("ascii", "replace").strip()
    home = read_home(DirectoryDisk(data)) if data.is_dir() else None
    if home is None:
        raise CommandError(f"{data} is the data directory of no store or gateway of a cluster")
    return f"store-{home.number}"


class _Copy(NamedTuple):
    """A backup that is to be made."""

    api: Api
    directory: Path
    rate: int
    """MiB a second."""
    cut: str | None
    touch: Callable[[], object] = int
    """Called every few seconds meanwhile."""


def _made(copy: _Copy, *, incremental: bool, bills: Path | None) -> dict[str, Any]:
    """Make a backup; what it has cost. Raises CommandError."""
    from gateway.backups.creating import Pins, Progress
    from gateway.backups.creating import create as make
    from gateway.backups.repository import COPIED_BYTES, Repository

    api, waited, pause_s = copy.api, threading.Event(), COPIED_BYTES / (copy.rate * 2**20)
    repository = Repository(copy.directory, lambda: waited.wait(pause_s))
    progress, began = Progress(), _now()

    def touch(number: int) -> None:
        if number:
            api.get(f"/backups/{number}")
        copy.touch()

    pins = Pins(
        lambda maker: api.post("/backups", {"maker": maker, "cut": copy.cut}),
        touch,
        lambda number: api.delete(f"/backups/{number}"),
        _now,
    )
    with _told(copy.directory):
        backup = make(repository, pins, progress, _new_word(), incremental=incremental, bills=bills)
    return {
        "number": backup.number,
        "id": backup.id,
        "taken": _time(backup),
        "bytes": backup.bytes,
        "files": len(backup.files),
        "copied_bytes": progress.copied_bytes,
        "copied_files": progress.copied,
        "milliseconds": _now() - began,
    }


@app.command("ls")
def list_backups(directory: Directory, output: FormatOption = Format.TABLE) -> None:
    """List the backups in a directory, the oldest first."""
    backups = _backups(directory)
    rows = [
        {
            "number": each.number,
            "id": each.id,
            "taken": _time(each),
            "bytes": each.bytes,
            "files": len(each.files),
            "store": each.store,
            "weir": each.weir,
        }
        for each in backups
    ]
    columns = ("number", "taken", "bytes", "files", "weir")
    shown = [tuple(str(row[column]) for column in columns) for row in rows]
    put({"backups": rows}, Table(columns, shown), output)


@app.command()
def verify(
    directory: Directory,
    others: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DIRS", help="Those of other stores, of the same cut."),
    ] = None,
    backup: Number = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Check every byte of all backups, or of one, and whether a server can start from the last:
    exit code 3 if something is wrong. With the directories of several stores of a cluster: also
    whether the last ones belong together.
    """
    from gateway.backups.verifying import verify_together

    backups, faults, verified = _verified(directory, backup)
    lasts = [verified]
    for each in others or ():
        _, more, verified = _verified(each, backup)
        faults += [f"{each}: {fault}" for fault in more]
        lasts.append(verified)
    if others and not faults:
        faults = verify_together([each for each in lasts if each is not None])
    facts = {"backups": [each.number for each in backups], "faults": faults}
    if faults:
        put(facts, Table(("fault",), [(each,) for each in faults]), output)
        raise typer.Exit(ExitCode.UNHEALTHY)
    if output is not Format.TABLE:
        put(facts, Table(("number",), [(str(each.number),) for each in backups]), output)
    last = backups[-1]
    say(f"{len(backups)} sound; the last, number {last.number}, shows {_time(last)}")
    if backup is None:
        _say_strays(directory, backups)


def _say_strays(directory: Path, backups: list[Backup]) -> None:
    """What points to newer backups that are gone, though nothing names them."""
    from gateway.backups.repository import Repository

    with _told(directory):
        strays = Repository(directory).strays(backups)
    if strays:
        text = f"{strays} files are of none of these backups: is a newer one missing?"
        say(f"{text} (One that was killed as it ended leaves some as well.)")


def _verified(
    directory: Path, backup: int | None
) -> tuple[list[Backup], list[str], Verified | None]:
    """Backups of a directory, what is wrong with them, and what was found unless they do not even
    read. Raises CommandError: there is none.
    """
    from gateway.backups.repository import Repository
    from gateway.backups.verifying import verify as look
    from gateway.process.running import understands

    try:
        backups = _backups(directory) if backup is None else [_named(directory, backup)]
        with _told():
            found = look(Repository(directory), backups, understands())
            return backups, list(found.faults), found
    except CommandError as error:
        if error.code is ExitCode.NOT_FOUND:
            raise
        return [], [error.message], None


@app.command()
def restore(
    directory: Directory,
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="The new data directory: none, or empty.")
    ],
    backup: Number = None,
    timeline: Annotated[
        str | None,
        typer.Option(
            "--timeline",
            metavar="WORD",
            help="Of a store of a cluster: the word that restoring the first one has printed.",
        ),
    ] = None,
    elsewhere: Annotated[
        list[str] | None,
        typer.Option(
            "--at",
            metavar="NUMBER@HOST:PORT",
            help="Where a store of the cluster is now, unless it is where it was. Repeatable.",
        ),
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Make a data directory of a backup; every byte is checked on the way."""
    from msgspec import UNSET

    from gateway.backups.repository import Repository
    from gateway.backups.restoring import restore as bring_back
    from gateway.process.running import understands

    chosen = _backups(directory)[-1] if backup is None else _named(directory, backup)
    of_cluster = chosen.cut is not UNSET
    if not of_cluster and (timeline or elsewhere):
        raise CommandError("--timeline and --at are for backups of a cluster's stores")
    word = timeline or _new_word()
    if len(word) > WORD_MAX or not word.isalnum() or not word.isascii():
        raise CommandError(f"--timeline is a word of at most {WORD_MAX} letters and digits")
    where = dict(map(_address, elsewhere or ()))
    began = _now()
    with _told(data):
        bring_back(Repository(directory), chosen, data, word, understands(), where)
    facts = {
        "number": chosen.number,
        "taken": _time(chosen),
        "data": str(data),
        "bytes": chosen.bytes,
        "milliseconds": _now() - began,
    }
    if of_cluster:
        facts["timeline"] = word
    put(facts, Table(tuple(facts), [tuple(map(str, facts.values()))]), output)
    if chosen.of_gateway:
        say("start it once the stores of the same cut are there: `weir gateway`")
    elif of_cluster:
        say(f"restore the other stores of the cut with --timeline {word}, then start all of them")
    else:
        say(f"serve it with `weir serve --data {data}`; what came after {_time(chosen)} is lost")


def _address(spelled: str) -> tuple[int, tuple[str, int]]:
    """A number and an address. Raises CommandError."""
    number, _, address = spelled.partition("@")
    host, _, port = address.rpartition(":")
    if not (number.isdigit() and host and port.isdigit()):
        raise CommandError(f"{spelled!r} is not NUMBER@HOST:PORT")
    return int(number), (host.strip("[]"), int(port))


def _backups(directory: Path) -> list[Backup]:
    """All that are there, at least one. Raises CommandError."""
    from gateway.backups.repository import Repository

    with _told():
        found = Repository(directory).backups()
    if not found:
        raise CommandError(f"there is no backup in {directory}", ExitCode.NOT_FOUND)
    return found


def _named(directory: Path, number: int) -> Backup:
    """One of them, though others may not be sound. Raises CommandError."""
    from gateway.backups.repository import Repository

    repository = Repository(directory)
    with _told():
        for name in repository.names():
            if name.startswith(f"{number:06d}-"):
                return repository.read(name)
    raise CommandError(f"there is no backup {number} in {directory}", ExitCode.NOT_FOUND)


@contextmanager
def _told(place: Path | None = None) -> Iterator[None]:
    """What goes wrong, as a sentence; `place`: where, if the system does not say. Raises
    CommandError.
    """
    from gateway.backups.manifest import BackupError
    from kernel.common.errors import KernelError

    try:
        yield
    except (BackupError, KernelError) as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        at = error.filename or place
        about = f" ({at})" if at else ""
        raise CommandError(f"{error.strerror or error}{about}") from error


def _time(backup: Backup) -> str:
    return datetime.fromtimestamp(backup.taken_ms / 1_000, UTC).isoformat(timespec="milliseconds")


def _now() -> int:
    return SystemClock().monotonic_ms()


def _new_word() -> str:
    return f"{SystemRandom().bits(64):016x}"
