"""What a store does for gateways, put together: the one place that knows all sections."""

from __future__ import annotations

from collections.abc import Callable

from ..store.opening import LocalStore
from .feed_service import FeedService
from .pull_service import PullService
from .service import BYTES_MAX, CALLS_MAX, GatewayService


def serve_gateways(
    local: LocalStore,
    soon: Callable[[Callable[[], None]], object],
    *,
    calls_max: int = CALLS_MAX,
    bytes_max: int = BYTES_MAX,
) -> GatewayService:
    """The handler of gateways' connections to a store; `soon(action)` calls it in a later turn."""
    store = local.store
    service = GatewayService(store, soon, calls_max=calls_max, bytes_max=bytes_max)
    service.add(PullService(local))
    store.consensus.leaders_changed = service.leaders_changed
    feeds = FeedService(store, soon)
    store.also_tell(feeds)
    local.accepting_watchers.append(feeds.accepting)
    service.add(feeds)
    return service
