"""The bill of a month so far: a process beside the server, here a stand-in for the billing jobs.
With the jobs themselves: tests/spark/test_month_bill.py.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from gateway.reporting import month_bill
from gateway.reporting.month_bill import MonthBill, MonthBillShown
from kernel.common.errors import Code, KernelError
from kernel.store.drivers.system import SystemClock
from tests.gateway.serving import serving
from tests.gateway.test_admin_health import basic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.gateway.serving import Answer

PERIOD = "2026-11"

WRITES = """
import json, pathlib, sys
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
run = pathlib.Path(words["--out"]) / f"period={words['--period']}" / f"run={RUN}"
(run / "json").mkdir(parents=True)
line = {"title": "Messages", "quantity": "3", "per": "1", "unit_price": "0.5", "amount": "1.50"}
for tenant in ("default", "acme"):
    invoice = {"tenant": tenant, "currency": "EUR", "total": "1.50", "lines": [line], "schema": 1}
    (run / "json" / f"{tenant}.json").write_text(json.dumps(invoice))
print("some words", file=sys.stderr)
print(json.dumps({"run_id": RUN, "ended": False, "problems": ["one is missing"], "unpriced": [],
                  "price_book": words.get("--price-book", "own")}))
sys.exit(1)
"""


async def exported() -> None:
    """Everything is in the archive."""


def bill_of(
    folder: Path,
    program: str,
    export: Callable[[], Awaitable[object]] = exported,
    price_book: str | None = None,
) -> MonthBill:
    command = (sys.executable, "-c", program)
    return MonthBill(export, folder / "archive", folder, price_book, SystemClock(), command)


async def outcome(bill: MonthBill) -> MonthBillShown:
    assert bill.begin(PERIOD).state == "running"
    async with asyncio.timeout(30):
        while bill.shown.state == "running":
            await asyncio.sleep(0.01)
    return bill.shown


async def test_invoices_are_those_that_the_jobs_have_made(tmp_path: Path) -> None:
    shown = await outcome(bill_of(tmp_path, f"RUN = 'b'\n{WRITES}", price_book="mine.yaml"))
    assert (shown.state, shown.period, shown.is_whole_month) == ("done", PERIOD, False)
    assert (shown.problems, shown.price_book) == (["one is missing"], "mine.yaml")
    assert [each.tenant for each in shown.invoices] == ["acme", "default"]
    assert (shown.invoices[0].total, shown.invoices[0].lines[0].amount) == ("1.50", "1.50")


async def test_who_administers_a_tenant_is_told_of_that_tenant_only(tmp_path: Path) -> None:
    shown = await outcome(bill_of(tmp_path, f"RUN = 'b'\n{WRITES}"))
    assert shown.is_own_price_book
    theirs = shown.of("acme")
    assert [each.tenant for each in theirs.invoices] == ["acme"]
    assert "default" not in str(theirs)
    assert len(theirs.problems) == 1
    assert "one is missing" not in theirs.problems[0]
    assert shown.of("nobody").invoices == []
    failed = await outcome(bill_of(tmp_path, "import sys; sys.exit('no Java in /opt/secret')"))
    assert (failed.of("acme").state, failed.of("acme").reason != "") == ("failed", True)
    assert "secret" not in str(failed.of("acme"))


async def test_invoices_beyond_the_most_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(month_bill, "INVOICES_MAX", 1)
    shown = await outcome(bill_of(tmp_path, f"RUN = 'b'\n{WRITES}"))
    assert (len(shown.invoices), shown.left_out) == (1, 1)
    assert shown.of("acme").left_out == 0
    # Its own may be among those that are not shown: it is not said that it has used nothing.
    assert (shown.of("default").invoices, shown.of("default").left_out) == ([], 1)


def test_a_tenants_administrator_may_look_and_not_begin(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        assert node.api("POST", "/tenants", {"name": "acme"}).status == 201
        alice = {"name": "alice", "password": "alice's", "policies": ["administrator"]}
        assert node.api("POST", "/users?tenant=acme", alice).status == 201
        headers = basic("acme:alice", "alice's")

        def ask(method: str, path: str, body: object = None) -> Answer:
            return node.http(method, "/api/v1" + path, body, token=None, headers=headers)

        assert ask("GET", "/metering/bill").json["state"] == "none"
        assert ask("GET", "/metering/bill?tenant=default").status == 403
        assert ask("POST", "/metering/bill", {"period": PERIOD}).status == 403
        assert ask("GET", "/metering").status == 403


async def test_runs_before_the_last_one_go(tmp_path: Path) -> None:
    await outcome(bill_of(tmp_path, f"RUN = 'a'\n{WRITES}"))
    await outcome(bill_of(tmp_path, f"RUN = 'b'\n{WRITES}"))
    assert [each.name for each in (tmp_path / "bill-so-far").glob("*/run=*")] == ["run=b"]


async def test_why_it_failed_is_told(tmp_path: Path) -> None:
    shown = await outcome(bill_of(tmp_path, "import sys; sys.exit('no Java here')"))
    assert (shown.state, shown.reason) == ("failed", "no Java here")

    async def refused() -> None:
        raise KernelError(Code.NOT_ALLOWED, "pyarrow is not installed here")

    shown = await outcome(bill_of(tmp_path, WRITES, refused))
    assert (shown.state, shown.reason) == ("failed", "pyarrow is not installed here")
    garbled = await outcome(bill_of(tmp_path, "print('{}')"))
    assert garbled.state == "failed"
    assert "log says why" in garbled.reason


async def test_one_is_worked_out_at_a_time_and_ends_with_the_server(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    program = f"""
import os, pathlib, time
pathlib.Path({str(mark)!r}).write_text(str(os.getpid()))
time.sleep(600)
"""
    bill = bill_of(tmp_path, program)
    bill.begin(PERIOD)
    with pytest.raises(KernelError) as error:
        bill.begin("2026-10")
    assert error.value.code is Code.LOCKED
    async with asyncio.timeout(30):
        while not (mark.exists() and mark.read_text()):
            await asyncio.sleep(0.01)
    await bill.stop()
    assert (bill.shown.state, bill.shown.period) == ("failed", PERIOD)
    assert not psutil.pid_exists(int(mark.read_text()))
    assert (await outcome(bill_of(tmp_path, f"RUN = 'a'\n{WRITES}"))).state == "done"


def test_a_month_that_is_none_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        assert node.api("GET", "/metering/bill").json["state"] == "none"
        assert node.api("POST", "/metering/bill", {"period": "2026-13"}).status == 400
        assert node.api("POST", "/metering/bill", {}).status == 400
