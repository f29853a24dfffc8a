"""What a kernel client answers from the definitions in its memory: of a store, or mirrored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..api.client import Destinations
from ..api.model import RouterInfo, TopicInfo
from .topology import Topology


class Lookups:
    """The look-ups of `client.Client`, which ask nobody."""

    def __init__(self, topology: Topology) -> None:
        """`topology`: everything that is defined, kept up to date."""
        self.topology = topology

    @property
    def topology_version(self) -> int:
        """Rises with every change of a definition known here."""
        return self.topology.version

    def topic(self, tenant: str, name: str) -> TopicInfo | None:
        """The topic, or None."""
        return self.topology.topics.get((tenant, name))

    def topics(self, tenant: str) -> Sequence[TopicInfo]:
        """Every topic of a tenant."""
        return list(self.topology.topics.of(tenant))

    def routers(self, tenant: str) -> Sequence[str]:
        """Names of a tenant's routers, sorted."""
        return self.topology.routers(tenant)

    def router(self, tenant: str, name: str) -> RouterInfo | None:
        """The router, or None."""
        return self.topology.router_info(tenant, name)

    async def load(self, tenant: str, *, topics: Sequence[str], routers: Sequence[str]) -> None:
        """Nothing to load: every definition is in memory."""

    def to_topic(self, topic: TopicInfo) -> Destinations:
        """Destinations of a publish straight to one topic."""
        return self.topology.to_topic(topic)

    def to_router(
        self, tenant: str, router: str, key: str, attributes: Mapping[str, object] | None = None
    ) -> Destinations:
        """Destinations of a publish to a router."""
        return self.topology.find(tenant, router, key, attributes)
