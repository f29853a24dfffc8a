"""Processes of the simulator end as real ones do."""

from __future__ import annotations

import asyncio

import pytest

from kernel.common.errors import Code, KernelError
from kernel.store.snapshots.transfer import ReadSnapshot, _encode
from tests.simulator.cluster import Cluster
from tests.simulator.test_cluster import clustered


@clustered()
async def test_a_question_to_a_process_that_ends_meanwhile_breaks_off(cluster: Cluster) -> None:
    asker, asked = cluster.nodes[1], cluster.nodes[2]
    asked.workers.delay_s["weir-snapshots-out"] = 5.0
    question = asker.wires.ask(asked.number, _encode(ReadSnapshot("snap/none.snap", 0)))
    answer = asyncio.get_running_loop().create_task(question)
    await asyncio.sleep(1.0)
    asked.kill()
    await asked.start()
    async with asyncio.timeout(1.0):
        with pytest.raises(KernelError) as refused:
            await answer
    assert refused.value.code is Code.UNKNOWN_OUTCOME
