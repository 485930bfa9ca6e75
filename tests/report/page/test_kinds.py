"""A run with two kinds of buffers: what is compared with what, said of which, and drawn against which band."""

from __future__ import annotations

from pathlib import Path

import pytest

from page_runs import LATENCY, kinds_run
from rsag.records.codec import load_document
from rsag.records.latency import ArmRole, Buffers, Clock, LatencyRow, TimeOutcome
from rsag.records.verdict import Verdict
from rsag.report.page.times import Standing
from rsag.report.page.view import View, read_view
from rsag.report.page.words import load_words

WORDS = load_words()


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kinds_run(tmp_path_factory.mktemp("kinds") / "run")


@pytest.fixture(scope="module")
def view(kinds: Path) -> View:
    return read_view(kinds, WORDS)


@pytest.fixture(scope="module")
def invalid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The control in symmetric buffers differs from its direct arm."""
    return kinds_run(tmp_path_factory.mktemp("invalid") / "run", control_differs=True)


def latency_of(run: Path) -> tuple[LatencyRow, ...]:
    return load_document(Verdict, run / "verdict.json").latency


def test_the_claims_of_time_are_of_one_kind_of_buffers_and_one_clock_each(kinds: Path, view: View) -> None:
    ratios = {
        (row.buffers, row.bytes): f"{row.ratio:.3f}"
        for row in latency_of(kinds)
        if row.composition == "rs_ag_in_place" and row.clock is Clock.GRAPH
    }
    symmetric = "rs_ag_in_place (symmetric) over all_reduce (symmetric)"

    assert [
        ("rs_ag_in_place over all_reduce at 1 KiB, graph", ratios[Buffers.PLAIN, 2**10]),
        ("rs_ag_in_place over all_reduce at 1 GiB, graph", ratios[Buffers.PLAIN, 2**30]),
        (f"{symmetric} at 1 KiB, graph", ratios[Buffers.SYMMETRIC, 2**10]),
        (f"{symmetric} at 1 GiB, graph", ratios[Buffers.SYMMETRIC, 2**30]),
    ] == [(claim.subject, str(claim.measured).split()[0]) for claim in view.claims if claim.quantity == "time"]


def test_the_claims_of_bytes_are_of_one_kind_of_buffers_each(view: View) -> None:
    assert [
        ("all_reduce at 1 GiB", "1 GiB"),
        ("all_reduce (symmetric) at 1 GiB", "512 MiB"),
        ("rs_ag_in_place at 1 GiB", "1 GiB"),
        ("rs_ag_in_place (symmetric) at 1 GiB", "512 MiB"),
    ] == [(claim.subject, str(claim.measured)) for claim in view.claims if claim.quantity == "bytes"]


def test_each_kind_of_buffers_has_its_own_lines_and_points_of_the_wire(view: View) -> None:
    in_place = [(line.name, str(line.counted)) for line in view.wire.lines if line.payload == "1 GiB"]

    assert ("rs_ag_in_place", "1 GiB") in in_place
    assert ("rs_ag_in_place (symmetric)", "512 MiB") in in_place
    assert len(view.wire.points) == len({(point.name, point.bytes) for point in view.wire.points})


def test_rounds_that_kinds_of_buffers_share_are_counted_once(view: View) -> None:
    told = [str(one) for one in read_view(LATENCY, WORDS).headline.rests_on if "rounds" in str(one)]

    assert told == [str(one) for one in view.headline.rests_on if "rounds" in str(one)]


def test_ratios_over_unlike_direct_arms_are_in_unlike_plots(view: View) -> None:
    assert {("graph, float32 sum", False), ("graph, float32 sum, symmetric", True)} == {
        (point.kind, "symmetric" in point.arm) for point in view.times.points if point.kind.startswith("graph")
    }


def test_each_arm_is_marked_against_the_direct_arm_in_its_own_buffers(view: View) -> None:
    cycles = view.times.cases[0].cycles

    assert cycles is not None
    assert (0, 0, 0, 0, 4, 4, 4, 4, None) == cycles.references


def test_each_arm_has_the_band_of_its_own_direct_arm(kinds: Path, view: View) -> None:
    rows = latency_of(kinds)[:9]
    cycles = view.times.cases[0].cycles
    bands = []
    for direct, control in ((rows[0], rows[3]), (rows[4], rows[7])):
        assert direct.median_us is not None
        assert control.interval is not None
        bands.append(pytest.approx([1e3 * direct.median_us * end for end in control.interval]))

    assert cycles is not None
    assert [bands[0]] * 4 + [bands[1]] * 4 + [None] == list(cycles.bands_ns)


def test_a_control_that_is_invalid_gives_no_band(invalid: Path) -> None:
    cycles = read_view(invalid, WORDS).times.cases[0].cycles

    assert TimeOutcome.INVALID is latency_of(invalid)[7].outcome
    assert cycles is not None
    assert [True] * 4 + [False] * 5 == [band is not None for band in cycles.bands_ns]


def test_what_is_invalid_has_no_interval_to_draw(invalid: Path) -> None:
    points = [one for one in read_view(invalid, WORDS).times.points if one.standing is Standing.INVALID]

    assert {ArmRole.CANDIDATE, ArmRole.CONTROL} == {point.role for point in points}
    assert {(None, None)} == {(point.low, point.high) for point in points}
