"""Adapters of others: what is wrong with one is told before anything is served."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from adapters.base import Declaration
from gateway.config.loading import ConfigError, load
from tests.gateway.serving import environment, refused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OURS = "stranger_adapter"
ENTRY = """
protocols:
  {name}:
    adapter: {adapter}
    enabled: {enabled}
    listeners: {{tcp: {{host: 127.0.0.1, port: 7000, enabled: true}}}}
"""


def never(_services: Any) -> Any:
    raise AssertionError("a declaration alone is asked for nothing")


@pytest.fixture
def stranger() -> Iterator[ModuleType]:
    module = ModuleType(OURS)
    sys.modules[OURS] = module
    yield module
    del sys.modules[OURS]


def problems(folder: Path, *entries: str) -> str:
    file = folder / "weir.yaml"
    first, *others = entries
    file.write_text(first + "".join(each.replace("\nprotocols:", "") for each in others))
    with pytest.raises(ConfigError) as caught:
        load(file, environ={})
    return str(caught.value).replace(str(folder), "")


def entry(name: str = "line", adapter: str = f"{OURS}:LINE", enabled: str = "true") -> str:
    return ENTRY.format(name=name, adapter=adapter, enabled=enabled)


def declared(name: str = "line", origin: int = 200, **more: Any) -> Declaration:
    return Declaration(name=name, title=name, origin=origin, make=never, **more)


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_an_origin_that_is_anothers_is_refused_whether_it_is_served_or_not(
    stranger: ModuleType, tmp_path: Path, enabled: str
) -> None:
    stranger.LINE = declared(origin=3)  # type: ignore[attr-defined]
    said = problems(tmp_path, entry(enabled=enabled))
    assert "line.adapter: declares the origin 3, which is that of sqs" in said
    assert "An origin is one adapter's for ever" in said


def test_two_strangers_with_one_origin_are_refused(stranger: ModuleType, tmp_path: Path) -> None:
    stranger.LINE = declared()  # type: ignore[attr-defined]
    stranger.OTHER = declared("other")  # type: ignore[attr-defined]
    said = problems(tmp_path, entry(), entry("other", f"{OURS}:OTHER", "false"))
    assert "other.adapter: declares the origin 200, which is that of line" in said


def test_a_server_does_not_start_with_two_adapters_of_one_origin(tmp_path: Path) -> None:
    module = tmp_path / "second_amqp.py"
    module.write_text(
        "from dataclasses import replace\n"
        "from adapters.amqp.adapter import AMQP\n"
        "SECOND = replace(AMQP, name='second', title='AMQP again')\n"
    )
    file = tmp_path / "weir.yaml"
    file.write_text(entry("second", "second_amqp:SECOND"))
    path = environment().get("PYTHONPATH", "")
    code, said = refused(
        tmp_path / "data", config=file, PYTHONPATH=f"{tmp_path}:{path}".rstrip(":")
    )
    assert code == 2
    assert "second.adapter: declares the origin 1, which is that of amqp" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("found", "what"),
    [
        ({"name": "other"}, "is the adapter of other: it must stand below that key"),
        ({"origin": 0}, "declares the origin 0; possible are 1 to 254"),
        ({"origin": 255}, "declares the origin 255; possible are 1 to 254"),
        ({"plain_class": "gold"}, "declares the class 'gold', which no bill knows"),
    ],
)
def test_what_would_spoil_the_log_or_the_bill_is_refused(
    stranger: ModuleType, tmp_path: Path, found: dict[str, Any], what: str
) -> None:
    stranger.LINE = declared(**found)  # type: ignore[attr-defined]
    assert f"line.adapter: {what}" in problems(tmp_path, entry())


@pytest.mark.parametrize("name", ["kernel", "internal", "weir"])
def test_a_name_that_the_bill_has_for_something_else_is_refused(
    stranger: ModuleType, tmp_path: Path, name: str
) -> None:
    stranger.LINE = declared(name)  # type: ignore[attr-defined]
    assert f"{name}.adapter: the name {name} is Weir's own" in problems(tmp_path, entry(name))


def test_an_entry_without_what_its_adapter_needs_is_told(
    stranger: ModuleType, tmp_path: Path
) -> None:
    stranger.LINE = declared(needs=frozenset({"line_max", "strict"}))  # type: ignore[attr-defined]
    said = problems(tmp_path, entry())
    assert "line: has no line_max, strict among its limits and options" in said
    file = tmp_path / "weir.yaml"
    limits = "    limits: {line_max: {value: 1, unit: bytes, reason: few}}\n"
    file.write_text(entry() + limits + "    options: {strict: true}\n")
    assert load(file, environ={}).settings.protocols["line"].limit("line_max") == 1


@pytest.mark.parametrize(
    ("adapter", "what"),
    [
        ("nowhere", "'nowhere' is not module:name"),
        ("no.such.module:LINE", "no.such.module cannot be imported"),
        (f"{OURS}:MISSING", "is no adapters.base.Declaration"),
        ("adapters.amqp.server:AmqpAdapter", "is no adapters.base.Declaration"),
    ],
)
def test_an_adapter_that_is_not_there_is_told(
    stranger: ModuleType, tmp_path: Path, adapter: str, what: str
) -> None:
    said = problems(tmp_path, entry(adapter=adapter))
    assert "line.adapter: " in said
    assert what in said
    assert "docs/adapter.md" in said or "cannot be imported" in said
