"""`rsag compare`: what it ends with, and what it prints for people and for programs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import saved_runs
from rsag.analyze.compare import compare
from rsag.cli import main
from rsag.records.codec import dump_document
from rsag.records.contracts import ContractOutcome
from rsag.records.plan import Experiment
from rsag.records.rundir import PLAN
from rsag.report.compare import print_comparison
from rsag.report.tables import console
from saved_runs import write_run


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["compare", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, out, err


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The candidate takes 1.2 times as long as the direct arm in A, 1.3 times in B."""
    monkeypatch.chdir(tmp_path)
    return write_run(Path("a"), 1, ratio=1.2), write_run(Path("b"), 2, ratio=1.3)


@pytest.fixture
def mixed(runs: tuple[Path, Path]) -> tuple[Path, Path]:
    return runs[0], write_run(Path("gpu"), 3, device="NVIDIA H200", environment={"NCCL_ALGO": "Ring"})


def test_two_runs_as_one_document(capsys: pytest.CaptureFixture[str], runs: tuple[Path, Path]) -> None:
    code, out, err = run(capsys, *runs, "--json")
    document = json.loads(out)
    assert (0, "", "compare", 1, []) == (
        code,
        err,
        document["schema"],
        document["version"],
        document["differences"],
    )
    [found] = [row for row in document["rows"] if row["arm"]["role"] == "candidate"]
    assert (120.0, 130.0, "higher") == (found["a"]["median_us"], found["b"]["median_us"], found["ratio_change"])
    assert found["median_change"] == pytest.approx(130 / 120)


def test_people_see_both_runs_and_what_changed(capsys: pytest.CaptureFixture[str], runs: tuple[Path, Path]) -> None:
    code, out, _ = run(capsys, *runs)
    assert code == 0
    assert "A: a, 2026-07-10T08:01:00Z, seed 1, complete, verdict pass" in " ".join(out.split())
    assert [word for word in ("1.200x slower", "1.300x slower", "+8.3%", "higher") if word not in out] == []
    assert "differ in more" not in out


@pytest.mark.parametrize("columns", [80, 140])
def test_no_line_is_wider_than_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mixed: tuple[Path, Path], columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    _, out, _ = run(capsys, *mixed, "--allow-mixed")
    assert columns >= max(map(len, out.splitlines()))
    assert "…" not in out


def test_a_mix_is_refused_with_every_difference(capsys: pytest.CaptureFixture[str], mixed: tuple[Path, Path]) -> None:
    code, out, err = run(capsys, *mixed)
    assert (2, "") == (code, out)
    assert "devices: 2 x x86_64 vs 2 x NVIDIA H200" in err
    assert "variable NCCL_ALGO: none vs Ring" in err
    assert "--allow-mixed" in err


def test_a_mix_that_is_allowed_has_its_differences_above_the_table(
    capsys: pytest.CaptureFixture[str], mixed: tuple[Path, Path]
) -> None:
    code, out, _ = run(capsys, *mixed, "--allow-mixed")
    assert code == 0
    assert 0 < out.index("2 x NVIDIA H200") < out.index("against direct")


def test_runs_without_anything_in_common_say_so(capsys: pytest.CaptureFixture[str], runs: tuple[Path, Path]) -> None:
    plan = dataclasses.replace(saved_runs.plan(), experiments=(Experiment.WIRE,))
    for run_directory in runs:
        dump_document(plan, run_directory / PLAN)
    code, out, _ = run(capsys, *runs)
    assert code == 0
    assert out.endswith("neither times nor contracts nor memory to hold against each other\n")


def test_contracts_that_came_out_differently_are_named_with_their_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    was = {("exact-sum", rank): ContractOutcome.PASS for rank in range(3)}
    now = {**was, ("exact-sum", 1): ContractOutcome.FAIL, ("exact-sum", 2): ContractOutcome.FAIL}
    compared = compare(saved_runs.judged(1, contracts=was), saved_runs.judged(2, contracts=now))
    print_comparison(compared, console())
    out = capsys.readouterr().out
    assert "contracts: 2 of 3 rows differ\n  ✗ exact-sum: pass in A, fail in B; ranks 1, 2\n" in out


def test_a_run_is_not_compared_with_itself(capsys: pytest.CaptureFixture[str], runs: tuple[Path, Path]) -> None:
    code, out, err = run(capsys, runs[0], runs[0], "--allow-mixed")
    assert (2, "") == (code, out)
    assert "both are the same run" in err


def test_what_is_no_run_directory_is_refused(capsys: pytest.CaptureFixture[str], runs: tuple[Path, Path]) -> None:
    code, out, err = run(capsys, runs[0], "nowhere")
    assert (2, "") == (code, out)
    assert "nowhere is not there; expected a run directory" in err
