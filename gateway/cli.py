"""The command `weir`: a tree of commands, and the one place where failures become exit codes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

import gateway
from gateway.commands.admin import (
    cluster,
    group,
    limit,
    message,
    node,
    route,
    session,
    tenant,
    topic,
    user,
)
from gateway.commands.admin.health import health
from gateway.commands.common.output import CommandError, say
from gateway.commands.processes.gateway import gateway as serve_gateway
from gateway.commands.processes.serve import serve
from gateway.commands.processes.store import store
from gateway.commands.tools import bench, config
from gateway.commands.tools.bill import bill
from gateway.commands.tools.doctor import doctor

if TYPE_CHECKING:
    from collections.abc import Sequence

app = typer.Typer(
    name="weir",
    help="One message queue for SQS, AMQP, MQTT and RocketMQ clients, over one durable log.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(serve)
app.command()(store)
app.command("gateway")(serve_gateway)
app.command()(health)
app.command()(doctor)
app.add_typer(topic.topics, name="topic")
app.add_typer(topic.queues, name="queue")
app.add_typer(group.app, name="group")
app.add_typer(route.routers, name="router")
app.add_typer(route.routes, name="route")
app.add_typer(message.app, name="message")
app.add_typer(session.app, name="session")
app.add_typer(user.users, name="user")
app.add_typer(user.keys, name="key")
app.add_typer(user.policies, name="policy")
app.add_typer(tenant.app, name="tenant")
app.add_typer(limit.app, name="limit")
app.add_typer(cluster.app, name="cluster")
app.add_typer(node.app, name="node")
app.add_typer(config.app, name="config")
app.add_typer(bench.app, name="bench")
app.command()(bill)


def _show_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"weir {gateway.__version__}\n")
        raise typer.Exit


@app.callback()
def weir(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Say which version this is.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Hold the options that stand before any command; `--version` answers by itself."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit code; `arguments` stand in for sys.argv[1:]."""
    try:
        app(args=None if arguments is None else list(arguments), prog_name="weir")
    except CommandError as error:
        say(f"weir: {error.message}")
        if error.hint:
            say(f"hint: {error.hint}")
        sys.exit(error.code)
    sys.exit(0)
