"""What a whole run may claim: many comparisons at once, corrected for their number (Holm 1979); and gates for CI."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rsag.errors import ExitCode, UsageError
from rsag.records.latency import ArmRole, LatencyRow, ReasonCode, TimeOutcome
from rsag.stats import LOOKS, hodges_lehmann, holm, signed_rank_p
from rsag.units import format_bytes

FAMILY_ERROR = sum(look.error for look in LOOKS)
"""The chance of any false claim in a run: 5 %, as of a single comparison."""


def adjusted_p(rows: Sequence[LatencyRow], ratio: float = 1.0) -> list[float]:
    """Per row the p-value of "its true ratio is `ratio`", corrected for looks and comparisons; 1 without a decision.

    The exact two-sided signed-rank p of the look that decided is paid for like that look, times 5 % over its error, so
    that with one row p is at most 5 % exactly where the interval leaves `ratio` out. Holm does the rest.
    """
    return holm([_p(row, math.log(ratio)) for row in rows])


def _p(row: LatencyRow, centre: float) -> float:
    error = next((look.error for look in LOOKS if look.rounds == len(row.round_values)), None)
    if error is None:
        return 1.0
    return min(1.0, signed_rank_p([value - centre for value in row.round_values]) * FAMILY_ERROR / error)


# -------------------------------------------------------------------------------------------------------- the sentence


def run_sentence(rows: Sequence[LatencyRow]) -> str:
    """What the run found about every composition, in one sentence that as a whole stands at 5 %; "" where none was."""
    asked = [row for row in rows if row.role is ArmRole.CANDIDATE]
    if not asked:
        return ""
    if any(map(_by_cv, asked)):
        return _sentence_by_cv(asked)
    claimed = [
        row.outcome if p <= FAMILY_ERROR and row.outcome in (TimeOutcome.SLOWER, TimeOutcome.FASTER) else None
        for row, p in zip(asked, adjusted_p(asked))
    ]
    parts = []
    for arm in dict.fromkeys(map(_arm, asked)):
        own = [claim for row, claim in zip(asked, claimed) if _arm(row) == arm]
        counts = [
            f"{claim.value} in {own.count(claim)}" for claim in (TimeOutcome.SLOWER, TimeOutcome.FASTER) if claim in own
        ]
        parts.append(f"{arm} is {' and '.join(counts) or 'neither slower nor faster in any'} of {_cases(len(own))}")
    corrected = f"after Holm's correction for {len(asked)} comparisons" if len(asked) > 1 else "in its one comparison"
    return f"In this launch, {corrected}, {'; '.join(parts)}."


def _by_cv(row: LatencyRow) -> bool:
    """Whether the chapter's gate decided: it looks at no rounds."""
    refused = any(reason.code is ReasonCode.UNSTABLE_CV for reason in row.reasons)
    return refused or (row.ratio is not None and not row.round_values)


def _sentence_by_cv(asked: Sequence[LatencyRow]) -> str:
    given = sum(row.ratio is not None for row in asked)
    return (
        f"In this launch the CV gate gives a ratio in {given} of {_cases(len(asked))}; it has no error rate, "
        "and nothing is corrected for their number."
    )


def _arm(row: LatencyRow) -> str:
    extras = [*([] if row.buffers == "plain" else [row.buffers]), *(f"{k}={v}" for k, v in row.settings.items())]
    return f"{row.composition} ({', '.join(extras)})" if extras else row.composition


def _cases(count: int) -> str:
    return "1 case" if count == 1 else f"{count} cases"


# ------------------------------------------------------------------------------------------------------------ fail on


@dataclass(frozen=True, slots=True, kw_only=True)
class FailOn:
    """A condition of `--fail-on`: slower by more than `beyond` (a ratio: 0.1 is 10 %), or inconclusive."""

    outcome: TimeOutcome
    beyond: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One row that a condition caught."""

    message: str
    exit_code: ExitCode


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

    `slower:X` catches a candidate whose interval lies above 1 + X after Holm's correction for all candidates. An
    invalid row is caught by every condition: an answer was asked for, and there is none (exit code 3, as for
    `inconclusive`).
    """
    asked = [row for row in rows if row.role is ArmRole.CANDIDATE]
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
    if row.outcome is TimeOutcome.INVALID or row.outcome is condition.outcome is TimeOutcome.INCONCLUSIVE:
        why = f" ({row.reasons[0].code.value})" if row.reasons else ""
        return Failure(message=f"{where}: {row.outcome.value}{why}", exit_code=ExitCode.NO_ANSWER)
    if condition.outcome is not TimeOutcome.SLOWER:
        return None
    if row.ratio is not None and _by_cv(row):
        message = f"{where}: the CV gate gives no interval to hold against slower:{condition.beyond:.4g}"
        return Failure(message=message, exit_code=ExitCode.NO_ANSWER)
    if p <= FAMILY_ERROR and hodges_lehmann(row.round_values) > math.log1p(condition.beyond):
        low = 0.0 if row.interval is None else row.interval[0]
        message = f"{where}: at least {low:.3f} times the direct one's time, {1 + condition.beyond:.4g} allowed"
        return Failure(message=message, exit_code=ExitCode.REFUTED)
    return None
