"""What a round does, and in which order, on a bench that only writes it down (see `scripted`)."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from scripted import Script

from rsag.plan import make_plan
from rsag.plan.latency import plan_latency
from rsag.rank.context import Context, Record
from rsag.rank.latency import BENCHES, observe_latency
from rsag.rank.rounds import run_round
from rsag.records.latency import CaseEnd, Clock, LookRow, RoundRow, cycle_order, round_seed
from rsag.records.plan import Backend, Experiment, Plan
from rsag.units import KIB

ORDER = ((2, 0, 1), (1, 0, 2))


def words_of(seed: int = 0, order: tuple[tuple[int, ...], ...] = ORDER) -> list[str]:
    script = Script(len(order[0]))
    run_round(script, case=0, number=0, order=order, seed=seed)
    return script.said


def order_of(words: list[str], action: str) -> list[int]:
    return [int(word[1:]) for word in words if word[0] == action]


# ------------------------------------------------------------------------------------------------- the order of actions


def test_a_round_from_fresh_buffers_to_their_end() -> None:
    words = words_of(seed=1)
    assert [
        *("o2", "o1", "o0"),
        *("c0", "c2", "c1"),
        "!",
        *("r2", "|", "t2", "k2", "r0", "|", "t0", "k0", "r1", "|", "t1", "k1"),
        *("r1", "|", "t1", "k1", "r0", "|", "t0", "k0", "r2", "|", "t2", "k2"),
        *("n", "x"),
    ] == words


@pytest.mark.parametrize("seed", range(20))
def test_every_arm_gets_fresh_buffers_then_every_arm_is_captured_then_all_ranks_are_ready(seed: int) -> None:
    words = words_of(seed)
    assert ["ooo", "ccc", "!"] == ["".join(word[0] for word in words[:3]), "".join(w[0] for w in words[3:6]), words[6]]
    assert [0, 1, 2] == sorted(order_of(words, "o")) == sorted(order_of(words, "c"))


def test_the_timings_follow_the_order_that_is_given() -> None:
    order = ((1, 0), (0, 1), (0, 1), (1, 0))
    assert list(itertools.chain(*order)) == order_of(words_of(order=order), "t")


def test_nothing_but_the_bench_and_the_clock_is_called_between_the_first_timing_and_the_last() -> None:
    """No allocation, no logging, no file: as the interpreter itself sees it."""
    script, called = Script(), []

    def clock() -> int:
        return 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_back is not None and frame.f_back.f_code is run_round.__code__:
            called.append(frame.f_code.co_name)
        elif event == "c_call" and frame.f_code is run_round.__code__:
            called.append(argument.__name__)

    sys.setprofile(note)
    try:
        run_round(script, case=0, number=0, order=ORDER, seed=0, clock_ns=clock)
    finally:
        sys.setprofile(None)
    first, last = called.index("time_ns"), len(called) - called[::-1].index("time_ns")
    assert {"reset", "line_up", "clock", "time_ns", "check"} == set(called[first:last])


def test_opening_and_capturing_are_shuffled_apart() -> None:
    both = [(order_of(words, "o"), order_of(words, "c")) for words in map(words_of, range(50))]
    assert any(opened != captured for opened, captured in both)
    assert 6 == len({tuple(opened) for opened, _ in both}) == len({tuple(captured) for _, captured in both})


def test_the_same_seed_gives_all_ranks_the_same_order_whatever_their_times() -> None:
    slow, fast = Script(time_of=lambda arm: 10**9), Script(time_of=lambda arm: 1)
    for script in (slow, fast):
        run_round(script, case=0, number=0, order=ORDER, seed=5)
    assert slow.said == fast.said


def test_places_tell_nothing_of_the_order_in_which_arms_are_timed() -> None:
    """Both come from the round's one seed; were the places those of the first cycle, position would be confounded."""
    timing = one_case().latency
    assert timing is not None
    same = 0
    for number in range(100):
        order = cycle_order(timing, 0, 0, number)
        same += order_of(words_of(round_seed(0, 0, number), order), "o") == list(order[0])
    assert same < 10


def test_another_seed_gives_another_order() -> None:
    assert len({tuple(words_of(seed)) for seed in range(20)}) > 10


# ------------------------------------------------------------------------------------------------------------- the row


def test_the_row_holds_times_starts_and_wrong_elements_by_arm_and_cycle() -> None:
    times = {arm: itertools.count(100 * (arm + 1)) for arm in range(3)}
    ticks = itertools.count(5_000, 2_000)
    counters = iter([{"thermal": 70_000, "power cap": 500}, {"thermal": 73_500, "power cap": 500}])
    row = run_round(
        Script(time_of=lambda arm: next(times[arm])),
        case=4,
        number=7,
        order=ORDER,
        seed=0,
        held_down=lambda: next(counters),
        clock_ns=lambda: next(ticks),
    )
    assert (
        RoundRow(
            case=4,
            round=7,
            start_ns=5_000,
            ns=((100, 101), (200, 201), (300, 301)),
            started_us=(2, 4),
            wrong=(0, 1, 2),
            took_us=6,
            held_down_us={"thermal": 3},
        )
        == row
    )


# ---------------------------------------------------------------------------------------------- rounds of an experiment


def one_case(max_rounds: int = 40) -> Plan:
    """Direct, two candidates, control, null: at one size, on one rank."""
    timing = plan_latency(
        world_size=1,
        backend=Backend.GLOO,
        sizes=(KIB,),
        candidates=("rs_ag_in_place", "rs_ag_naive"),
        max_rounds=max_rounds,
    )
    return make_plan(world_size=1, backend=Backend.GLOO, experiments=(Experiment.LATENCY,), latency=timing)


def observed(script: Script, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    """The rows of the experiment; in `script.said` they stand as their kind and number."""
    rows: list[Record] = []

    def write(row: Record) -> None:
        rows.append(row)
        script.said.append(f"{row.kind}-{row.round}" if isinstance(row, RoundRow) else row.kind)  # type: ignore[union-attr]

    monkeypatch.setitem(BENCHES, Clock.CPU, lambda _: script)
    observe_latency(
        Context(
            plan=plan,
            rank=0,
            world_size=1,
            device=torch.device("cpu"),
            out=Path(),
            control=None,
            capabilities=None,
            write=write,
        )
    )
    return rows


@pytest.mark.usefixtures("one_rank")
def test_a_row_is_written_after_its_round_and_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(5, time_of=lambda arm: 1000 * (1 + arm % 4 % 3))
    observed(script, one_case(), monkeypatch)
    parts = " ".join(script.said).split(" x ")
    assert "o" == parts[0][0]
    assert [f"round-{number} o" for number in range(11)] == [part[: part.index("o", 6) + 1] for part in parts[1:-1]]
    assert "round-11 look" == parts[-1]


@pytest.mark.usefixtures("one_rank")
def test_a_clear_case_ends_at_the_first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    factors = (1000, 2000, 500, 1000, 1)  # direct, slower, faster, control, null
    rows = observed(Script(5, time_of=lambda arm: factors[arm]), one_case(), monkeypatch)
    assert list(range(12)) == [row.round for row in rows if isinstance(row, RoundRow)]
    [look] = [row for row in rows if isinstance(row, LookRow)]
    assert (12, False, (None, "direction", "direction", "precise", None)) == (look.rounds, look.went_on, look.stops)
    assert (None, (2, 2, 2), (0.5, 0.5, 0.5), (1, 1, 1), None) == tuple(
        None if ratio is None else pytest.approx(ratio) for ratio in look.ratios
    )


@pytest.mark.usefixtures("one_rank")
def test_a_case_that_stays_open_is_looked_at_three_times_and_ends_with_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    coin = itertools.cycle((1000, 1400, 700, 1300, 900, 1100, 800))
    rows = observed(Script(5, time_of=lambda arm: next(coin)), one_case(), monkeypatch)
    looks = [row for row in rows if isinstance(row, LookRow)]
    assert [(12, True), (20, True), (40, False)] == [(look.rounds, look.went_on) for look in looks]


@pytest.mark.usefixtures("one_rank")
def test_a_case_whose_buffers_do_not_fit_says_so_and_runs_no_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rsag.rank.latency._why_too_large", lambda *_: "too large")
    script = Script(5)
    assert [CaseEnd(case=0, reason="too large")] == observed(script, one_case(), monkeypatch)
    assert ["case-end"] == script.said
