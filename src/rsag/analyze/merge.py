"""Launches of one plan to one row per arm and case: what holds across launches, or why nothing is claimed.

A launch gives one value. When its rounds ended depends on its data, but alike in both directions: without a difference
its value is as likely above 0 as below, and the exact signed-rank test of a ratio of 1 keeps its error. The ends of the
interval are exact only where all launches rest on equally many rounds.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from rsag.analyze.judged import ArmKey, JudgedRun, arm_of, by_arm, case_of
from rsag.analyze.mixed import differences, in_words
from rsag.errors import UsageError
from rsag.records.latency import ArmRole, LatencyRow, TimedArm, TimeOutcome, named
from rsag.records.merge import LaunchRow, Merge, MergeRow
from rsag.stats import Interval, hodges_lehmann, holm, interval, signed_rank_p

ERROR = 0.05
"""Of one row's interval across launches."""

MIN_LAUNCHES = 6
"""2/2^6 = 3.1 %: the fewest whose most extreme sign pattern is rarer than 5 %."""

DIRECTIONS = (TimeOutcome.FASTER, TimeOutcome.SLOWER)


def merge(runs: Sequence[JudgedRun]) -> Merge:
    """Every case's arms in the order of the first run's plan, over all of `runs`.

    Raises UsageError for fewer than two runs, the same one twice, one that timed nothing, or runs that are not launches
    of one plan on one kind of machine.
    """
    _require_launches(runs)
    tables = [by_arm(run.verdict.latency) for run in runs]
    timing = runs[0].plan.latency
    margin = None if timing is None else timing.log_margin
    merged = {key: _row([(run.directory, table[key]) for run, table in zip(runs, tables)], margin) for key in tables[0]}
    rows = _with_adjusted_p(_unless_control_differs(merged))
    return Merge(runs=tuple(run.source for run in runs), rows=rows, sentence=_sentence(rows))


def _require_launches(runs: Sequence[JudgedRun]) -> None:
    if len(runs) < 2:
        raise UsageError("one launch is nothing to merge", got=len(runs), expected="2 or more, best 6 or more")
    for index, run in enumerate(runs):
        if not run.verdict.latency:
            raise UsageError(f"{run.directory} timed nothing", expected="runs with the latency experiment")
        for other in runs[:index]:
            if other.run == run.run:
                raise UsageError(
                    "the same run twice", got=f"{other.directory} and {run.directory}", do="count each launch once"
                )
        found = differences(runs[0], run)
        if found:
            raise UsageError(
                "these are no launches of one plan on one kind of machine",
                got=in_words(found, runs[0].directory, run.directory),
                do="merge what is alike; rsag compare --allow-mixed puts two unlike runs side by side",
            )


# ------------------------------------------------------------------------------------------------------------- one row


def _row(rows: Sequence[tuple[str, LatencyRow]], margin: float | None) -> MergeRow:
    """One arm of one case; `margin` on the log scale."""
    launches = tuple(_launch(directory, row) for directory, row in rows)
    values = [launch.log_ratio for launch in launches if launch.log_ratio is not None]
    medians = [launch.median_us for launch in launches if launch.median_us is not None and not launch.left_out]
    first = rows[0][1]
    found = interval(values, ERROR) if values else None
    outcome = _outcome(found, margin)
    return MergeRow(
        case=case_of(first),
        arm=arm_of(first),
        launches=launches,
        median_us=median(medians) if medians else None,
        median_us_range=(min(medians), max(medians)) if medians else None,
        median_ratio=math.exp(median(values)) if values else None,
        ratio_range=(math.exp(min(values)), math.exp(max(values))) if values else None,
        outcome=outcome,
        ratio=math.exp(found.estimate)
        if found is not None and outcome in (*DIRECTIONS, TimeOutcome.EQUIVALENT)
        else None,
        interval=(math.exp(found.low), math.exp(found.high)) if found is not None and outcome is not None else None,
        adjusted_p=None,
        reasons=tuple(_reasons(first.role, launches, found, outcome)) if first.role.is_compared else (),
    )


def _launch(directory: str, row: LatencyRow) -> LaunchRow:
    left_out = _why_left_out(row) if row.role.is_compared else ""
    counts = row.role.is_compared and not left_out
    return LaunchRow(
        directory=directory,
        median_us=row.median_us,
        rounds=row.rounds,
        outcome=row.outcome,
        log_ratio=hodges_lehmann(row.round_values) if counts else None,
        left_out=left_out,
    )


def _why_left_out(row: LatencyRow) -> str:
    """An inconclusive launch stays in: to leave it out would keep the large differences alone."""
    if row.outcome is TimeOutcome.INVALID:
        return "; ".join(["invalid", *(f"{reason.code.value}: {reason.message}" for reason in row.reasons[:1])])
    return "" if row.round_values else "no rounds that a decision rests on"


def _outcome(found: Interval | None, margin: float | None) -> TimeOutcome | None:
    if found is None or not math.isfinite(found.half_width):
        return None
    if margin is not None and -margin < found.low and found.high < margin:
        return TimeOutcome.EQUIVALENT
    if found.low > 0:
        return TimeOutcome.SLOWER
    return TimeOutcome.FASTER if found.high < 0 else TimeOutcome.INCONCLUSIVE


def _reasons(
    role: ArmRole, launches: Sequence[LaunchRow], found: Interval | None, outcome: TimeOutcome | None
) -> Iterator[str]:
    counted = sum(launch.log_ratio is not None for launch in launches)
    if outcome is None:
        yield (
            f"{counted} of {len(launches)} launches count, and fewer than six launches cannot reach 5 % "
            "(five at best 2/2^5 = 6.25 %)"
        )
    elif outcome is TimeOutcome.INCONCLUSIVE and found is not None and role is ArmRole.CANDIDATE:
        yield f"{counted} launches could have found a difference of {math.expm1(found.half_width):.1%} or more"
    for launch in launches:
        if launch.left_out:
            yield f"{launch.directory} is left out: {launch.left_out}"


# -------------------------------------------------------------------------------------------------------- several rows


def _unless_control_differs(merged: Mapping[ArmKey, MergeRow]) -> list[MergeRow]:
    """The rows, invalid where the direct arm differs from itself across launches: the harness favours a place."""
    faults = {
        _configuration(key): f"{_name(row.arm)} against itself: {row.interval[0]:.3f} to {row.interval[1]:.3f} across "
        "launches, so the harness favours a place"
        for key, row in merged.items()
        if row.arm.role is ArmRole.CONTROL and row.outcome in DIRECTIONS and row.interval is not None
    }
    return [
        dataclasses.replace(
            row, outcome=TimeOutcome.INVALID, ratio=None, reasons=(faults[_configuration(key)], *row.reasons)
        )
        if _configuration(key) in faults and row.outcome is not None
        else row
        for key, row in merged.items()
    ]


def _name(arm: TimedArm) -> str:
    return named(arm.composition, arm.buffers, arm.settings)


def _configuration(key: ArmKey) -> tuple[object, ...]:
    """What one direct arm is the reference of: arms of the same case, buffers and settings."""
    return key.case, key.nth, key.buffers, key.settings


def _with_adjusted_p(rows: Sequence[MergeRow]) -> tuple[MergeRow, ...]:
    asked = [index for index, row in enumerate(rows) if row.arm.role is ArmRole.CANDIDATE and row.outcome is not None]
    adjusted = dict(zip(asked, holm([_p(rows[index]) for index in asked])))
    return tuple(dataclasses.replace(row, adjusted_p=adjusted.get(index)) for index, row in enumerate(rows))


def _p(row: MergeRow) -> float:
    if row.outcome is TimeOutcome.INVALID:
        return 1.0
    return signed_rank_p([launch.log_ratio for launch in row.launches if launch.log_ratio is not None])


def _sentence(rows: Sequence[MergeRow]) -> str:
    """What may be claimed of all candidates together at 5 %, or how many launches that would take."""
    asked = [row for row in rows if row.adjusted_p is not None]
    if not asked:
        return "Too few launches for a claim across launches."
    family = f"{len(asked)} comparisons" if len(asked) > 1 else "1 comparison"
    counts = [sum(launch.log_ratio is not None for launch in row.launches) for row in asked]
    needed = next(number for number in itertools.count(MIN_LAUNCHES) if len(asked) * 2 / 2**number <= ERROR)
    if max(counts) < needed:
        return f"Too few launches for a claim about {family} together: after Holm's correction that takes {needed}."
    claimed = [row.outcome for row in asked if row.adjusted_p is not None and row.adjusted_p <= ERROR]
    found = " and ".join(f"{claimed.count(outcome)} {outcome.value}" for outcome in DIRECTIONS)
    return f"Across launches, after Holm's correction for {family} at 5 %: {found}."
