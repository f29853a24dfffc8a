"""boto3's client, as every test that speaks SQS uses it."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config

from auth.users.development import DEVELOPMENT_KEY_ID, DEVELOPMENT_SECRET

REGION = "eu-central-1"


def sqs_client(
    url: str,
    key_id: str = DEVELOPMENT_KEY_ID,
    secret: str = DEVELOPMENT_SECRET.decode(),
    *,
    region: str = REGION,
    verify: str | None = None,
    **options: Any,
) -> Any:
    """A client of the service at a URL, who does not retry. `verify`: a file of certificates;
    `options`: of botocore's `Config`.
    """
    return boto3.client(
        "sqs",
        endpoint_url=url,
        region_name=region,
        aws_access_key_id=key_id,
        aws_secret_access_key=secret,
        verify=verify,
        config=Config(**({"retries": {"total_max_attempts": 1}} | options)),
    )
