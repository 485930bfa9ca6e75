"""`rsag merge`: what it ends with, and what it prints for people and for programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import saved_runs
from rsag.cli import main
from rsag.cli.merge import merge_runs
from rsag.records.rundir import rank_file
from saved_runs import write_run

RATIOS = (1.1, 1.2, 1.3, 1.4, 1.5, 1.6)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["merge", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, out, err


def candidate(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(row for row in document["rows"] if row["arm"]["role"] == "candidate")
    return found


def launches(root: Path, ratios: Sequence[float] = RATIOS) -> list[Path]:
    return [write_run(root / f"launch-{number}", number, ratio=ratio) for number, ratio in enumerate(ratios)]


def test_six_launches_are_an_answer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = run(capsys, *launches(tmp_path), "--json")
    document = json.loads(out)
    assert (0, "", "merge", 1) == (code, err, document["schema"], document["version"])
    found = candidate(document)
    assert "slower" == found["outcome"]
    assert found["interval"] == pytest.approx([1.1, 1.6], abs=1e-5)


def test_every_launch_and_its_value_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    paths = launches(tmp_path)
    _, out, _ = run(capsys, *paths, "--json")
    document = json.loads(out)
    assert list(map(str, paths)) == [source["directory"] for source in document["runs"]]
    assert list(map(str, paths)) == [launch["directory"] for launch in candidate(document)["launches"]]
    assert list(range(6)) == [source["seed"] for source in document["runs"]]


def test_people_see_the_answer_beside_what_each_launch_came_to(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, _ = run(capsys, *launches(tmp_path))
    assert code == 0
    assert "launch 6: " in out
    assert "1.350x slower" not in out  # the median of launches describes, the answer is the Hodges-Lehmann centre
    assert "1.342x slower" in out
    assert "1.100-1.600" in out


def test_with_two_launches_people_see_no_answer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capsys, *launches(tmp_path, (1.1, 1.2)))
    words = " ".join(out.split())
    assert code == 0
    assert "too few launches" in words
    assert "slower" not in words
    assert "2/2^5 = 6.25 %" in words


@pytest.mark.parametrize("columns", [80, 140])
def test_no_line_is_wider_than_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.chdir(tmp_path)
    _, out, _ = run(capsys, *(path.name for path in launches(tmp_path)))
    assert columns >= max(map(len, out.splitlines()))
    assert "…" not in out


def test_the_outcome_of_launches_of_one_command_lies_beside_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    paths = launches(tmp_path, (1.1, 1.2))
    code = merge_runs(paths, as_json=True, into=tmp_path)
    assert (0, json.loads(capsys.readouterr().out)) == (code, json.loads((tmp_path / "merge.json").read_text()))


def with_wrong_results(directory: Path) -> Path:
    """The run with one wrong element in the candidate's results: its verdict is fail."""
    return _with_rounds(directory, lambda row: {**row, "wrong": [0, 1, 0, 0]})


def without_times(directory: Path) -> Path:
    """The run with times that cannot be: its verdict is invalid."""
    return _with_rounds(directory, lambda row: {**row, "ns": [[0] * len(arm) for arm in row["ns"]]})


def _with_rounds(directory: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Path:
    path = rank_file(directory, 1)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    changed = [change(row) if row.get("kind") == "round" else row for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in changed))
    return directory


@pytest.mark.parametrize(
    ("spoilt", "code", "verdicts"),
    [
        ([with_wrong_results], 1, ["fail"]),
        ([without_times], 3, ["invalid"]),
        ([without_times, with_wrong_results], 1, ["invalid", "fail"]),
    ],
)
def test_a_merge_ends_with_what_its_runs_ended_with(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    spoilt: Sequence[Callable[[Path], Path]],
    code: int,
    verdicts: Sequence[str],
) -> None:
    paths = launches(tmp_path)
    bad = [change(path) for change, path in zip(spoilt, paths)]
    found, out, err = run(capsys, *paths, "--json")
    assert code == found
    assert "merge" == json.loads(out)["schema"]
    assert [f"rsag: {path}: the verdict is {word}" for path, word in zip(bad, verdicts)] == err.splitlines()


def test_the_run_directories_stay_as_they_are(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    paths = launches(tmp_path, (1.1, 1.2))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json*")}
    run(capsys, *paths)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*.json*")}


# ------------------------------------------------------------------------------------------------------------ wrong use


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    code, out, err = run(capsys, *arguments)
    assert (2, "") == (code, out)
    return err


def test_no_run_and_one_run_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "got 0; expected 2 or more" in refused(capsys)
    assert "got 1; expected 2 or more" in refused(capsys, write_run(tmp_path / "one", 1))


def test_the_same_run_twice_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write_run(tmp_path / "one", 1)
    assert "the same run twice" in refused(capsys, path, path)


def test_launches_of_another_plan_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    timing = dataclasses.replace(saved_runs.timing_of(saved_runs.plan()), margin=0.01)
    other = dataclasses.replace(saved_runs.plan(), latency=timing)
    paths = [write_run(tmp_path / "a", 1), write_run(tmp_path / "b", 2, plan_of_run=other)]
    assert "plan: margin: none vs 0.01" in refused(capsys, *paths)


def test_launches_on_another_device_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    paths = [write_run(tmp_path / "a", 1), write_run(tmp_path / "b", 2, device="NVIDIA H200")]
    assert "devices: 2 x x86_64 vs 2 x NVIDIA H200" in refused(capsys, *paths)


def test_what_is_no_run_directory_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "not a run directory" in refused(capsys, write_run(tmp_path / "a", 1), tmp_path)


def test_a_run_that_did_not_end_is_refused_by_the_file_that_is_missing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    paths = [write_run(tmp_path / "a", 1), write_run(tmp_path / "b", 2)]
    (paths[1] / "run.json").unlink()
    assert f"{paths[1] / 'run.json'}: not there" in refused(capsys, *paths)
