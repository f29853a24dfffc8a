"""Declaring, binding and deleting: AMQP's administration as changes of the kernel's topology.

Rules:

1. Rights first (`_RIGHTS`), then existence, then ownership, then equivalence: the order in which
   RabbitMQ answers, so that nobody learns what exists by being refused.
2. An answer is sent only after the kernel's `administer` has returned: a declared durable queue is
   on disk when its declare-ok leaves (kernel.api.client).
3. Deleting what does not exist, and unbinding what is not bound, succeeds, as in RabbitMQ.
4. The predeclared exchanges are made when first used, so that an unused tenant holds none.

Every function awaits the kernel and returns what the client is to hear. Errors are AmqpError, or
KernelError where the kernel's own sentence says it best.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from adapters.amqp.caller import Caller
from adapters.amqp.codec import spec
from adapters.amqp.codec.fields import text_of
from adapters.amqp.errors import (
    ACCESS_REFUSED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    AmqpError,
)
from adapters.amqp.names import (
    PREDECLARED,
    check_name,
    check_new_name,
    generated_queue_name,
    is_reply_address,
    locked,
    resource,
    router_key,
)
from adapters.amqp.topology import arguments, exchanges
from adapters.amqp.topology.exchanges import ExchangeDeclaration
from adapters.amqp.topology.router_rights import (
    CONSUME_ROUTER,
    PUBLISH_ROUTER,
    keys_of,
    names_topic,
    out_of,
    through,
)
from adapters.tree_rights import (
    CONSUME_TOPIC,
    PUBLISH_TOPIC,
    into_topic,
    out_of_topic,
)
from auth.policies.policy_rules import Action, ResourceKind, permission
from kernel.api.client import (
    DeleteRoute,
    DeleteRouter,
    DeleteTopic,
    PurgeTopic,
    PutRoute,
    PutRouter,
    PutTopic,
)
from kernel.api.model import (
    DEFAULT_GROUP,
    GroupOptions,
    Route,
    RouterInfo,
    TopicInfo,
    TopicOptions,
)
from kernel.common.errors import Code, KernelError, NotLoaded

if TYPE_CHECKING:
    from kernel.api.client import Client
    from kernel.common.ports import Random

CONFIGURE_TOPIC: Final = permission(Action.CONFIGURE, ResourceKind.TOPIC)
INSPECT_TOPIC: Final = permission(Action.INSPECT, ResourceKind.TOPIC)
CONFIGURE_ROUTER: Final = permission(Action.CONFIGURE, ResourceKind.ROUTER)
INSPECT_ROUTER: Final = permission(Action.INSPECT, ResourceKind.ROUTER)


class Declarations:
    """Carries out the methods of the classes exchange and queue."""

    def __init__(self, client: Client, random: Random) -> None:
        self._client = client
        self._random = random

    # --- Look-ups ---------------------------------------------------------------------------

    async def topic(self, tenant: str, name: str) -> TopicInfo | None:
        """The topic, loaded if need be; None if there is none."""
        try:
            return self._client.topic(tenant, name)
        except NotLoaded:
            await self._client.load(tenant, topics=(name,), routers=())
            return self._client.topic(tenant, name)

    async def queue(self, caller: Caller, name: str) -> TopicInfo:
        """The queue that this connection may use. Raises AmqpError 404 or 405."""
        topic = await self.topic(caller.tenant, name)
        if topic is None or is_reply_address(name):
            raise AmqpError(NOT_FOUND, f"no {resource('queue', name, caller.virtual_host)}")
        check_owner(topic, caller)
        return topic

    async def router(self, tenant: str, name: str) -> RouterInfo | None:
        """The router, loaded or, if it is predeclared, made if need be; None if there is none."""
        try:
            found = self._client.router(tenant, name)
        except NotLoaded:
            await self._client.load(tenant, topics=(), routers=(name,))
            found = self._client.router(tenant, name)
        if found is None and name in PREDECLARED:
            options = exchanges.predeclared(name).router_options()
            await self._client.administer(PutRouter(tenant, name, options, reserved_name=True))
            found = self._client.router(tenant, name)
        return found

    async def exchange(self, caller: Caller, name: str) -> RouterInfo:
        """The exchange. Raises AmqpError 404, and 403 for the default exchange."""
        if not name:
            raise AmqpError(ACCESS_REFUSED, "operation not permitted on the default exchange")
        router = await self.router(caller.tenant, name)
        if router is None:
            raise AmqpError(NOT_FOUND, f"no {resource('exchange', name, caller.virtual_host)}")
        return router

    async def load(self, tenant: str, exchange: str, key: str) -> None:
        """Make the look-ups of a publish answer at once."""
        if exchange:
            await self._client.load(tenant, topics=(), routers=(exchange,))
            await self.router(tenant, exchange)
        else:
            await self._client.load(tenant, topics=(key,), routers=())

    # --- Exchanges --------------------------------------------------------------------------

    async def declare_exchange(
        self, caller: Caller, method: spec.ExchangeDeclare
    ) -> spec.ExchangeDeclareOk:
        """exchange.declare, passive or not."""
        name = check_name(method.exchange, "exchange")
        if method.passive:
            if name:
                caller.require(INSPECT_ROUTER, "exchange", name)
                await self.exchange(caller, name)
            return spec.ExchangeDeclareOk()
        if not name:
            raise AmqpError(ACCESS_REFUSED, "operation not permitted on the default exchange")
        caller.require(CONFIGURE_ROUTER, "exchange", name)
        wanted = exchanges.exchange_declaration(
            name,
            caller.virtual_host,
            method.type,
            durable=method.durable,
            auto_delete=method.auto_delete,
            internal=method.internal,
            arguments=method.arguments,
        )
        known = await self.router(caller.tenant, name)
        if known is None:
            check_new_name(name, "exchange")
            alternate = text_of(method.arguments.get("alternate-exchange"))
            if alternate:
                caller.require(CONSUME_ROUTER, "exchange", name)
                await self._require_through(caller, alternate, None)
            known = await self._create_exchange(caller.tenant, name, wanted)
            if known is None:
                return spec.ExchangeDeclareOk()
        exchanges.check_equivalence(
            wanted, ExchangeDeclaration.of(known), name, caller.virtual_host
        )
        return spec.ExchangeDeclareOk()

    async def _create_exchange(
        self, tenant: str, name: str, wanted: ExchangeDeclaration
    ) -> RouterInfo | None:
        """None once created; the exchange, if another connection was faster."""
        change = PutRouter(tenant, name, wanted.router_options(), must_be_new=True)
        try:
            await self._client.administer(change)
        except KernelError as error:
            if error.code is not Code.ALREADY_EXISTS:
                raise
            return await self.router(tenant, name)
        return None

    async def delete_exchange(
        self, caller: Caller, method: spec.ExchangeDelete
    ) -> spec.ExchangeDeleteOk:
        """Carries out exchange.delete. One that is not there is no error (as in RabbitMQ)."""
        name = check_name(method.exchange, "exchange")
        if not name or name in PREDECLARED:
            raise AmqpError(
                ACCESS_REFUSED,
                f"operation not permitted on {resource('exchange', name, caller.virtual_host)}",
            )
        caller.require(CONFIGURE_ROUTER, "exchange", name)
        try:
            await self._client.administer(
                DeleteRouter(caller.tenant, name, if_unused=method.if_unused)
            )
        except KernelError as error:
            if error.code is Code.IN_USE:
                raise _in_use(resource("exchange", name, caller.virtual_host)) from None
            if error.code is not Code.NOT_FOUND:
                raise
        return spec.ExchangeDeleteOk()

    async def bind_exchange(
        self, caller: Caller, method: spec.ExchangeBind | spec.ExchangeUnbind
    ) -> spec.ExchangeBindOk | spec.ExchangeUnbindOk:
        """exchange.bind and exchange.unbind (RabbitMQ's)."""
        target = check_name(method.destination, "exchange")
        source = check_name(method.source, "exchange")
        caller.require(PUBLISH_ROUTER, "exchange", target)
        caller.require(CONSUME_ROUTER, "exchange", source)
        try:
            await self.exchange(caller, target)
            router = await self.exchange(caller, source)
        except AmqpError as error:
            if isinstance(method, spec.ExchangeUnbind) and error.code == NOT_FOUND:
                return spec.ExchangeUnbindOk()
            raise
        route = exchanges.route(router, method.routing_key, method.arguments, router=target)
        if isinstance(method, spec.ExchangeBind):
            await self._require_out_of(caller, router, route.key)
            await self._require_through(caller, target, keys_of(router, route.key))
            await self._client.administer(PutRoute(caller.tenant, source, route))
            return spec.ExchangeBindOk()
        await self._unbind(caller.tenant, source, route)
        return spec.ExchangeUnbindOk()

    async def _unbind(self, tenant: str, source: str, route: Route) -> None:
        try:
            await self._client.administer(DeleteRoute(tenant, source, route))
        except KernelError as error:
            if error.code is not Code.NOT_FOUND:
                raise

    # --- Queues -----------------------------------------------------------------------------

    async def declare_queue(self, caller: Caller, method: spec.QueueDeclare) -> spec.QueueDeclareOk:
        """queue.declare, passive or not. The name is that of the answer."""
        name = check_name(method.queue, "queue")
        if method.passive:
            if not name:  # stands for the last one declared in every other method
                raise AmqpError(NOT_FOUND, f"no {resource('queue', name, caller.virtual_host)}")
            caller.require(INSPECT_TOPIC, "queue", name)
            return await self._declared(await self.queue(caller, name))
        if not name:
            return await self._declare_server_named(caller, method)
        caller.require(CONFIGURE_TOPIC, "queue", name)
        topic = await self.topic(caller.tenant, name)
        if topic is None:
            check_new_name(name, "queue")
            topic = await self._create_queue(caller, name, method, hidden=False)
            if topic is not None:
                return await self._declared(topic)
            topic = await self.queue(caller, name)
        return await self._declared(await self._redeclare(caller, topic, method))

    async def _declare_server_named(
        self, caller: Caller, method: spec.QueueDeclare
    ) -> spec.QueueDeclareOk:
        while True:
            name = generated_queue_name(self._random.bits(128))
            caller.require(CONFIGURE_TOPIC, "queue", name)
            topic = await self._create_queue(caller, name, method, hidden=True)
            if topic is not None:
                return await self._declared(topic)

    async def _create_queue(
        self, caller: Caller, name: str, method: spec.QueueDeclare, *, hidden: bool
    ) -> TopicInfo | None:
        """The new queue; None if another connection was faster."""
        wanted = _declaration(name, caller.virtual_host, method)
        await self._require_dead_letters(caller, name, method)
        base = TopicOptions(
            durable=not wanted.is_transient,
            owner=caller.session.id if wanted.exclusive else None,
            hidden=hidden or wanted.exclusive or wanted.auto_delete,
            delete_when_unused=wanted.auto_delete,
        )
        change = PutTopic(
            caller.tenant,
            name,
            arguments.topic_options(wanted, base),
            {DEFAULT_GROUP: arguments.group_options(wanted, GroupOptions())},
            session=caller.session if wanted.is_transient else None,
            must_be_new=True,
            reserved_name=not method.queue,
        )
        return await self._put_topic(change)

    async def _put_topic(self, change: PutTopic) -> TopicInfo | None:
        try:
            made = await self._client.administer(change)
        except KernelError as error:
            if error.code is not Code.ALREADY_EXISTS:
                raise
            return None
        assert isinstance(made, TopicInfo)
        return made

    async def _redeclare(
        self, caller: Caller, topic: TopicInfo, method: spec.QueueDeclare
    ) -> TopicInfo:
        """An existing queue: the same declaration, or one more of another protocol's topic."""
        check_owner(topic, caller)
        wanted = _declaration(topic.name, caller.virtual_host, method)
        if wanted.exclusive != (topic.options.owner is not None):
            raise locked(topic.name, caller.virtual_host)
        last = topic.options.declarations.get(arguments.ADAPTER_NAME)
        if last is not None:
            known = arguments.QueueDeclaration.decode(last)
            arguments.check_equivalence(wanted, known, topic.name, caller.virtual_host)
            if topic.options.unused_expiry_ms is None:
                return topic
            # The kernel must hear of a redeclaration: it counts as use.
            options, groups = topic.options, topic.groups
        else:
            _check_adoptable(topic, wanted, caller.virtual_host)
            await self._require_dead_letters(caller, topic.name, method)
            options = arguments.topic_options(wanted, topic.options)
            group = topic.groups.get(DEFAULT_GROUP, GroupOptions())
            groups = {**topic.groups, DEFAULT_GROUP: arguments.group_options(wanted, group)}
        change = PutTopic(caller.tenant, topic.name, options, groups, session=caller.session)
        return await self._put_topic(change) or topic

    async def _require_dead_letters(
        self, caller: Caller, name: str, method: spec.QueueDeclare
    ) -> None:
        """Rights of a declaration with a dead-letter exchange: what goes there is read here."""
        router = text_of(method.arguments.get("x-dead-letter-exchange"))
        if router is None:
            return
        caller.require_all(out_of_topic(name, await self.topic(caller.tenant, name)))
        key = text_of(method.arguments.get("x-dead-letter-routing-key"))
        if key is not None and router:
            key = router_key(router, key)
        await self._require_through(caller, router, key)

    async def _require_through(self, caller: Caller, exchange: str, key: str | None) -> None:
        """Raise AmqpError 403 unless what has this key (None: any) may be sent through an
        exchange, which need not exist.
        """
        # Before anything is looked up, so that no refusal tells what exists.
        if exchange:
            caller.require(PUBLISH_ROUTER, "exchange", exchange)
        router = await self.router(caller.tenant, exchange) if exchange else None
        topic = await self._topic_by(caller, exchange, key)
        caller.require_all(through(exchange, router, key, topic))

    async def _require_out_of(self, caller: Caller, source: RouterInfo, key: str) -> None:
        """Raise AmqpError 403 unless the caller may have what a binding key takes."""
        topic = await self._topic_by(caller, source.name, key)
        caller.require_all(out_of(source, key, topic))

    async def _topic_by(self, caller: Caller, exchange: str, key: str | None) -> TopicInfo | None:
        """The topic that a key of an exchange names."""
        if key is None or not names_topic(exchange, key):
            return None
        return await self.topic(caller.tenant, key)

    async def _declared(self, topic: TopicInfo) -> spec.QueueDeclareOk:
        figures = await self._client.statistics(topic, DEFAULT_GROUP)
        return spec.QueueDeclareOk(topic.name, figures.ready, figures.consumers)

    async def bind_queue(
        self, caller: Caller, method: spec.QueueBind | spec.QueueUnbind, last_declared: str
    ) -> spec.QueueBindOk | spec.QueueUnbindOk:
        """queue.bind and queue.unbind."""
        target = named(check_name(method.queue, "queue"), last_declared)
        key = method.routing_key
        if not method.queue and not key and isinstance(method, spec.QueueBind):
            key = target
        source = check_name(method.exchange, "exchange")
        caller.require(PUBLISH_TOPIC, "queue", target)
        caller.require(CONSUME_ROUTER, "exchange", source)
        try:
            topic = await self.queue(caller, target)
            router = await self.exchange(caller, source)
        except AmqpError as error:
            if isinstance(method, spec.QueueUnbind) and error.code == NOT_FOUND:
                return spec.QueueUnbindOk()
            raise
        route = exchanges.route(router, key, method.arguments, topic=target)
        if isinstance(method, spec.QueueBind):
            await self._require_out_of(caller, router, route.key)
            caller.require_all(into_topic(target, topic))
            await self._client.administer(PutRoute(caller.tenant, source, route))
            return spec.QueueBindOk()
        await self._unbind(caller.tenant, source, route)
        return spec.QueueUnbindOk()

    async def purge_queue(
        self, caller: Caller, method: spec.QueuePurge, last_declared: str
    ) -> spec.QueuePurgeOk:
        """queue.purge: what is ready goes, what is unacknowledged stays."""
        name = named(check_name(method.queue, "queue"), last_declared)
        caller.require(CONSUME_TOPIC, "queue", name)
        await self.queue(caller, name)
        purged = await self._client.administer(PurgeTopic(caller.tenant, name, DEFAULT_GROUP))
        return spec.QueuePurgeOk(_count(purged))

    async def delete_queue(
        self, caller: Caller, method: spec.QueueDelete, last_declared: str
    ) -> spec.QueueDeleteOk:
        """Carries out queue.delete; a queue that is not there had 0 messages."""
        name = named(check_name(method.queue, "queue"), last_declared)
        caller.require(CONFIGURE_TOPIC, "queue", name)
        topic = await self.topic(caller.tenant, name)
        if topic is None:
            return spec.QueueDeleteOk(0)
        check_owner(topic, caller)
        try:
            ready = await self._client.administer(
                DeleteTopic(
                    caller.tenant, name, if_unused=method.if_unused, if_empty=method.if_empty
                )
            )
        except KernelError as error:
            where = resource("queue", name, caller.virtual_host)
            if error.code is Code.IN_USE:
                figures = await self._client.statistics(topic, DEFAULT_GROUP)
                is_used = method.if_unused and (figures.consumers or not method.if_empty)
                raise _in_use(where) if is_used else _not_empty(where) from None
            if error.code is not Code.NOT_FOUND:
                raise
            return spec.QueueDeleteOk(0)
        return spec.QueueDeleteOk(_count(ready))


def _in_use(where: str) -> AmqpError:
    return AmqpError(PRECONDITION_FAILED, f"{where} in use")


def _not_empty(where: str) -> AmqpError:
    return AmqpError(PRECONDITION_FAILED, f"{where} not empty")


def named(name: str, last_declared: str) -> str:
    """An empty queue name means the queue declared last on the channel. Raises AmqpError 404."""
    if name:
        return name
    if not last_declared:
        raise AmqpError(NOT_FOUND, "no previously declared queue")
    return last_declared


def check_owner(topic: TopicInfo, caller: Caller) -> None:
    """Refuse a queue that is another connection's own. Raises AmqpError 405."""
    if topic.options.owner not in (None, caller.session.id):
        raise locked(topic.name, caller.virtual_host)


def _declaration(
    name: str, virtual_host: str, method: spec.QueueDeclare
) -> arguments.QueueDeclaration:
    return arguments.queue_declaration(
        name,
        virtual_host,
        durable=method.durable,
        exclusive=method.exclusive,
        auto_delete=method.auto_delete,
        arguments=method.arguments,
    )


def _check_adoptable(
    topic: TopicInfo, wanted: arguments.QueueDeclaration, virtual_host: str
) -> None:
    """Whether another protocol's topic can be what is declared. Raises AmqpError 406."""
    where = resource("queue", topic.name, virtual_host)
    if wanted.durable != topic.options.durable:
        raise arguments.inequivalent(
            "durable", where, asked=wanted.durable, current=topic.options.durable
        )
    if wanted.auto_delete:
        raise arguments.inequivalent("auto_delete", where, asked=True, current=False)


def _count(result: object) -> int:
    assert isinstance(result, int)
    return result
