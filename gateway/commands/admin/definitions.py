"""`weir definitions`: all that is defined, as a file (docs/operations/definitions.md)."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.commands.common.options import FormatOption, TenantOptions, YesOption, with_groups
from gateway.commands.common.output import CommandError, ExitCode, Format, Table, put, say
from gateway.commands.common.values import confirm

if TYPE_CHECKING:
    from gateway.commands.common.api import Api, Facts

app = typer.Typer(
    help="All that is defined: topics, groups, routers, routes, users, keys, policies, limits.",
    no_args_is_help=True,
)

STANDARD = "-"
JSON_SUFFIX = ".json"
YAML_SUFFIXES = (".yaml", ".yml")

FileOption = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="JSON if it ends so, else YAML; -: standard input or output."
    ),
]
Only = Annotated[
    str | None,
    typer.Option("--only", metavar="KINDS", help="Kinds, as topics,routers; all unless told."),
]


@app.command("export")
@with_groups
def export(
    file: FileOption = STANDARD,
    only: Only = None,
    no_secrets: Annotated[
        bool, typer.Option("--no-secrets", help="Without users and keys.")
    ] = False,
    *,
    server: TenantOptions,
    output: FormatOption = Format.YAML,
) -> None:
    """Write what is defined to a file that only you can read: it has hashes of passwords, and keys
    as they are sealed. To standard output it goes as YAML, or with -o json.
    """
    found = server.connect().get("/definitions", only=only, secrets=False if no_secrets else None)
    is_json = output is Format.JSON if file == STANDARD else file.endswith(JSON_SUFFIX)
    text = _spelled(found, is_json=is_json)
    if file == STANDARD:
        sys.stdout.write(text)
        return
    try:
        number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(number, "w", encoding="utf-8") as target:
            target.write(text)
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error.strerror}") from error


@app.command("diff")
@with_groups
def diff(
    file: FileOption,
    only: Only = None,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show what applying a file would change, and what of it cannot be had here: exit code 1 then.
    It reads definitions.json of RabbitMQ as well.
    """
    planned = _planned(server.connect(), _read(file), only)
    put(planned, _table(planned), output)
    _say_more(planned)
    if planned["faults"]:
        raise CommandError("nothing would be done: see above")


@app.command("apply")
@with_groups
def apply(
    file: FileOption,
    only: Only = None,
    yes: YesOption = False,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Add and change what a file says; what it does not name stays. Nothing is done if one thing of
    it cannot be had here. It reads definitions.json of RabbitMQ as well.
    """
    api, document = server.connect(), _read(file)
    planned = _planned(api, document, only)
    _say_more(planned)
    if planned["faults"]:
        raise CommandError("nothing was done: see above")
    if file == STANDARD and not yes and planned["remaining"]:
        message = "the document comes by standard input: say --yes"
        raise CommandError(message, ExitCode.USAGE)
    if planned["remaining"] and file != STANDARD:
        put(planned, _table(planned), Format.TABLE)
        confirm(f"Applying {file} ({planned['remaining']} changes)", "apply", yes=yes)
    made: list[Facts] = []
    while True:
        done = _sent(api, document, only, dry_run=False)
        made += done["changes"]
        if done["faults"] or not done["remaining"]:
            break
    done["changes"] = made
    put(done, _table(done), output)
    _say_faults(done)
    if done["faults"]:
        message = f"{done['remaining']} changes are not made: apply the file again"
        raise CommandError(message)


def _planned(api: Api, document: bytes, only: str | None) -> Facts:
    return _sent(api, document, only, dry_run=True)


def _sent(api: Api, document: bytes, only: str | None, *, dry_run: bool) -> Facts:
    query = {"only": only, "dry_run": dry_run}
    return api.call("POST", "/definitions", document, query, good=(200, 207))


def _table(outcome: Facts) -> Table:
    rows = []
    for each in outcome["changes"]:
        changes = "; ".join(
            f"{name}: {_short(now)} -> {_short(wanted)}"
            for name, (now, wanted) in each["fields"].items()
        )
        rows.append(
            (each["name"], each["kind"], each["tenant"], "new" if each["is_new"] else changes)
        )
    return Table(("name", "kind", "tenant", "change"), rows)


def _short(value: object) -> str:
    return "default" if value is None else str(value)


def _say_more(planned: Facts) -> None:
    """What people have to know besides the changes."""
    for each in planned["unlike"]:
        say(f"{each['what']}: {each['why']}")
    _say_faults(planned)
    say(f"{planned['remaining']} to change, {planned['same']} as they are")


def _say_faults(outcome: Facts) -> None:
    for each in outcome["faults"]:
        tenant = f" of tenant {each['tenant']}" if each["tenant"] else ""
        say(f"{each['kind']} {each['name']}{tenant}: {each['reason']}")


def _read(file: str) -> bytes:
    """What a file says, as JSON. Raises CommandError."""
    from adapters.definitions import DOCUMENT_BYTES_MAX
    from gateway.commands.common.documents import DocumentError, encoded

    try:
        text = sys.stdin.read() if file == STANDARD else Path(file).read_text(encoding="utf-8")
        is_json = file.endswith(JSON_SUFFIX) or (
            text.lstrip()[:1] == "{" and not file.endswith(YAML_SUFFIXES)
        )
        return encoded(text, DOCUMENT_BYTES_MAX, is_json=is_json)
    except (OSError, UnicodeDecodeError, DocumentError) as error:
        raise CommandError(f"{file} cannot be read: {error}", ExitCode.USAGE) from error


def _spelled(document: Facts, *, is_json: bool) -> str:
    if is_json:
        import json

        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    import msgspec
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    plain = msgspec.to_builtins(document)
    text: str = yaml.dump(plain, Dumper=dumper, sort_keys=False, allow_unicode=True)
    return text
