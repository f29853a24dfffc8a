"""What a store does for gateways and other stores, put together: the one place that knows all
sections but the cluster's own (`cluster.cluster_service`).
"""

from __future__ import annotations

from collections.abc import Callable

from ..api.refusals import NO_SPACE
from ..common.errors import KernelError
from ..common.ids import RaftGroup
from ..common.ports import Clock, Random
from ..in_process.opening import LocalStore
from ..requests.leader import Identity
from .definitions.administration_service import AdministrationService
from .definitions.feed_service import FeedService
from .leader_calls.lane_service import BYTES_MAX, CALLS_MAX, GatewayService
from .leader_calls.leaders import RemoteLeaders
from .mesh.mesh_service import MeshService
from .peer_stores.keys_service import KeysService
from .peer_stores.peer_stores_service import PeerStoresService
from .peer_stores.remote_peer_stores import RemotePeerStores
from .pulls.pull_service import PullService
from .store_questions import StoreQuestions
from .streams.led_groups import StoreGroups
from .streams.stream_service import CLAIM_MS, SETTLE_IN_MS, StreamService
from .transactions.half_service import HalfService
from .tree.tree_service import TreeService


class StoreService(GatewayService):
    """All that a store does for gateways."""

    mesh: MeshService
    streams: StreamService
    pulls: PullService
    administration: AdministrationService
    halves: HalfService
    peer_stores: PeerStoresService
    questions: StoreQuestions

    def refused(self) -> dict[str, int]:
        """What was above a limit since this process began, by what it was."""
        return {
            "calls": self.figures.over_calls,
            "bytes": self.figures.over_bytes,
            "questions": self.figures.over_questions,
            "streams": self.streams.figures.over_streams,
            "pulls": self.pulls.figures.over_pulls,
            "changes": self.administration.figures.over_running,
            "watches": self.halves.figures.over_watches,
            "fellow_questions": self.peer_stores.over_tasks,
            "gateway_questions": self.questions.refused,
        }


def serve_gateways(
    local: LocalStore,
    soon: Callable[[Callable[[], None]], object],
    *,
    calls_max: int = CALLS_MAX,
    bytes_max: int = BYTES_MAX,
    claim_ms: int = CLAIM_MS,
    settle_in_ms: int = SETTLE_IN_MS,
) -> StoreService:
    """The handler of gateways' connections to a store; `soon(action)` calls it in a later turn."""
    store = local.store
    streams = StreamService(StoreGroups(local), claim_ms=claim_ms, settle_in_ms=settle_in_ms)
    local.before_stop.append(streams.before_stop)

    def refusal(group: RaftGroup, identity: Identity) -> KernelError | None:
        if local.client.accepting or not store.leader(group).is_new(identity):
            return None
        return NO_SPACE

    service = StoreService(store, streams, refusal, soon, calls_max=calls_max, bytes_max=bytes_max)
    service.streams = streams
    tree = TreeService(store, local.client.tree)
    store.also_tell(tree)
    service.add(tree)
    pulls = service.pulls = PullService(local)
    store.also_tell(pulls)
    service.add(pulls)
    service.mesh = MeshService(store, local.client)
    service.add(service.mesh)
    store.consensus.leaders_changed = service.leaders_changed
    feeds = FeedService(store, soon)
    store.also_tell(feeds)
    local.accepting_watchers.append(feeds.accepting)
    service.add(feeds)
    store.also_tell(streams)
    service.add(streams)
    service.administration = AdministrationService(local, feeds)
    service.halves = HalfService(local.client.half_keeper.watches)
    service.peer_stores = PeerStoresService(local, feeds)
    service.questions = StoreQuestions()
    sections = service.administration, service.halves, service.peer_stores, service.questions
    for section in sections:
        service.add(section)
    service.add(KeysService(store))
    return service


def join_peer_stores(
    local: LocalStore, leaders: RemoteLeaders, clock: Clock, random: Random
) -> RemotePeerStores:
    """Have the client of a store reach the groups that other stores lead, over `leaders`, which
    have the address of every store; before `local.start`.
    """
    peer_stores = RemotePeerStores(local, leaders, clock, random)
    local.client.join(peer_stores)
    return peer_stores
