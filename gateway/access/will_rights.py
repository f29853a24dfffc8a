"""Whether a will that is due may still be published: the user who left it may be gone by then, or
have lost the right. Asked by the leader of its Raft group (`kernel.api.tree.WillJudge`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from auth.policies.policy_rules import Action, ResourceKind, permission

if TYPE_CHECKING:
    from gateway.access.identity import UserRecords

PUBLISH_TREE: Final = permission(Action.PUBLISH, ResourceKind.TREE)

_log = structlog.get_logger("weir.rights")


class WillRights:
    """Of a process that holds a store."""

    def __init__(self) -> None:
        self._records: UserRecords | None = None

    def follow(self, records: UserRecords) -> None:
        """By these records from now on; until then a will waits."""
        self._records = records

    def may_publish(self, tenant: str, user: str, client: str, name: str) -> bool | None:
        """Whether a user may publish to a tree name; None: the records are not known yet."""
        records = self._records
        if records is None:
            return None
        principal = records.directory.principal(tenant, user)
        if principal is not None:
            access = records.policies.access(principal, client)
            if access.allows(PUBLISH_TREE, name):
                return True
        _log.info("will withheld", tenant=tenant, user=user, client_id=client, name=name)
        return False
