"""The command line about settings: forms of answers, streams and exit codes."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import yaml

import gateway
from gateway.cli import main
from gateway.commands.common.output import ExitCode
from gateway.config.loading import load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gateway.config.loading import Settings


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def weir(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    for name in list(os.environ):
        if name.startswith("WEIR_"):
            monkeypatch.delenv(name)

    def run(*arguments: str) -> Ran:
        with pytest.raises(SystemExit) as left:
            main(arguments)
        captured = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return Ran(left.value.code, captured.out, captured.err)

    return run


def test_the_version_is_data(weir: Callable[..., Ran]) -> None:
    assert weir("--version") == Ran(0, f"weir {gateway.__version__}\n", "")


def test_an_unknown_command_or_option_is_a_usage_error(weir: Callable[..., Ran]) -> None:
    for arguments in (("sreve",), ("serve", "--bogus"), ("config", "show", "-o", "xml")):
        ran = weir(*arguments)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err


def test_show_prints_a_table_of_settings_and_values(weir: Callable[..., Ran]) -> None:
    ran = weir("config", "show")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].split() == ["SETTING", "VALUE"]
    assert ["amqp.listeners.tcp.port", "5672"] in [line.split() for line in lines]


def test_show_tells_origins(weir: Callable[..., Ran]) -> None:
    ran = weir("config", "show", "--origin", "-o", "json", "--set", "amqp.port=15999")
    shown = json.loads(ran.out)
    assert shown["amqp.listeners.tcp.port"] == {"value": 15999, "origin": "--set amqp.port"}
    assert shown["amqp.listeners.tcp.host"]["origin"] == "default"


def test_data_is_the_short_form_of_a_setting(weir: Callable[..., Ran]) -> None:
    ran = weir("config", "show", "--origin", "-o", "json", "--data", "elsewhere")
    assert json.loads(ran.out)["node.data"]["value"] == "elsewhere"


def test_json_and_yaml_show_the_same_in_the_form_of_a_file(weir: Callable[..., Ran]) -> None:
    as_json = json.loads(weir("config", "show", "-o", "json").out)
    as_yaml = yaml.safe_load(weir("config", "show", "-o", "yaml").out)
    assert as_json == as_yaml
    assert as_json["protocols"]["amqp"]["listeners"]["tcp"]["port"] == 5672


def test_what_show_prints_as_yaml_is_a_usable_file(
    weir: Callable[..., Ran], tmp_path: Path
) -> None:
    shown = yaml.safe_load(weir("config", "show", "-o", "yaml", "--set", "amqp.port=7").out)
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump(shown))
    again = load(file, environ={}).settings
    assert again == load(assignments=["amqp.port=7"], environ={}).settings


def test_name_prints_paths_that_set_accepts(weir: Callable[..., Ran]) -> None:
    names = weir("config", "show", "-o", "name").out.split()
    assert "amqp.listeners.tcp.port" in names
    assert weir("config", "check", "--set", "amqp.listeners.tcp.port=1").code == 0


def test_check_says_ok_on_stderr_and_what_would_be_served(weir: Callable[..., Ran]) -> None:
    ran = weir("config", "check", "--set", "amqp.port=1", "-o", "json")
    assert ran.code == 0
    assert json.loads(ran.out) == {"changed": 1, "serves": ["amqp", "sqs", "mqtt", "rocketmq"]}
    assert ran.err == "ok: 1 settings changed; serving amqp, sqs, mqtt, rocketmq\n"


@pytest.mark.parametrize("command", [("config", "check"), ("config", "show"), ("serve",)])
def test_settings_that_cannot_be_used_are_a_usage_error(
    command: tuple[str, ...], weir: Callable[..., Ran]
) -> None:
    ran = weir(*command, "--set", "amqp.prot=1")
    assert (ran.code, ran.out) == (2, "")
    assert "did you mean amqp.port?" in ran.err
    assert "hint: " in ran.err


def test_serve_runs_the_settings_it_was_given_and_leaves_with_the_code_of_the_run(
    weir: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Settings] = []

    def run(settings: Settings, loaded: object) -> int:
        assert loaded is not None
        given.append(settings)
        return ExitCode.UNHEALTHY

    monkeypatch.setitem(sys.modules, "gateway.app", SimpleNamespace(run=run))
    ran = weir("serve", "--set", "amqp.port=0", "--data", "elsewhere")
    assert ran.code == 3
    (settings,) = given
    assert settings.node.data == "elsewhere"
    assert settings.protocols["amqp"].listeners["tcp"].port == 0
