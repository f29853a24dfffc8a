"""Tenants in the settings: what each protocol calls them, and what is refused."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pytest

from gateway.config.declared import declared_in
from gateway.config.loading import ConfigError, load
from gateway.config.schema import ClientLimits, Limits, TenantLimits
from gateway.config.tenants import TENANTS_MAX, names_in, settings_word, words_in

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.loading import Loaded


def loaded(folder: Path, tenants: str) -> Loaded:
    file = folder / "weir.yaml"
    file.write_text(f"tenants: {{{tenants}}}\n")
    return load(file, environ={})


def refused(folder: Path, tenants: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, tenants)
    return [str(problem).replace(str(folder), "") for problem in caught.value.problems]


@pytest.mark.parametrize("acme", ["{}", "{known_as: {}}"])
def test_a_tenant_without_names_is_called_by_its_own(acme: str, tmp_path: Path) -> None:
    found = loaded(tmp_path, f"acme: {acme}")
    for protocol, of_default in (("amqp", "/"), ("sqs", "000000000000"), ("rocketmq", "")):
        assert names_in(found.settings.tenants, protocol) == {"default": of_default, "acme": "acme"}
    # `weir config show` has it, so that what it prints is an overlay with the tenant in it.
    assert any(path[:2] == ("tenants", "acme") for path in found.values)


def test_the_word_for_tenants_is_the_same_if_their_names_are_however_they_are_spelled(
    tmp_path: Path,
) -> None:
    def word(tenants: str) -> str:
        settings = loaded(tmp_path, tenants).settings
        return settings_word(settings.tenants, declared_in(settings.protocols), settings.limits)

    both = word("acme: {}, globex: {}")
    assert both == word("globex: {known_as: {amqp: globex}}, acme: {known_as: {}}")
    others = ["", "acme: {}", "acme: {known_as: {amqp: shop}}, globex: {}"]
    assert len({both, *map(word, others)}) == 1 + len(others)


def test_the_word_is_that_of_former_builds_without_limits_and_another_with_any(
    tmp_path: Path,
) -> None:
    found = loaded(tmp_path, "acme: {}").settings
    declared = declared_in(found.protocols)
    names = {each: names_in(found.tenants, each) for each in words_in(declared)}
    spelled = json.dumps(names, sort_keys=True)
    former = hashlib.sha256(spelled.encode()).hexdigest()[:16]

    def word(limits: Limits) -> str:
        return settings_word(found.tenants, declared, limits)

    one = TenantLimits(stored_bytes=1)
    of_listeners = Limits(listeners={"mqtt.tcp": ClientLimits(requests=1)})
    assert word(Limits()) == word(of_listeners) == former
    assert len({former, word(Limits(tenants={"acme": one})), word(Limits(tenants={"*": one}))}) == 3


def test_a_tenant_is_called_as_the_file_says(tmp_path: Path) -> None:
    names = "amqp: shop, sqs: '123456789012', rocketmq: acme-ns"
    tenants = loaded(tmp_path, f"acme: {{known_as: {{{names}}}}}").settings.tenants
    assert names_in(tenants, "amqp")["acme"] == "shop"
    assert names_in(tenants, "sqs")["acme"] == "123456789012"
    assert names_in(tenants, "rocketmq")["acme"] == "acme-ns"


@pytest.mark.parametrize(
    ("tenants", "said"),
    [
        (
            "acme: {known_as: {amqp: /}}",
            "acme.known_as.amqp: the virtual host '/' is that of the tenant default too",
        ),
        (
            "acme: {known_as: {amqp: beta}}, beta: {}",
            "beta: the virtual host 'beta' is that of the tenant acme too",
        ),
        (
            "acme: {known_as: {sqs: '000000000000'}}",
            "acme.known_as.sqs: the account id '000000000000' is that of the tenant default too",
        ),
        (
            "a: {known_as: {rocketmq: n}}, b: {known_as: {rocketmq: n}}",
            "b.known_as.rocketmq: the namespace 'n' is that of the tenant a too",
        ),
        (
            "acme: {known_as: {sqs: '12'}}",
            "acme.known_as.sqs: '12' is no account id: that is 12 digits, in quotes",
        ),
        (
            "acme: {known_as: {sqs: 123456789012}}",
            "acme.known_as.sqs: 123456789012 does not fit: expected str, got int",
        ),
        (
            "acme: {known_as: {mqtt: x}}",
            "acme.known_as.mqtt: MQTT has no word for a tenant: its users sign in as acme:USER",
        ),
        (
            "acme: {known_as: {nats: x}}",
            "acme.known_as.nats: is no protocol with a name for tenants; those are amqp, sqs",
        ),
        ("acme: {known_as: {amqp: ' x'}}", "acme.known_as.amqp: the name of a virtual host holds"),
        (
            "'a:b': {}",
            "a:b: the name of a tenant may not hold a colon: it parts tenant from user in a login",
        ),
        ("__system: {}", "__system: the name of a tenant may not begin with __, amq., weir., $, %"),
        ("two words: {}", "two words: needs known_as.sqs, 12 digits in quotes"),
        (f"{'x' * 129}: {{}}", "has 129 bytes; at most 128 are allowed"),
        ("acme: null", "acme: is a section, not a value; it has known_as"),
        (
            "default: {known_as: {amqp: other}}",
            "default.known_as.amqp: is fixed: the built-in tenant keeps its names",
        ),
    ],
)
def test_a_tenant_that_cannot_be_is_refused(tenants: str, said: str, tmp_path: Path) -> None:
    (problem,) = refused(tmp_path, tenants)
    assert said in problem
    assert problem.startswith("tenants.")
    assert problem.endswith("(/weir.yaml:1)")


def test_there_is_a_limit_to_the_number_of_tenants(tmp_path: Path) -> None:
    most = ", ".join(f"t{number}: {{}}" for number in range(TENANTS_MAX - 1))
    assert len(loaded(tmp_path, most).settings.tenants) == TENANTS_MAX
    (problem,) = refused(tmp_path, f"{most}, more: {{}}")
    assert problem.startswith("tenants: there are 201; at most 200 are allowed")


def test_an_empty_section_that_is_none_is_no_less_refused(tmp_path: Path) -> None:
    file = tmp_path / "weir.yaml"
    file.write_text("amqp: {listners: {}}\n")
    with pytest.raises(ConfigError, match=r"did you mean amqp\.listeners"):
        load(file, environ={})
