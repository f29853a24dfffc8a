"""amqtt's plugins, as they are shipped, decide who comes in and which topics are used."""

from __future__ import annotations

from pathlib import Path

import pytest
from pwdlib import PasswordHash

from adapters.mqtt.access.plugins import PluginSignIn, PluginsUnusable, load_plugins
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.environment import Login
from auth.errors import AuthCode, AuthError
from tests.adapters.mqtt.broker import serving

PLUGINS = """\
plugins:
  amqtt.plugins.authentication.FileAuthPlugin:
    password_file: {passwords}
  amqtt.plugins.topic_checking.TopicAccessControlListPlugin:
    publish_acl: {{alice: ["devices/#"]}}
    acl: {{alice: ["devices/#", "news"]}}
"""

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    passwords = tmp_path / "passwords"
    passwords.write_text(f"alice:{PasswordHash.recommended().hash('secret')}\n")
    found = tmp_path / "plugins.yaml"
    found.write_text(PLUGINS.format(passwords=passwords))
    return found


async def test_a_password_file_and_an_access_list(tmp_path: Path, file: Path) -> None:
    async with serving(tmp_path / "data", sign_in=load_plugins(file)) as broker:
        alice = await broker.connect("c1", login=("alice", b"secret"))
        assert await alice.subscribe("devices/+", "news", "other") == (1, 1, 0x87)
        assert await alice.publish("devices/1") == 0
        assert (await alice.take()).topic == "devices/1"
        assert await alice.publish("news") == ReasonCode.NOT_AUTHORIZED
        for name, password in (("alice", b"wrong"), ("bob", b"secret")):
            client = await broker.dial()
            answer = await client.connect("c2", login=(name, password))
            assert answer.reason_code == ReasonCode.BAD_USER_NAME_OR_PASSWORD


async def test_anonymous_clients_get_in_if_a_plugin_says_so(tmp_path: Path) -> None:
    file = tmp_path / "plugins.yaml"
    file.write_text("plugins:\n  amqtt.plugins.authentication.AnonymousAuthPlugin:\n")
    sign_in = load_plugins(file)
    rights = await sign_in.sign_in(Login(None, None, "c", "127.0.0.1:1"))
    assert str(rights.principal) == "plugin c of tenant default"
    assert rights.is_alive()


async def test_topics_may_be_decided_by_none_and_failures_refuse(file: Path) -> None:
    class Broken:
        async def authenticate(self, *, session):
            raise OSError("the service is down")

        async def topic_filtering(self, *, session, topic, action):
            raise OSError("the service is down")

    class Waiting:
        async def topic_filtering(self, *, session, topic, action):
            import asyncio

            await asyncio.sleep(0)

    login = Login("alice", b"secret", "c", "127.0.0.1:1")
    known = load_plugins(file)
    with pytest.raises(AuthError) as caught:
        await PluginSignIn([Broken()], []).sign_in(login)
    assert caught.value.code is AuthCode.UNAVAILABLE
    rights = await known.sign_in(login)
    assert PluginSignIn([], []).permits(rights._session, "any", "publish")
    for plugin in (Broken(), Waiting()):
        assert not PluginSignIn([], [plugin]).permits(rights._session, "any", "publish")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("plugins: [", "cannot be read"),
        ("other: 1", "no key `plugins`"),
        ("plugins:\n  no.such.Plugin:\n", "no.such.Plugin"),
        (
            "plugins:\n  amqtt.plugins.topic_checking.TopicTabooPlugin:\n",
            "no authentication plugin",
        ),
    ],
)
async def test_what_cannot_be_loaded_is_said(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "plugins.yaml"
    file.write_text(text)
    with pytest.raises(PluginsUnusable, match=said):
        load_plugins(file)
