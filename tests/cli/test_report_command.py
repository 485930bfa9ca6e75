"""`rsag report`, and the pages that other commands make."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from page_runs import LATENCY, copy_run, edit
from rsag.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main([*arguments])
    out, err = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, out, err


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return copy_run(LATENCY, tmp_path / "run")


def test_the_page_goes_into_the_run_directory(capsys: pytest.CaptureFixture[str], kept: Path) -> None:
    assert (0, "", f"rsag: report {kept / 'report.html'}\n") == run(capsys, "report", str(kept))
    assert (kept / "report.html").read_text().startswith("<!doctype html>")


def test_the_page_goes_where_it_is_asked_for(capsys: pytest.CaptureFixture[str], kept: Path) -> None:
    out = kept.parent / "new" / "page.html"

    assert 0 == run(capsys, "report", str(kept), "--out", str(out))[0]
    assert (True, False) == (out.exists(), (kept / "report.html").exists())


def test_the_ring_on_the_page_is_made_of_the_runs_own_programs(capsys: pytest.CaptureFixture[str], kept: Path) -> None:
    run(capsys, "report", str(kept))

    assert "programs.json: ring_all_reduce" in (kept / "report.html").read_text()


def test_without_programs_the_ring_is_recorded_anew_and_says_so(capsys: pytest.CaptureFixture[str], kept: Path) -> None:
    (kept / "programs.json").unlink()
    run(capsys, "report", str(kept))

    assert "rsag ring --world-size 2" in (kept / "report.html").read_text()


def test_of_many_ranks_the_page_shows_a_ring_of_eight(capsys: pytest.CaptureFixture[str], kept: Path) -> None:
    edit(kept / "plan.json", lambda plan: plan.update(world_size=64))
    run(capsys, "report", str(kept))

    assert "rsag ring --world-size 8" in (kept / "report.html").read_text()


def test_a_page_that_cannot_be_written_is_wrong_use(capsys: pytest.CaptureFixture[str], kept: Path) -> None:
    code, _, err = run(capsys, "report", str(kept), "--out", str(kept / "plan.json" / "page.html"))

    assert code == 2
    assert "cannot be written" in err


def test_another_language_than_there_is_is_wrong_use(capsys: pytest.CaptureFixture[str], kept: Path) -> None:
    assert (2, "", "rsag: unknown language; got 'xx'; known: en\n") == run(capsys, "report", str(kept), "--lang", "xx")


def test_markdown_goes_to_standard_output_alone(capsys: pytest.CaptureFixture[str], kept: Path) -> None:
    code, out, err = run(capsys, "report", str(kept), "--format", "markdown")

    assert (0, "") == (code, err)
    assert out.startswith("### AllReduce = ReduceScatter + AllGather? ✓ pass\n")


def test_junit_is_what_rsag_run_writes(capsys: pytest.CaptureFixture[str], kept: Path) -> None:
    code, out, err = run(capsys, "report", str(kept), "--format", "junit")

    assert (0, "") == (code, err)
    assert ["run", "latency", "wire"] == [suite.get("name") for suite in ET.fromstring(out)]


def test_what_is_no_run_directory_is_wrong_use(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert 2 == run(capsys, "report", str(tmp_path))[0]


def test_judging_again_makes_the_page_again(capsys: pytest.CaptureFixture[str], kept: Path) -> None:
    (kept / "report.html").write_text("old")
    code, _, err = run(capsys, "judge", str(kept))

    assert (0, f"rsag: report {kept / 'report.html'}\n") == (code, err)
    assert (kept / "report.html").read_text() != "old"


def test_a_run_without_ranks_has_a_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, "run", "--only", "proof", "--backend", "gloo", "--out", str(tmp_path / "run"))

    assert code == 0
    assert f"rsag: report {tmp_path / 'run' / 'report.html'}" in err
    assert "What is missing" not in (tmp_path / "run" / "report.html").read_text().partition("<main")[2]


def test_the_ring_alone_goes_to_standard_output_or_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, page, err = run(capsys, "ring", "--world-size", "3", "--html")
    written = run(capsys, "ring", "--world-size", "3", "--html", "--out", str(tmp_path / "ring.html"))

    assert (0, "") == (code, err)
    assert (0, "", "") == written
    assert page == (tmp_path / "ring.html").read_text()


def test_a_ring_too_large_for_a_picture_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "ring", "--world-size", "13", "--html")

    assert (2, "") == (code, out)
    assert "got 13; expected at most 12" in err


def test_two_runs_are_laid_over_each_other(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    again = LATENCY.with_name("latency_again_h200x2_20261130")
    arguments = ("compare", str(LATENCY), str(again), "--allow-mixed", "--format", "html")
    code, page, err = run(capsys, *arguments)
    written = run(capsys, *arguments, "--out", str(tmp_path / "page.html"))

    assert (0, "") == (code, err)
    assert (0, "", "") == written
    assert '"run":"A"' in page
    assert '"run":"B"' in page
    assert page == (tmp_path / "page.html").read_text()


def test_a_page_of_a_moved_run_differs_in_its_path_alone(capsys: pytest.CaptureFixture[str], kept: Path) -> None:
    run(capsys, "report", str(kept))
    first = (kept / "report.html").read_text()
    moved = kept.parent / "elsewhere" / "run"
    shutil.copytree(kept, moved)
    run(capsys, "report", str(moved))

    assert first == (moved / "report.html").read_text().replace(str(moved), str(kept))
