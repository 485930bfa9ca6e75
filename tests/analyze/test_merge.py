"""Launches of one plan to what holds across them; every expected number by hand."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

import saved_runs
from rsag.analyze.judged import JudgedRun
from rsag.analyze.merge import merge
from rsag.errors import UsageError
from rsag.records.latency import ArmRole, Reason, ReasonCode, TimeOutcome
from rsag.records.merge import Merge, MergeRow
from rsag.units import MIB
from saved_runs import AA_DIFFERS, CANDIDATE, CASE, CONTROL, DIRECT, judged, row

OTHER_CASE = dataclasses.replace(CASE, bytes=16 * MIB)


def launches(*ratios: float) -> list[JudgedRun]:
    """A launch per ratio of the candidate; the direct arm takes 100, 101, ... us, the control is alike."""
    return [
        judged(
            number,
            row(DIRECT, median_us=100.0 + number),
            row(CANDIDATE, ratio, median_us=200.0 + number, outcome=TimeOutcome.INCONCLUSIVE),
            row(CONTROL, 1.0 + (-1) ** number * 0.01 * number, outcome=TimeOutcome.INCONCLUSIVE),
        )
        for number, ratio in enumerate(ratios)
    ]


def of(merged: Merge, role: ArmRole) -> MergeRow:
    return next(one for one in merged.rows if one.arm.role is role)


def candidate(*ratios: float) -> MergeRow:
    return of(merge(launches(*ratios)), ArmRole.CANDIDATE)


# -------------------------------------------------------------------------------------------------------- what is found


def test_six_launches_on_one_side_of_1_are_an_answer() -> None:
    found = candidate(1.1, 1.2, 1.3, 1.4, 1.5, 1.6)
    assert found.outcome is TimeOutcome.SLOWER
    assert found.interval == pytest.approx((1.1, 1.6))
    pairs = [math.sqrt(a * b) for index, a in enumerate(RATIOS) for b in RATIOS[: index + 1]]
    assert found.ratio == pytest.approx(sorted(pairs)[10])


RATIOS = (1.1, 1.2, 1.3, 1.4, 1.5, 1.6)


def test_below_1_it_is_faster() -> None:
    assert TimeOutcome.FASTER is candidate(0.7, 0.8, 0.9, 0.85, 0.75, 0.95).outcome


def test_one_launch_of_six_on_the_other_side_is_no_answer_and_no_ratio() -> None:
    found = candidate(1.1, 1.2, 1.3, 1.4, 1.5, 0.9)
    assert (TimeOutcome.INCONCLUSIVE, None) == (found.outcome, found.ratio)
    assert found.interval == pytest.approx((0.9, 1.5))
    least = math.sqrt(1.5 / 0.9) - 1
    assert (f"6 launches could have found a difference of {least:.1%} or more",) == found.reasons


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_fewer_than_six_launches_are_described_and_decided_by_nothing(count: int) -> None:
    found = candidate(*[1.1, 1.2, 1.3, 1.4, 1.5][:count])
    assert (None, None, None, None) == (found.outcome, found.ratio, found.interval, found.adjusted_p)
    [reason] = found.reasons
    assert "fewer than six launches cannot reach 5 %" in reason
    assert "2/2^5 = 6.25 %" in reason


def test_medians_and_ranges_over_launches_are_given_whatever_their_number() -> None:
    found = candidate(1.1, 1.4, 1.2)
    assert (201.0, (200.0, 202.0)) == (found.median_us, found.median_us_range)
    assert found.median_ratio == pytest.approx(1.2)
    assert found.ratio_range == pytest.approx((1.1, 1.4))


def test_the_direct_arm_has_medians_and_no_ratio() -> None:
    found = of(merge(launches(1.1, 1.2, 1.3)), ArmRole.DIRECT)
    assert (101.0, (100.0, 102.0), None, None, ()) == (
        found.median_us,
        found.median_us_range,
        found.median_ratio,
        found.outcome,
        found.reasons,
    )


def test_a_launch_counts_once_by_the_centre_of_its_rounds() -> None:
    [first, *_] = candidate(1.1, 1.2).launches
    assert ("run-0", 3, "") == (first.directory, first.rounds, first.left_out)
    assert first.log_ratio == pytest.approx(math.log(1.1))


def test_an_interval_inside_the_margin_of_the_plan_is_equivalent() -> None:
    timing = dataclasses.replace(saved_runs.timing_of(saved_runs.plan()), margin=0.1)
    own = dataclasses.replace(saved_runs.plan(), latency=timing)
    runs = [dataclasses.replace(run, plan=own) for run in launches(1.01, 1.02, 1.03, 1.01, 1.02, 1.03)]
    assert TimeOutcome.EQUIVALENT is of(merge(runs), ArmRole.CANDIDATE).outcome


def test_alike_arms_are_called_different_in_at_most_5_percent_of_merges() -> None:
    coin = random.Random(11)
    found = [candidate(*(math.exp(coin.gauss(0, 0.05)) for _ in range(7))).outcome for _ in range(400)]
    wrong = sum(outcome in (TimeOutcome.FASTER, TimeOutcome.SLOWER) for outcome in found)
    assert 0 < wrong <= 30  # 4.7 % of 400 are 19 expected; the binomial's 99th percentile is 29


# ----------------------------------------------------------------------------------------------------- what is left out


def test_an_invalid_launch_is_left_out_and_said_so() -> None:
    runs = launches(1.1, 1.2, 1.3, 1.4, 1.5, 1.6)
    bad = judged(6, row(DIRECT), row(CANDIDATE, outcome=TimeOutcome.INVALID, reasons=[AA_DIFFERS]), row(CONTROL))
    found = of(merge([*runs, bad]), ArmRole.CANDIDATE)
    assert (TimeOutcome.SLOWER, (200.0, 205.0)) == (found.outcome, found.median_us_range)
    said = "invalid; aa-differs: all_reduce against itself: 1.1 to 1.2"
    assert (said, None) == (found.launches[6].left_out, found.launches[6].log_ratio)
    assert (f"run-6 is left out: {said}",) == found.reasons


def test_with_one_of_six_left_out_there_are_too_few() -> None:
    runs = launches(1.1, 1.2, 1.3, 1.4, 1.5)
    bad = judged(5, row(DIRECT), row(CANDIDATE, outcome=TimeOutcome.INVALID, reasons=[AA_DIFFERS]), row(CONTROL))
    found = of(merge([*runs, bad]), ArmRole.CANDIDATE)
    assert found.outcome is None
    assert found.reasons[0].startswith("5 of 6 launches count")


def test_where_every_launch_is_invalid_nothing_is_said_of_the_arm() -> None:
    runs = [
        judged(number, row(DIRECT), row(CANDIDATE, outcome=TimeOutcome.INVALID, reasons=[AA_DIFFERS]))
        for number in range(6)
    ]
    found = of(merge(runs), ArmRole.CANDIDATE)
    assert (None, None, None) == (found.outcome, found.median_ratio, found.median_us)


def test_a_launch_without_rounds_to_decide_on_is_left_out() -> None:
    no_rounds = dataclasses.replace(row(CANDIDATE, outcome=TimeOutcome.SLOWER), round_values=())
    found = of(merge([judged(0, row(DIRECT), no_rounds), judged(1, row(DIRECT), row(CANDIDATE))]), ArmRole.CANDIDATE)
    assert ["no rounds that a decision rests on", ""] == [launch.left_out for launch in found.launches]


def test_a_direct_arm_unlike_itself_across_launches_makes_its_case_invalid_and_no_other() -> None:
    skewed = [
        judged(
            number,
            row(DIRECT),
            row(CANDIDATE, 1.5),
            row(CONTROL, 1.02 + number / 1000),
            row(DIRECT, case=OTHER_CASE),
            row(CANDIDATE, 1.5, case=OTHER_CASE),
        )
        for number in range(6)
    ]
    merged = merge(skewed)
    found = {(one.case, one.arm.role): one for one in merged.rows}
    bad, good = found[CASE, ArmRole.CANDIDATE], found[OTHER_CASE, ArmRole.CANDIDATE]
    assert (TimeOutcome.INVALID, None) == (bad.outcome, bad.ratio)
    assert ("all_reduce against itself: 1.020 to 1.025 across launches, so the harness favours a place",) == bad.reasons
    assert TimeOutcome.SLOWER is good.outcome


# --------------------------------------------------------------------------------------------------------- all together


def test_six_launches_of_one_comparison_suffice_for_the_sentence() -> None:
    merged = merge(launches(*RATIOS))
    assert of(merged, ArmRole.CANDIDATE).adjusted_p == pytest.approx(2 / 2**6)
    assert merged.sentence == "Across launches, after Holm's correction for 1 comparison at 5 %: 0 faster and 1 slower."


def test_two_comparisons_take_a_seventh_launch() -> None:
    def runs(count: int) -> list[JudgedRun]:
        ratios = [1.1 + number / 100 for number in range(count)]
        rows = [[row(CANDIDATE, ratio), row(CANDIDATE, ratio, case=OTHER_CASE)] for ratio in ratios]
        return [judged(number, row(DIRECT), *own) for number, own in enumerate(rows)]

    assert "a claim about 2 comparisons together: after Holm's correction that takes 7." in merge(runs(6)).sentence
    assert merge(runs(7)).sentence.endswith("for 2 comparisons at 5 %: 0 faster and 2 slower.")


def test_the_seed_may_differ() -> None:
    runs = [
        judged(number, row(DIRECT), row(CANDIDATE), plan_of_run=saved_runs.plan(seed=number)) for number in range(2)
    ]
    assert [0, 1] == [source.seed for source in merge(runs).runs]


def test_a_case_that_the_plan_has_twice_is_two_rows() -> None:
    runs = [judged(number, row(DIRECT), row(CANDIDATE, 1.1), row(CANDIDATE, 1.3)) for number in range(2)]
    found = [one.median_ratio for one in merge(runs).rows if one.arm.role is ArmRole.CANDIDATE]
    assert found == pytest.approx([1.1, 1.3])


# ---------------------------------------------------------------------------------------------------------- wrong use


def test_one_run_is_nothing_to_merge() -> None:
    with pytest.raises(UsageError, match="nothing to merge; got 1; expected 2 or more"):
        merge(launches(1.1))


def test_the_same_run_twice_is_refused_under_any_name() -> None:
    first, second = launches(1.1, 1.2)
    copy = dataclasses.replace(first, directory="copy")
    with pytest.raises(UsageError, match="the same run twice; got run-0 and copy"):
        merge([first, second, copy])


def test_another_plan_is_refused_with_what_differs() -> None:
    timing = dataclasses.replace(saved_runs.timing_of(saved_runs.plan()), cases=(CASE, OTHER_CASE), blocks=9)
    other = dataclasses.replace(saved_runs.plan(), latency=timing)
    first, second = launches(1.1, 1.2)
    with pytest.raises(UsageError, match="no launches of one plan") as error:
        merge([first, dataclasses.replace(second, plan=other)])
    assert "run-0 vs run-1: plan: blocks: 2 vs 9 | plan: cases: no more vs 16,777,216 B float32 sum cpu x1" in str(
        error.value
    )


def test_another_version_is_refused_with_both_values() -> None:
    newer = [saved_runs.rank_info(rank, versions={"python": "3.11.7", "torch": "2.14.0"}) for rank in range(2)]
    first, second = launches(1.1, 1.2)
    with pytest.raises(UsageError, match=r"version of torch: 2\.13\.0 vs 2\.14\.0"):
        merge([first, dataclasses.replace(second, run=saved_runs.run(1, ranks=newer))])


def test_a_run_without_times_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="run-9 timed nothing"):
        merge([*launches(1.1), judged(9)])


def test_an_inconclusive_launch_is_not_left_out() -> None:
    too_few = Reason(code=ReasonCode.TOO_FEW_ROUNDS, message="")
    runs = [
        judged(number, row(DIRECT), row(CANDIDATE, 1.2, outcome=TimeOutcome.INCONCLUSIVE, reasons=[too_few]))
        for number in range(2)
    ]
    assert ["", ""] == [launch.left_out for launch in of(merge(runs), ArmRole.CANDIDATE).launches]
