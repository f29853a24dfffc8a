"""Every action of every protocol, with each of its rights missing, with all of them, with each
denied, by somebody of another tenant, and once more after they were taken away.

A row says exactly what its action takes: one right more than it says, or one less, fails. What
protocols.yaml lists and no row is about, fails too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from gateway.config.loading import load
from tests.rights.page import PAGE, PROTOCOLS, page
from tests.rights.rows import Row
from tests.rights.site import (
    EVERYTHING,
    PLACES,
    ROOT,
    STRANGER,
    USER,
    WAIT_S,
    Actor,
    Refused,
    Site,
    running_site,
    tried,
)

CASES = [
    pytest.param(f"{name}{number}", row, id=f"{name}: {row.label}")
    for name, rows in PROTOCOLS.items()
    for number, row in enumerate(rows.ROWS)
]


@pytest.fixture(scope="module", params=PLACES)
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("rights"), request.param) as running:
        running.place = request.param
        yield running


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_operation_has_a_row(protocol: str) -> None:
    rows = PROTOCOLS[protocol]
    operations = load(environ={}).settings.protocols[protocol].operations
    refused = {name for name, each in operations.items() if each.status == "refused"}
    with_rows = {row.operation for row in rows.ROWS}
    without = set(rows.NO_RIGHT_OF_ITS_OWN)
    assert not with_rows & without
    assert not (with_rows | without) & refused, "refused to everybody"
    assert with_rows | without | refused == set(operations)


def test_the_page_says_what_the_rows_say() -> None:
    assert PAGE.read_text() == page(), "run `make docs`"


@pytest.mark.parametrize(("name", "row"), CASES)
def test_an_action_takes_its_rights_and_no_others(site: Site, name: str, row: Row) -> None:
    if site.place == "gateway" and not row.at_gateways:
        pytest.skip("only nodes do it")
    needs = [need.replace("{n}", name) for need in row.needs]
    with _actor(site, ROOT, name) as root:
        row.before(root)
    if row.names_tenant:
        assert _refused(site, STRANGER, name, row), "somebody of another tenant"
    for missing in needs:
        others = [need for need in needs if need != missing]
        site.allow(*others, _instead(missing))
        assert _refused(site, USER, name, row), f"without {missing}"
        denied = [missing, *(each.replace("{n}", name) for each in row.also_by)]
        site.rules((*EVERYTHING, *(f"deny {each}" for each in denied)))
        assert _refused(site, USER, name, row), f"denied: {missing}"
    for other in row.also_by:
        site.allow(other.replace("{n}", name))
        assert not _refused(site, USER, name, row), f"only {other}"
    site.allow(*needs)
    with _actor(site, USER, name) as user:
        tried(row.do, user)
        site.allow(*map(_instead, needs))
        if needs and row.again:
            _until_refused(row, user)


HELD = [case for case in CASES if case.values[1].hold is not None]
WITHIN_S = 2 * 4
"""What is promised, and some more while other tests run beside."""


@pytest.mark.parametrize(("name", "row"), HELD)
def test_what_goes_on_ends_soon_after_any_of_its_rights_is_gone(
    site: Site, name: str, row: Row
) -> None:
    assert row.hold is not None
    name += "h"
    needs = [need.replace("{n}", name) for need in row.needs]
    with _actor(site, ROOT, name) as root:
        row.before(root)
    for missing in needs:
        site.allow(*needs)
        with _actor(site, USER, name) as user:
            has_ended = row.hold(user)
            assert not has_ended()
            site.allow(*[need for need in needs if need != missing], _instead(missing))
            deadline = time.monotonic() + WITHIN_S
            while not has_ended():
                assert time.monotonic() < deadline, f"goes on without {missing}"
                time.sleep(0.05)


def _actor(site: Site, login: str, name: str) -> Actor:
    actor = Actor(site, login)
    actor.name = name
    return actor


def _refused(site: Site, login: str, name: str, row: Row) -> bool:
    with _actor(site, login, name) as actor:
        try:
            tried(row.do, actor)
        except Refused:
            return True
    return False


def _until_refused(row: Row, user: Actor) -> None:
    """What is asked for on an open connection is refused soon after the right is gone."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            tried(row.do, user)
        except Refused:
            return
    raise AssertionError("still allowed")


def _instead(need: str) -> str:
    """A right to something else in place of this one."""
    action, _, resource = need.partition(" ")
    kind, _, _ = resource.partition(":")
    return f"{action} {kind}:somethingelse"
