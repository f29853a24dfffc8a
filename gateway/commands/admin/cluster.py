"""`weir cluster`: begin one, and say which stores belong to it and which of them lead."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Sequence
from itertools import starmap
from pathlib import Path
from typing import Annotated

import typer

from gateway.commands.admin.node import say_unlike
from gateway.commands.common.api import Api, Facts, path_of
from gateway.commands.common.options import (
    FormatOption,
    ServerOptions,
    SettingsOptions,
    with_groups,
)
from gateway.commands.common.output import CommandError, ExitCode, Format, Table, put, say
from gateway.commands.common.values import text
from gateway.commands.processes.store import AS_STORE
from kernel.common.ids import METADATA_GROUP
from kernel.store.drivers.system import SystemClock

app = typer.Typer(help="The stores of a cluster.", no_args_is_help=True)

WAIT_SECONDS = 600
"""For a store to take over all data, or to leave: what is longer goes on without the command."""

SILENT_MS = 5_000
"""A store that joins hears of the register within a second or two, if nothing is in the way."""

LOOK_SECONDS = 0.3

DEFAULT = "default"
"""A rate: what the settings of each store say."""

REPLICAS_COME = (
    "its replicas come behind that, a few at a time (`weir cluster status --groups`); until it has "
    "them it can lead nothing, and `weir cluster rebalance` gives it nothing"
)

WaitOption = Annotated[
    int, typer.Option("--wait", metavar="SECONDS", help="How long to wait until it is done.", min=0)
]
NumberArgument = Annotated[int, typer.Argument(metavar="NUMBER", help="Number of the store.")]


@app.command("init")
@with_groups
def begin(*, options: SettingsOptions, output: FormatOption = Format.TABLE) -> None:
    """Make an empty data directory that of the first store of a new cluster; then `weir store`."""
    settings = options.load(AS_STORE).settings
    from gateway.process.data_lock import DataDirectoryInUse
    from gateway.process.running import StartRefused
    from gateway.serving.store_node import found_cluster
    from kernel.common.errors import KernelError
    from kernel.log.errors import JournalError

    try:
        found_cluster(Path(settings.node.data), settings)
    except (StartRefused, DataDirectoryInUse, KernelError, JournalError, OSError) as error:
        raise CommandError(str(error)) from error
    cluster = settings.node.cluster
    say(f"store {cluster.number} is the first of cluster {cluster.name!r}: start it, `weir store`")
    rows = [(text(cluster.number), cluster.name)]
    put(
        {"store": cluster.number, "cluster": cluster.name},
        Table(("store", "cluster"), rows),
        output,
    )


@app.command("status")
@with_groups
def status(
    groups: Annotated[
        bool, typer.Option("--groups", help="Show the Raft groups instead of the stores.")
    ] = False,
    *,
    server: ServerOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show every store: whether it answers, how many groups it leads, how far it is behind."""
    api = server.connect()
    found = api.get("/cluster")
    put(found, _groups(found) if groups else _stores(found), output)
    if not found["nodes"]:
        say("the cluster has not let this store in: run `weir cluster join`")
    elif any(each["leader"] for each in found["groups"] if each["group"] == METADATA_GROUP):
        # Only its leader knows of gateways: without one nobody is to wait for the answer, and one
        # that is going just now is no reason to fail.
        with contextlib.suppress(CommandError):
            say_unlike(api.get("/cluster/gateways"))


def _stores(found: Facts) -> Table:
    columns = ("number", "state", "address", "host", "zone", "answers", "leads", "lag", "error")
    rows = [tuple(text(each.get(name, "")) for name in columns) for each in found["nodes"]]
    return Table(columns, rows)


def _groups(found: Facts) -> Table:
    rows = [
        (
            text(each["group"]),
            text(each["leader"] or None),
            text(each["commit"]),
            ", ".join(
                f"{replica['node']}{'' if replica['voter'] else ' (learns)'}"
                for replica in each["replicas"]
            ),
            text(each["moving"] or None),
            "; ".join(starmap(_received, each.get("receiving", {}).items())) or text(None),
        )
        for each in found["groups"]
    ]
    return Table(("group", "leader", "commit", "members", "moving", "receiving"), rows)


def _received(store: str, each: Facts) -> str:
    """How far the snapshot is that a store is sent."""
    if each["waits"]:
        return f"store {store} waits for its turn"
    part = f"{each['file_bytes']} of {each['file_bytes_total']} bytes of the file"
    if each["entries_total"]:
        part = f"{each['entries']} of {each['entries_total']} entries"
    bound = f" of {each['rate_max']}" if each.get("rate_max") else ""
    figures = f"{each['bytes']} bytes, {each['rate']}{bound} a second, for {each['seconds']} s"
    return f"store {store} from {each['sender']}: {part} ({figures})"


@app.command("cut")
@with_groups
def cut(
    without: Annotated[
        list[int] | None,
        typer.Option("--without", metavar="NUMBER", help="Leave out a store that is down."),
    ] = None,
    *,
    server: ServerOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Pin what all stores have at one moment; `weir backup create --cut` then copies it at each."""
    made = server.connect().post("/cluster/cuts", {"without": without or []})
    rows = [(text(each["number"]), each["address"], each["host"]) for each in made["stores"]]
    put(made, Table(("store", "address", "host"), rows), output)
    say(f"within ten minutes, at each of them: weir backup create DIR --cut {made['cut']}")


@app.command("join")
@with_groups
def join(
    same_host: Annotated[
        bool,
        typer.Option("--same-host", help="Let in a store whose host has another store already."),
    ] = False,
    replaces: Annotated[
        int, typer.Option("--replaces", metavar="NUMBER", help="Store whose place it takes.", min=0)
    ] = 0,
    wait: WaitOption = WAIT_SECONDS,
    *,
    server: ServerOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Have the store asked, which runs, let into the cluster of its node.cluster.peers."""
    api = server.connect()
    asked = api.call(
        "POST", "/cluster/join", {"replaces": replaces, "same_host": same_host}, good=(202,)
    )
    number = int(asked["store"])
    _await(api, number, "member", wait)
    say(f"store {number} belongs to the cluster")
    if api.get("/cluster")["replicas"]:
        say(REPLICAS_COME)
    _put_state(number, "member", output)


@app.command("remove")
@with_groups
def remove(
    number: NumberArgument,
    wait: WaitOption = WAIT_SECONDS,
    *,
    server: ServerOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Have a store leave the cluster; ask another one of its stores."""
    api = server.connect()
    api.call("DELETE", path_of("cluster", "stores", str(number)), good=(202,))
    _await(api, number, None, wait)
    say(f"store {number} has left the cluster")
    _put_state(number, "gone", output)


def _put_state(number: int, state: str, output: Format) -> None:
    rows = [(text(number), state)]
    put({"store": number, "state": state}, Table(("store", "state"), rows), output)


def _await(api: Api, number: int, state: str | None, seconds: int) -> None:
    """Look until a store is in a state, None: until it is gone. Raises CommandError."""
    clock = SystemClock()
    begins_ms = clock.monotonic_ms()
    ends_ms, silent_ms = begins_ms + seconds * 1_000, begins_ms + SILENT_MS
    pause = threading.Event()
    told = ""
    while True:
        found = {each["number"]: each for each in api.get("/cluster")["nodes"]}
        store = found.get(number)
        if (store["state"] if store is not None else None) == state:
            return
        reason = store["error"] if store is not None else ""
        if not found and clock.monotonic_ms() >= silent_ms:
            reason = (
                "has asked to be let in, and has heard nothing yet: `weir cluster status` at "
                "another store says what it waits for"
            )
        if reason and reason != told:
            say(f"store {number}: {reason}")
            told = reason
        if clock.monotonic_ms() >= ends_ms:
            raise CommandError(
                f"store {number} is not done within {seconds} s",
                ExitCode.FAILED,
                "it goes on by itself: see `weir cluster status`",
            )
        pause.wait(LOOK_SECONDS)


@app.command("transfer")
@with_groups
def transfer(
    group: Annotated[int, typer.Argument(metavar="GROUP", help="Number of the Raft group.")],
    to: Annotated[
        int, typer.Option("--to", metavar="NUMBER", help="Store that is to lead; 0: any.", min=0)
    ] = 0,
    *,
    server: ServerOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Have another store lead a group, until stores come or go, or `weir cluster rebalance`."""
    path = path_of("cluster", "groups", str(group), "transfer")
    moved = server.connect().post(path, {"to": to})
    rows = [(text(moved["group"]), text(moved["leader"]))]
    put(moved, Table(("group", "leader"), rows), output)


@app.command("move")
@with_groups
def move(
    group: Annotated[int, typer.Argument(metavar="GROUP", help="Number of the Raft group.")],
    to: Annotated[
        int, typer.Option("--to", metavar="NUMBER", help="Store that is to have it.", min=0)
    ] = 0,
    gone: Annotated[
        int, typer.Option("--from", metavar="NUMBER", help="Store that is not to.", min=0)
    ] = 0,
    same_host: Annotated[
        bool, typer.Option("--same-host", help="Its host may have another replica already.")
    ] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Leave it where it is.")] = False,
    wait: WaitOption = WAIT_SECONDS,
    *,
    server: ServerOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Have the replica of a group in another store, in one more (--to) or one less (--from)."""
    api, path = server.connect(), path_of("cluster", "groups", str(group), "move")
    if cancel:
        api.call("DELETE", path, good=(202,))
    else:
        api.call("POST", path, {"to": to, "from": gone, "same_host": same_host}, good=(202,))
    found = _await_move(api, group, wait)
    put(found, _groups({"groups": [found]}), output)


def _await_move(api: Api, group: int, seconds: int) -> Facts:
    """Look until a group is not on its way any more; the group. Raises CommandError."""
    clock = SystemClock()
    ends_ms = clock.monotonic_ms() + seconds * 1_000
    pause = threading.Event()
    told = ""
    while True:
        pause.wait(LOOK_SECONDS)  # the first time for the manager to see it
        groups = {each["group"]: each for each in api.get("/cluster")["groups"]}
        found: Facts = groups.get(group, {})
        if found and not found["moving"]:
            return found
        moving = found.get("moving", "")
        if moving and moving != told:
            say(f"group {group}: {moving}")
            told = moving
        if clock.monotonic_ms() >= ends_ms:
            raise CommandError(
                f"group {group} is not done within {seconds} s",
                ExitCode.FAILED,
                "it goes on by itself: see `weir cluster status --groups`",
            )


def _bytes_per_second(rate: str) -> int | str:
    """What `--rate` says, as the API takes it. Raises BadParameter."""
    if rate == DEFAULT:
        return rate
    try:
        megabytes = float(rate)
    except ValueError:
        megabytes = -1
    if not 0 <= megabytes < math.inf:
        message = f"{rate} is no number of MB from 0 on, and not `{DEFAULT}`"
        raise typer.BadParameter(message, param_hint="--rate")
    return round(megabytes * 1e6)


def _copies(bytes_per_second: int | None, settings: dict[str, int | None]) -> str:
    """How fast copies are, and what says so. `settings`: by store; None: nobody knows."""

    def bound(rate: int) -> str:
        return f"{rate / 1e6:g} MB a second" if rate else "all they can get"

    if bytes_per_second is not None:
        return f"copies take {bound(bytes_per_second)} of each store, as was set by --rate"
    known = {number: rate for number, rate in settings.items() if rate is not None}
    if len(set(known.values())) == 1:
        return f"copies take {bound(next(iter(known.values())))} of each store, by its settings"
    each = "; ".join(f"store {number}: {bound(rate)}" for number, rate in known.items())
    return f"copies take what each store's settings say{': ' + each if each else ''}"


@app.command("replicas")
@with_groups
def replicas(
    number: Annotated[
        int | None,
        typer.Argument(metavar="[NUMBER]", help="An odd number; without one: what is set.", min=1),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate",
            metavar="MB",
            help="Each store takes in so many MB of copies a second at most; 0: no bound; default: "
            "what its settings say.",
        ),
    ] = None,
    *,
    server: ServerOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Have each group in so many stores, copies so fast; or show how it is and what is lacking."""
    api = server.connect()
    asked: dict[str, int | str] = {} if number is None else {"replicas": number}
    if rate is not None:
        asked["copy_rate"] = _bytes_per_second(rate)
    if asked:
        api.call("PUT", "/cluster/replicas", asked)
    found = api.get("/cluster")
    rows = [
        (
            text(each["group"]),
            ", ".join(str(replica["node"]) for replica in each["replicas"] if replica["voter"]),
            text(each["short"] or None),
            text(each["moving"] or None),
        )
        for each in found["groups"]
    ]
    wanted = found["replicas"] if number is None else number
    said = asked.get("copy_rate", found.get("copy_rate"))
    bytes_per_second = said if isinstance(said, int) else None
    settings = {str(each["number"]): each.get("copy_setting") for each in found["nodes"]}
    shown = {
        "replicas": wanted,
        "copy_rate": bytes_per_second,
        "copy_settings": settings,
        "problems": found["problems"],
        "groups": found["groups"],
    }
    put(shown, Table(("group", "stores", "short", "moving"), rows), output)
    stores = "one store" if wanted == 1 else f"{wanted} stores"
    say(f"each group is to be in {stores}" if wanted else "each group is in every store")
    say(_copies(bytes_per_second, settings))
    for problem in found["problems"]:
        say(problem)


groups = typer.Typer(help="Data groups, which hold the queues.")
app.add_typer(groups, name="groups")


@groups.command("add")
@with_groups
def add_groups(
    count: Annotated[int, typer.Argument(metavar="COUNT", help="How many more.", min=1)],
    wait: WaitOption = WAIT_SECONDS,
    *,
    server: ServerOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Have more data groups, for queues of new topics. They stay for good."""
    api = server.connect()
    numbers = api.call("POST", "/cluster/groups", {"count": count}, good=(202,))["groups"]
    found = _await_groups(api, numbers, wait)
    put(found, _groups({"groups": found}), output)


def _await_groups(api: Api, numbers: Sequence[int], seconds: int) -> list[Facts]:
    """Look until groups that were added take queues; these groups. Raises CommandError."""
    clock = SystemClock()
    ends_ms = clock.monotonic_ms() + seconds * 1_000
    pause = threading.Event()
    while True:
        status = api.get("/cluster")
        added = {each["group"]: each["waits"] for each in status["added"]}
        waits = {each: added.get(each, "is not known yet") for each in numbers}
        if not any(waits.values()):
            return [each for each in status["groups"] if each["group"] in waits]
        if clock.monotonic_ms() >= ends_ms:
            told = "; ".join(f"group {each}: {text}" for each, text in waits.items() if text)
            raise CommandError(
                f"not all of them take queues within {seconds} s: {told}",
                ExitCode.FAILED,
                "it goes on by itself: see `weir cluster status --groups`",
            )
        pause.wait(LOOK_SECONDS)


@app.command("rebalance")
@with_groups
def rebalance(*, server: ServerOptions, output: FormatOption = Format.TABLE) -> None:
    """Spread the leaders of the groups evenly over the stores."""
    found = server.connect().post("/cluster/rebalance", {})
    columns = ("group", "was", "leader")
    rows = [tuple(text(each[name]) for name in columns) for each in found["moved"]]
    put(found, Table(columns, rows), output)


features = typer.Typer(help="Features of the log: what older builds do not understand.")
app.add_typer(features, name="features")


@features.command("ls")
@with_groups
def list_features(*, server: ServerOptions, output: FormatOption = Format.TABLE) -> None:
    """Show every feature, whether it is on, and what keeps it from being turned on."""
    _put_features(server.connect().get("/cluster/features"), output)


@features.command("enable")
@with_groups
def enable_features(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The feature; those before it go on too.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Turn all of them on.")] = False,
    *,
    server: ServerOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Turn on a feature, for ever: builds that do not understand it are refused from then on."""
    if (name is None) != everything:
        raise CommandError("name a feature, or say --all", ExitCode.USAGE)
    _put_features(server.connect().post("/cluster/features", {"name": name}), output)


def _put_features(found: dict[str, list[dict[str, object]]], output: Format) -> None:
    columns = ("level", "name", "on", "waits", "brings")
    rows = [tuple(text(each[column]) for column in columns) for each in found["features"]]
    put(found, Table(columns, rows), output)
