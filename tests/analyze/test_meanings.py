"""What timed results and counted bytes add to the meanings of the equation."""

from __future__ import annotations

import dataclasses

import pytest
from timed import CANDIDATE, CASE, DIRECT, plan_of, records, spoil, timing, with_wrong

from rsag.analyze.meanings import judge_result, judge_steps
from rsag.analyze.wire import judge_wire
from rsag.records.latency import RoundRow, WireRow
from rsag.records.plan import Backend, Plan
from rsag.records.verdict import Equivalence, Holds
from rsag.units import KIB, MIB

PLAN = plan_of(timing(), world_size=4)
NCCL = plan_of(timing(), world_size=4, backend=Backend.NCCL)


def steps(direct: float | None, decomposed: float | None, plan: Plan = PLAN) -> Equivalence:
    """With so many bytes counted on every rank."""
    rows = [
        WireRow(case=0, arm=arm, calls=3, counter="", sent_bytes=sent, received_bytes=None, reason="")
        for arm, sent in ((DIRECT, direct), (CANDIDATE, decomposed))
    ]
    return judge_steps(plan, judge_wire(plan, dict.fromkeys(range(4), rows)))


# --------------------------------------------------------------------------------------------------------------- steps


def test_counted_bytes_that_differ_are_a_no_and_say_why() -> None:
    found = steps(1.5 * MIB + 1824, 2.25 * MIB + 2688)
    counted = "counted: 1.50 M against 2.25 M at 1 MiB (Gloo's ReduceScatter moves a whole AllReduce)"
    assert (Holds.NO, counted) == (found.holds, found.evidence.split("; ")[-1])


def test_counted_bytes_that_agree_are_said_to() -> None:
    found = steps(1.5 * MIB + 1824, 1.5 * MIB + 2688)
    assert (Holds.YES, "counted too: 1.50 M and 1.50 M at 1 MiB") == (found.holds, found.evidence.split("; ")[-1])


@pytest.mark.parametrize(("direct", "decomposed", "holds"), [(3.0, 3.0, Holds.YES), (1.5, 3.0, Holds.NO)])
def test_on_nccl_like_protocols_send_alike(direct: float, decomposed: float, holds: Holds) -> None:
    assert holds is steps(direct * MIB, decomposed * MIB, NCCL).holds


@pytest.mark.parametrize("counts", [(None, None), (1.5 * MIB, None), (None, 1.5 * MIB)])
def test_what_was_not_counted_on_both_sides_is_not_compared(counts: tuple[float | None, float | None]) -> None:
    found = steps(*counts)
    assert (Holds.YES, False) == (found.holds, "counted" in found.evidence)


def test_bytes_that_headers_outweigh_are_not_compared() -> None:
    small = plan_of(timing(cases=[dataclasses.replace(CASE, bytes=KIB)]), world_size=4)
    assert "counted" not in steps(3.2 * KIB, 4.9 * KIB, small).evidence


# -------------------------------------------------------------------------------------------------------------- result


def test_right_timed_results_are_evidence() -> None:
    rounds = [row for own in records(PLAN, num_rounds=2).values() for row in own if isinstance(row, RoundRow)]
    found = judge_result(PLAN, None, (), rounds)
    num_results = 4 * 2 * 3 * 6  # ranks, rounds, arms that call anything, cycles
    assert (Holds.YES, f"every element of {num_results} timed results right") == (found.holds, found.evidence)


def test_a_single_wrong_timed_element_is_a_no() -> None:
    own = spoil(records(PLAN, num_rounds=2), 3, 1, with_wrong(CANDIDATE, 1))
    rounds = [row for rows in own.values() for row in rows if isinstance(row, RoundRow)]
    found = judge_result(PLAN, None, (), rounds)
    assert (Holds.NO, "1 wrong elements in 144 timed results") == (found.holds, found.evidence)
