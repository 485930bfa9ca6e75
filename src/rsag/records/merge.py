"""merge.json: what several launches of one plan say together; also what `rsag merge --json` prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rsag.records.latency import Case, TimedArm, TimeOutcome
from rsag.records.source import RunSource

MERGE = "merge.json"
"""Beside the run directories of its launches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRow:
    """One launch's part in a row; `log_ratio` is the Hodges-Lehmann centre of its rounds' log-ratios over direct.

    It is None for an arm that is not compared, and for a launch that is left out: `left_out` then says why.
    """

    directory: str
    median_us: float | None
    rounds: int
    outcome: TimeOutcome | None
    log_ratio: float | None
    left_out: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRow:
    """One arm of one case over its launches.

    `median_us` and `median_ratio` are medians over launches, beside the smallest and the largest: they describe, and
    claim nothing. `outcome`, `ratio` and `interval` are the claim across launches: None where these are too few, the
    ratio also where there is no answer. `adjusted_p` is Holm's, over all candidates that have an outcome.
    """

    case: Case
    arm: TimedArm
    launches: tuple[LaunchRow, ...]
    median_us: float | None
    median_us_range: tuple[float, float] | None
    median_ratio: float | None
    ratio_range: tuple[float, float] | None
    outcome: TimeOutcome | None
    ratio: float | None
    interval: tuple[float, float] | None
    adjusted_p: float | None
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Launches of one plan on one kind of machine. `sentence` is what may be claimed of all rows together."""

    schema: ClassVar[str] = "merge"
    version: ClassVar[int] = 1

    runs: tuple[RunSource, ...]
    rows: tuple[MergeRow, ...]
    sentence: str
