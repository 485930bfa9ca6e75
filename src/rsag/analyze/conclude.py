"""From the samples of one case to what may be said of each arm, and what speaks against the case as a whole."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from rsag.analyze.describe import chapter_ratio, describe
from rsag.analyze.samples import Samples
from rsag.records.latency import (
    ArmRole,
    Gate,
    LatencyPlan,
    LookRow,
    Reason,
    ReasonCode,
    TimedArm,
    TimeOutcome,
    decide_arm,
    named,
)
from rsag.stats import ERROR, LOOKS, Decision, Stop, holm, p_at_look


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """What is said of one arm: no outcome where nothing is asked of it, a ratio only where there is an answer.

    `values` are the log-ratios of the rounds that the decision rests on.
    """

    outcome: TimeOutcome | None = None
    ratio: float | None = None
    decision: Decision | None = None
    values: tuple[float, ...] = ()
    reasons: tuple[Reason, ...] = ()


Controls = Mapping[int, Sequence[Reason]]
"""What was found against the direct arms of a case, by their index: by comparing each with itself."""


def conclude(
    plan: LatencyPlan, samples: Samples, looks: Sequence[LookRow], controls: Controls = MappingProxyType({})
) -> list[Conclusion]:
    """One conclusion per arm, in the order of the plan. What rank 0 decided at its `looks` is decided again here.

    `controls` are what `unlike_themselves` found in this case.
    """
    values = [
        samples.values(plan.reference(index), index) if arm.role.is_compared else None
        for index, arm in enumerate(plan.arms)
    ]
    against_all = tuple(_unlike_the_ranks(plan, values, samples.num_rounds, looks))
    conclusions = []
    for index, own in enumerate(values):
        if own is None:
            conclusions.append(Conclusion())
            continue
        direct = plan.reference(index)
        decision = decide_arm(plan, plan.arms[index].role, own)
        against = (
            *against_all,
            *_direct_arm_wrong(plan, samples, direct),
            *controls.get(direct, ()),
            *_wrong(plan, samples, index),
        )
        if against:
            reasons = tuple(dict.fromkeys(against))
            conclusions.append(Conclusion(outcome=TimeOutcome.INVALID, decision=decision, reasons=reasons))
        elif plan.gate is Gate.CV and plan.arms[index].role is not ArmRole.CONTROL:
            conclusions.append(_by_cv(samples, direct, index, decision))
        else:
            conclusions.append(_by_rounds(own, decision))
    return conclusions


# -------------------------------------------------------------------------------------------------------- the controls


def unlike_themselves(plan: LatencyPlan, cases: Sequence[Samples | None]) -> list[dict[int, list[Reason]]]:
    """Per case what its controls found against its direct arms, after Holm's correction for all controls of the run.

    One control in twenty differs by chance. Uncorrected, that would cost a run of many cases one of them now and then.
    Controls are judged by their rounds under either gate: the CV gate has no error rate, and calls identical arms
    different whenever their medians are.
    """
    reasons: list[dict[int, list[Reason]]] = [{} for _ in cases]
    controls = [
        (number, index, samples.values(plan.reference(index), index))
        for number, samples in enumerate(cases)
        if samples is not None
        for index, arm in enumerate(plan.arms)
        if arm.role is ArmRole.CONTROL
    ]
    decisions = [decide_arm(plan, ArmRole.CONTROL, values) for *_, values in controls]
    adjusted = holm([p_at_look(values[: made.rounds]) for (*_, values), made in zip(controls, decisions)])
    for (number, index, _), made, p in zip(controls, decisions, adjusted):
        if p <= ERROR and _outcome(made) in (TimeOutcome.SLOWER, TimeOutcome.FASTER):
            low, high = math.exp(made.interval.low), math.exp(made.interval.high)
            name = _name(plan.arms[index])
            message = f"{name} against itself: {low:.3f} to {high:.3f}, so the harness favours a place"
            found = reasons[number].setdefault(plan.reference(index), [])
            found.append(Reason(code=ReasonCode.AA_DIFFERS, message=message))
    return reasons


# ----------------------------------------------------------------------------------------------------------- two gates


def _by_rounds(values: Sequence[float], decision: Decision) -> Conclusion:
    outcome = _outcome(decision)
    answered = outcome is not TimeOutcome.INCONCLUSIVE
    return Conclusion(
        outcome=outcome,
        ratio=math.exp(decision.interval.estimate) if answered else None,
        decision=decision,
        values=tuple(values[: decision.rounds]),
        reasons=() if answered else (_why_undecided(decision),),
    )


def _outcome(decision: Decision) -> TimeOutcome:
    """An interval without 1 is an answer at every look, also where the run ended before it was precise enough."""
    if decision.stop is Stop.EQUIVALENT:
        return TimeOutcome.EQUIVALENT
    if decision.interval.low > 0:
        return TimeOutcome.SLOWER
    return TimeOutcome.FASTER if decision.interval.high < 0 else TimeOutcome.INCONCLUSIVE


def _why_undecided(decision: Decision) -> Reason:
    if not math.isfinite(decision.interval.half_width):
        message = f"{decision.rounds} rounds, and the first look is at {LOOKS[0].rounds}"
        return Reason(code=ReasonCode.TOO_FEW_ROUNDS, message=message)
    least = f"{math.expm1(decision.interval.half_width):.1%}"
    if decision.stop is Stop.PRECISE:
        message = f"{decision.rounds} rounds fix it to within {least}, and 1 is inside"
        return Reason(code=ReasonCode.HOLDS_ONE, message=message)
    message = f"{decision.rounds} rounds could have found a difference of {least} or more"
    return Reason(code=ReasonCode.TOO_FEW_ROUNDS, message=message)


def _by_cv(samples: Samples, direct: int, index: int, decision: Decision) -> Conclusion:
    reference, own = describe(samples.maxima[direct]), describe(samples.maxima[index])
    ratio = chapter_ratio(reference, own)
    if ratio is None:
        message = f"CV {reference.cv:.2%} (direct) and {own.cv:.2%}, where both must be at most 5 %"
        reason = Reason(code=ReasonCode.UNSTABLE_CV, message=message)
    elif ratio == 1:
        reason = Reason(code=ReasonCode.HOLDS_ONE, message="the medians are the same")
    else:
        outcome = TimeOutcome.SLOWER if ratio > 1 else TimeOutcome.FASTER
        return Conclusion(outcome=outcome, ratio=ratio, decision=decision)
    return Conclusion(outcome=TimeOutcome.INCONCLUSIVE, decision=decision, reasons=(reason,))


# --------------------------------------------------------------------------------------- what speaks against the case

Values = Sequence[list[float] | None]
"""Per arm the log-ratios of all rounds; None for an arm that is not compared."""


def _unlike_the_ranks(plan: LatencyPlan, values: Values, num_rounds: int, looks: Sequence[LookRow]) -> Iterator[Reason]:
    """Looks that ended otherwise on rank 0 than here, or that it never took."""
    for look in LOOKS:
        if look.rounds < num_rounds and look.rounds not in [row.rounds for row in looks]:
            message = f"rank 0 went on after {look.rounds} rounds without a look"
            yield Reason(code=ReasonCode.DECISION_DIFFERS, message=message)
    for row in looks:
        if row.rounds > num_rounds:
            message = f"rank 0 decided on {row.rounds} rounds, of which {num_rounds} are left on all ranks"
            yield Reason(code=ReasonCode.NO_RECORDS, message=message)
            continue
        stops = tuple(
            None if own is None else decide_arm(plan, arm.role, own[: row.rounds]).stop
            for arm, own in zip(plan.arms, values)
        )
        if stops != row.stops:
            message = f"after {row.rounds} rounds rank 0 found {_words(row.stops)}, the judge {_words(stops)}"
            yield Reason(code=ReasonCode.DECISION_DIFFERS, message=message)


def _words(stops: Sequence[Stop | None]) -> str:
    return ", ".join("-" if stop is None else stop.value for stop in stops)


def _direct_arm_wrong(plan: LatencyPlan, samples: Samples, direct: int) -> Iterator[Reason]:
    for index, arm in enumerate(plan.arms):
        if arm.role in (ArmRole.DIRECT, ArmRole.CONTROL) and plan.reference(index) == direct:
            yield from _wrong(plan, samples, index)


def _wrong(plan: LatencyPlan, samples: Samples, index: int) -> Iterator[Reason]:
    count = samples.wrong[index]
    if count:
        message = f"{count:,} wrong elements in the results of {_name(plan.arms[index])}"
        yield Reason(code=ReasonCode.WRONG_RESULT, message=message)


def _name(arm: TimedArm) -> str:
    return named(arm.composition, arm.buffers, arm.settings)
