"""The commands that talk to a running node: forms, streams, exit codes, finding the server."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import typer
import yaml

import gateway.cli
from gateway.commands.common import api
from gateway.commands.common.output import CommandError, ExitCode, Format
from gateway.commands.common.values import duration_text, milliseconds, number_or_none, pairs
from tests.gateway.serving import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.gateway.conftest import Ran
    from tests.gateway.serving import Process


def commands(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


ALL = dict(commands(typer.main.get_command(gateway.cli.tree(gateway.cli.COMMANDS))))
NO_DATA = {"serve", "store", "gateway"}
"""Commands without an answer: all they say is talk."""
OURS = {
    name: command
    for name, command in ALL.items()
    if name not in NO_DATA and not name.startswith("bench")
}


def options(command: Any) -> set[str]:
    return {spelled for parameter in command.params for spelled in parameter.opts}


@pytest.mark.parametrize("name", OURS)
def test_every_command_has_all_forms_of_output(name: str) -> None:
    (output,) = [each for each in OURS[name].params if "--output" in each.opts]
    assert "-o" in output.opts
    # The annotation, as text: an enumeration whose every member `put` can write.
    assert OURS[name].callback.__annotations__["output"] == "FormatOption"
    assert {each.value for each in Format} == {"summary", "table", "json", "yaml", "name"}


def test_help_says_of_every_command_what_the_command_says_of_itself() -> None:
    whole = typer.main.get_command(gateway.cli.tree(gateway.cli.COMMANDS))
    short = typer.main.get_command(gateway.cli.tree(()))
    assert isinstance(whole, typer.core.TyperGroup)
    assert isinstance(short, typer.core.TyperGroup)
    assert short.commands.keys() == whole.commands.keys() == gateway.cli.COMMANDS.keys()
    for name, command in whole.commands.items():
        assert command.help is not None
        assert short.commands[name].help == " ".join(command.help.partition("\n\n")[0].split())


LIST_TOPICS = """
import atexit, sys
from gateway.cli import main

atexit.register(lambda: print(*sys.modules))
main(["topic", "ls", "--url", "http://127.0.0.1:1"])
"""


def test_a_command_imports_what_it_uses_and_nothing_of_the_others() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LIST_TOPICS],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert "no server answers at http://127.0.0.1:1" in ran.stderr
    loaded = set(ran.stdout.split())
    assert {name for name in loaded if name.startswith("gateway.commands.admin.")} == {
        "gateway.commands.admin.topic"
    }
    of_servers = {"kernel", "adapters", "benchmarks", "metering", "structlog", "cryptography"}
    assert not loaded & of_servers


LOCAL = {
    *("bill", "cluster init", "config check", "config show", "doctor"),
    *("backup ls", "backup verify", "backup restore", "backup cluster"),
    *(f"context {each}" for each in ("ls", "use", "set", "rm")),
}
"""Commands that ask no server, or (`bill`) one if it runs, or (`backup cluster`) those of the data
directories that it is given.
"""
OF_NO_TENANT = {"audit", "backup", "cluster", "console", "events", "health", "node", "tenant"}
"""What belongs to the whole server."""


@pytest.mark.parametrize("name", sorted(OURS.keys() - LOCAL))
def test_every_command_is_told_its_server_and_tenant_alike(name: str) -> None:
    noun = name.split(maxsplit=1)[0]
    wanted = {"--url", "--data"} | (set() if noun in OF_NO_TENANT else {"--tenant"})
    assert options(OURS[name]) & {"--url", "--data", "--tenant"} == wanted
    known = {each.opts[0]: each for each in ALL["topic ls"].params}
    for option in OURS[name].params:
        if option.opts[0] in wanted:
            same = known[option.opts[0]]
            assert (option.help, option.envvar) == (same.help, same.envvar)


@pytest.mark.parametrize("name", [*sorted(NO_DATA), "cluster init", "config check", "config show"])
def test_every_command_is_told_its_settings_alike(name: str) -> None:
    wanted = {"--config", "--data", "--set"}
    assert options(ALL[name]) >= wanted
    known = {each.opts[0]: each.help for each in ALL["serve"].params}
    told = {each.opts[0]: each.help for each in ALL[name].params if each.opts[0] in wanted}
    assert told == known


@pytest.mark.parametrize("name", [n for n in OURS if n.split()[-1] in {"rm", "purge"}])
def test_what_destroys_asks_for_yes(name: str) -> None:
    assert "--yes" in options(OURS[name])


@pytest.mark.parametrize(
    "noun", ["topic", "queue", "group", "router", "route", "user", "key", "policy"]
)
def test_every_noun_has_every_verb(noun: str) -> None:
    # A route is wholly its identity: there is nothing to set.
    verbs = {"ls", "info", "create", "rm"} | (set() if noun == "route" else {"set"})
    assert {f"{noun} {verb}" for verb in verbs} <= set(OURS)


def test_a_topic_comes_changes_and_goes(weir: Callable[..., Ran]) -> None:
    made = weir("topic", "create", "c-topic", "--type", "fifo", "--queues", "2", "-o", "json").json
    assert (made["type"], len(made["queues"])) == ("fifo", 2)
    changed = weir("topic", "set", "c-topic", "--retention", "2d", "--ttl", "5m", "-o", "json").json
    assert changed["options"]["retention_ms"] == 2 * 86_400_000
    assert changed["options"]["message_ttl_ms"] == 300_000
    cleared = weir("topic", "set", "c-topic", "--ttl", "none", "-o", "json").json
    assert cleared["options"]["message_ttl_ms"] is None
    assert weir("topic", "ls", "--prefix", "c-topic", "-o", "name").out == "c-topic\n"
    assert weir("topic", "info", "c-topic", "-o", "name").out == "c-topic\n"
    assert yaml.safe_load(weir("topic", "info", "c-topic", "-o", "yaml").out)["name"] == "c-topic"
    table = weir("topic", "info", "c-topic").out
    assert "retention" in table
    assert "2d" in table
    assert "asked about after 6s, then each 30s, 15 times" in table
    assert "{" not in table
    assert weir("topic", "rm", "c-topic", "--yes").code == 0
    assert weir("topic", "info", "c-topic").code == ExitCode.NOT_FOUND


def test_queues_are_the_work_topics(weir: Callable[..., Ran]) -> None:
    weir("queue", "create", "c-queue", "--max-priority", "5")
    weir("topic", "create", "c-stream")
    listed = weir("queue", "ls", "-o", "name").out.splitlines()
    assert "c-queue" in listed
    assert "c-stream" not in listed
    assert weir("queue", "info", "c-queue", "-o", "json").json["options"]["priority_max"] == 5
    weir("queue", "set", "c-queue", "--retention", "4d")
    assert "expired 0" in weir("queue", "info", "c-queue").out
    both = weir("topic", "ls", "--prefix", "c-", "-o", "name").out.splitlines()
    assert {"c-queue", "c-stream"} <= set(both)


def test_listings_go_over_pages(weir: Callable[..., Ran]) -> None:
    for number in range(3):
        weir("queue", "create", f"paged-{number}")
    found = weir("queue", "ls", "--prefix", "paged-", "--limit", "2", "-o", "json").json
    assert [each["name"] for each in found["topics"]] == ["paged-0", "paged-1"]
    assert found["next"] == "paged-1"


def test_messages_are_sent_looked_at_and_purged(weir: Callable[..., Ran]) -> None:
    weir("queue", "create", "c-messages")
    sent = weir("message", "send", "c-messages", "hello\n", "--attribute", "a=b", "-o", "json").json
    seen = weir("message", "peek", "c-messages", "-o", "json").json["messages"]
    assert [(m["uid"], m["body"], m["attributes"]) for m in seen] == [
        (sent["uid"], "hello\n", {"a": "b"})
    ]
    assert weir("message", "peek", "c-messages", "-o", "name").out == sent["uid"] + "\n"
    assert "hello\\n" in weir("message", "peek", "c-messages").out
    weir("message", "send", "c-messages", "two")
    page = weir("message", "peek", "c-messages", "-n", "1")
    assert "weir message peek c-messages --from-queue 0 --offset 1 --limit 1\n" in page.err
    assert len(weir("message", "peek", "c-messages", "--since", "1h", "-o", "name").out) == 2 * 37
    assert weir("message", "peek", "c-messages", "--since", "0s", "-o", "name").out == ""
    purged = weir("queue", "purge", "c-messages", "--yes", "-o", "json").json
    assert purged == {"name": "c-messages", "messages": 2}


def test_looking_goes_on_as_the_hint_says(weir: Callable[..., Ran]) -> None:
    weir("topic", "create", "c-pages", "--queues", "4")
    sent = {
        weir("message", "send", "c-pages", "m", "--key", str(key), "-o", "name").out
        for key in range(6)
    }
    line, seen = "weir message peek c-pages --since 1h --limit 2", []
    while line:
        page = weir(*line.split()[1:], "-o", "name")
        seen += page.out.splitlines(keepends=True)
        line = page.err.partition("there is more: ")[2].strip()
    assert len(seen) == 6
    assert set(seen) == sent


def test_a_body_may_come_on_standard_input(node: Process, weir: Callable[..., Ran]) -> None:
    weir("queue", "create", "c-stdin")
    ran = subprocess.run(
        [sys.executable, "-m", "gateway", "message", "send", "c-stdin", "--data", str(node.data)],
        input=b"\x00\xff",
        capture_output=True,
        check=False,
        env=environment(),
        timeout=30,
    )
    assert ran.returncode == 0, ran.stderr
    (message,) = weir("message", "peek", "c-stdin", "-o", "json").json["messages"]
    assert message["body_base64"] == "AP8="


def test_groups_have_dead_letters_and_leases(weir: Callable[..., Ran]) -> None:
    weir("queue", "create", "c-grouped")
    made = weir(
        "group", "create", "c-grouped", "g", "--attempts", "3", "--dead-letter", "dlq", "-o", "json"
    ).json
    assert made["options"]["dead_letter"] == {"router": None, "key": "dlq"}
    changed = weir(
        "group", "set", "c-grouped", "g", "--lease", "5s", "--dead-letter", "router:r:k",
        "--ordered", "-o", "json",
    ).json  # fmt: skip
    assert changed["options"]["dead_letter"] == {"router": "r", "key": "k"}
    assert (changed["options"]["lease_ms"], changed["options"]["ordered"]) == (5000, True)
    assert "router:r:k" in weir("group", "info", "c-grouped", "g").out
    assert weir("group", "ls", "c-grouped", "-o", "name").out == "default\ng\n"
    assert weir("group", "rm", "c-grouped", "g", "--yes").code == 0
    assert weir("group", "info", "c-grouped", "g").code == ExitCode.NOT_FOUND


def test_routes_lead_from_routers(weir: Callable[..., Ran]) -> None:
    weir("queue", "create", "c-target")
    weir("router", "create", "c-hub", "--match", "attributes")
    made = weir(
        "route", "create", "c-hub", "--topic", "c-target", "--attribute", "a=b", "-o", "json"
    ).json
    assert made["attributes"] == {"a": "b"}
    assert weir("route", "ls", "c-hub", "-o", "name").out == made["id"] + "\n"
    assert "topic c-target" in weir("route", "info", "c-hub", made["id"]).out
    assert weir("router", "set", "c-hub", "--internal", "-o", "json").json["internal"] is True
    assert "c-hub" in weir("router", "ls", "-o", "name").out.splitlines()
    assert weir("route", "rm", "c-hub", made["id"], "--yes").code == 0
    assert weir("route", "ls", "c-hub", "-o", "json").json == {"routes": []}
    assert weir("router", "rm", "c-hub", "--yes").code == 0
    assert weir("router", "info", "c-hub").code == ExitCode.NOT_FOUND
    assert weir("route", "create", "c-hub").code == ExitCode.USAGE


def test_users_keys_and_policies(weir: Callable[..., Ran]) -> None:
    rule = "allow publish topic:c-*"
    assert weir("policy", "create", "c-policy", "--rule", rule, "-o", "json").json["rules"] == [
        rule
    ]
    assert weir("policy", "create", "c-policy", "--rule", rule).code == ExitCode.FAILED
    assert weir("policy", "set", "c-none", "--rule", rule).code == ExitCode.NOT_FOUND
    assert weir("user", "create", "c-user", "--policy", "c-policy").code == 0
    key = weir("key", "create", "c-user", "-o", "json").json
    assert key["secret"]
    assert weir("key", "ls", "c-user", "-o", "name").out == key["key_id"] + "\n"
    assert key["secret"] not in weir("key", "info", key["key_id"], "-o", "json").out
    assert weir("key", "set", key["key_id"], "--disabled", "-o", "json").json["enabled"] is False
    assert weir("key", "set", key["key_id"]).code == ExitCode.USAGE
    assert weir("user", "set", "c-user", "--no-policies", "-o", "json").json["policies"] == []
    assert weir("policy", "rm", "c-policy", "--yes").code == 0
    assert "c-user" in weir("user", "ls", "-o", "name").out.splitlines()
    assert weir("key", "rm", key["key_id"], "--yes").code == 0
    assert weir("user", "rm", "c-user", "--yes").code == 0
    assert weir("user", "info", "c-user").code == ExitCode.NOT_FOUND
    assert "full" in weir("policy", "ls", "-o", "name").out.splitlines()
    assert "allow" in weir("policy", "info", "full").out


def test_a_password_comes_on_standard_input(node: Process, weir: Callable[..., Ran]) -> None:
    for given, code in ((b"from stdin\n", ExitCode.OK), (b"", ExitCode.USAGE)):
        ran = subprocess.run(
            [sys.executable, "-m", "gateway", "user", "create", f"c-stdin-{code}", "--password"],
            input=given,
            capture_output=True,
            check=False,
            env=environment(WEIR_NODE__DATA=str(node.data)),
            timeout=30,
        )
        assert ran.returncode == code, ran.stderr
    assert weir("user", "info", "c-stdin-0", "-o", "json").json["has_password"] is True


def test_nothing_is_destroyed_without_yes(
    weir: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    weir("queue", "create", "c-precious")
    ran = weir("queue", "rm", "c-precious")
    assert (ran.code, ran.out) == (ExitCode.USAGE, "")
    assert "--yes" in ran.err

    class Terminal:
        def __init__(self, line: str) -> None:
            self.line = line

        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            return self.line

    monkeypatch.setattr(sys, "stdin", Terminal("no\n"))
    assert weir("queue", "rm", "c-precious").code == ExitCode.FAILED
    monkeypatch.setattr(sys, "stdin", Terminal("c-precious\n"))
    assert weir("queue", "rm", "c-precious").code == ExitCode.OK
    assert weir("queue", "info", "c-precious").code == ExitCode.NOT_FOUND


def test_health_is_an_exit_code(weir: Callable[..., Ran], tmp_path: Path) -> None:
    assert weir("health", "-o", "json").json["status"] == "ok"
    names = ["serving", "disk", "damage", "features", "memory", "keys", "metering"]
    names.append("certificate")
    assert weir("health", "-o", "name").out.splitlines() == names
    ran = weir("health", "--url", "http://127.0.0.1:1")
    assert (ran.code, ran.out) == (ExitCode.UNHEALTHY, "")
    assert "weir serve" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "rm", "orders"),
        ("queue", "purge", "orders"),
        ("group", "rm", "orders", "g"),
        ("user", "rm", "ann"),
        ("user", "create", "ann", "--password"),
    ],
    ids=" ".join,
)
def test_a_server_that_is_down_is_said_before_anything_is_asked(
    weir: Callable[..., Ran], tmp_path: Path, words: tuple[str, ...]
) -> None:
    # Neither the question whether it is meant, nor the missing token of a new directory.
    ran = weir(*words, "--url", "http://127.0.0.1:1", "--data", str(tmp_path))
    assert ran.code == ExitCode.FAILED
    assert ran.err.startswith("weir: no server answers at http://127.0.0.1:1")


def test_a_topic_or_group_is_made_and_changed_in_a_line(weir: Callable[..., Ran]) -> None:
    made = weir("topic", "create", "c-line").out
    assert made == "created c-line: normal, 8 queues, kept for 3d\n"
    changed = weir("topic", "set", "c-line", "--retention", "none", "--ttl", "5m").out
    assert changed == "changed c-line: normal, 8 queues, expires after 5m\n"
    work = weir("queue", "create", "c-line-work", "--max-messages", "9").out
    assert work == "created c-line-work: work, 1 queue, at most 9 ready\n"
    group = weir("group", "create", "c-line", "g", "--dead-letter", "c-line-work").out
    assert group.startswith("created group g of c-line, from the first message on: ")
    assert group.endswith(", dead letters to c-line-work\n")
    assert len(weir("group", "set", "c-line", "g", "--attempts", "3").out.splitlines()) == 1
    assert len(weir("topic", "create", "c-table", "-o", "table").out.splitlines()) > 10


def test_a_topic_that_some_protocol_cannot_spell_says_so(weir: Callable[..., Ran]) -> None:
    made = weir("topic", "create", "c/one two").out
    assert made.endswith("(no client of sqs or rocketmq can spell this name)\n")
    typed = weir("topic", "create", "c one two", "--type", "fifo")
    assert typed.code == ExitCode.USAGE
    assert "RocketMQ" in typed.err


def test_what_is_wrong_is_said_with_the_next_step(
    node: Process, weir: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = weir("topic", "ls", "--url", "http://127.0.0.1:1")
    assert (ran.code, ran.out) == (ExitCode.FAILED, "")
    assert "no server answers at http://127.0.0.1:1" in ran.err
    assert "weir serve" in ran.err
    ran = weir("topic", "ls", "--url", node.admin_url, "--data", str(tmp_path))
    assert ran.code == ExitCode.FAILED
    assert "no admin.token" in ran.err
    ran = weir("topic", "ls", "--url", "ftp://x")
    assert ran.code == ExitCode.USAGE
    with monkeypatch.context() as patched:
        patched.setattr(api, "reach", lambda _url, _tls: None)
        ran = weir("topic", "ls", "--url", "https://weir.example:15673")
    assert ran.code == ExitCode.FAILED
    assert "WEIR_TOKEN" in ran.err
    monkeypatch.setenv("WEIR_TOKEN", "wrong")
    ran = weir("topic", "ls", "--url", node.admin_url)
    assert ran.code == ExitCode.FAILED
    assert "--data" in ran.err
    monkeypatch.setenv("WEIR_TOKEN", node.token)
    assert weir("topic", "ls", "--url", node.admin_url, "--data", str(tmp_path)).code == 0


def test_a_stranger_on_the_port_is_recognized(weir: Callable[..., Ran], node: Process) -> None:
    amqp = weir("topic", "ls", "--url", f"http://127.0.0.1:{node.listeners['amqp.tcp']}")
    assert amqp.code == ExitCode.FAILED
    sqs = weir("topic", "ls", "--url", f"http://127.0.0.1:{node.listeners['sqs.http']}")
    assert sqs.code in {ExitCode.FAILED, ExitCode.USAGE, ExitCode.NOT_FOUND}
    assert "Traceback" not in amqp.err + sqs.err


def test_a_node_alone_says_that_it_belongs_to_no_cluster(weir: Callable[..., Ran]) -> None:
    for arguments in (("node", "ls"), ("cluster", "status"), ("cluster", "transfer", "1")):
        ran = weir(*arguments)
        assert (ran.code, ran.out) == (ExitCode.NOT_FOUND, ""), arguments
        assert "belongs to no cluster" in ran.err


def test_wrong_use_is_code_two(weir: Callable[..., Ran]) -> None:
    for arguments in (
        ("topic", "create", "amq.mine"),
        ("topic", "create", "x", "--ttl", "soon"),
        ("topic", "create", "x", "--queues", "0"),
        ("topic", "create", "x", "--colour", "red"),
        ("message", "send", "x", "y", "--attribute", "nothing"),
        ("topic", "set"),
        ("topic", "set", "x"),
        ("nothing",),
    ):
        ran = weir(*arguments)
        assert (ran.code, ran.out) == (ExitCode.USAGE, ""), arguments
        assert ran.err


def test_durations_are_read_and_written() -> None:
    for given, value in (("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("7d", 604_800_000)):
        assert milliseconds(given) == value
        assert duration_text(value) == given
    assert duration_text(None) == "-"
    assert duration_text(0) == "0ms"
    assert duration_text(150_000) == "2.5m"
    for wrong in ("", "5", "-5s", "5 s", "1e3s", "5y"):
        with pytest.raises(CommandError):
            milliseconds(wrong)
    assert number_or_none("none") is None
    with pytest.raises(CommandError):
        number_or_none("many")
    assert pairs(["a=b=c", "d="], "--x") == {"a": "b=c", "d": ""}


def test_billing_says_what_is_missing(weir: Callable[..., Ran], tmp_path: Path) -> None:
    ran = weir("bill", "--period", "November")
    assert ran.code == ExitCode.USAGE
    assert "2026-11" in ran.err
    ran = weir("bill", "--period", "2026-11", "--metering", str(tmp_path / "none"))
    assert ran.code == ExitCode.FAILED
    assert "--metering" in ran.err
    broken = tmp_path / "prices.yaml"
    broken.write_text("prices: [")
    ran = weir("bill", "--period", "2026-11", "--price-book", str(broken))
    assert ran.code == ExitCode.FAILED
    assert "--price-book" in ran.err
