"""Measure Weir beside the brokers found on this machine and write RESULTS.md.

    python benchmarks/compare.py                        every row, five rounds
    python benchmarks/compare.py --rows amqp-1p1c       one row
    python benchmarks/compare.py --list                 the rows

Brokers are started here, on loopback, with their data in `.bench/` (ignored by git, on the real
disk), and ended by their pids. A peer or a Weir that is not there is left out and said so.
Exit code 1 when a row could not be measured.
"""

from __future__ import annotations

import argparse
import datetime
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import amqp_rows, gateway_rows, rocketmq_rows, sqs_rows
from benchmarks.amqp_rows import Row
from benchmarks.disk import MEMORY_FILESYSTEMS
from benchmarks.peers import Broker, BrokerFailed, Ours
from benchmarks.results import Circumstances, Outcome, section, write
from benchmarks.session import ROOT, Session, load_average, machine
from kernel.store.drivers.file_system import file_system_of

ROWS = [*amqp_rows.ROWS, *sqs_rows.ROWS, *rocketmq_rows.ROWS, *gateway_rows.ROWS]
ROUNDS = 5
PAGE = ROOT / "benchmarks" / "RESULTS.md"
FOLDER = ROOT / ".bench"
PEERS = ["weir", "rabbitmq", "fauxqs", "moto"]


def shown_argument(argument: str) -> str:
    """An argument as it may stand in RESULTS.md: of a path on this machine, its name."""
    return Path(argument).name if argument.startswith("/") else argument


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="names from --list; default all")
    parser.add_argument("--list", action="store_true", help="print the rows and leave")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="alternations (default 5)")
    parser.add_argument("--duration", type=float, default=10.0, help="seconds of a run")
    parser.add_argument("--cold-messages", type=int, default=1_000_000, help="of row amqp-cold")
    parser.add_argument("--peers", nargs="*", default=PEERS, help="sides to run")
    parser.add_argument("--weir-command", default="", help="default: weir beside this Python")
    parser.add_argument("--weir-set", action="append", default=[], metavar="PATH=VALUE")
    parser.add_argument("--dry", action="store_true", help="print the sections, write nothing")
    return parser.parse_args()


def brokers(row: Row, options: argparse.Namespace, folder: Path) -> dict[str, Broker]:
    """The sides of the row that are there, not started."""
    command = Path(options.weir_command or Path(sys.executable).parent / "weir")
    ours = Ours(command, options.weir_set)
    made = [
        kind.found(folder / f"{kind.product}-{number}", ours)
        for number, kind in enumerate(row.sides)
        if kind.product in options.peers
    ]
    return {broker.name: broker for broker in made if broker is not None}


def measure(row: Row, options: argparse.Namespace, how: Circumstances) -> tuple[str, bool]:
    """Measure one row; return its section and whether it could be measured."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / ".gitignore").write_text("*\n")
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=FOLDER))
    session = Session(
        folder=folder,
        brokers=brokers(row, options, folder),
        rounds=options.rounds,
        duration_s=options.duration,
        cold_messages=options.cold_messages,
    )
    session.say(f"{row.name}: {row.title}")
    try:
        _start(session, [kind.name for kind in row.sides])
        for name, broker in session.brokers.items():
            how.versions[name] = broker.version()
            how.settings[name] = broker.settings()
        outcome = row.measure(session)
        measured = bool(session.brokers)
    except (BrokerFailed, subprocess.TimeoutExpired) as error:
        session.note(f"not measured to the end: {error}")
        outcome, measured = Outcome([], []), False
    finally:
        for broker in session.brokers.values():
            broker.close()
        shutil.rmtree(folder, ignore_errors=True)
    session.note_others()
    outcome.notes.extend(session.notes)
    return section(row.title, outcome, how), measured


def _start(session: Session, wanted: Sequence[str]) -> None:
    """Start what was found; one that does not start is left out, with a note."""
    for name, broker in list(session.brokers.items()):
        try:
            broker.start()
        except BrokerFailed as error:
            session.note(str(error))
            broker.close()
            del session.brokers[name]
    for name in wanted:
        if name not in session.brokers:
            session.note(f"{name} was not measured.")


def circumstances(options: argparse.Namespace) -> Circumstances:
    script = Path(sys.argv[0]).absolute()
    shown = script.relative_to(ROOT) if script.is_relative_to(ROOT) else Path(script.name)
    return Circumstances(
        command=" ".join(["python", str(shown), *map(shown_argument, sys.argv[1:])]),
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        machine=machine(),
        filesystem=file_system_of(ROOT),
        load_before=load_average(),
        rounds=options.rounds,
        versions={},
        settings={},
    )


def main() -> int:
    # `timeout` ends us so: brokers that were started must go with us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options = arguments()
    rows = {row.name: row for row in ROWS}
    if options.list:
        for row in ROWS:
            print(f"{row.name:14} {row.title}")
        return 0
    unknown = [name for name in options.rows or [] if name not in rows]
    if unknown:
        print(f"no such row: {', '.join(unknown)}; see --list", file=sys.stderr)
        return 2
    if file_system_of(ROOT) in MEMORY_FILESYSTEMS:
        print("the working tree lies in memory: nothing here would be a sync", file=sys.stderr)
        return 2
    failed = []
    for name in options.rows or rows:
        text, measured = measure(rows[name], options, circumstances(options))
        if not measured:
            failed.append(name)
        if options.dry:
            print(text)
        else:
            write(PAGE, name, text)
    if failed:
        print(f"not measured: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
