"""What every command has in common: its exit codes and its two streams."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rsag.cli import COMMANDS, main
from rsag.plan import make_plan
from rsag.records.codec import dump_document
from rsag.records.plan import Backend, Experiment
from rsag.records.rundir import PLAN

RSAG = [sys.executable, "-m", "rsag.cli"]


@pytest.mark.parametrize("words", [["prove", "--json"], ["ring", "--world-size", "8"], ["ring", "--world-size", "2"]])
def test_a_reader_that_leaves_early_is_no_failure(words: list[str]) -> None:
    with subprocess.Popen([*RSAG, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (b"", 0) == (process.stderr.read(), process.wait(30))


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["--version"], *([name, "--help"] for name in COMMANDS)])
def test_help_and_version_end_well(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    out, err = capsys.readouterr()
    assert (0, "") == (end.value.code, err)
    assert "rsag" in out


def test_the_help_lists_every_command_in_the_order_of_the_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert sorted(COMMANDS, key=lambda name: text.index(f"\n  {name} ")) == list(COMMANDS)


def test_an_unknown_command_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["prov"])
    assert 2 == end.value.code
    assert "No such command 'prov'" in capsys.readouterr().err


def test_a_fault_of_our_own_does_not_end_as_a_refutation(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fault(_: Path) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr("rsag.analyze.verdict.judge", fault)
    with pytest.raises(SystemExit) as end:
        main(["judge", str(tmp_path)])
    out, err = capsys.readouterr()
    assert (4, "") == (end.value.code, out)
    assert "Traceback (most recent call last)" in err
    assert err.endswith("rsag: internal error: IndexError: list index out of range; please report it with the above\n")


def test_a_verdict_that_cannot_be_written_is_printed_before_that_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plan = make_plan(world_size=2, backend=Backend.GLOO, experiments=(Experiment.CONTRACTS,))
    dump_document(plan, tmp_path / PLAN)
    (tmp_path / "verdict.json").mkdir()
    with pytest.raises(SystemExit) as end:
        main(["judge", str(tmp_path)])
    out, err = capsys.readouterr()
    assert 4 == end.value.code
    assert "no records of rank 0, 1" in out
    assert "verdict.json: cannot be written; got " in err
