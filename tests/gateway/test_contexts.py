"""`weir context`: what is kept of a server is used for that server, and for no other."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import gateway.cli
from gateway.commands.common.contexts import CONTEXTS_MAX, file_of
from tests.gateway.serving import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.gateway.serving import Process


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where contexts are kept; the working directory has no server's data."""
    for name in list(os.environ):
        if name.startswith("WEIR_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def weir(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            gateway.cli.main(arguments)
        captured = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, captured.out, captured.err

    return run


@pytest.fixture(scope="module")
def with_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A node with the user `admin`."""
    password = {"WEIR_ADMIN_PASSWORD": "kept in a file"}
    with serving(tmp_path_factory.mktemp("contexts"), **password) as process:
        yield process


def test_a_context_signs_in_where_it_says(
    weir: Callable[..., tuple[int, str, str]],
    with_user: Process,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WEIR_PASSWORD", "kept in a file")
    kept = ("--url", with_user.admin_url, "--login", "admin", "--keep-secret")
    assert weir("context", "set", "prod", *kept) == (
        0,
        f"created prod: {with_user.admin_url}\n",
        "",
    )
    monkeypatch.delenv("WEIR_PASSWORD")
    assert weir("topic", "ls")[0] == 1, "it is not in use"
    assert weir("context", "use", "prod")[0] == 0
    assert weir("topic", "ls")[0] == 0
    assert weir("context", "use", "none")[0] == 0
    assert weir("topic", "ls")[0] == 1
    monkeypatch.setenv("WEIR_CONTEXT", "prod")
    assert weir("topic", "ls")[0] == 0
    monkeypatch.setenv("WEIR_CONTEXT", "pord")
    assert weir("topic", "ls")[::2] == (
        4,
        "weir: there is no context pord\nhint: `weir context ls` lists them\n",
    )


def test_who_names_a_server_is_sent_nothing_that_is_kept_for_another(
    weir: Callable[..., tuple[int, str, str]],
    with_user: Process,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WEIR_TOKEN", with_user.token)
    elsewhere = "http://127.0.0.1:1"
    assert weir("context", "set", "prod", "--url", elsewhere, "--keep-secret")[0] == 0
    weir("context", "use", "prod")
    monkeypatch.delenv("WEIR_TOKEN")
    code, _, said = weir("topic", "ls", "--url", with_user.admin_url)
    assert code == 1
    assert "no admin.token" in said
    code, _, said = weir("topic", "ls")
    assert elsewhere in said
    monkeypatch.setenv("WEIR_NODE__DATA", str(with_user.data))
    assert weir("topic", "ls")[0] == 0


def test_the_file_is_its_owners_alone_and_lists_show_no_secret(
    weir: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_TOKEN", "a token nobody may see")
    weir("context", "set", "prod", "--url", "http://prod:15673", "--keep-secret")
    assert stat.S_IMODE(file_of().stat().st_mode) == 0o600
    assert "a token nobody may see" in file_of().read_text()
    for form in ("table", "json", "yaml"):
        code, out, _ = weir("context", "ls", "-o", form)
        assert code == 0
        assert "prod" in out
        assert "nobody" not in out
    file_of().chmod(0o640)
    code, _, said = weir("context", "ls")
    assert code == 1
    assert f"chmod 600 {file_of()}" in said


def test_a_secret_goes_when_the_address_or_the_login_changes(
    weir: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_kept() -> bool:
        (row,) = json.loads(weir("context", "ls", "-o", "json")[1])["contexts"]
        found: bool = row["secret_kept"]
        return found

    monkeypatch.setenv("WEIR_TOKEN", "t")
    monkeypatch.setenv("WEIR_PASSWORD", "p")
    weir("context", "set", "prod", "--url", "http://prod:15673", "--keep-secret")
    weir("context", "set", "prod", "--tenant", "acme")
    assert is_kept()
    weir("context", "set", "prod", "--login", "acme:ann")
    assert not is_kept()
    weir("context", "set", "prod", "--keep-secret")
    assert is_kept()
    weir("context", "set", "prod", "--url", "http://prod:15674")
    assert not is_kept()


def test_what_cannot_be_kept_is_refused(weir: Callable[..., tuple[int, str, str]]) -> None:
    assert weir("context", "set", "prod")[::2] == (2, "weir: a new context takes --url\n")
    assert weir("context", "set", "prod", "--url", "prod:15673")[0] == 2
    for name in ("", "none", "a\nb"):
        assert weir("context", "set", name, "--url", "http://prod:15673")[0] == 2
    assert weir("context", "use", "prod")[0] == 4
    assert weir("context", "rm", "prod")[0] == 4
    assert not file_of().exists()
    many = {f"c{number}": {"url": "http://prod:15673"} for number in range(CONTEXTS_MAX)}
    file_of().parent.mkdir(parents=True)
    file_of().write_text(json.dumps({"contexts": many}))
    file_of().chmod(0o600)
    assert weir("context", "set", "prod", "--url", "http://prod:15673")[0] == 2
    assert weir("context", "rm", "c0", "--yes")[0] == 0
    assert weir("context", "set", "prod", "--url", "http://prod:15673")[0] == 0


def test_a_file_that_is_damaged_is_said(weir: Callable[..., tuple[int, str, str]]) -> None:
    file_of().parent.mkdir(parents=True)
    file_of().write_text("{")
    file_of().chmod(0o600)
    for command in (("context", "ls"), ("topic", "ls")):
        code, _, said = weir(*command)
        assert code == 1
        assert f"{file_of()} cannot be read" in said
