"""A run while it goes on: what people see in a terminal, and what a log gets."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping
from typing import cast

import pytest
from rich.console import Console

from rsag.plan import make_plan
from rsag.plan.latency import plan_latency
from rsag.records.codec import encode
from rsag.records.latency import Clock, Gate, LookRow, RoundRow
from rsag.records.plan import Backend, Experiment, Plan
from rsag.report.progress import Progress
from rsag.stats import Stop
from rsag.units import KIB, MIB

TIMING = plan_latency(world_size=2, backend=Backend.NCCL, sizes=(64 * KIB, 256 * MIB), clocks=(Clock.GRAPH,))
PLAN = make_plan(world_size=2, backend=Backend.NCCL, experiments=(Experiment.LATENCY,), latency=TIMING)
RATIOS = (None, (1.5, 1.4, 1.6), (1.3, 1.2, 1.4), (1.0, 0.99, 1.01), None)


def row(record: RoundRow | LookRow) -> Mapping[str, object]:
    return cast("Mapping[str, object]", encode(record))


def round_row(case: int, number: int) -> Mapping[str, object]:
    return row(RoundRow(case=case, round=number, start_ns=0, ns=((1,),), started_us=(0,), wrong=(0,)))


def look_row(case: int = 0, rounds: int = 12, *, went_on: bool = False, known: bool = True) -> Mapping[str, object]:
    stops = (None, Stop.DIRECTION, None if went_on else Stop.DIRECTION, Stop.PRECISE, None)
    ratios = RATIOS if known else (None,) * 5
    return row(LookRow(case=case, rounds=rounds, stops=stops, went_on=went_on, ratios=ratios))


class Seconds:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Shown:
    """A `Progress` on a console of its own, and what it wrote."""

    def __init__(self, *, terminal: bool, plan: Plan = PLAN) -> None:
        self.file, self.clock = io.StringIO(), Seconds()
        console = Console(
            file=self.file, force_terminal=terminal, width=60, highlight=False, markup=False, color_system=None
        )
        self.progress = Progress(plan, console, clock=self.clock)

    @property
    def lines(self) -> list[str]:
        return self.file.getvalue().splitlines()

    @property
    def view(self) -> list[str]:
        """What stands in the terminal, line by line, without the spinner."""
        console = Console(width=200, color_system=None)
        with console.capture() as captured:
            console.print(self.progress.view())
        return [line[2:].rstrip() for line in captured.get().splitlines()]

    @property
    def status(self) -> str:
        """How far the times are."""
        return self.view[1].removeprefix("▸ latency   ")


@pytest.fixture
def log() -> Shown:
    return Shown(terminal=False)


# ------------------------------------------------------------------------------------------------- not in a terminal


def test_a_log_gets_plain_lines_however_long(log: Shown) -> None:
    with log.progress.live() as progress:
        progress.say("starting torch")
        progress.watch(look_row())
    found = "rs_ag_naive 1.500x slower [1.400, 1.600], rs_ag_in_place 1.300x slower [1.200, 1.400] after 12 rounds"
    assert ["rsag: starting torch", f"rsag: 64 KiB float32 sum, graph x10: {found}"] == log.lines
    assert "\x1b" not in log.file.getvalue()


def test_a_log_is_not_told_of_rounds_nor_of_looks_after_which_a_case_goes_on(log: Shown) -> None:
    with log.progress.live() as progress:
        for number in range(12):
            progress.watch(round_row(0, number))
        progress.watch(look_row(went_on=True))
    assert [] == log.lines


def test_a_case_without_an_interval_says_so(log: Shown) -> None:
    log.progress.watch(look_row(1, rounds=1, known=False))
    assert [
        "rsag: 256 MiB float32 sum, graph x2: rs_ag_naive no interval yet, rs_ag_in_place no interval yet after 1 round"
    ] == log.lines


def test_other_rows_are_passed_over(log: Shown) -> None:
    for other in ({"kind": "start"}, {"kind": "wire", "case": 0}, {"kind": "observation"}, {}):
        log.progress.watch(other)
    assert [] == log.lines


def test_a_plan_without_times_has_nothing_to_watch() -> None:
    contracts = make_plan(world_size=2, backend=Backend.GLOO, experiments=(Experiment.CONTRACTS,))
    shown = Shown(terminal=False, plan=contracts)
    shown.progress.watch(look_row())
    shown.progress.watch(round_row(0, 0))
    assert [] == shown.lines


# ------------------------------------------------------------------------------------------------------ in a terminal


@pytest.fixture
def terminal() -> Shown:
    return Shown(terminal=True)


def test_a_terminal_has_one_view_that_changes(terminal: Shown) -> None:
    with terminal.progress.live() as progress:
        progress.say("starting torch")
        assert ["starting torch"] == terminal.view
        progress.say("latency on 2 nccl ranks")
        assert ["latency on 2 nccl ranks"] == terminal.view


def test_every_experiment_has_a_line_that_says_whether_it_is_done_or_under_way_or_to_come() -> None:
    experiments = (Experiment.CONTRACTS, Experiment.LATENCY, Experiment.MEMORY)
    plan = make_plan(world_size=2, backend=Backend.NCCL, experiments=experiments, latency=TIMING)
    shown = Shown(terminal=True, plan=plan)
    with shown.progress.live() as progress:
        progress.say("contracts, latency, memory on 2 nccl ranks")
        progress.watch({"kind": "observation"})
        progress.watch({"kind": "observation"})
        progress.watch(round_row(0, 0))
        assert ["contracts, latency, memory on 2 nccl ranks", "✓ contracts 2 tried"] == shown.view[:2]
        assert shown.view[2].startswith("▸ latency   case 1 of 2: ")
        assert "· memory" == shown.view[3]


def test_it_shows_case_round_and_the_time_left_by_the_budget(terminal: Shown) -> None:
    with terminal.progress.live() as progress:
        progress.watch(round_row(0, 0))
        terminal.clock.now = 10.0
        progress.watch(round_row(0, 19))  # a quarter of two cases of 40 rounds
        assert "case 1 of 2: 64 KiB float32 sum, graph x10, round 20, 30 s left at most" == terminal.status
        terminal.clock.now = 30.0
        progress.watch(round_row(1, 19))  # the first case ended before its budget, the second is half way
        assert "case 2 of 2: 256 MiB float32 sum, graph x2, round 20, 10 s left at most" == terminal.status


def test_it_shows_ratio_and_interval_as_of_the_last_look_until_the_case_ends(terminal: Shown) -> None:
    with terminal.progress.live() as progress:
        progress.watch(round_row(0, 11))
        progress.watch(look_row(went_on=True))
        progress.watch(round_row(0, 12))
        so_far = "rs_ag_naive 1.500x slower [1.400, 1.600], rs_ag_in_place 1.300x slower [1.200, 1.400] after 12 rounds"
        assert terminal.status.endswith(f"s left at most; {so_far}")
        progress.watch(look_row(rounds=20))
        progress.watch(round_row(1, 0))
        assert terminal.status.endswith("s left at most")


def test_what_a_case_came_to_stays_in_the_terminal(terminal: Shown) -> None:
    with terminal.progress.live() as progress:
        progress.watch(round_row(0, 11))
        progress.watch(look_row())
    assert "rsag: 64 KiB float32 sum, graph x10: rs_ag_naive 1.500x slower [1.400, 1.600]" in terminal.file.getvalue()


def test_after_the_run_lines_are_plain_again(terminal: Shown) -> None:
    with terminal.progress.live():
        pass
    terminal.progress.say("done")
    assert terminal.lines[-1].endswith("rsag: done")


# --------------------------------------------------------------------------------------------------- what is no answer


def test_a_ratio_whose_interval_holds_one_is_no_ratio(log: Shown) -> None:
    stops = (None, Stop.BUDGET, Stop.BUDGET, None, None)
    ratios = (None, (1.2, 0.9, 1.6), (0.8, 0.7, 0.9), None, None)
    log.progress.watch(row(LookRow(case=0, rounds=40, stops=stops, went_on=False, ratios=ratios)))
    [line] = log.lines
    assert "rs_ag_naive inconclusive [0.900, 1.600], rs_ag_in_place 0.800x faster [0.700, 0.900]" in line
    assert "1.200" not in line


def test_under_the_cv_gate_no_ratio_is_told_before_it_is_judged() -> None:
    timing = dataclasses.replace(TIMING, gate=Gate.CV)
    shown = Shown(terminal=False, plan=dataclasses.replace(PLAN, latency=timing))
    shown.progress.watch(look_row())
    assert ["rsag: 64 KiB float32 sum, graph x10: 12 rounds, to be judged by their CV"] == shown.lines
