"""Requests that cannot be carried out: exit code 2, the reason in one line, and nothing written or lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import saved_runs
from rsag.cli import main
from rsag.plan import make_plan
from rsag.records.codec import dump_document, load_document
from rsag.records.jsonl import RowWriter
from rsag.records.plan import Backend, Experiment, Plan
from rsag.records.rundir import PLAN, VERDICT, rank_file


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The message of a command that ends with 2 and says nothing on standard output."""
    with pytest.raises(SystemExit) as end:
        main(list(words))
    out, err = capsys.readouterr()
    assert (2, "") == (end.value.code, out)
    return err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "--only", "contract"), "unknown experiment; got 'contract'; did you mean contracts?"),
        (("run", "--only", "proof,"), "unknown experiment; got ''; known: proof, contracts"),
        (("run", "--backend", "glo"), "unknown backend; got 'glo'; did you mean gloo?"),
        (("run", "--backend", "mpi"), "unknown backend; got 'mpi'"),
        (("emit", "rs_ag_inplace"), "unknown composition; got 'rs_ag_inplace'; did you mean rs_ag_in_place"),
        (("prove", "--op", "summ"), "unknown operator; got 'summ'; did you mean sum?"),
        (("run", "--backend", "gloo", "-n", "0"), "a world has at least one rank; got 0; expected 1 or more"),
        (("run", "--backend", "gloo", "-n", "-3"), "a world has at least one rank; got -3"),
        (("run", "--backend", "gloo", "-n", "1000000"), "cannot start so many gloo ranks; got 1000000; expected 1 to "),
        (("run", "--backend", "gloo", "--deadline", "0"), "a deadline lies ahead; got 0.0; expected seconds above 0"),
        (("run", "--backend", "gloo", "--deadline", "-5"), "not a duration; got '-5'"),
        (("run", "--backend", "gloo", "--deadline", "soon"), "not a duration; got 'soon'; expected a number with us, "),
        (("run", "--seed", "x"), "'x' is not a valid integer"),
        (("run", "--only", "memory", "--preset", "chaptre"), "unknown preset; got 'chaptre'; did you mean chapter?"),
        (("run", "--only", "memory", "--preset", "demo", "--bytes", "1MiB"), "a preset says all of what is timed"),
        (
            ("run", "--only", "kernels", "--backend", "gloo", "--bytes", "10"),
            "a size is a multiple of the dtype's; got 10 B",
        ),
        (("run", "--only", "kernels", "--composition", "peer"), "peer cannot be run here"),
        (
            ("run", "--only", "latency", "--backend", "gloo", "--buffers", "symmetric"),
            "Gloo knows no registered memory",
        ),
        (("run", "--only", "latency", "--buffers", "symetric"), "got 'symetric'; did you mean symmetric?"),
        (("ring", "--out", "page.html"), "only a page goes into a file; got --out page.html; add --html"),
        (("ring", "--json", "--html"), "one answer, in one form"),
        (("compare", "a", "b", "--out", "page.html"), "only a page goes into a file"),
        (("compare", "a", "b", "--json", "--format", "html"), "one answer, in one form"),
        (("judge", "nowhere"), "nowhere is not there; expected a run directory"),
        (("show", "."), ". is not a run directory; got no plan.json in it; rsag run makes run directories"),
    ],
)
def test_the_reason_is_told_and_nothing_written(
    capsys: pytest.CaptureFixture[str], home: Path, words: tuple[str, ...], message: str
) -> None:
    assert message in refusal(capsys, *words)
    assert [] == list(home.iterdir())


@pytest.mark.parametrize("words", [("run", "--backend", "nccl"), ("env", "--backend", "nccl")])
def test_nccl_needs_a_gpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr("rsag.launch.devices.count_gpus", lambda: 0)
    assert "NCCL has no ranks without GPUs; got none here; use --backend gloo" in refusal(capsys, *words)


@pytest.mark.parametrize(("option", "path"), [("--out", "file/run"), ("--out", "file"), ("--runs", "file/runs")])
def test_a_directory_below_a_file_is_refused(
    capsys: pytest.CaptureFixture[str], home: Path, option: str, path: str
) -> None:
    (home / "file").write_text("precious")
    message = refusal(capsys, "run", "--backend", "gloo", option, path)
    assert f"{path} cannot be a directory; got " in message
    assert message.endswith("which is a file; name another path\n")
    assert ("precious", [home / "file"]) == ((home / "file").read_text(), list(home.iterdir()))


def test_a_directory_that_holds_something_is_refused(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    (home / "out").mkdir()
    (home / "out" / "samples").write_text("precious")
    assert "out is not empty; got 1 entry; " in refusal(capsys, "run", "--backend", "gloo", "--out", "out")
    assert [home / "out" / "samples"] == list((home / "out").iterdir())


# ---------------------------------------------------------------------------------------------------------- --save-plan


def test_a_plan_for_other_machines_may_ask_for_more_than_this_one_has(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rsag.launch.devices.count_gpus", lambda: 0)
    with pytest.raises(SystemExit) as end:
        main(["run", "--only", "contracts", "--backend", "nccl", "-n", "8", "--save-plan", "plans/p.json"])
    assert 0 == end.value.code
    plan = load_document(Plan, home / "plans" / "p.json")
    assert (8, Backend.NCCL) == (plan.world_size, plan.backend)
    assert [home / "plans" / "p.json"] == [path for path in home.rglob("*") if path.is_file()]


def test_a_plan_of_no_ranks_is_refused(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    message = refusal(capsys, "run", "--backend", "nccl", "-n", "0", "--save-plan", "p.json")
    assert "a world has at least one rank; got 0" in message
    assert [] == list(home.iterdir())


def test_a_plan_below_a_file_is_refused(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    (home / "file").write_text("precious")
    message = refusal(capsys, "run", "--only", "contracts", "--backend", "gloo", "--save-plan", "file/p.json")
    assert "file/p.json cannot be written; got " in message


# ------------------------------------------------------------------------------------------------------ damaged records


@pytest.fixture
def damaged(home: Path) -> Path:
    """A run directory whose only rank wrote one good row and one that is none; its verdict is of better days."""
    out = home / "run"
    out.mkdir()
    plan = make_plan(world_size=1, backend=Backend.GLOO, experiments=(Experiment.CONTRACTS,))
    dump_document(plan, out / PLAN)
    (out / VERDICT).write_text("precious")
    with RowWriter(rank_file(out, 0), start=saved_runs.rank_start(plan, 0)) as writer:
        writer.write({"kind": "observation", "contract": "exact-sum-equivalence"})
        writer.end()
    return out


def test_a_corrupt_row_is_named_and_the_old_verdict_kept(capsys: pytest.CaptureFixture[str], damaged: Path) -> None:
    path = rank_file(damaged, 0)
    path.write_bytes(path.read_bytes().replace(b'"exact', b"exact"))
    message = refusal(capsys, "judge", "run")
    assert "rsag: run/rank-0000.jsonl: not JSON: line 2, column " in message
    assert "precious" == (damaged / VERDICT).read_text()


def test_a_row_that_lacks_what_its_judge_reads_is_named(capsys: pytest.CaptureFixture[str], damaged: Path) -> None:
    assert "rank 0: an observation of exact-sum-equivalence that no judge" in refusal(capsys, "judge", "run", "--json")
    assert "precious" == (damaged / VERDICT).read_text()


def test_a_plan_of_another_version_is_named(capsys: pytest.CaptureFixture[str], damaged: Path) -> None:
    plan = json.loads((damaged / PLAN).read_text())
    (damaged / PLAN).write_text(json.dumps(plan | {"version": 99}))
    message = refusal(capsys, "judge", "run")
    assert "run/plan.json: another version; got integer 99; expected " in message
    assert "precious" == (damaged / VERDICT).read_text()


def test_show_reads_as_strictly(capsys: pytest.CaptureFixture[str], damaged: Path) -> None:
    assert "rsag: run/verdict.json: not JSON: line 1, column 1" in refusal(capsys, "show", "run")
    (damaged / VERDICT).unlink()
    assert "rsag: run/verdict.json: not there" in refusal(capsys, "show", "run")
