"""The settings of one process: read, merged, checked, and traceable to who said what.

    settings = load(config_file, assignments).settings
    settings.protocols["amqp"].limit("frame_max")

The order of precedence is flag > environment > file > shipped file, the same at every start. The
parts: config_schema (what may be said), config_source (who says it), config_types (reading one
value), config_merge (laying sources over one another), config_check (rules across settings).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.config.check import find_problems
from gateway.config.merge import Merge
from gateway.config.path import ConfigError, Path, Problem
from gateway.config.schema import Limit, Listener, Operation, Protocol, Settings
from gateway.config.source import (
    read_assignments,
    read_default,
    read_environment,
    read_file,
)

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Mapping, Sequence

__all__ = [
    "ConfigError",
    "Limit",
    "Listener",
    "Loaded",
    "Operation",
    "Problem",
    "Protocol",
    "Settings",
    "load",
]


@dataclass(frozen=True, slots=True)
class Loaded:
    """Checked settings, and for every value in them its path and origin, in the file's order.

    An origin is `default`, `FILE:LINE`, a variable's name, or the flag as it was typed.
    """

    settings: Settings
    values: Mapping[Path, object]
    origins: Mapping[Path, str]


def load(
    config_file: pathlib.Path | None = None,
    assignments: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """Merge all sources and check the result.

    `environ` stands in for the process's environment. ConfigError, with every problem found, if
    any value is unknown, of the wrong type, out of range, contradictory or not served yet.
    """
    merge = Merge()
    merge.apply(read_default())
    merge.seal_defaults()
    if config_file is not None:
        merge.apply(read_file(config_file))
    merge.apply(read_environment(os.environ if environ is None else environ))
    merge.apply(read_assignments(assignments))
    settings = merge.finish()
    if settings is None:
        raise ConfigError(merge.problems)
    problems = find_problems(settings, merge.origins, merge.changed())
    if problems:
        raise ConfigError(problems)
    values = {path: merge.value(path) for path in merge.origins}
    return Loaded(settings, values, merge.origins)
