from __future__ import annotations

import pytest

from adapters.sqs import error_codes as errors
from adapters.sqs import error_mapping as kernel_errors
from adapters.sqs.error_mapping import KERNEL_KINDS, SIGNATURE_KINDS
from auth.errors import AuthCode, AuthError
from auth.sign_in.sigv4_form import Refusal, SignatureError
from kernel.common.errors import Code, Fault, KernelError


def test_every_kernel_error_has_a_form() -> None:
    assert set(KERNEL_KINDS) == set(Code)


@pytest.mark.parametrize("code", Code)
def test_what_may_succeed_later_is_an_error_that_sdks_retry(code: Code) -> None:
    error = kernel_errors.from_kernel(KernelError(code, "because"))
    retried = error.kind.status >= 500 or error.kind is errors.REQUEST_THROTTLED
    if code is Code.LIMIT_EXCEEDED:
        # AWS's own error for too many messages in flight, which its SDKs do not retry.
        assert error.kind is errors.OVER_LIMIT
    else:
        # A fenced session is ours, not the client's, whom another request gets a new one.
        assert retried == (code.retryable or code is Code.SESSION_FENCED)
    if code.fault is Fault.SERVER:
        assert not error.kind.sender


def test_a_missing_queue_has_the_text_that_aws_gives() -> None:
    error = kernel_errors.from_kernel(KernelError(Code.NOT_FOUND, "no topic orders"))
    assert error.message == "The specified queue does not exist."
    assert kernel_errors.from_kernel(KernelError(Code.BUSY, "full")).message == "full"


def test_every_refusal_of_a_signature_has_the_code_and_status_of_aws() -> None:
    assert set(SIGNATURE_KINDS) == set(Refusal)
    for refusal, kind in SIGNATURE_KINDS.items():
        assert (kind.code, kind.status) == (refusal.aws_code, refusal.http_status)
        error = kernel_errors.from_auth(SignatureError(refusal, "why"))
        assert (error.kind, error.message) == (kind, "why")


@pytest.mark.parametrize("code", AuthCode)
def test_every_other_error_of_auth_has_a_form(code: AuthCode) -> None:
    error = kernel_errors.from_auth(AuthError(code, "a file is damaged"))
    assert error.kind.sender == code.caller_fault
    assert "file" not in error.message
