"""When leaders move by themselves."""

from __future__ import annotations

from kernel.cluster.balance import CALM_MS, MOVE_MS, Calm


def test_leaders_move_once_nothing_has_changed_for_a_while_and_then_one_by_one() -> None:
    calm = Calm()
    assert not calm.look("a", 0)
    assert not calm.look("a", CALM_MS - 1)
    assert calm.look("a", CALM_MS)
    assert not calm.look("a", CALM_MS + MOVE_MS - 1)
    assert calm.look("a", CALM_MS + MOVE_MS)


def test_a_store_that_comes_and_goes_keeps_leaders_where_they_are() -> None:
    calm = Calm()
    for now_ms in range(0, 10 * CALM_MS, CALM_MS // 2):
        assert not calm.look(now_ms, now_ms)
