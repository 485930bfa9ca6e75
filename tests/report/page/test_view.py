"""The view shows what the records say, and says where each figure stands."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from statistics import median

import pytest

from page_runs import CONTRACTS, KEPT, LATENCY, MEMORY, copy_run, edit, figures, kinds_run
from rsag.errors import UsageError
from rsag.records.codec import load_document
from rsag.records.contracts import ContractOutcome
from rsag.records.latency import ArmRole
from rsag.records.verdict import Holds, Verdict
from rsag.report.page.times import MOST_DETAILED, MOST_LISTED, Standing
from rsag.report.page.view import View, read_view
from rsag.report.page.words import load_words

WORDS = load_words()


def view_of(directory: Path) -> View:
    return read_view(directory, WORDS)


def verdict_of(directory: Path) -> Verdict:
    return load_document(Verdict, directory / "verdict.json")


def at(directory: Path, source: str) -> object:
    """What stands at `FILE: key[3].key`."""
    name, _, path = source.partition(": ")
    value = json.loads((directory / name).read_text())
    for key, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
        value = value[key] if key else value[int(index)]
    return value


# ------------------------------------------------------------------------------------------------------------ figures


@pytest.mark.parametrize("run", KEPT, ids=lambda run: run.name)
def test_every_figure_stands_at_the_key_that_it_names(run: Path) -> None:
    single = [one for one in figures(view_of(run)) if one.value is not None]

    assert single != []
    assert [one.value for one in single] == [at(run, one.source) for one in single]


@pytest.mark.parametrize("run", KEPT, ids=lambda run: run.name)
def test_every_figure_names_a_file_of_the_run(run: Path) -> None:
    shown = [one for one in figures(view_of(run)) if one.text not in ("", "–")]

    assert {True} == {(run / one.source.partition(": ")[0]).exists() for one in shown}


def test_no_ratio_is_shown_that_the_verdict_does_not_give() -> None:
    rows = verdict_of(LATENCY).latency
    lines = [line for case in view_of(LATENCY).times.cases for line in case.lines]

    assert [row.ratio for row in rows] == [None if line.ratio is None else line.ratio.value for line in lines]
    assert Standing.REFUSED in {line.standing for line in lines}


def test_a_refused_ratio_keeps_its_raw_times_and_the_reason(tmp_path: Path) -> None:
    def refuse(verdict: dict[str, object]) -> None:
        row = verdict["latency"][1]  # type: ignore[index]
        reasons = [{"code": "too-few-rounds", "message": "too few"}, {"code": "skew", "message": "a remark"}]
        row.update(outcome="inconclusive", ratio=None, interval=[0.9, 1.2], reasons=reasons)

    run = copy_run(LATENCY, tmp_path / "run")
    edit(run / "verdict.json", refuse)
    line = view_of(run).times.cases[0].lines[1]

    assert (line.standing, line.ratio, line.median.text, line.p95.text, line.cv.text) == (
        Standing.REFUSED,
        None,
        "17.5",
        "21.8",
        "34.5%",
    )
    assert [("too few", True), ("a remark", False)] == [(one.message.text, one.decides) for one in line.reasons]


# ------------------------------------------------------------------------------------------------------------- cycles


def test_the_median_of_the_cycles_shown_is_the_verdicts() -> None:
    rows = verdict_of(LATENCY).latency
    cases = view_of(LATENCY).times.cases
    shown = [round(median(ns) / 1e3, 6) for case in cases if case.cycles is not None for ns in case.cycles.ns]

    assert [round(row.median_us or 0, 6) for row in rows] == shown


def test_every_arm_has_one_place_in_every_cycle() -> None:
    cycles = view_of(LATENCY).times.cases[0].cycles

    assert cycles is not None
    assert {tuple(range(len(cycles.arms)))} == {tuple(sorted(place)) for place in cycles.place}


def test_the_band_is_the_direct_arms_median_times_the_controls_interval() -> None:
    direct, control = (
        next(row for row in verdict_of(LATENCY).latency if row.role is role)
        for role in (ArmRole.DIRECT, ArmRole.CONTROL)
    )
    cycles = view_of(LATENCY).times.cases[0].cycles

    assert direct.median_us is not None
    assert control.interval is not None
    assert cycles is not None
    assert cycles.bands_ns[0] == pytest.approx([1e3 * direct.median_us * end for end in control.interval])


def test_a_case_that_one_rank_has_not_recorded_has_no_cycles(tmp_path: Path) -> None:
    run = copy_run(LATENCY, tmp_path / "run")
    (run / "rank-0001.jsonl").unlink()
    case = view_of(run).times.cases[0]

    assert (None, "no round was recorded on all ranks") == (case.cycles, case.why)


def test_of_many_cases_the_first_are_shown_and_all_are_counted(tmp_path: Path) -> None:
    def repeat(verdict: dict[str, object]) -> None:
        rows = verdict["latency"][:5]  # type: ignore[index]
        verdict["latency"] = [{**row, "bytes": size} for size in range(4, 1204, 4) for row in rows]

    run = copy_run(LATENCY, tmp_path / "run")
    edit(run / "verdict.json", repeat)
    times = view_of(run).times

    assert (300, MOST_DETAILED) == (times.num_cases, len(times.cases))
    assert (900, MOST_LISTED) == (times.num_compared, len(times.listed))


def test_without_a_readable_plan_a_case_of_two_kinds_of_buffers_is_one_case(tmp_path: Path) -> None:
    run = kinds_run(tmp_path / "run")
    (run / "plan.json").write_text("{")

    assert [9] * 12 == [len(case.lines) for case in view_of(run).times.cases]


def test_a_verdict_of_another_plan_is_not_laid_over_the_cycles(tmp_path: Path) -> None:
    run = copy_run(LATENCY, tmp_path / "run")
    edit(run / "verdict.json", lambda verdict: verdict["latency"].__delitem__(slice(5)))  # type: ignore[attr-defined]
    case = view_of(run).times.cases[0]

    assert (None, "the plan that the rounds belong to cannot be read, or is another") == (case.cycles, case.why)


# ------------------------------------------------------------------------------------------- memory, contracts, claims


def test_the_verdict_rests_on_the_contracts_that_could_be_tried_and_on_no_others() -> None:
    tried = sum(row.outcome is not ContractOutcome.UNSUPPORTED for row in verdict_of(CONTRACTS).contracts)
    assert 0 < tried < len(verdict_of(CONTRACTS).contracts)
    assert any(str(one).startswith(f"{tried:,} contract") for one in view_of(CONTRACTS).headline.rests_on)


def test_measured_moments_stand_at_their_instruction_and_hidden_ones_between() -> None:
    timeline = next(one for one in view_of(MEMORY).memory.timelines if one.composition == "rs_ag_naive")

    assert [0, 1, 2, 3, 4] == [moment.at for moment in timeline.measured]
    assert [one.what for one in timeline.predicted] == [one.what for one in timeline.measured]


def test_the_grid_has_every_contract_on_every_rank() -> None:
    rows = verdict_of(CONTRACTS).contracts
    grid = view_of(CONTRACTS).contracts
    cells = [(row.contract, cell.rank) for family in grid.families for row in family.rows for cell in row.cells]

    assert {(row.contract, row.rank) for row in rows} == set(cells)


def test_a_contract_that_fails_is_opened_to_its_rank(tmp_path: Path) -> None:
    def fail(verdict: dict[str, object]) -> None:
        verdict["contracts"][1].update(outcome="fail", reason="element 3: got 1, expected 2")  # type: ignore[index]

    run = copy_run(CONTRACTS, tmp_path / "run")
    edit(run / "verdict.json", fail)
    failures = view_of(run).contracts.failures

    assert [(1, "element 3: got 1, expected 2")] == [(one.rank, one.reason.text) for one in failures]


@pytest.mark.parametrize("run", KEPT, ids=lambda run: run.name)
def test_the_table_of_claims_has_all_six_quantities(run: Path) -> None:
    quantities = dict.fromkeys(claim.quantity for claim in view_of(run).claims)

    assert ["result", "steps", "bytes", "memory", "time", "kernels"] == list(quantities)


def test_the_four_meanings_are_there_without_a_verdict(tmp_path: Path) -> None:
    run = copy_run(LATENCY, tmp_path / "run")
    (run / "verdict.json").unlink()
    headline = view_of(run).headline

    assert headline.outcome is None
    assert [Holds.CANNOT_TELL] * 4 == [line.holds for line in headline.meanings]


# ------------------------------------------------------------------------------------------------------------- damage


def test_a_whole_run_misses_nothing() -> None:
    assert [()] * 4 == [view_of(run).missing for run in KEPT]


def test_a_directory_without_a_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no plan\.json"):
        view_of(tmp_path)


def test_a_truncated_rank_is_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    run = copy_run(LATENCY, tmp_path / "run")
    file = run / "rank-0001.jsonl"
    file.write_bytes(file.read_bytes()[:40_000])
    view = view_of(run)

    assert [("rank-0001.jsonl", True)] == [(one.what, "truncated" in one.why) for one in view.missing]
    assert view.times.cases[0].cycles is not None


def test_a_rank_that_failed_says_why(tmp_path: Path) -> None:
    run = copy_run(LATENCY, tmp_path / "run")
    file = run / "rank-0000.jsonl"
    failed = '{"kind":"failed","at_ns":1,"error":"RuntimeError","message":"out of memory"}'
    file.write_text("\n".join([*file.read_text().splitlines()[:-1], failed]) + "\n")

    assert ["the rank failed: RuntimeError: out of memory"] == [one.why for one in view_of(run).missing]


@pytest.mark.parametrize("name", ["plan.json", "run.json", "verdict.json", "protocols.json"])
def test_a_document_of_an_older_schema_is_named_and_the_rest_is_shown(tmp_path: Path, name: str) -> None:
    run = copy_run(LATENCY, tmp_path / "run")
    edit(run / name, lambda document: document.update(version=0))

    assert [name] == [one.what for one in view_of(run).missing]


def test_ranks_of_an_older_schema_are_named(tmp_path: Path) -> None:
    run = copy_run(LATENCY, tmp_path / "run")
    file = run / "rank-0000.jsonl"
    file.write_text(file.read_text().replace('"version":2', '"version":1', 1))

    assert ["rank-0000.jsonl"] == [one.what for one in view_of(run).missing]


def test_bytes_of_no_payload_are_told_and_not_drawn(tmp_path: Path) -> None:
    def empty(verdict: dict[str, object]) -> None:
        verdict["wire"][0].update(bytes=0)  # type: ignore[index]
        verdict["latency"][1].update(bytes=0)  # type: ignore[index]

    run = copy_run(LATENCY, tmp_path / "run")
    edit(run / "verdict.json", empty)
    view = view_of(run)

    assert "0 B" in {line.payload for line in view.wire.lines}
    assert 0 not in {point.bytes for point in (*view.wire.points, *view.times.points)}


def test_a_plan_without_arms_leaves_the_times(tmp_path: Path) -> None:
    run = copy_run(LATENCY, tmp_path / "run")
    edit(run / "plan.json", lambda plan: plan["latency"].update(arms=[]))  # type: ignore[attr-defined]

    assert [5] * 12 == [len(case.lines) for case in view_of(run).times.cases]


def test_a_plan_of_millions_of_ranks_misses_them_in_one_line(tmp_path: Path) -> None:
    run = copy_run(LATENCY, tmp_path / "run")
    edit(run / "plan.json", lambda plan: plan.update(world_size=10**7))
    absent = next(one for one in view_of(run).missing if one.why == "no records of these ranks")

    assert absent.what.startswith("rank-0002.jsonl, rank-0003.jsonl, ")
    assert absent.what.endswith(" and 9,999,990 more")


def test_the_commands_name_the_run_as_it_was_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copy_run(LATENCY, tmp_path / "kept runs" / "one")
    monkeypatch.chdir(tmp_path)

    assert ("rsag judge 'kept runs/one'", "rsag report 'kept runs/one'") == view_of(
        Path("kept runs/one")
    ).environment.repeat[-2:]


def test_a_view_is_made_of_frozen_values_alone() -> None:
    view = view_of(LATENCY)

    with pytest.raises(dataclasses.FrozenInstanceError):
        view.name = "another"  # type: ignore[misc]
