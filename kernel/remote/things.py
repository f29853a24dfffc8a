"""What processes tell each other of topics, routers and routes, whoever tells it: a store of what
is durable (`definitions.feed_wire`), a gateway of what lives in its memory (`mesh.wire`).
"""

from __future__ import annotations

import msgspec

from ..api.model import Route, RouterOptions, TopicInfo
from .leader_calls.call_numbers import Name


class TopicIs(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """A topic is new, or has changed."""

    topic: TopicInfo


class RouterIs(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A router is new, or has changed its options; its routes stay."""

    tenant: Name
    name: Name
    options: RouterOptions


class RouterGone(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A router is gone. Durable routes go with it untold, others are told of one by one."""

    tenant: Name
    name: Name


class RouteGone(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A route is gone."""

    tenant: Name
    router: Name
    route: Route
