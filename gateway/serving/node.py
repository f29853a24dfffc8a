"""One process with gateway and store in it: start order, readiness, drain, stop.

    data directory, its lock -> store -> identity -> adapters -> admin      (start)
    not ready -> adapters say goodbye -> adapters stop -> admin -> metering: last flush
              -> store: last commit, checkpoint

Every step of the way down is bounded in time; what hangs is left behind and said so.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import structlog

from auth.private_files.tokens import open_admin_token
from gateway.access.tenant_book import limit_tenants
from gateway.access.will_rights import WillRights
from gateway.admin.health import (
    Check,
    HealthRoutes,
    keys_check,
    memory_check,
    metering_check,
    serving_check,
)
from gateway.admin.metrics.history import History
from gateway.admin.metrics.store_metrics import (
    StoreFigures,
    damage_check,
    disk_check,
    features_check,
)
from gateway.admin.metrics.topic_metrics import TopicMetrics
from gateway.config.declared import declared_in
from gateway.config.exposure import warn_of_exposures
from gateway.process.running import (
    StartRefused,
    calm_ms,
    check_no_gateway,
    command_typed,
    fatal,
    understands,
)
from gateway.process.service_manager import SERVING, tell_manager
from gateway.process.slices import give_way_to
from gateway.reporting.node_metering import NodeMetering, node_of
from gateway.reporting.resize_log import ResizeLog
from gateway.reporting.trace_stream import ONLY_PROCESS
from gateway.serving.front import DRAIN_SECONDS, Front
from gateway.serving.greeting import greeting
from gateway.serving.serving_node import ServingNode, end_task
from kernel.cluster.local_features import LocalFeatures
from kernel.cluster.roster import read_home
from kernel.in_process.opening import LocalStore, open_store
from kernel.store.drivers.worker import Worker

if TYPE_CHECKING:
    from gateway.config.loading import Loaded
    from gateway.config.schema import Settings

_log = structlog.get_logger("weir.node")


class Node(ServingNode):
    """`weir serve` with `role: all`."""

    def __init__(self, settings: Settings, loaded: Loaded | None = None) -> None:
        """`loaded`: where the settings come from; None: nobody is shown."""
        super().__init__(settings, _log, DRAIN_SECONDS)
        self._loaded = loaded
        self._local: LocalStore | None = None
        self._front: Front | None = None
        self._topics: TopicMetrics | None = None
        self._history: asyncio.Task[None] | None = None

    async def _start(self, tasks: asyncio.TaskGroup) -> None:
        self._take_directory()
        disk = self._open_disk()
        if read_home(disk) is not None:
            raise StartRefused(
                f"{self._data} is the data directory of a cluster's store: serve it by `weir store`"
            )
        check_no_gateway(self._data)
        loop = asyncio.get_running_loop()
        local = open_store(
            disk,
            self._clock,
            self._random,
            lambda name: Worker(loop, name),
            fatal,
            understands=understands(),
        )
        self._local = local
        give_way_to(local.store)
        self._topics = TopicMetrics(local.store.replicas, self._clock, self._settings.node.metrics)
        self._topics.sizes = local.client.sizing.figures
        wills = WillRights()
        local.client.tree.judge_wills(wills.may_publish)
        alarms = self._make_alarms(self._checks)
        local.store.unreadable.losses.watchers.append(alarms.given_up)
        resizes = ResizeLog(_log, self._clock)
        local.client.administrator.queues_changed = resizes.queues_changed
        local.client.sizing.tell = resizes.sized
        local.client.sizing.calm_ms = calm_ms()
        await local.start()
        front = Front(
            self._settings,
            self._data,
            local.client,
            self._clock,
            self._random,
            self._certificates,
        )
        self._front = front
        await front.identify(command_typed())
        limit_tenants(local.client, front.quotas, front.tenants)
        wills.follow(front.users)
        metering = await self._meter(local)
        await front.serve(metering)
        if metering is not None:
            metering.start(tasks)
        self._begin_tracing(local.client, ONLY_PROCESS, tasks)
        if self._settings.node.admin.enabled:
            await self._administer(local, front, tasks)
        self._begin_looking()
        self._ready = True
        address = self._admin.url if self._admin is not None else None
        code = front.sign_in_code() if sys.stderr.isatty() else None
        notes = [f"data in {self._settings.node.data}", *warn_of_exposures(self._settings)]
        if not local.clean:
            notes.append(f"the last run did not end in order: {local.replayed} entries replayed")
        sys.stderr.write(greeting(self._settings, front.adapters, notes, address, code=code))
        sys.stderr.flush()
        _log.info("serving", replayed=local.replayed, clean=local.clean, listeners=front.addresses)
        tell_manager(SERVING)

    async def _meter(self, local: LocalStore) -> NodeMetering | None:
        settings = self._settings.node.metering
        if not settings.enabled:
            return None
        metering = NodeMetering(
            local.client,
            local.store.replicas,
            node_of(self._data),
            self._data,
            self._clock,
            settings,
            declared_in(self._settings.protocols),
        )
        await metering.open()
        self._metering = metering
        return metering

    def _checks(self) -> list[Check]:
        local = self._local
        if local is None:
            return [serving_check(ready=False)]
        return [
            serving_check(ready=self._ready),
            disk_check(local.housekeeper.disk_space, accepting=local.client.accepting),
            damage_check(local),
            features_check(local),
            memory_check(self._front.memory if self._front is not None else None),
            keys_check(self._front.keys if self._front is not None else None),
            metering_check(self._metering),
            Check("certificate", True, self._certificates.alarms),
        ]

    async def _administer(self, local: LocalStore, front: Front, tasks: asyncio.TaskGroup) -> None:
        collector = front.collector(StoreFigures(local), self._metering)
        assert self._topics is not None
        await self._topics.look()
        health = HealthRoutes(self._checks, collector, self._topics)
        features = LocalFeatures(local)
        token = open_admin_token(self._data)
        history = History(self._topics, local.client, self._clock)
        app = front.admin_app(
            token,
            health,
            self._metering,
            features=features,
            history=history,
            disk=lambda: local.housekeeper.disk_space,
            topics=self._topics,
            loaded=self._loaded,
            pins=local.housekeeper.pins,
        )
        self._history = tasks.create_task(history.run())
        await self._serve_admin(app, tasks)
        await self._serve_management(front.management, tasks)

    async def _stop(self) -> None:
        self._ready = False
        self._end_looking()
        await end_task(self._history)
        if self._front is not None:
            await self._front.drain()
        await self._stop_admin()
        await self._stop_tracing()
        await self._stop_metering()
        if self._front is not None:
            await self._front.close()
        if self._local is not None:
            await self._local.stop()
            _log.info("stopped", data=str(self._data))
        self._leave_directory()
