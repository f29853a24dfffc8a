"""The client of a gateway without a store: what it does by itself."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from kernel.common.ids import RaftGroup
from tests.kernel.remote.cluster import gateway_of, running_stores
from tests.kernel.three_stores import until


@pytest.mark.parametrize("count", [1, 3])
async def test_a_gateway_learns_which_groups_there_are_and_who_leads_them(
    tmp_path: Path, count: int
) -> None:
    async with running_stores(tmp_path, count) as nodes, gateway_of(nodes) as client:
        assert client.groups == [1, 2]

        def leads_as_told(group: RaftGroup) -> bool:
            return nodes[client.leaders.table.of(group) - 1].serves(group)

        for group in client.groups:
            await until(partial(leads_as_told, group))
