"""Reply codes and texts, and the table from kernel errors to them."""

from __future__ import annotations

import pytest

from adapters.amqp.errors import (
    KERNEL_REPLIES,
    NOT_FOUND,
    REPLY_NAMES,
    SOFT_CODES,
    AmqpError,
    LoginRefused,
    from_kernel,
)
from kernel.common.errors import Code, Fault, KernelError


def test_every_kernel_error_has_a_reply_code() -> None:
    assert set(KERNEL_REPLIES) == set(Code)
    assert set(KERNEL_REPLIES.values()) <= set(REPLY_NAMES)


def test_what_the_client_did_wrong_is_soft_but_for_a_fenced_session() -> None:
    for code, reply in KERNEL_REPLIES.items():
        if code.fault is Fault.CALLER and code is not Code.SESSION_FENCED:
            assert reply in SOFT_CODES


@pytest.mark.parametrize("code", list(Code), ids=lambda code: code.wire)
def test_a_kernel_error_keeps_its_sentence(code: Code) -> None:
    error = from_kernel(KernelError(code, "why it failed"))
    assert error.text == f"{REPLY_NAMES[KERNEL_REPLIES[code]]} - why it failed"


def test_a_reply_text_is_cut_at_a_character() -> None:
    error = AmqpError(NOT_FOUND, "é" * 200)
    assert len(error.text.encode()) <= 255
    assert error.text.startswith("NOT_FOUND - é")
    assert "\ufffd" not in error.text


def test_a_reply_text_survives_names_that_are_not_utf8() -> None:
    name = b"\xff".decode("utf-8", "surrogateescape")
    assert AmqpError(NOT_FOUND, f"no queue '{name}'").text == "NOT_FOUND - no queue '?'"


def test_the_first_culprit_stays_and_a_refused_login_has_none() -> None:
    error = AmqpError(NOT_FOUND, "x").blame(50, 10).blame(60, 40)
    assert (error.class_id, error.method_id) == (50, 10)
    refused = LoginRefused(403, "no").blame(10, 11)
    assert (refused.class_id, refused.method_id, refused.hard) == (0, 0, True)
