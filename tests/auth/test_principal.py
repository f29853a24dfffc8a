from __future__ import annotations

import pytest

from auth.principal import NAME_BYTES_MAX, Principal, PrincipalKind, name_fault, split_login


@pytest.mark.parametrize(
    ("login", "tenant", "name"),
    [
        ("alice", "default", "alice"),
        ("acme:alice", "acme", "alice"),
        ("acme:", "acme", ""),
        (":alice", "", "alice"),
        ("a:b:c", "a", "b:c"),
        ("", "default", ""),
    ],
)
def test_a_login_names_its_tenant_before_a_colon(login: str, tenant: str, name: str) -> None:
    assert split_login(login) == (tenant, name)


@pytest.mark.parametrize(
    "name", ["a", "CN=robot,O=acme", "x/y", "Zoë", "a b", "n" * NAME_BYTES_MAX]
)
def test_names_may_be_what_protocols_use(name: str) -> None:
    assert name_fault("user", name) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a:b",
        "a\0b",
        "a\nb",
        " a",
        "a ",
        "\ud800",
        "n" * (NAME_BYTES_MAX + 1),
        "é" * 65,
        "a\u200bb",
    ],
)
def test_names_that_could_deceive_or_overflow_are_refused(name: str) -> None:
    assert name_fault("user", name)


def test_two_sign_ins_of_one_user_are_one_principal() -> None:
    assert {Principal("t", "u"), Principal("t", "u")} == {Principal("t", "u")}
    assert Principal("t", "u") != Principal("t", "u", PrincipalKind.DEVELOPMENT)
