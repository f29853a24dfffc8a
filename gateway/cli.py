"""The command `weir`: a tree of commands, and the one place where failures become exit codes.

A command's modules are imported when the command is asked for: `tree` makes the others of their one
line of help alone, so that no command waits for what it does not use.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, NoReturn

import typer

import gateway
from gateway.commands.common.output import CommandError, say

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class Entry(NamedTuple):
    """A command, or a group of commands, of the first level."""

    module: str
    """Below gateway.commands."""
    attribute: str
    """Of that module: a typer.Typer, or the function of a command."""
    help: str
    """What the command says of itself: `weir --help` shows it without asking."""


COMMANDS: Final = {
    "serve": Entry(
        "processes.serve", "serve", "Serve all enabled protocols until SIGTERM or Ctrl-C."
    ),
    "store": Entry(
        "processes.store",
        "store",
        "Run a store of a cluster until SIGTERM or Ctrl-C; its leaderships go to others first.",
    ),
    "gateway": Entry(
        "processes.gateway",
        "gateway",
        "Serve all enabled protocols before the stores of a cluster until SIGTERM or Ctrl-C.",
    ),
    "health": Entry(
        "admin.health",
        "health",
        "Say how a node is: exit code 0 if every check is well, 3 if one is not or none answers.",
    ),
    "doctor": Entry(
        "tools.doctor",
        "doctor",
        "Check the data directory of a server that does not run: exit code 3 if it is damaged.",
    ),
    "backup": Entry("tools.backup", "app", "Backups of a server that runs: make, verify, restore."),
    "bill": Entry(
        "tools.bill",
        "bill",
        "Bill a month and show its invoices. The same records give the same run, not a second one.",
    ),
    "topic": Entry("admin.topic", "topics", "Topics: streams, and the queues of SQS and AMQP."),
    "queue": Entry(
        "admin.topic",
        "queues",
        "Work topics: what SQS and AMQP call queues. A message goes when it is acked.",
    ),
    "group": Entry("admin.group", "app", "Consumer groups of topics."),
    "router": Entry("admin.route", "routers", "Routers: what AMQP calls exchanges."),
    "route": Entry("admin.route", "routes", "Routes from routers: what AMQP calls bindings."),
    "message": Entry(
        "admin.message", "app", "Look at messages, send, consume, move and drop them."
    ),
    "dead-letters": Entry(
        "admin.dead_letters", "app", "Dead letters: where they wait, and bringing them back."
    ),
    "connection": Entry("admin.connection", "app", "Who is connected."),
    "console": Entry(
        "admin.console",
        "console",
        "Say the address of the console, which signs a browser in, once, within the hour.",
    ),
    "events": Entry(
        "admin.events",
        "events",
        "Say what has happened, a line of JSON each: who came and went, who changed what, alarms.",
    ),
    "audit": Entry("admin.audit", "audit", "Say who has changed what by the admin API."),
    "session": Entry("admin.session", "app", "Sessions of MQTT clients."),
    "user": Entry("admin.user", "users", "Users of every protocol and of the admin API."),
    "key": Entry("admin.user", "keys", "Access keys, by which SQS and RocketMQ sign."),
    "policy": Entry("admin.user", "policies", "Policies: what users may do."),
    "tenant": Entry(
        "admin.tenant", "app", "Tenants, each with names, limits and users of its own."
    ),
    "limit": Entry(
        "admin.limit", "app", "Limits of what tenants, users, topics and listeners may use."
    ),
    "definitions": Entry(
        "admin.definitions",
        "app",
        "All that is defined: topics, groups, routers, routes, users, keys, policies, limits.",
    ),
    "cluster": Entry("admin.cluster", "app", "The stores of a cluster."),
    "node": Entry("admin.node", "app", "The gateways of a cluster."),
    "context": Entry(
        "tools.context",
        "app",
        "Servers by name, with whom to sign in as: kept in a file of yours.",
    ),
    "config": Entry("tools.config", "app", "Show and check the settings."),
    "bench": Entry(
        "tools.bench",
        "app",
        "Load testers for Weir or any other broker; they verify loss, duplicates and order.",
    ),
}


def tree(asked: Collection[str]) -> typer.Typer:
    """The command line, with everything below those of COMMANDS that are in `asked`."""
    app = typer.Typer(
        name="weir",
        help="One message queue for SQS, AMQP, MQTT and RocketMQ clients, over one durable log.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(weir)
    for name, entry in COMMANDS.items():
        if name not in asked:
            app.command(name, help=entry.help)(_not_asked)
            continue
        found = getattr(import_module(f"gateway.commands.{entry.module}"), entry.attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


def _not_asked() -> None:
    """Stands for a command whose name is not among the arguments, and so is never called."""
    raise AssertionError


def _show_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"weir {gateway.__version__}\n")
        raise typer.Exit


def weir(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Say which version this is.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Hold the options that stand before any command; `--version` answers by itself."""


def _end(number: int, _frame: object) -> NoReturn:
    """Leave as shells say of a process that a signal has ended."""
    sys.exit(128 + number)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit code; `arguments` stand in for sys.argv[1:]."""
    if os.getpid() == 1:
        # Of a container. The system drops what its first process has no handler for: until `serve`
        # has its own, and in every other command, nobody could stop it but by force.
        signal.signal(signal.SIGTERM, _end)
    given = sys.argv[1:] if arguments is None else list(arguments)
    # A shell that completes names the words in a variable of its own, and may ask for any.
    asked = COMMANDS if "_WEIR_COMPLETE" in os.environ else given
    try:
        tree(asked)(args=given, prog_name="weir")
    except CommandError as error:
        say(f"weir: {error.message}")
        if error.hint:
            say(f"hint: {error.hint}")
        sys.exit(error.code)
    sys.exit(0)
