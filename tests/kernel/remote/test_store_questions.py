"""What a gateway asks every store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kernel.common.errors import Code, KernelError
from kernel.remote.leader_calls import answering
from kernel.remote.store_questions import ask_stores
from tests.kernel.remote.cluster import gateway_of, running_stores


async def test_stores_answer_and_those_that_do_not_are_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_stores(tmp_path, 3) as nodes, gateway_of(nodes) as client:
        heard: dict[int, bytes] = {}

        async def asked(kind: str, within_s: float = 5.0) -> dict[int, str]:
            heard.clear()
            return await ask_stores(client.leaders, kind, b"who?", within_s, heard.__setitem__)

        for node in nodes:

            async def echo(question: bytes, number: int = node.number) -> bytes:
                return question + b" %d" % number

            node.service.questions.serve("echo", echo)

        async def wait(_question: bytes) -> bytes:
            await asyncio.sleep(60)
            return b""

        assert await asked("echo") == {}
        assert heard == {number: b"who? %d" % number for number in (1, 2, 3)}
        nodes[1].service.questions.serve("echo", wait)
        assert await asked("echo", 0.2) == {2: "it has not answered within 0.2 s"}
        assert set(heard) == {1, 3}
        silent = await asked("unheard of")
        assert set(silent.values()) == {"it does not answer such questions, or not yet"}
        monkeypatch.setattr(answering, "ANSWERS_MAX", 1)
        assert await asked("echo") == {2: "it is answering 1 questions"}
        assert nodes[1].service.refused()["gateway_questions"] == 1
        monkeypatch.setattr(answering, "ASKED_BYTES_MAX", 3)
        with pytest.raises(KernelError) as refused:
            await asked("echo")
        assert refused.value.code is Code.TOO_LARGE
        for node in nodes:
            await node.service.questions.stop()


async def test_a_store_that_is_gone_is_named(tmp_path: Path) -> None:
    async with running_stores(tmp_path, 3) as nodes, gateway_of(nodes) as client:

        async def echo(question: bytes) -> bytes:
            return question

        for node in nodes[:2]:
            node.service.questions.serve("echo", echo)
        await nodes[2].stop()
        heard: dict[int, bytes] = {}
        silent = await ask_stores(client.leaders, "echo", b"", 2.0, heard.__setitem__)
        assert (set(heard), set(silent)) == ({1, 2}, {3})
        assert silent[3]
