"""amqtt's authentication and topic plugins, unchanged, as our sign-in (extra `amqtt`).

The file is amqtt's own YAML; only its key `plugins` is read. As in amqtt, a client gets in if some
authentication plugin says yes and none says no, and a topic may be used if no topic plugin says no.
Everyone is in the tenant `default`.

Authentication plugins may wait (for a web service, a database). A topic plugin decides about every
message, so it must decide at once: one that waits is told in the log, and its topic is refused.
Plugins that only listen to events, and those that need a running amqtt broker, have nothing here.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog
import yaml

from auth.errors import AuthCode, AuthError
from auth.policies.policy_rules import Action, ResourceKind, permission
from auth.principal import DEFAULT_TENANT, Principal, PrincipalKind

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from amqtt.plugins.base import BaseAuthPlugin, BaseTopicPlugin
    from amqtt.session import Session as AmqttSession

    from adapters.mqtt.environment import Login
    from auth.policies.policy_rules import Permission

DECISIONS_MAX: Final = 256
"""Topics whose decision a connection remembers; a full table starts anew."""

_NOT_ASKED: Final = frozenset(
    {
        permission(Action.CONSUME, ResourceKind.GROUP),
        permission(Action.CONSUME, ResourceKind.CLIENT),
    }
)
"""Plugins know no groups; and who is let in with which client id they have decided already."""

_ACTIONS: Final = {
    permission(Action.PUBLISH, ResourceKind.TREE): "publish",
    permission(Action.CONSUME, ResourceKind.TREE): "subscribe",
}

_log = structlog.get_logger("weir.mqtt.plugins")


class PluginsUnusable(AuthError):
    """The plugins cannot be loaded; the text says why, to whoever starts the server."""

    def __init__(self, message: str) -> None:
        super().__init__(AuthCode.INVALID_ARGUMENT, message)


class PluginRights:
    """`adapters.base.Rights` as topic plugins grant them. Topics of the kernel are for nobody: the
    plugins know only the tree.
    """

    def __init__(self, principal: Principal, plugins: PluginSignIn, session: AmqttSession) -> None:
        self.principal = principal
        self._plugins = plugins
        self._session = session
        self._decisions: dict[tuple[int, str], bool] = {}

    def allows(self, number: Permission, name: str, /) -> bool:
        """Whether `name` may be used so."""
        known = self._decisions.get((number, name))
        if known is None:
            if len(self._decisions) >= DECISIONS_MAX:
                self._decisions.clear()
            action = _ACTIONS.get(number)
            known = number in _NOT_ASKED or (
                action is not None and self._plugins.permits(self._session, name, action)
            )
            self._decisions[number, name] = known
        return known

    def is_alive(self) -> bool:
        """Plugins decide once, at CONNECT."""
        return True

    def rules(self) -> object:
        """Always the same: see `is_alive`."""
        return self


class PluginSignIn:
    """`MqttSignIn` by plugins."""

    def __init__(self, auth: Sequence[BaseAuthPlugin], topics: Sequence[BaseTopicPlugin]) -> None:
        self._auth = auth
        self._topics = topics

    async def sign_in(self, login: Login) -> PluginRights:
        """Ask every authentication plugin. Raises AuthError: BAD_CREDENTIALS, or UNAVAILABLE if
        one of them failed.
        """
        session = _session_of(login)
        answers: list[bool] = []
        for plugin in self._auth:
            try:
                answer = await plugin.authenticate(session=session)
            except Exception as error:
                _log.exception("authentication plugin failed", plugin=type(plugin).__name__)
                name = type(plugin).__name__
                raise AuthError(AuthCode.UNAVAILABLE, f"the plugin {name} failed") from error
            if answer is not None:
                answers.append(answer)
        if not answers or not all(answers):
            raise AuthError(AuthCode.BAD_CREDENTIALS, f"login refused from {login.address}")
        name = login.username or login.client_id
        principal = Principal(DEFAULT_TENANT, name, PrincipalKind.PLUGIN)
        return PluginRights(principal, self, session)

    def permits(self, session: AmqttSession, topic: str, action: str) -> bool:
        """Ask every topic plugin."""
        from amqtt.contexts import Action as AmqttAction

        return all(
            _at_once(
                plugin.topic_filtering(session=session, topic=topic, action=AmqttAction(action)),
                type(plugin).__name__,
            )
            is not False
            for plugin in self._topics
        )


def _at_once(asked: Coroutine[object, object, bool | None], plugin: str) -> bool | None:
    """What a coroutine returns that waits for nothing; False, and a line in the log, otherwise."""
    try:
        asked.send(None)
    except StopIteration as done:
        answer: bool | None = done.value
        return answer
    except Exception:  # noqa: BLE001 - a plugin of others may raise anything
        _log.exception("topic plugin failed", plugin=plugin)
        return False
    asked.close()
    _log.error("topic plugin waits, which is not possible here", plugin=plugin)
    return False


def _session_of(login: Login) -> AmqttSession:
    """What a plugin may look at."""
    from amqtt.session import Session as AmqttSession

    session = AmqttSession()
    session.client_id = login.client_id
    session.username = login.username
    if login.password is not None:
        session.password = login.password.decode("utf-8", "replace")
    host, _, port = login.address.rpartition(":")
    session.remote_address = host
    session.remote_port = int(port) if port.isdigit() else None
    return session


def load_plugins(file: Path) -> PluginSignIn:
    """The plugins that `file` names. Raises PluginsUnusable."""
    try:
        from amqtt.contexts import BaseContext
        from amqtt.errors import PluginCoroError, PluginImportError, PluginInitError
        from amqtt.errors import PluginLoadError as AmqttLoadError
        from amqtt.plugins.base import BaseAuthPlugin, BaseTopicPlugin
        from amqtt.plugins.manager import PluginManager
    except ImportError:
        raise PluginsUnusable("amqtt is not installed: pip install 'weir-mq[amqtt]'") from None
    try:
        config = yaml.safe_load(file.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise PluginsUnusable(f"{file} cannot be read: {error}") from None
    if not isinstance(config, dict) or not config.get("plugins"):
        raise PluginsUnusable(f"{file} has no key `plugins`")
    context = BaseContext()
    context.config = {"plugins": config["plugins"]}
    try:
        found = PluginManager("weir.mqtt.plugins", context).plugins
    except (
        AmqttLoadError,
        PluginCoroError,
        PluginImportError,
        PluginInitError,
        TypeError,
        ValueError,
    ) as error:
        raise PluginsUnusable(f"{file}: {error}") from error
    auth = [plugin for plugin in found if isinstance(plugin, BaseAuthPlugin)]
    topics = [plugin for plugin in found if isinstance(plugin, BaseTopicPlugin)]
    if not auth:
        raise PluginsUnusable(f"{file} names no authentication plugin: nobody could sign in")
    assert all(inspect.iscoroutinefunction(plugin.topic_filtering) for plugin in topics)
    return PluginSignIn(auth, topics)
