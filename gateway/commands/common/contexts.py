"""Servers by name, with whom to sign in as: what `weir context` keeps and the other commands use.

CONFIG/weir/contexts.json, where CONFIG is XDG_CONFIG_HOME, else ~/.config; mode 0600, for it may
hold passwords and tokens. One that others can read is refused.

    which       WEIR_CONTEXT, else the one in use; `none`: none
    when        no server is named: by --url, WEIR_URL, --data or WEIR_NODE__DATA

So what is kept for one server is never sent to another. WEIR_LOGIN, WEIR_TOKEN and a tenant that
is named go before what is kept.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from auth.errors import AuthError
from auth.private_files.files import read_private, replace_private
from gateway.commands.common.output import CommandError, ExitCode
from gateway.commands.common.values import NONE

CONTEXTS_MAX: Final = 200
"""Far from what a private file may hold (`FILE_BYTES_MAX`)."""

VARIABLE: Final = "WEIR_CONTEXT"


class Context(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A server, and whom to sign in as there."""

    url: str
    login: str | None = None
    """USER, or TENANT:USER."""
    secret: str | None = None
    """The login's password; without a login the admin token. None: it is asked for."""
    tenant: str | None = None


class Contexts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file. `current`: the name of the one in use."""

    current: str | None = None
    contexts: dict[str, Context] = {}


def file_of() -> Path:
    """Where they are kept."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home, "weir", "contexts.json")


def read_contexts() -> Contexts:
    """What is kept; nothing if there is no file. Raises CommandError."""
    file = file_of()
    try:
        return msgspec.json.decode(read_private(file), type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except (AuthError, OSError, ValueError, RecursionError) as error:
        raise CommandError(f"{file} cannot be read: {error}") from error


def write_contexts(found: Contexts) -> None:
    """Keep them. Raises CommandError."""
    if len(found.contexts) > CONTEXTS_MAX:
        message = f"there are {CONTEXTS_MAX} contexts: remove one first"
        raise CommandError(message, ExitCode.USAGE, "weir context rm NAME")
    file = file_of()
    text = msgspec.json.format(msgspec.json.encode(found), indent=2)
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_private(file, text + b"\n")
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error}") from error


def chosen() -> Context | None:
    """The context to be used; None: none is. Raises CommandError NOT_FOUND for a name that is not
    there.
    """
    named = os.environ.get(VARIABLE)
    if named == NONE:
        return None
    found = read_contexts()
    name = named or found.current
    return None if name is None else context_named(found, name)


def context_named(found: Contexts, name: str) -> Context:
    """The context of a name. Raises CommandError NOT_FOUND."""
    context = found.contexts.get(name)
    if context is None:
        message = f"there is no context {name}"
        raise CommandError(message, ExitCode.NOT_FOUND, "`weir context ls` lists them")
    return context
