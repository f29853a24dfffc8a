"""MQTT: Weir beside Mosquitto and amqtt's broker, by `weir bench mqtt`.

    python benchmarks/mqtt_rows.py                        every row, three rounds
    python benchmarks/mqtt_rows.py --rows mqtt-fanout     one row
    python benchmarks/mqtt_rows.py --dry                  print, and leave RESULTS.md as it is

    mqtt-pairs    QoS 1, sessions that are kept, 4 + 4 clients, 256 B, window 100: CPU a message
    mqtt-fanout   one publish to 1,000 live subscribers, QoS 1: CPU a delivery
    mqtt-idle     idle connections with one subscription: memory of each, how fast they come

Brokers are started here, on loopback, with their data in `.bench/`, and ended by their pids. A
peer that is not installed is left out and said so. The clients share one process: when that one
uses more than 80 % of a core, a run says nothing of rates, and only its CPU figures are kept.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import msgspec

from benchmarks.load.mqtt_load import MqttReport
from benchmarks.peers import BrokerFailed, Installed, OneProcess, Ours
from benchmarks.results import Circumstances, Line, Outcome, section, write
from benchmarks.samples import Sample
from benchmarks.session import ROOT, Session, load_average, machine
from kernel.store.drivers.file_system import file_system_of

PAGE = ROOT / "benchmarks" / "RESULTS.md"
FOLDER = ROOT / ".bench"
RUN_TIMEOUT_S = 600.0
WEIR = "Weir"
OTHERS = ("amqp", "sqs", "rocketmq", "node.admin")
FANOUT = 1_000
IDLE = 10_000
AMQTT_IDLE = 1_000  # it takes 12 ms a connection, growing with their number

MOSQUITTO_CONFIG = """\
listener {port} 127.0.0.1
allow_anonymous true
max_inflight_messages 0
max_queued_messages 0
set_tcp_nodelay true
"""
AMQTT_CONFIG = """\
listeners:
  default:
    type: tcp
    bind: 127.0.0.1:{port}
    max_connections: 20000
plugins:
  amqtt.plugins.authentication.AnonymousAuthPlugin:
    allow_anonymous: true
"""


class MqttBroker(OneProcess):
    """A broker that is up when its port is open."""

    @property
    def url(self) -> str:
        return f"mqtt://guest:guest@127.0.0.1:{self.port}"

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0):
                return True
        except OSError:
            return False


class WeirMqtt(MqttBroker):
    """`weir serve` with MQTT alone, of this working tree."""

    product = "weir"
    name = "Weir"

    @classmethod
    def found(cls, folder: Path, _ours: Ours) -> Self | None:
        return cls(folder)

    def _command(self) -> tuple[list[str], dict[str, str]]:
        chosen = [f"mqtt.port={self.port}"]
        chosen += [f"protocols.mqtt.listeners.{name}.port=0" for name in ("websocket", "tls")]
        chosen += [f"{name}.enabled=false" for name in OTHERS]
        words = [word for setting in chosen for word in ("--set", setting)]
        command = [sys.executable, "-m", "gateway", "serve", "--data", str(self.folder / "data")]
        return [*command, *words], {**os.environ, "PYTHONPATH": str(ROOT)}

    def settings(self) -> str:
        return "`weir serve` with every other protocol and the admin side off"

    def version(self) -> str:
        command = [sys.executable, "-m", "gateway", "--version"]
        done = subprocess.run(command, capture_output=True, check=False, text=True, cwd=ROOT)
        return done.stdout.strip()


class Mosquitto(MqttBroker, Installed):
    """Debian's; sessions in memory, as it comes."""

    product = "mosquitto"
    name = "Mosquitto"

    @classmethod
    def find(cls) -> Path | None:
        program = shutil.which("mosquitto")
        return Path(program) if program is not None else None

    def _command(self) -> tuple[list[str], dict[str, str]]:
        config = self.folder / "mosquitto.conf"
        config.write_text(MOSQUITTO_CONFIG.format(port=self.port))
        return [str(self._server), "-c", str(config)], dict(os.environ)

    def settings(self) -> str:
        return "no limits on messages in flight or queued, TCP_NODELAY, no persistence"

    def version(self) -> str:
        done = subprocess.run(["mosquitto", "-h"], capture_output=True, check=False, text=True)
        return (done.stdout + done.stderr).partition("\n")[0]


class Amqtt(MqttBroker, Installed):
    """amqtt's broker, in this environment's Python."""

    product = name = "amqtt"

    @classmethod
    def find(cls) -> Path | None:
        program = Path(sys.executable).parent / "amqtt"
        return program if program.exists() else None

    def _command(self) -> tuple[list[str], dict[str, str]]:
        config = self.folder / "amqtt.yaml"
        config.write_text(AMQTT_CONFIG.format(port=self.port))
        return [str(self._server), "-c", str(config)], dict(os.environ)

    def settings(self) -> str:
        return "anonymous logins; MQTT 3.1.1, the only version it speaks"

    def version(self) -> str:
        import amqtt

        return f"amqtt {amqtt.__version__}"


@dataclass(frozen=True, slots=True)
class Row:
    """A row: its name, title, arguments of `weir bench mqtt`, and what is read from its report."""

    name: str
    title: str
    arguments: tuple[str, ...]
    figures: Callable[[MqttReport], dict[str, float]]
    goals: dict[str, tuple[str, float]]
    """Figure to (the bar in words, the most that Weir may have)."""


def _message_figures(report: MqttReport) -> dict[str, float]:
    return {
        "server CPU us": report.server_cpu_us_per_message,
        "delivered/s": report.delivered_per_s,
        "end-to-end p50 ms": report.latency_p50_us / 1e3,
        "end-to-end p99 ms": report.latency_p99_us / 1e3,
    }


def _idle_figures(report: MqttReport) -> dict[str, float]:
    return {
        "KiB a connection": report.resident_kib_per_connection,
        "connects/s": report.connects_per_s,
        "server CPU us a connect": report.server_cpu_us_per_message,
    }


_FANOUT = ("--load", "fanout", "--qos", "1", "--subscribers", str(FANOUT))
_IDLE = ("--load", "idle", "--qos", "1")
ROWS = (
    Row(
        "mqtt-pairs",
        "MQTT: QoS 1, kept sessions, 4 + 4 clients, 256 B, window 100",
        ("--load", "pairs", "--qos", "1", "--kept"),
        _message_figures,
        {"server CPU us": ("≤ 80 us", 80.0)},
    ),
    Row(
        "mqtt-fanout",
        f"MQTT: one publish to {FANOUT:,} live subscribers, QoS 1",
        _FANOUT,
        _message_figures,
        {"server CPU us": ("≤ 20 us", 20.0)},
    ),
    Row(
        "mqtt-idle",
        "MQTT: idle connections with one QoS 1 subscription, clean sessions",
        _IDLE,
        _idle_figures,
        {"KiB a connection": ("≤ 8 KiB", 8.0)},
    ),
    Row(
        "mqtt-idle-kept",
        "MQTT: idle connections with one QoS 1 subscription, kept sessions",
        (*_IDLE, "--kept"),
        _idle_figures,
        {"KiB a connection": ("≤ 12 KiB", 12.0)},
    ),
)


def run_once(session: Session, row: Row, broker: OneProcess, duration_s: float) -> dict[str, float]:
    """One run on a fresh broker. Raises BrokerFailed."""
    is_amqtt = isinstance(broker, Amqtt)
    arguments = [each for each in row.arguments if not (is_amqtt and each == "--kept")]
    if len(arguments) < len(row.arguments):
        # It acknowledges before it routes, so a window does not hold its publishers back.
        arguments += ["--window", "1"]
        session.note(
            "amqtt has clean sessions and a window of 1 here: it loses messages of kept sessions, "
            "and with more open messages its backlog costs ever more."
        )
    command = [sys.executable, "-m", "gateway", "bench", "mqtt", "-o", "json", *arguments]
    command += ["--url", broker.url, "--pid", str(broker.pid), "--duration", str(duration_s)]
    command += ["--protocol-version", "4" if is_amqtt else "5"]
    if "idle" in row.name:
        command += ["--connections", str(AMQTT_IDLE if is_amqtt else IDLE)]
    done = subprocess.run(
        command, capture_output=True, check=False, cwd=ROOT, timeout=RUN_TIMEOUT_S
    )
    if done.returncode:
        raise BrokerFailed(done.stderr.decode().strip())
    report = msgspec.json.decode(done.stdout, type=MqttReport)
    if report.generator_cpu_share > 0.8:
        session.note(f"{broker.name}: the generator used {report.generator_cpu_share:.0%}")
    return row.figures(report)


def brokers(folder: Path) -> dict[str, OneProcess]:
    """The brokers that are there, not started."""
    made = [
        kind.found(folder / kind.product, Ours(Path(sys.executable), []))
        for kind in (WeirMqtt, Mosquitto, Amqtt)
    ]
    return {broker.name: broker for broker in made if broker is not None}


def measure(row: Row, session: Session, how: Circumstances) -> Outcome:
    """All rounds of a row, a fresh broker for each run, one at a time."""
    taken: dict[str, list[dict[str, float] | None]] = {}
    for number in range(1, session.rounds + 1):
        folder = session.folder / f"{row.name}-{number}"
        for side, broker in brokers(folder).items():
            figures: dict[str, float] | None = None
            try:
                broker.start()
                how.versions[side] = broker.version()
                how.settings[side] = broker.settings()
                figures = run_once(session, row, broker, session.duration_s)
            except (BrokerFailed, subprocess.TimeoutExpired) as error:
                session.note(f"{side}: {error}")
            finally:
                broker.close()
            taken.setdefault(side, []).append(figures)
            shown = ", ".join(f"{name} {value:,.1f}" for name, value in (figures or {}).items())
            session.say(f"  round {number} {side}: {shown or 'did not count'}")
    if "idle" in row.name:
        session.note(f"{IDLE:,} connections; amqtt {AMQTT_IDLE:,}.")
    return outcome_of(row, taken, session.notes)


def outcome_of(
    row: Row, taken: dict[str, list[dict[str, float] | None]], notes: list[str]
) -> Outcome:
    """The table of a row; ratios are Weir's over Mosquitto's."""
    lines: list[Line] = []
    names = {name: None for rounds in taken.values() for each in rounds if each for name in each}
    for figure in names:
        cells = {
            side: Sample(tuple((each or {}).get(figure) for each in rounds))
            for side, rounds in taken.items()
        }
        bar, most = row.goals.get(figure, ("", 0.0))
        own = cells[WEIR].median
        met = own <= most if bar and own is not None else None
        peer = cells.get("Mosquitto")
        ratio = cells[WEIR].over(peer) if peer is not None else None
        lines.append(Line(figure, cells, ratio, bar, met))
    return Outcome(list(taken), lines, list(notes))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", nargs="+", default=[row.name for row in ROWS])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--duration", type=float, default=5.0, help="seconds of a run")
    parser.add_argument("--dry", action="store_true", help="print the sections, write nothing")
    options = parser.parse_args()
    rows = {row.name: row for row in ROWS}
    unknown = [name for name in options.rows if name not in rows]
    if unknown:
        print(f"no such row: {', '.join(unknown)}", file=sys.stderr)
        return 2
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / ".gitignore").write_text("*\n")
    for name in options.rows:
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=FOLDER))
        session = Session(
            folder=folder, brokers={}, rounds=options.rounds, duration_s=options.duration
        )
        how = Circumstances(
            command=" ".join(["python", "benchmarks/mqtt_rows.py", *sys.argv[1:]]),
            date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
            machine=machine(),
            filesystem=file_system_of(ROOT),
            load_before=load_average(),
            rounds=options.rounds,
            versions={},
            settings={},
        )
        session.say(f"{name}: {rows[name].title}")
        try:
            outcome = measure(rows[name], session, how)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        text = section(rows[name].title, outcome, how)
        if options.dry:
            print(text)
        else:
            write(PAGE, name, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
