"""What `weir serve` says when it is up: where, who, and how to try it. Talk, so to stderr.

A command is shown only if it works when it is copied: the development logins exist, its listener is
open, and its program is on this machine.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import gateway
from adapters.base import WEIR, LoginKind
from auth.users.development import (
    DEVELOPMENT_KEY_ID,
    DEVELOPMENT_PASSWORD,
    DEVELOPMENT_SECRET,
    DEVELOPMENT_USER,
    ReachableListener,
    development_principals,
)
from gateway.config.declared import declared_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from adapters.base import Adapter, Declaration
    from gateway.config.schema import Settings


def greeting(
    settings: Settings,
    adapters: Sequence[Adapter],
    notes: Sequence[str],
    admin: str | None,
    find: Callable[[str], str | None] = shutil.which,
    *,
    code: str | None = None,
) -> str:
    """The text. `notes`: what this process is, then what else there is to say of it; `admin`: URL
    of the admin side, if it is served; `find`: where a program is; `code`: what signs a browser in
    once, if that may be said here.
    """
    lines = [f"Weir {gateway.__version__}, {notes[0]}", *(f"  {each}" for each in notes[1:])]
    for adapter in adapters:
        for name, (host, port) in adapter.addresses().items():
            lines.append(f"  {adapter.name:<9} {host}:{port} ({name})")
    if admin is not None:
        lines.append(f"  admin     {admin}  /livez /readyz /metrics /api/v1")
        signs_in = f"#code={code}  (signs you in, once)" if code is not None else ""
        lines.append(f"  console   {admin}/{signs_in}")
    unserved = [name for name, each in settings.protocols.items() if not each.enabled]
    if unserved:
        lines.append(f"  switched off: {', '.join(unserved)}")
    listeners = [
        ReachableListener(".".join(path), each.host, each.port)
        for path, each in settings.open_listeners().items()
    ]
    if adapters and development_principals(listeners) is not None:
        declared = declared_in(settings.protocols)
        lines.append(f"  development logins (loopback only): {_logins(adapters, declared)}")
        lines += [f"  try: {each}" for each in _trials(adapters, declared, find)]
    return "\n".join(lines) + "\n"


def _logins(adapters: Sequence[Adapter], declared: Mapping[str, Declaration]) -> str:
    """Those that the protocols served here ask for."""
    kinds = {declared[adapter.name].login for adapter in adapters}
    logins = []
    if LoginKind.PASSWORD in kinds:
        logins.append(f"{DEVELOPMENT_USER}/{DEVELOPMENT_PASSWORD}")
    if LoginKind.ACCESS_KEY in kinds:
        logins.append(f"access key {DEVELOPMENT_KEY_ID} with secret {DEVELOPMENT_SECRET.decode()}")
    return ", ".join(logins)


def _trials(
    adapters: Sequence[Adapter],
    declared: Mapping[str, Declaration],
    find: Callable[[str], str | None],
) -> Iterator[str]:
    """One command per protocol, to be copied: the first that works here."""
    for adapter in adapters:
        addresses = adapter.addresses()
        for trial in declared[adapter.name].trials:
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
