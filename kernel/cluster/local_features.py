"""The log's features of a store that belongs to no cluster: it is the only one that has to
understand them (ADR 26).
"""

from __future__ import annotations

from ..in_process.opening import LocalStore
from .features import check, status
from .messages import FeatureList


class LocalFeatures:
    """As `ClusterAdmin.features`."""

    def __init__(self, local: LocalStore) -> None:
        self._local = local

    async def features(self, level: int = 0) -> FeatureList:
        """Turn on the log's features up to a level (0: none); all there are. Raises KernelError."""
        store = self._local.store
        if level:
            check(level, store.understands, ())
            await self._local.client.raise_level_everywhere(level)
        return FeatureList(status(store.feature_level))
