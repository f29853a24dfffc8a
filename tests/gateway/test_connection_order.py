"""Pages that several gateways fill: every connection once, in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admin.resources.connection_order import FirstRows, Place, place_of
from kernel.common.errors import Code, KernelError

COLUMNS = st.sampled_from([st.integers(0, 3), st.sampled_from(["", "a", "b"]), st.booleans()])


@st.composite
def gateways(draw: st.DrawFn) -> list[list[Place]]:
    """Places of the connections of some gateways, by one column."""
    values = draw(COLUMNS)
    return [
        [(value, number, f"node-{node}") for number, value in enumerate(found)]
        for node, found in enumerate(draw(st.lists(st.lists(values, max_size=9), max_size=4)))
    ]


@given(gateways(), st.integers(1, 5), st.booleans())
def test_pages_that_gateways_fill_have_each_row_once_and_in_order(
    found: list[list[Place]], limit: int, is_down: bool
) -> None:
    whole = sorted((each for own in found for each in own), key=lambda each: each[1:])
    whole.sort(key=lambda each: each[0], reverse=is_down)
    seen: list[Place] = []
    after: str | None = ""
    while after is not None:
        begin = place_of(after) if after else None
        merged: FirstRows[Place] = FirstRows(limit, begin, is_down=is_down)
        for own in found:
            here: FirstRows[Place] = FirstRows(limit, begin, is_down=is_down)
            here.add_all((each, each) for each in own)
            assert len(here.first()) <= limit + 1
            merged.add_all(here.first())
        page, after = merged.page()
        assert len(page) == limit or after is None
        seen += page
    assert [each[0] for each in seen] == [each[0] for each in whole]
    assert sorted(seen) == sorted(whole)


def test_the_rows_of_very_many_connections_are_not_kept() -> None:
    rows: FirstRows[int] = FirstRows(2, None, is_down=True)
    for number in range(5_000):
        rows.add((number, number, "here"), number)
        assert len(rows._found) <= 2 + 1 + 1_024
    page, after = rows.page()
    assert (page, place_of(after or "")) == ([4_999, 4_998], (4_998, 4_998, "here"))


def test_a_cursor_of_another_column_is_refused() -> None:
    rows: FirstRows[int] = FirstRows(2, ("bob", 1, "here"), is_down=False)
    with pytest.raises(KernelError) as refused:
        rows.add((7, 2, "here"), 2)
    assert refused.value.code is Code.INVALID_ARGUMENT
