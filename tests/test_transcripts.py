"""The reader of transcripts: what is compared, what fails, what is rewritten."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.transcripts import REWRITING, milliseconds, parsed, play, replayed

TEXT = """\
# Two commands of a driver that repeats what it is told.

say one
  one

a -> PING
a <- PING
"""


async def echo(command: str) -> Iterable[str]:
    client, arrow, rest = command.partition(" -> ")
    if arrow:
        return [f"{client} <- {rest}"]
    return [f"  {word}" for word in command.split()[1:]]


async def test_a_transcript_that_says_what_happens_is_left_alone() -> None:
    assert await replayed(TEXT, echo) == TEXT


@pytest.mark.parametrize(
    ("line", "instead"),
    [("  one", "  two"), ("  one\n", ""), ("a <- PING", "b <- PING"), ("  one", "  one\n  two")],
)
def test_another_outcome_fails(
    line: str, instead: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(REWRITING, raising=False)
    path = tmp_path / "false.txt"
    path.write_text(TEXT.replace(line, instead))
    with pytest.raises(AssertionError, match="rewrites it"):
        play(path, echo, asyncio.run)


def test_a_file_is_rewritten_if_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "false.txt"
    path.write_text(TEXT.replace("  one", "  two\n  three"))
    monkeypatch.setenv(REWRITING, "1")
    play(path, echo, asyncio.run)
    assert path.read_text() == TEXT


async def test_a_command_that_fails_is_named() -> None:
    async def fails(command: str) -> Iterable[str]:
        raise KeyError(command)

    with pytest.raises(KeyError) as caught:
        await replayed(TEXT, fails)
    assert caught.value.__notes__ == ["line 3: say one"]


def test_words_and_names_of_a_command() -> None:
    assert parsed("put a 'b c' x=1 note='d e' /f=g") == (
        ["put", "a", "b c", "/f=g"],
        {"x": "1", "note": "d e"},
    )
    assert [milliseconds(each) for each in ("250ms", "30s", "5m")] == [250, 30_000, 300_000]
