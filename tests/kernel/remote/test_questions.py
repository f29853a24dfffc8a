"""What one gateway asks all others."""

from __future__ import annotations

import asyncio

import pytest

from gateway.admin.metrics.gateway_metrics import GatewayFigures
from kernel.common.errors import Code, KernelError
from kernel.remote.leader_calls import answering as module
from tests.kernel.remote.cluster import Pair, knows_all, meeting_gateway_of
from tests.kernel.three_stores import until


async def asked(pair: Pair, kind: str, within_s: float = 5.0) -> tuple[list[bytes], list[str]]:
    """What the first gateway hears, and why others have not answered."""
    heard: list[bytes] = []
    silent = await pair[1].mesh.questions.ask(kind, b"who?", within_s, heard.append)
    return heard, [each.reason for each in silent]


async def test_other_gateways_answer_and_those_that_do_not_are_named_with_the_reason(
    two: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes, one, other = two
    end = asyncio.Event()

    async def echo(question: bytes) -> bytes:
        return question + b" me"

    async def refuse(_question: bytes) -> bytes:
        raise KernelError(Code.INVALID_ARGUMENT, "no such column")

    async def wait(_question: bytes) -> bytes:
        await end.wait()
        return b"late"

    for kind, answerer in (("echo", echo), ("refuse", refuse), ("wait", wait)):
        other.mesh.questions.serve(kind, answerer)
    assert await asked(two, "echo") == ([b"who? me"], [])
    assert await asked(two, "refuse") == ([], ["no such column"])
    assert await asked(two, "wait", 0.05) == ([], ["it has not answered within 0.05 s"])
    assert (await asked(two, "unheard of"))[1] == ["it does not answer such questions, or not yet"]

    monkeypatch.setattr(module, "ANSWERS_MAX", 1)
    assert (await asked(two, "echo"))[1] == ["it is answering 1 questions"]
    rows = GatewayFigures(other.leaders, other).collect()
    figures = {each.name: each.value for row in rows for each in row.samples}
    assert figures["weir_gateway_questions_refused_total"] == 1
    end.set()
    await until(lambda: not other.mesh.questions._answering)
    monkeypatch.setattr(module, "ANSWER_BYTES_MAX", 4)
    assert (await asked(two, "echo"))[1] == ["its answer has over 4 bytes: ask for fewer rows"]
    monkeypatch.setattr(module, "ASKED_BYTES_MAX", 3)
    with pytest.raises(KernelError) as refused:
        await asked(two, "echo")
    assert refused.value.code is Code.TOO_LARGE
    monkeypatch.undo()

    async with meeting_gateway_of(nodes, (1, 2)) as older:
        await until(lambda: knows_all(one, older) and knows_all(older, one))
        meeting = older.mesh.meeting
        assert meeting is not None
        heard: list[bytes] = []
        (silent,) = await one.mesh.questions.ask("echo", b"", 5.0, heard.append)
        assert (heard, silent.reason) == ([b" me"], "it is of an older version")
        assert silent.gateway == meeting._own().address
        assert await older.mesh.questions.ask("echo", b"", 5.0, heard.append)
        assert knows_all(one, older)
