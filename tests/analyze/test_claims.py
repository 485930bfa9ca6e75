"""What may be claimed of many comparisons at once, and what ends a build."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Sequence

import pytest
from timed import CASE

from rsag.analyze.claims import FailOn, adjusted_p, fails, parse_fail_on, run_sentence
from rsag.errors import ExitCode, UsageError
from rsag.records.latency import ArmRole, Buffers, LatencyRow, Reason, ReasonCode, TimeOutcome
from rsag.stats import LOOKS, Stop, decide
from rsag.units import KIB

NAMES = {1: TimeOutcome.SLOWER, -1: TimeOutcome.FASTER, 0: TimeOutcome.INCONCLUSIVE}


def row_of(
    values: Sequence[float], *, composition: str = "rs_ag", role: ArmRole = ArmRole.CANDIDATE, family: int = 1
) -> LatencyRow:
    """The row that a judge makes of these rounds."""
    decision = decide(values, None, family=family)
    found = decision.interval
    sign = (found.low > 0) - (found.high < 0)
    return LatencyRow(
        bytes=CASE.bytes,
        dtype=CASE.dtype,
        op=CASE.op,
        composition=composition,
        role=role,
        buffers=Buffers.PLAIN,
        settings={},
        clock=CASE.clock,
        calls=CASE.calls,
        outcome=NAMES[sign],
        ratio=math.exp(found.estimate) if sign else None,
        interval=(math.exp(found.low), math.exp(found.high)) if math.isfinite(found.low) else None,
        rounds=decision.rounds,
        stop=decision.stop,
        round_values=tuple(values[: decision.rounds]),
        cv_ratio=None,
        predicted=None,
        reasons=(),
    )


def rounds(centre: float, *, noise: float = 0.02, count: int = 40, seed: int = 1) -> list[float]:
    coin = random.Random(seed)
    return [coin.gauss(centre, noise) for _ in range(count)]


SLOWER, FASTER, ALIKE = row_of(rounds(0.2)), row_of(rounds(-0.2)), row_of(rounds(0))
BARELY = row_of(rounds(0.025, noise=0.06, seed=3))  # found at 40 rounds, with little to spare
INVALID = dataclasses.replace(
    SLOWER,
    outcome=TimeOutcome.INVALID,
    ratio=None,
    round_values=(),
    reasons=(Reason(code=ReasonCode.AA_DIFFERS, message=""),),
)
NOT_MEASURED = dataclasses.replace(
    SLOWER,
    outcome=TimeOutcome.INCONCLUSIVE,
    ratio=None,
    interval=None,
    rounds=0,
    stop=None,
    round_values=(),
    reasons=(Reason(code=ReasonCode.NOT_MEASURED, message="does not fit"),),
)
CUT_SHORT = dataclasses.replace(ALIKE, reasons=(*ALIKE.reasons, *NOT_MEASURED.reasons))  # after a look
BY_CV = dataclasses.replace(SLOWER, interval=None, stop=None, round_values=(), rounds=1)
UNSTABLE = dataclasses.replace(
    BY_CV,
    outcome=TimeOutcome.INCONCLUSIVE,
    ratio=None,
    reasons=(Reason(code=ReasonCode.UNSTABLE_CV, message=""),),
)


# --------------------------------------------------------------------------------------------------------- corrected p


@pytest.mark.parametrize("seed", range(30))
def test_one_row_is_significant_exactly_where_its_interval_leaves_the_ratio_out(seed: int) -> None:
    row = row_of(rounds(0.03, noise=0.05, seed=seed))
    assert row.interval is not None
    for ratio in (0.99, 1.0, 1.02, 1.05, 1.1):
        assert (not row.interval[0] <= ratio <= row.interval[1]) == (adjusted_p([row], ratio)[0] <= 0.05)


def test_each_look_is_paid_for() -> None:
    for look in LOOKS:
        certain = dataclasses.replace(SLOWER, round_values=tuple(0.2 + 0.001 * n for n in range(look.rounds)))
        assert adjusted_p([certain])[0] == pytest.approx(2 / 2**look.rounds * 0.05 / look.error)


def test_without_a_decision_nothing_is_significant() -> None:
    assert [1.0, 1.0] == adjusted_p([row_of(rounds(0.5, count=11)), INVALID])


# ---------------------------------------------------------------------------------------------------------- sentence


def test_the_sentence_counts_per_composition_and_says_in_this_launch() -> None:
    rows = [SLOWER, ALIKE, FASTER, *(dataclasses.replace(row, composition="ring") for row in (ALIKE, SLOWER, SLOWER))]
    expected = (
        "In this launch, after Holm's correction for 6 comparisons, rs_ag is slower in 1 and faster in 1 of 3 cases; "
        "ring is slower in 2 of 3 cases."
    )
    assert expected == run_sentence(rows)


def test_what_stands_alone_may_fall_among_many() -> None:
    assert TimeOutcome.SLOWER is BARELY.outcome
    assert "In this launch, in its one comparison, rs_ag is slower in 1 of 1 case." == run_sentence([BARELY])
    assert "neither slower nor faster in any of 10 cases" in run_sentence([BARELY, *[ALIKE] * 9])


def test_identical_arms_give_a_false_sentence_in_at_most_5_percent_of_runs_of_ten_cases() -> None:
    false = sum(
        "neither" not in run_sentence([row_of(rounds(0, noise=0.04, seed=100 * run + case)) for case in range(10)])
        for run in range(400)
    )
    assert false <= 0.05 * 400


@pytest.mark.parametrize(("family", "rounds_taken"), [(24, 20), (4, 12)])
def test_decisive_comparisons_are_all_claimed_whatever_their_number(family: int, rounds_taken: int) -> None:
    every = [row_of(rounds(0.2, seed=seed), family=family) for seed in range(family)]
    rows = [dataclasses.replace(row, bytes=KIB * number) for number, row in enumerate(every, start=1)]
    assert {rounds_taken} == {row.rounds for row in rows}
    assert f"rs_ag is slower in {family} of {family} cases." in run_sentence(rows)
    assert [ExitCode.REFUTED] * family == failed(rows, "slower")


def test_what_was_not_measured_is_no_comparison_and_is_counted_apart() -> None:
    expected = (
        "In this launch, after Holm's correction for 2 comparisons, rs_ag is slower in 1 of 2 cases; "
        "3 of 5 comparisons not measured."
    )
    assert expected == run_sentence([SLOWER, ALIKE, *[NOT_MEASURED] * 3])
    assert adjusted_p([BARELY]) == adjusted_p([BARELY, *[NOT_MEASURED] * 9])[:1]


def test_where_nothing_was_measured_the_sentence_says_so() -> None:
    assert "In this launch nothing was measured of 2 comparisons." == run_sentence([NOT_MEASURED] * 2)


def test_an_invalid_case_is_a_comparison_of_which_nothing_is_said() -> None:
    expected = (
        "In this launch, after Holm's correction for 2 comparisons, rs_ag is slower in 1 of 1 case (1 more invalid)."
    )
    assert expected == run_sentence([SLOWER, INVALID])
    assert "In this launch, in its one comparison, rs_ag has no valid case." == run_sentence([INVALID])


def test_controls_and_null_arms_are_no_comparisons() -> None:
    control = dataclasses.replace(SLOWER, role=ArmRole.CONTROL)
    assert run_sentence([ALIKE]) == run_sentence([control, ALIKE])
    assert "" == run_sentence([control])


def test_buffers_and_settings_make_an_arm_of_its_own() -> None:
    other = dataclasses.replace(SLOWER, buffers=Buffers.REGISTERED, settings={"NCCL_ALGO": "Ring"})
    assert "rs_ag (registered, NCCL_ALGO=Ring) is slower in 1 of 1 case" in run_sentence([SLOWER, other])


@pytest.mark.parametrize(("rows", "given"), [((BY_CV, UNSTABLE), 1), ((UNSTABLE, UNSTABLE), 0)])
def test_the_cv_gate_makes_no_corrected_claim(rows: tuple[LatencyRow, ...], given: int) -> None:
    sentence = run_sentence(rows)
    assert sentence.startswith(f"In this launch the CV gate gives a ratio in {given} of 2 cases; it has no error rate")


# -------------------------------------------------------------------------------------------------------------- fail on


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("slower:10%", FailOn(outcome=TimeOutcome.SLOWER, beyond=0.1)),
        ("slower:2.5%", FailOn(outcome=TimeOutcome.SLOWER, beyond=0.025)),
        ("slower", FailOn(outcome=TimeOutcome.SLOWER)),
        ("inconclusive", FailOn(outcome=TimeOutcome.INCONCLUSIVE)),
    ],
)
def test_a_condition_is_read(text: str, expected: FailOn) -> None:
    assert expected == parse_fail_on(text)


@pytest.mark.parametrize(
    "text", ["", "slower:", "slower:10", "slower:-1%", "slower:ten%", "faster:3%", "slower:1e3%", "Slower"]
)
def test_nonsense_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(UsageError, match="expected inconclusive, slower, or slower:10%"):
        parse_fail_on(text)


def failed(rows: Sequence[LatencyRow], *texts: str) -> list[ExitCode]:
    return [failure.exit_code for failure in fails(rows, [parse_fail_on(text) for text in texts])]


def test_slower_fires_when_the_whole_interval_is_beyond() -> None:
    assert SLOWER.interval is not None
    low = SLOWER.interval[0] - 1
    assert [ExitCode.REFUTED] == failed([SLOWER], f"slower:{100 * low - 0.1:.2f}%")
    assert [] == failed([SLOWER], f"slower:{100 * low + 0.1:.2f}%")


def test_slower_is_corrected_for_the_number_of_cases() -> None:
    assert [ExitCode.REFUTED] == failed([BARELY], "slower")
    assert [] == failed([BARELY, *[ALIKE] * 9], "slower")


def test_faster_is_never_too_slow() -> None:
    assert [] == failed([FASTER, ALIKE], "slower:0%")


def test_inconclusive_is_an_answer_that_is_missing() -> None:
    assert [ExitCode.NO_ANSWER] == failed([SLOWER, ALIKE], "inconclusive")
    assert [] == failed([ALIKE], "slower")


@pytest.mark.parametrize("text", ["slower:10%", "inconclusive"])
def test_an_invalid_row_is_caught_by_every_condition(text: str) -> None:
    assert [ExitCode.NO_ANSWER] == failed([INVALID], text)


def test_a_row_caught_alike_by_two_conditions_is_told_once() -> None:
    assert [ExitCode.NO_ANSWER] == failed([INVALID], "slower:10%", "inconclusive")


def test_controls_end_no_build() -> None:
    assert [] == failed([ALIKE, dataclasses.replace(SLOWER, role=ArmRole.CONTROL)], "slower")


@pytest.mark.parametrize("text", ["slower", "slower:10%", "inconclusive"])
@pytest.mark.parametrize("row", [NOT_MEASURED, CUT_SHORT])
def test_what_was_not_measured_is_caught_by_every_condition(row: LatencyRow, text: str) -> None:
    (failure,) = fails([FASTER, row], [parse_fail_on(text)])
    assert ExitCode.NO_ANSWER is failure.exit_code
    assert "rs_ag at 1 MiB, cpu x1: inconclusive (not-measured)" == failure.message


@pytest.mark.parametrize("rows", [(), (dataclasses.replace(SLOWER, role=ArmRole.CONTROL),)])
def test_a_condition_on_no_times_is_not_met_by_silence(rows: Sequence[LatencyRow]) -> None:
    (failure,) = fails(rows, [parse_fail_on("slower")])
    assert ("nothing was timed", ExitCode.NO_ANSWER) == (failure.message, failure.exit_code)
    assert () == fails(rows, [])


def test_what_is_equivalent_by_the_plans_margin_is_not_too_slow() -> None:
    assert [] == failed([dataclasses.replace(SLOWER, outcome=TimeOutcome.EQUIVALENT, stop=Stop.EQUIVALENT)], "slower")


def test_the_cv_gate_cannot_answer_a_condition_on_an_interval() -> None:
    assert [ExitCode.NO_ANSWER] == failed([BY_CV], "slower:10%")


def test_a_failure_names_arm_case_and_bound() -> None:
    assert SLOWER.interval is not None
    (failure,) = fails([SLOWER], [parse_fail_on("slower:10%")])
    expected = f"rs_ag at 1 MiB, cpu x1: at least {SLOWER.interval[0]:.3f} times the direct one's time, 1.1 allowed"
    assert expected == failure.message


def test_the_row_that_stops_for_precision_alone_is_inconclusive_here_too() -> None:
    assert (Stop.PRECISE, TimeOutcome.INCONCLUSIVE) == (ALIKE.stop, ALIKE.outcome)
