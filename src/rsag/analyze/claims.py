"""What a whole run may claim: many comparisons at once, corrected for their number (Holm 1979); and gates for CI."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rsag.errors import ExitCode, UsageError
from rsag.records.latency import ArmRole, LatencyRow, ReasonCode, TimeOutcome, named
from rsag.stats import ERROR, LOOKS, hodges_lehmann, holm, p_at_look
from rsag.units import format_bytes


def adjusted_p(rows: Sequence[LatencyRow], ratio: float = 1.0) -> list[float]:
    """Per row the p-value of "its true ratio is `ratio`", corrected for looks and comparisons; 1 without a decision.

    With one row p is at most 5 % exactly where the interval leaves `ratio` out. Holm does the rest. A row that was not
    measured is no comparison; an invalid one counts as one, for what made it invalid was seen in its times.
    """
    centre = math.log(ratio)
    compared = [index for index, row in enumerate(rows) if not _not_measured(row)]
    adjusted = holm([p_at_look([value - centre for value in rows[index].round_values]) for index in compared])
    found = dict(zip(compared, adjusted))
    return [found.get(index, 1.0) for index in range(len(rows))]


def _not_measured(row: LatencyRow) -> bool:
    """Whether the case ended before the first look."""
    return row.outcome is not TimeOutcome.INVALID and not _by_cv(row) and len(row.round_values) < LOOKS[0].rounds


# -------------------------------------------------------------------------------------------------------- the sentence


def run_sentence(rows: Sequence[LatencyRow]) -> str:
    """What the run found about every composition, in one sentence that as a whole stands at 5 %; "" where none was."""
    asked = [row for row in rows if row.role is ArmRole.CANDIDATE]
    if not asked:
        return ""
    if any(map(_by_cv, asked)):
        return _sentence_by_cv(asked)
    measured = [row for row in asked if not _not_measured(row)]
    if not measured:
        return f"In this launch nothing was measured of {_comparisons(len(asked))}."
    claims = [
        row.outcome if p <= ERROR and row.outcome in (TimeOutcome.SLOWER, TimeOutcome.FASTER) else None
        for row, p in zip(measured, adjusted_p(measured))
    ]
    parts = [
        _part(arm, [(row, claim) for row, claim in zip(measured, claims) if _arm(row) == arm])
        for arm in dict.fromkeys(map(_arm, measured))
    ]
    count = len(measured)
    corrected = f"after Holm's correction for {count} comparisons" if count > 1 else "in its one comparison"
    missing = len(asked) - count
    rest = f"; {missing} of {_comparisons(len(asked))} not measured" if missing else ""
    return f"In this launch, {corrected}, {'; '.join(parts)}{rest}."


def _part(arm: str, rows: Sequence[tuple[LatencyRow, TimeOutcome | None]]) -> str:
    """What is said of one arm. A case that is invalid is none in which it is as fast."""
    valid = [claim for row, claim in rows if row.outcome is not TimeOutcome.INVALID]
    if not valid:
        return f"{arm} has no valid case"
    counts = [f"{one.value} in {valid.count(one)}" for one in (TimeOutcome.SLOWER, TimeOutcome.FASTER) if one in valid]
    said = f"{arm} is {' and '.join(counts) or 'neither slower nor faster in any'} of {_cases(len(valid))}"
    num_invalid = len(rows) - len(valid)
    return f"{said} ({num_invalid} more invalid)" if num_invalid else said


def _by_cv(row: LatencyRow) -> bool:
    """Whether the chapter's gate decided: it looks at no rounds."""
    refused = any(reason.code in (ReasonCode.UNSTABLE_CV, ReasonCode.HOLDS_ONE) for reason in row.reasons)
    return not row.round_values and (refused or row.ratio is not None)


def _sentence_by_cv(asked: Sequence[LatencyRow]) -> str:
    given = sum(row.ratio is not None for row in asked)
    return (
        f"In this launch the CV gate gives a ratio in {given} of {_cases(len(asked))}; it has no error rate, "
        "and nothing is corrected for their number."
    )


def _arm(row: LatencyRow) -> str:
    return named(row.composition, row.buffers, row.settings)


def _cases(count: int) -> str:
    return "1 case" if count == 1 else f"{count} cases"


def _comparisons(count: int) -> str:
    return "1 comparison" if count == 1 else f"{count} comparisons"


# ------------------------------------------------------------------------------------------------------------ fail on


@dataclass(frozen=True, slots=True, kw_only=True)
class FailOn:
    """A condition of `--fail-on`: slower by more than `beyond` (a ratio: 0.1 is 10 %), or inconclusive."""

    outcome: TimeOutcome
    beyond: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a condition caught: one row, or that there is none."""

    message: str
    exit_code: ExitCode
    row: LatencyRow | None = None


_SLOWER = re.compile(r"slower(?::(\d+(?:\.\d+)?)%)?\Z")


def parse_fail_on(text: str) -> FailOn:
    """`slower`, `slower:10%` or `inconclusive`; UsageError for anything else."""
    if text == TimeOutcome.INCONCLUSIVE.value:
        return FailOn(outcome=TimeOutcome.INCONCLUSIVE)
    match = _SLOWER.match(text)
    if match is None:
        raise UsageError(
            "not a condition to fail on",
            got=repr(text),
            expected="inconclusive, slower, or slower:10% for more than 10 %",
        )
    return FailOn(outcome=TimeOutcome.SLOWER, beyond=float(match.group(1) or 0) / 100)


def fails(rows: Sequence[LatencyRow], conditions: Sequence[FailOn]) -> tuple[Failure, ...]:
    """Which candidates which conditions catch, condition by condition.

    `slower:X` catches a candidate whose interval lies above 1 + X after Holm's correction for all candidates, unless it
    is equivalent by the plan's own margin. Every condition catches a row that is invalid or was not measured, and a run
    without rows: an answer was asked for, and there is none (exit code 3, as for `inconclusive`).
    """
    asked = [row for row in rows if row.role is ArmRole.CANDIDATE]
    if conditions and not asked:
        return (Failure(message="nothing was timed", exit_code=ExitCode.NO_ANSWER),)
    failures = []
    for condition in conditions:
        beyond = adjusted_p(asked, 1 + condition.beyond)
        for row, p in zip(asked, beyond):
            failure = _failure(row, condition, p)
            if failure is not None and failure not in failures:
                failures.append(failure)
    return tuple(failures)


def _failure(row: LatencyRow, condition: FailOn, p: float) -> Failure | None:
    where = f"{_arm(row)} at {format_bytes(row.bytes)}, {row.clock.value} x{row.calls}"
    if _without_answer(row) or row.outcome is condition.outcome is TimeOutcome.INCONCLUSIVE:
        return Failure(message=f"{where}: {_in_words(row)}", exit_code=ExitCode.NO_ANSWER, row=row)
    if condition.outcome is not TimeOutcome.SLOWER or row.outcome is TimeOutcome.EQUIVALENT:
        return None
    if row.ratio is not None and _by_cv(row):
        message = f"{where}: the CV gate gives no interval to hold against slower:{condition.beyond:.4g}"
        return Failure(message=message, exit_code=ExitCode.NO_ANSWER, row=row)
    if p <= ERROR and hodges_lehmann(row.round_values) > math.log1p(condition.beyond):
        low = 0.0 if row.interval is None else row.interval[0]
        message = f"{where}: at least {low:.3f} times the direct one's time, {1 + condition.beyond:.4g} allowed"
        return Failure(message=message, exit_code=ExitCode.REFUTED, row=row)
    return None


def _without_answer(row: LatencyRow) -> bool:
    """Invalid, or inconclusive because the case could not be measured, or not to its end."""
    if row.outcome is TimeOutcome.INVALID or _not_measured(row):
        return True
    return any(reason.code is ReasonCode.NOT_MEASURED for reason in row.reasons)


def _in_words(row: LatencyRow) -> str:
    outcome = "no outcome" if row.outcome is None else row.outcome.value
    codes = [reason.code for reason in row.reasons]
    why = ReasonCode.NOT_MEASURED if ReasonCode.NOT_MEASURED in codes else next(iter(codes), None)
    return outcome if why is None else f"{outcome} ({why.value})"
