"""What commands write to a terminal, whatever clients have called themselves and their things."""

from __future__ import annotations

import json

import pytest

from gateway.commands.common.output import Format, Table, put, put_line, say

NASTY = "\x1b[2J\x9b31m\u202eevil\x07\r\nnext\U000e0001"


@pytest.mark.parametrize("form", [Format.TABLE, Format.JSON, Format.SUMMARY])
def test_a_name_moves_no_cursor_and_is_one_line(
    capsys: pytest.CaptureFixture[str], form: Format
) -> None:
    put({"name": NASTY, "ü": "ä"}, Table(("name", "more"), [(NASTY, "ä")]), form)
    out = capsys.readouterr().out
    assert all(each.isprintable() for each in out.splitlines())
    assert "ä" in out
    if form is Format.JSON:
        assert json.loads(out) == {"name": NASTY, "ü": "ä"}
    else:
        name = json.dumps(NASTY)[1:-1]
        assert [each.split() for each in out.split("\n")[:-1]] == [["NAME", "MORE"], [name, "ä"]]


def test_lines_and_news_have_only_their_own_ends(capsys: pytest.CaptureFixture[str]) -> None:
    put_line(json.dumps({"name": NASTY}, ensure_ascii=False))
    say(f"no client {NASTY}")
    found = capsys.readouterr()
    assert json.loads(found.out) == {"name": NASTY}
    assert found.out.count("\n") == 1
    assert all(each.isprintable() for each in (found.out + found.err).split("\n"))


def test_who_asks_for_names_gets_them_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    put({}, Table(("name",), [("a\u00a0b",)]), Format.NAME)
    assert capsys.readouterr().out == "a\u00a0b\n"
