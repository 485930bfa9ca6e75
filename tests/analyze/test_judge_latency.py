"""Rounds of all ranks to what is said of each arm."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import pytest
from timed import (
    ALIKE,
    CANDIDATE,
    CASE,
    CONTROL,
    DIRECT,
    NULL,
    SLOWER,
    Records,
    TimeOf,
    around,
    median_ns,
    plan_of,
    records,
    spoil,
    timing,
    with_time,
    with_wrong,
    without,
)

from rsag.analyze.describe import Summary, chapter_ratio, payload_gbps
from rsag.analyze.latency import TimingRow, judge_latency
from rsag.errors import UsageError
from rsag.records.codec import decode, encode
from rsag.records.latency import (
    ArmRole,
    Buffers,
    CaseEnd,
    Gate,
    LatencyPlan,
    LatencyRow,
    LookRow,
    PredictedCost,
    PredictionOutcome,
    Reason,
    ReasonCode,
    RoundRow,
    TimeOutcome,
    WireVerdict,
)
from rsag.stats import Stop
from rsag.units import KIB, MIB

PLAN = plan_of(timing())
BARELY_UNLIKE = 1.02
"""What a control of 12 rounds tells from 1 at 5 %, and no longer after a correction for 12."""


def judged(time_of: TimeOf, timed: LatencyPlan | None = None, *, num_rounds: int | None = None) -> list[LatencyRow]:
    plan = PLAN if timed is None else plan_of(timed)
    return list(judge_latency(plan, records(plan, time_of, num_rounds=num_rounds)))


def codes(row: LatencyRow) -> list[ReasonCode]:
    return [reason.code for reason in row.reasons]


def assert_refused(row: LatencyRow, outcome: TimeOutcome, code: ReasonCode) -> None:
    assert (outcome, code) == (row.outcome, row.reasons[0].code)
    assert (None, ()) == (row.ratio, row.round_values if outcome is TimeOutcome.INVALID else ())


# ------------------------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize(("factor", "outcome"), [(1.2, TimeOutcome.SLOWER), (0.8, TimeOutcome.FASTER)])
def test_a_clear_difference_is_found_at_the_first_look(factor: float, outcome: TimeOutcome) -> None:
    row = judged(around(1.0, factor, 1.0, 0.001))[CANDIDATE]
    assert (outcome, 12, Stop.DIRECTION, ()) == (row.outcome, row.rounds, row.stop, row.reasons)
    assert row.ratio == pytest.approx(factor, rel=0.02)
    assert row.interval is not None
    assert row.interval[0] < factor < row.interval[1]
    assert 12 == len(row.round_values)


def test_nothing_is_asked_of_the_direct_and_the_null_arm() -> None:
    rows = judged(SLOWER)
    assert [None, None] == [rows[DIRECT].outcome, rows[NULL].outcome]
    assert [None, None] == [rows[DIRECT].ratio, rows[NULL].interval]
    assert 12 == rows[DIRECT].rounds


def test_inside_the_margin_of_the_plan_is_equivalent() -> None:
    row = judged(around(1.0, 1.002, 1.0, 0.001, noise=0.005), timing(margin=0.01))[CANDIDATE]
    assert TimeOutcome.EQUIVALENT is row.outcome
    assert row.ratio == pytest.approx(1.002, rel=0.005)


def test_precise_and_still_without_direction_is_inconclusive() -> None:
    row = judged(ALIKE)[CANDIDATE]
    assert_refused(row, TimeOutcome.INCONCLUSIVE, ReasonCode.HOLDS_ONE)
    assert row.interval is not None
    assert row.interval[0] < 1 < row.interval[1]


def test_out_of_rounds_says_what_could_have_been_found() -> None:
    row = judged(around(1.0, 1.0, 1.0, 0.001, noise=0.4))[CANDIDATE]
    assert_refused(row, TimeOutcome.INCONCLUSIVE, ReasonCode.TOO_FEW_ROUNDS)
    assert (40, Stop.BUDGET) == (row.rounds, row.stop)
    assert row.interval is not None
    least = math.expm1(math.log(row.interval[1] / row.interval[0]) / 2)
    assert f"40 rounds could have found a difference of {least:.1%} or more" == row.reasons[0].message


def test_a_run_that_ended_before_the_first_look_has_raw_times_and_no_interval() -> None:
    row = judged(SLOWER, num_rounds=5)[CANDIDATE]
    assert_refused(row, TimeOutcome.INCONCLUSIVE, ReasonCode.TOO_FEW_ROUNDS)
    assert (5, None, None) == (row.rounds, row.stop, row.interval)
    assert "5 rounds, and the first look is at 12" == row.reasons[0].message
    assert row.median_us == pytest.approx(120, rel=0.02)


def test_a_direction_stands_where_the_run_ended_before_it_was_precise() -> None:
    noisy = around(1.0, 1.5, 1.0, 0.001, noise=0.1)
    row = judged(noisy, timing(precisely=True, max_rounds=20))[CANDIDATE]
    assert (TimeOutcome.SLOWER, 20, None) == (row.outcome, row.rounds, row.stop)


def test_an_arm_that_was_done_is_judged_as_of_then_while_the_others_go_on() -> None:
    arms = [*timing().arms, dataclasses.replace(timing().arms[CANDIDATE], composition="rs_ag_naive")]
    rows = judged(around(1.0, 1.5, 1.0, 0.001, 1.0, noise=0.1), timing(arms=arms))
    assert (12, Stop.DIRECTION) == (rows[CANDIDATE].rounds, rows[CANDIDATE].stop)
    assert 40 == rows[4].rounds == rows[DIRECT].rounds


def test_rows_come_case_by_case_in_the_order_of_the_plan() -> None:
    plan = plan_of(timing(cases=[CASE, dataclasses.replace(CASE, bytes=KIB)]))
    both = {rank: [*rows, *records(plan, ALIKE, case=1)[rank]] for rank, rows in records(plan, SLOWER).items()}
    rows = judge_latency(plan, both)
    assert [MIB] * 4 + [KIB] * 4 == [row.bytes for row in rows]
    assert [TimeOutcome.SLOWER, TimeOutcome.INCONCLUSIVE] == [rows[CANDIDATE].outcome, rows[4 + CANDIDATE].outcome]


def test_without_a_plan_of_times_there_are_no_rows() -> None:
    assert () == judge_latency(dataclasses.replace(PLAN, latency=None), {})


# ------------------------------------------------------------------------------------------------------- what is merged


def test_the_latency_of_a_cycle_is_that_of_its_critical_rank() -> None:
    def in_turn(rank: int, round_number: int, arm: int, cycle: int) -> int:
        factor = 1.3 if arm == CANDIDATE and rank == cycle % 2 else 1.0
        return round(SLOWER(rank, round_number, DIRECT, cycle) * factor)

    row = judged(in_turn)[CANDIDATE]
    assert TimeOutcome.SLOWER is row.outcome
    assert row.ratio == pytest.approx(1.3, rel=1e-3)


def test_a_rank_that_is_quick_for_having_come_late_shows_as_skew_and_leaves_the_ratio_alone() -> None:
    even, late = judged(SLOWER), judged(around(1.0, 1.2, 1.0, 0.001, rank_factors=(1.0, 0.5)))
    assert even[CANDIDATE].ratio == late[CANDIDATE].ratio
    assert [ReasonCode.SKEW] == codes(late[CANDIDATE])
    assert "ranks differ by more than 10 % in 48 of 48 cycles" == late[CANDIDATE].reasons[0].message
    assert late[CANDIDATE].min_median_us == pytest.approx(late[CANDIDATE].median_us / 2, rel=1e-3)  # type: ignore[operator]


def test_the_warm_up_counts_for_nothing() -> None:
    def cold(rank: int, round_number: int, arm: int, cycle: int) -> int:
        return 10**9 if cycle < 2 and arm == CANDIDATE else SLOWER(rank, round_number, arm, cycle)

    assert judged(SLOWER) == judged(cold)


def test_a_round_that_one_rank_did_not_finish_is_left_out() -> None:
    whole = records(PLAN, SLOWER, num_rounds=5)
    cut = without(whole, lambda rank, row: rank == 1 and isinstance(row, RoundRow) and row.round == 4)
    assert 4 == judge_latency(PLAN, cut)[CANDIDATE].rounds


def test_what_a_row_says_of_its_times() -> None:
    own = records(PLAN, SLOWER)
    row = judge_latency(PLAN, own)[CANDIDATE]
    assert row.median_us == pytest.approx(median_ns(own, CANDIDATE) / 1e3)
    assert row.gbps == pytest.approx(MIB / (median_ns(own, CANDIDATE) / 1e9) / 1e9)
    assert row.ring_gbps == row.gbps  # 2 (N - 1) / N is 1 on two ranks
    assert row.cv == pytest.approx(0.02, rel=0.3)
    assert row.median_us is not None
    assert row.p95_us is not None
    assert row.p99_us is not None
    assert row.median_us < row.p95_us < row.p99_us


def test_a_row_carries_what_the_ledger_predicted_for_its_size() -> None:
    assert PredictedCost(steps=2, sent_bytes=float(MIB)) == judged(SLOWER)[CANDIDATE].predicted


def test_the_null_arm_moves_nothing_and_may_take_no_time() -> None:
    row = judged(around(1.0, 1.2, 1.0, 0.0))[NULL]
    assert (0.0, 0.0, 0.0, ()) == (row.median_us, row.cv, row.gbps, row.reasons)


def test_rows_survive_the_way_through_a_file() -> None:
    for row in judged(SLOWER):
        assert row == decode(LatencyRow, encode(row))


# ------------------------------------------------------------------------------------------------------------- invalid


def test_another_decision_than_the_ranks_is_invalid() -> None:
    def tampered(rank: int, row: TimingRow) -> TimingRow:
        if not isinstance(row, LookRow):
            return row
        return dataclasses.replace(row, stops=(None, Stop.PRECISE, *row.stops[2:]))

    own = {rank: [tampered(rank, row) for row in rows] for rank, rows in records(PLAN).items()}
    row = judge_latency(PLAN, own)[CANDIDATE]
    assert_refused(row, TimeOutcome.INVALID, ReasonCode.DECISION_DIFFERS)
    assert "after 12 rounds rank 0 found -, precise, " in row.reasons[0].message
    assert row.interval is not None
    assert row.cv_ratio is None


def test_times_that_were_changed_afterwards_are_found_out() -> None:
    changed = records(PLAN)
    for number in range(3):
        for rank in range(2):
            for cycle in range(2, 6):
                changed = spoil(changed, rank, number, with_time(CANDIDATE, cycle, 50_000))
    assert_refused(judge_latency(PLAN, changed)[CANDIDATE], TimeOutcome.INVALID, ReasonCode.DECISION_DIFFERS)


def test_a_look_that_was_passed_over_is_invalid() -> None:
    noisy = records(PLAN, around(1.0, 1.0, 1.0, 0.001, noise=0.4))
    own = without(noisy, lambda rank, row: isinstance(row, LookRow) and row.rounds == 12)
    row = judge_latency(PLAN, own)[CANDIDATE]
    assert_refused(row, TimeOutcome.INVALID, ReasonCode.DECISION_DIFFERS)
    assert "rank 0 went on after 12 rounds without a look" == row.reasons[0].message


def test_only_rank_0_decides() -> None:
    own = records(PLAN)
    stray = LookRow(case=0, rounds=12, stops=(None, None, None, None), went_on=True)
    assert judge_latency(PLAN, own) == judge_latency(PLAN, {**own, 1: [*own[1], stray]})


def is_round(row: TimingRow, numbers: Sequence[int]) -> bool:
    return isinstance(row, RoundRow) and row.round in numbers


@pytest.mark.parametrize(
    ("dropped", "message"),
    [
        (lambda rank, row: rank == 1, "no rounds of rank 1"),
        (lambda rank, row: isinstance(row, RoundRow), "no rounds of rank 0, 1"),
        (lambda rank, row: rank == 1 and is_round(row, [3]), "rank 1: rounds 3 are missing"),
        (lambda rank, row: rank == 1 and is_round(row, [10, 11]), "rank 1 has 10 rounds, another 12"),
        (lambda rank, row: rank == 1 and is_round(row, [11]), "rank 0 decided on 12 rounds, of which 11 are left"),
    ],
)
def test_missing_rows_are_invalid(dropped: Callable[[int, TimingRow], bool], message: str) -> None:
    rows = judge_latency(PLAN, without(records(PLAN), dropped))
    assert_refused(rows[CANDIDATE], TimeOutcome.INVALID, ReasonCode.NO_RECORDS)
    assert rows[CANDIDATE].reasons[0].message.startswith(message)


def test_a_round_told_twice_is_invalid() -> None:
    own = records(PLAN, num_rounds=3)
    twice: Records = {**own, 1: [*own[1], own[1][2]]}
    assert_refused(judge_latency(PLAN, twice)[CANDIDATE], TimeOutcome.INVALID, ReasonCode.NO_RECORDS)


def backwards(row: RoundRow) -> RoundRow:
    return dataclasses.replace(row, started_us=tuple(reversed(row.started_us)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_time(CANDIDATE, 3, 0), "rank 1, round 4: 0 ns for rs_ag_in_place"),
        (with_time(DIRECT, 0, -7), "rank 1, round 4: -7 ns for all_reduce"),
        (with_time(NULL, 3, -1), "rank 1, round 4: -1 ns for the null arm"),
        (with_time(CONTROL, 3, 1e5), "rank 1, round 4: 100000.0 ns for all_reduce"),  # type: ignore[arg-type]
        (with_time(CONTROL, 3, math.nan), "rank 1, round 4: nan ns for all_reduce"),  # type: ignore[arg-type]
        (lambda row: dataclasses.replace(row, ns=row.ns[:3]), "rank 1, round 4: not the plan's 4 arms of 6 cycles"),
        (lambda row: dataclasses.replace(row, wrong=()), "rank 1, round 4: not the plan's 4 arms of 6 cycles"),
        (backwards, "rank 1, round 4: the clock ran backwards"),
    ],
)
def test_times_that_cannot_be_are_invalid(change: Callable[[RoundRow], RoundRow], message: str) -> None:
    rows = judge_latency(PLAN, spoil(records(PLAN), 1, 4, change))
    assert_refused(rows[CANDIDATE], TimeOutcome.INVALID, ReasonCode.BAD_TIMES)
    assert message == rows[CANDIDATE].reasons[0].message
    assert (None, None) == (rows[CANDIDATE].median_us, rows[DIRECT].median_us)


def test_a_difference_between_identical_arms_is_the_harnesses() -> None:
    rows = judged(around(1.0, 1.2, 1.1, 0.001))
    assert_refused(rows[CANDIDATE], TimeOutcome.INVALID, ReasonCode.AA_DIFFERS)
    assert_refused(rows[CONTROL], TimeOutcome.INVALID, ReasonCode.AA_DIFFERS)
    assert rows[CANDIDATE].interval is not None
    assert rows[CANDIDATE].median_us == pytest.approx(120, rel=0.02)


REGISTERED = tuple(dataclasses.replace(arm, buffers=Buffers.REGISTERED) for arm in timing().arms[:NULL])


def test_each_kind_of_buffers_is_compared_with_the_direct_arm_in_the_same() -> None:
    machine = around(1.0, 1.2, 1.0, 0.5, 0.7, 0.5, 0.001)
    rows = judged(machine, timing(arms=[*timing().arms[:NULL], *REGISTERED, timing().arms[NULL]]))
    plain, registered = rows[CANDIDATE], rows[NULL + CANDIDATE]
    assert (Buffers.PLAIN, Buffers.REGISTERED) == (plain.buffers, registered.buffers)
    assert [pytest.approx(1.2, rel=0.02), pytest.approx(1.4, rel=0.02)] == [plain.ratio, registered.ratio]
    assert [None, None] == [row.ratio for row in rows if row.role is ArmRole.CONTROL]


def test_a_control_speaks_against_its_own_buffers_alone() -> None:
    machine = around(1.0, 1.2, 1.0, 1.0, 1.2, 1.1, 0.001)
    rows = judged(machine, timing(arms=[*timing().arms[:NULL], *REGISTERED, timing().arms[NULL]]))
    assert TimeOutcome.SLOWER is rows[CANDIDATE].outcome
    assert_refused(rows[NULL + CANDIDATE], TimeOutcome.INVALID, ReasonCode.AA_DIFFERS)


def test_a_wrong_direct_arm_speaks_against_its_own_buffers_alone() -> None:
    plan = plan_of(timing(arms=[*timing().arms[:NULL], *REGISTERED, timing().arms[NULL]]))
    machine = around(1.0, 1.2, 1.0, 1.0, 1.2, 1.0, 0.001)
    wrong = tuple(int(arm == NULL + DIRECT) for arm in range(7))
    rows = judge_latency(plan, spoil(records(plan, machine), 1, 4, lambda row: dataclasses.replace(row, wrong=wrong)))
    assert TimeOutcome.SLOWER is rows[CANDIDATE].outcome
    assert_refused(rows[NULL + CANDIDATE], TimeOutcome.INVALID, ReasonCode.WRONG_RESULT)


def test_a_control_that_differs_speaks_against_its_case_under_the_cv_gate_too() -> None:
    rows = judged(around(1.0, 1.2, 1.1, 0.001, noise=0.001), timing(gate=Gate.CV))
    assert_refused(rows[CANDIDATE], TimeOutcome.INVALID, ReasonCode.AA_DIFFERS)


def test_a_control_is_judged_by_its_rounds_under_the_cv_gate_too() -> None:
    rows = judged(around(1.0, 1.2, 1.0, 0.001, noise=0.001), timing(gate=Gate.CV))
    assert TimeOutcome.SLOWER is rows[CANDIDATE].outcome
    assert_refused(rows[CONTROL], TimeOutcome.INCONCLUSIVE, ReasonCode.HOLDS_ONE)


def test_a_plan_without_a_reference_says_so() -> None:
    with pytest.raises(UsageError, match="nothing to compare rs_ag_in_place in registered buffers with"):
        judged(around(1.0, 1.2, 1.0, 0.001, 1.0), timing(arms=[*timing().arms, REGISTERED[CANDIDATE]]), num_rounds=1)


def test_clocks_that_were_held_down_are_a_remark_on_every_arm_that_calls() -> None:
    def hot(row: RoundRow) -> RoundRow:
        return dataclasses.replace(row, took_us=1000, held_down_us={"power cap": 900})

    rows = judge_latency(PLAN, spoil(records(PLAN), 1, 4, hot))
    assert TimeOutcome.SLOWER is rows[CANDIDATE].outcome
    assert [True, True, True, False] == [ReasonCode.THROTTLED in codes(row) for row in rows]
    [said] = [reason.message for reason in rows[CANDIDATE].reasons if reason.code is ReasonCode.THROTTLED]
    assert "clocks held down for 90% of the time on rank 1 (power cap)" == said


def many_cases(num_cases: int, *unlike: int, factor: float = 1.1, noise: float = 0.02) -> list[list[LatencyRow]]:
    """Rows case by case; in the cases of `unlike` the control takes `factor` times the direct arm's time."""
    plan = plan_of(timing(cases=[dataclasses.replace(CASE, bytes=KIB << number) for number in range(num_cases)]))
    own: Records = {0: [], 1: []}
    for case in range(num_cases):
        machine = around(1.0, 1.2, factor if case in unlike else 1.0, 0.001, noise=noise)
        for rank, rows in records(plan, machine, case=case).items():
            own[rank] += rows
    judged_rows = judge_latency(plan, own)
    return [list(judged_rows[start : start + 4]) for start in range(0, len(judged_rows), 4)]


def test_a_control_among_many_speaks_against_its_own_case_alone() -> None:
    found = many_cases(12, 5)
    assert [5] == [number for number, rows in enumerate(found) if rows[CANDIDATE].outcome is TimeOutcome.INVALID]
    assert_refused(found[5][CONTROL], TimeOutcome.INVALID, ReasonCode.AA_DIFFERS)


def test_a_control_that_does_not_survive_correction_shows_its_direction_and_voids_nothing() -> None:
    alone, *_ = many_cases(1, 0, factor=BARELY_UNLIKE)
    assert_refused(alone[CANDIDATE], TimeOutcome.INVALID, ReasonCode.AA_DIFFERS)
    among_many, *_ = many_cases(12, 0, factor=BARELY_UNLIKE)
    assert (TimeOutcome.SLOWER, TimeOutcome.SLOWER) == (among_many[CONTROL].outcome, among_many[CANDIDATE].outcome)
    assert ReasonCode.AA_DIFFERS not in codes(among_many[CONTROL]) + codes(among_many[CANDIDATE])


def test_with_more_cases_than_a_first_look_could_tell_apart_the_controls_are_still_heard() -> None:
    found = many_cases(24, *range(24))
    assert {TimeOutcome.INVALID} == {rows[CANDIDATE].outcome for rows in found}


def test_decisive_cases_of_a_large_plan_go_on_until_they_can_be_claimed() -> None:
    assert {12} == {rows[CANDIDATE].rounds for rows in many_cases(4)}
    assert {20} == {rows[CANDIDATE].rounds for rows in many_cases(24)}


def test_a_wrong_element_speaks_against_its_own_arm() -> None:
    rows = judge_latency(PLAN, spoil(records(PLAN), 1, 4, with_wrong(CANDIDATE, 3)))
    assert_refused(rows[CANDIDATE], TimeOutcome.INVALID, ReasonCode.WRONG_RESULT)
    assert "3 wrong elements in the results of rs_ag_in_place" == rows[CANDIDATE].reasons[0].message
    assert TimeOutcome.INVALID is not rows[CONTROL].outcome


@pytest.mark.parametrize("arm", [DIRECT, CONTROL])
def test_a_wrong_direct_arm_speaks_against_the_case(arm: int) -> None:
    rows = judge_latency(PLAN, spoil(records(PLAN), 1, 4, with_wrong(arm, 3)))
    assert_refused(rows[CANDIDATE], TimeOutcome.INVALID, ReasonCode.WRONG_RESULT)
    assert 1 == codes(rows[CONTROL]).count(ReasonCode.WRONG_RESULT)


def test_a_wrong_element_in_a_round_that_is_left_out_counts() -> None:
    whole = spoil(records(PLAN, SLOWER, num_rounds=5), 0, 4, with_wrong(CANDIDATE, 1))
    cut = without(whole, lambda rank, row: rank == 1 and is_round(row, [4]))
    assert_refused(judge_latency(PLAN, cut)[CANDIDATE], TimeOutcome.INVALID, ReasonCode.WRONG_RESULT)


# --------------------------------------------------------------------------------------------------------- ends, wires


def test_a_case_that_was_not_measured_says_why() -> None:
    rows = judge_latency(PLAN, {rank: [CaseEnd(case=0, reason="does not fit")] for rank in range(2)})
    assert_refused(rows[CANDIDATE], TimeOutcome.INCONCLUSIVE, ReasonCode.NOT_MEASURED)
    assert ("does not fit", 0, None) == (rows[CANDIDATE].reasons[0].message, rows[CANDIDATE].rounds, rows[0].median_us)


def test_a_case_that_ended_early_keeps_its_rounds_and_says_why() -> None:
    own = records(PLAN, SLOWER, num_rounds=5)
    row = judge_latency(PLAN, {rank: [*rows, CaseEnd(case=0, reason="no capture")] for rank, rows in own.items()})[1]
    assert [ReasonCode.TOO_FEW_ROUNDS, ReasonCode.NOT_MEASURED] == codes(row)
    assert 5 == row.rounds


def wire_of(composition: str, size: int, message: str) -> WireVerdict:
    return WireVerdict(
        composition=composition,
        rank=0,
        bytes=size,
        predicted_bytes=1.0,
        measured_bytes=1.0,
        outcome=PredictionOutcome.DIFFERS,
        reasons=(Reason(code=ReasonCode.GLOO_REDUCE_SCATTER, message=message),),
    )


def test_what_the_wire_shows_of_gloo_stands_beside_the_time() -> None:
    wire = [wire_of("rs_ag_in_place", 16 * MIB, "elsewhere"), wire_of("rs_ag_in_place", MIB, "here")]
    rows = judge_latency(PLAN, records(PLAN), wire)
    assert (Reason(code=ReasonCode.GLOO_REDUCE_SCATTER, message="here"),) == rows[CANDIDATE].reasons
    assert TimeOutcome.SLOWER is rows[CANDIDATE].outcome
    assert () == rows[DIRECT].reasons


def test_a_size_that_was_not_counted_borrows_from_the_largest_that_was() -> None:
    rows = judge_latency(PLAN, records(PLAN), [wire_of("rs_ag_in_place", size, str(size)) for size in (4, 64, 16)])
    assert ["64"] == [reason.message for reason in rows[CANDIDATE].reasons]


# -------------------------------------------------------------------------------------------------- the chapter's rule

CHAPTER = {  # bytes: median us, P95 us, CV, payload GB/s as printed; direct, then decomposed; and the ratio
    KIB: ((86.272, 0.1519, "0.012"), (133.920, 0.0503, "0.008"), None),
    64 * KIB: ((93.328, 0.8653, "0.702"), (132.272, 0.7239, "0.495"), None),
    MIB: ((113.600, 0.8538, "9.230"), (152.176, 0.1176, "6.891"), None),
    16 * MIB: ((381.440, 0.0328, "43.984"), (431.568, 0.0195, "38.875"), "1.131"),
    256 * MIB: ((3611.792, 0.0048, "74.322"), (3990.800, 0.0062, "67.264"), "1.105"),
}


@pytest.mark.parametrize("size", CHAPTER)
def test_the_chapters_rule_gives_the_chapters_ratios(size: int) -> None:
    *arms, expected = CHAPTER[size]
    direct, other = (Summary(median_us=arm[0], p95_us=0, p99_us=0, mean_us=0, cv=arm[1]) for arm in arms if arm)
    ratio = chapter_ratio(direct, other)
    assert expected == (None if ratio is None else f"{ratio:.3f}")


@pytest.mark.parametrize("size", CHAPTER)
def test_payload_rates_are_the_chapters_to_the_digit(size: int) -> None:
    direct, other, _ = CHAPTER[size]
    assert [direct[2], other[2]] == [f"{payload_gbps(size, median_us):.3f}" for median_us, _, _ in (direct, other)]


def test_both_rules_stand_side_by_side() -> None:
    row = judged(SLOWER)[CANDIDATE]
    assert row.cv_ratio == pytest.approx(1.2, rel=0.02)
    assert None is judged(around(1.0, 1.5, 1.0, 0.001, noise=0.1))[CANDIDATE].cv_ratio


CV_PLAN = timing(arms=timing().arms[:2], gate=Gate.CV, max_rounds=1)


@pytest.mark.parametrize(("factor", "outcome"), [(1.2, TimeOutcome.SLOWER), (0.8, TimeOutcome.FASTER)])
def test_as_the_gate_it_gives_the_ratio_of_the_medians(factor: float, outcome: TimeOutcome) -> None:
    direct, row = judged(around(1.0, factor), CV_PLAN)
    assert direct.median_us is not None
    assert row.median_us is not None
    assert (outcome, row.median_us / direct.median_us, None) == (row.outcome, row.ratio, row.interval)
    assert row.ratio == row.cv_ratio


def test_as_the_gate_it_refuses_what_is_unstable() -> None:
    row = judged(around(1.0, 1.5, noise=0.2), CV_PLAN)[1]
    assert_refused(row, TimeOutcome.INCONCLUSIVE, ReasonCode.UNSTABLE_CV)
    assert row.cv_ratio is None
    assert row.median_us is not None


def test_as_the_gate_it_makes_nothing_of_equal_medians() -> None:
    row = judged(lambda rank, round_number, arm, cycle: 1000, CV_PLAN)[1]
    assert_refused(row, TimeOutcome.INCONCLUSIVE, ReasonCode.HOLDS_ONE)
