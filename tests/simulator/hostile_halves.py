"""Half messages behind the hostile network."""

from __future__ import annotations

from collections.abc import Sequence

from kernel.api.model import TopicInfo
from kernel.api.tracing import ConnectedUser
from kernel.api.transactions import HalfCheck, HalfMessages, HalfSink, HalfWatch
from kernel.common.errors import KernelError
from kernel.common.ids import Offset, QueueId
from tests.simulator.hostile_link import Late, error_through_bytes, through_bytes


class _Watch:
    """`transactions.HalfSink` of the store and `transactions.HalfWatch` of the adapter: questions
    come late, in order, and none after `close`.
    """

    def __init__(self, late: Late, sink: HalfSink) -> None:
        self._late = late
        self._sink = sink
        self._over = False
        self.inner: HalfWatch | None = None

    def check(self, check: HalfCheck) -> None:
        copy = HalfCheck(
            *through_bytes(
                [
                    check.tenant,
                    check.topic,
                    check.token,
                    check.slot,
                    check.prepared_ms,
                    check.checks,
                    check.producers,
                ]
            )
        )

        def ask() -> None:
            if not self._over:
                self._sink.check(copy)

        self._late.call(self, ask)

    def close(self) -> None:
        self._over = True
        if self.inner is not None:
            self.inner.close()


class HostileHalves:
    """`transactions.HalfMessages`."""

    def __init__(self, local: HalfMessages, late: Late) -> None:
        self._local = local
        self._late = late

    async def prepare(self, topic: TopicInfo, producers: str, parts: Sequence[bytes]) -> bytes:
        copies = [bytes(bytearray(each)) for each in parts]
        await self._late.pause()
        try:
            token = await self._local.prepare(through_bytes(topic), producers, copies)
        except KernelError as error:
            raise error_through_bytes(error) from None
        finally:
            await self._late.pause()
        return bytes(bytearray(token))

    async def end(
        self, topic: TopicInfo, token: bytes, *, commit: bool, by: ConnectedUser | None = None
    ) -> tuple[QueueId, Offset] | None:
        await self._late.pause()
        try:
            place = await self._local.end(
                through_bytes(topic), bytes(bytearray(token)), commit=commit, by=by
            )
        except KernelError as error:
            raise error_through_bytes(error) from None
        finally:
            await self._late.pause()
        if place is None:
            return None
        queue, offset = through_bytes(list(place))
        return QueueId(queue), Offset(offset)

    def watch(self, tenant: str, producers: str, sink: HalfSink) -> HalfWatch:
        watch = _Watch(self._late, sink)
        watch.inner = self._local.watch(tenant, producers, watch)
        return watch
