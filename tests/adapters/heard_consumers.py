"""Which connection consumes what, as a gateway's kernel client hears it (`kernel.remote`)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable

    import pytest

    from kernel.api.client import Client


class HeardConsumers:
    """Listens at a kernel client from now on."""

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self._heard: dict[str, Counter[Hashable]] = {}
        attach, receive = client.attach, client.receive

        def heard(spec: Any) -> None:
            consumer_key = spec.consumer_key if spec.session is None else spec.session.id
            self._heard.setdefault(spec.topic.name, Counter())[consumer_key] += 1

        def attaching(spec: Any, *rest: Any) -> Any:
            heard(spec)
            return attach(spec, *rest)

        async def receiving(spec: Any) -> Any:
            heard(spec)
            return await receive(spec)

        monkeypatch.setattr(client, "attach", attaching)
        monkeypatch.setattr(client, "receive", receiving)

    def of(self, topic: str) -> Counter[Hashable]:
        """Consumers of a topic by key; pulls of one key are one."""
        return self._heard.get(topic, Counter())

    def pulling(self, topic: str) -> dict[Hashable, int]:
        """The same for pulls: whoever has pulled at all."""
        return dict.fromkeys(self.of(topic), 1)
