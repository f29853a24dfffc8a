"""What `weir serve` says when it is up: where, who, and how to try it. Talk, so to stderr.

A command is shown only if it works when it is copied: the development logins exist, its listener is
open, and its program is on this machine.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import gateway
from auth.development import (
    DEVELOPMENT_KEY_ID,
    DEVELOPMENT_PASSWORD,
    DEVELOPMENT_SECRET,
    DEVELOPMENT_USER,
    Listener,
    development_principals,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from adapters.base import Adapter
    from gateway.config.schema import Settings

WEIR: Final = "weir"


@dataclass(frozen=True, slots=True)
class Trial:
    """One way to try a protocol."""

    program: str
    """What has to be installed; `weir` is."""
    listener: str
    """Its name in the settings."""
    command: str


TRIALS: Final[Mapping[str, Sequence[Trial]]] = {
    "rocketmq": (
        Trial(
            WEIR,
            "grpc",
            "{weir} bench rocketmq --url rocketmq://weir:weir-secret@{address} --duration 5",
        ),
    ),
    "amqp": (
        Trial(WEIR, "tcp", "{weir} bench amqp --url amqp://guest:guest@{address}/%2f --duration 5"),
    ),
    "mqtt": (
        Trial(
            "mosquitto_pub", "tcp", "mosquitto_pub -L mqtt://guest:guest@{address}/hello -q 1 -m hi"
        ),
        Trial(WEIR, "tcp", "{weir} bench mqtt --url mqtt://guest:guest@{address} --duration 5"),
    ),
    "sqs": (
        Trial(
            "aws",
            "http",
            "AWS_ACCESS_KEY_ID=weir AWS_SECRET_ACCESS_KEY=weir-secret AWS_DEFAULT_REGION=us-east-1 "
            "aws --endpoint-url http://{address} sqs create-queue --queue-name hello",
        ),
        Trial(WEIR, "http", "{weir} bench sqs --url http://{address} --messages 5000"),
    ),
}
"""One command per protocol, to be copied: the first that works here."""

_BY_PASSWORD: Final = frozenset({"amqp", "mqtt"})


def greeting(
    settings: Settings,
    adapters: Sequence[Adapter],
    notes: Sequence[str],
    admin: str | None,
    find: Callable[[str], str | None] = shutil.which,
) -> str:
    """The text. `notes`: what this process is, then what else there is to say of it; `admin`: URL
    of the admin side, if it is served; `find`: where a program is.
    """
    lines = [f"Weir {gateway.__version__}, {notes[0]}", *(f"  {each}" for each in notes[1:])]
    for adapter in adapters:
        for name, (host, port) in adapter.addresses().items():
            lines.append(f"  {adapter.name:<9} {host}:{port} ({name})")
    if admin is not None:
        lines.append(f"  admin     {admin}  /livez /readyz /metrics /api/v1")
    unserved = [name for name, each in settings.protocols.items() if not each.enabled]
    if unserved:
        lines.append(f"  switched off: {', '.join(unserved)}")
    listeners = [
        Listener(".".join(path), each.host, each.port)
        for path, each in settings.open_listeners().items()
    ]
    if adapters and development_principals(listeners) is not None:
        lines.append(f"  development logins (loopback only): {_logins(adapters)}")
        lines += [f"  try: {each}" for each in _trials(adapters, find)]
    return "\n".join(lines) + "\n"


def _logins(adapters: Sequence[Adapter]) -> str:
    """Those that the protocols served here ask for."""
    names = {adapter.name for adapter in adapters}
    logins = []
    if names & _BY_PASSWORD:
        logins.append(f"{DEVELOPMENT_USER}/{DEVELOPMENT_PASSWORD}")
    if names - _BY_PASSWORD:
        logins.append(f"access key {DEVELOPMENT_KEY_ID} with secret {DEVELOPMENT_SECRET.decode()}")
    return ", ".join(logins)


def _trials(adapters: Sequence[Adapter], find: Callable[[str], str | None]) -> Iterator[str]:
    for adapter in adapters:
        addresses = adapter.addresses()
        for trial in TRIALS.get(adapter.name, ()):
            if trial.listener not in addresses:
                continue
            if trial.program != WEIR and find(trial.program) is None:
                continue
            host, port = addresses[trial.listener]
            shown = f"[{host}]" if ":" in host else host
            yield trial.command.format(address=f"{shown}:{port}", weir=_weir(find(WEIR)))
            break


def _weir(on_path: str | None) -> str:
    """How to call the program that runs here, from where it was started."""
    running = Path(sys.argv[0])
    if on_path is not None and Path(on_path).resolve() == running.resolve():
        return WEIR
    if running.name != WEIR:
        return WEIR if on_path is not None else f"{shlex.quote(sys.executable)} -m gateway"
    near = running.absolute()
    if near.is_relative_to(Path.cwd()):
        near = near.relative_to(Path.cwd())
    return shlex.quote(str(near))
