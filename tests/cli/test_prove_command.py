"""`rsag prove`: what it ends with, and what it prints for people and for programs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rsag.cli import main
from rsag.compositions import COMPOSITIONS
from rsag.compositions.mutants import MUTANTS
from rsag.programs import Composition, Recorder, View


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["prove", *arguments])
    out, err = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, out, err


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, err = run(capsys, *arguments, "--json")
    assert err == ""
    document: dict[str, Any] = json.loads(out)
    return code, document


def all_but_rank_0(m: Recorder, full: View, op: str) -> View:
    others = range(1, m.world)
    if m.rank in others:
        m.sub(others).all_reduce(full, op)
    return full


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> str:
    """A composition in the list that forgets rank 0."""
    composition = Composition(name="forgetful", run=all_but_rank_0, summary="")
    monkeypatch.setattr("rsag.compositions.COMPOSITIONS", (*COMPOSITIONS, composition))
    return composition.name


def test_all_compositions_are_proved(capsys: pytest.CaptureFixture[str]) -> None:
    code, document = run_json(capsys, "--ranks", "1-4", "--numel", "0,N,N+1")
    assert (0, "proofs", 1) == (code, document["schema"], document["version"])
    assert {row["composition"] for row in document["rows"]} == {one.name for one in COMPOSITIONS}
    assert {"proved"} == {row["result"] for row in document["rows"]}
    assert document["num_worlds"] == sum(row["num_worlds"] for row in document["rows"]) > 0
    assert "exhaustive for these rank counts and sizes only" in document["scope"]


def test_named_compositions_and_operators_alone(capsys: pytest.CaptureFixture[str]) -> None:
    _, document = run_json(capsys, "rs_ag_naive", "rs_ag_padded", "--op", "max,sum", "--ranks", "2", "--numel", "4")
    expected = [(name, op) for name in ("rs_ag_naive", "rs_ag_padded") for op in ("max", "sum")]
    assert expected == [(row["composition"], row["op"]) for row in document["rows"]]


def test_people_get_a_table_with_its_scope(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "rs_ag_in_place", "--ranks", "2-3", "--numel", "N")
    assert code == 0
    assert "rs_ag_in_place" in out
    assert "✓ proved" in out
    assert "6 worlds in " in out
    assert "Scope: exhaustive" in out


def test_a_refuted_composition_ends_with_1_and_its_counterexample(
    capsys: pytest.CaptureFixture[str], wrong: str
) -> None:
    code, out, _ = run(capsys, wrong, "--ranks", "2-3", "--numel", "N", "--op", "sum")
    words = " ".join(out.split())
    assert code == 1
    assert "forgetful, full result, under sum: N=2, M=2: rank 0 element 0: missing x[1][0]" in words


def test_a_refutation_in_json_names_rank_and_element(capsys: pytest.CaptureFixture[str], wrong: str) -> None:
    code, document = run_json(capsys, wrong, "--ranks", "2-3", "--numel", "N", "--op", "sum")
    [row] = document["rows"]
    refutation = row["result_refutation"]
    assert (1, "refuted", "result") == (code, row["result"], refutation["contract"])
    assert (2, 0, 0, ["x[1][0]"]) == (
        refutation["world_size"],
        refutation["rank"],
        refutation["element"],
        refutation["missing"],
    )


def test_the_planted_faults_are_judged_as_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, document = run_json(capsys, "--mutants")
    assert (0, "mutation-score") == (code, document["schema"])
    assert [mutant.name for mutant in MUTANTS] == [row["mutant"] for row in document["rows"]]
    assert all(row["as_named"] for row in document["rows"])


def test_the_mutation_score_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--mutants")
    assert code == 0
    assert f"{len(MUTANTS)}/{len(MUTANTS)}" in out
    assert "zero_padding_under_sum" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rs_ag_inplace",), "unknown composition; got 'rs_ag_inplace'; did you mean rs_ag_in_place"),
        (("--op", "summ"), "unknown operator; got 'summ'; did you mean sum"),
        (("--ranks", "0"), "at least one rank"),
        (("--ranks", "all"), "not a list of rank counts; got 'all'; expected for example 1-8"),
        (("--ranks", "4-2"), "at least one rank"),
        (("--numel", "2M"), "not a list of sizes; got '2M'"),
        (("--numel", "5-3"), "not a list of sizes; got '5-3'"),
        (("--nonsense",), "No such option"),
    ],
)
def test_wrong_use_ends_with_2_and_no_answer(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (2, "") == (code, out)
    assert message in err


@pytest.mark.parametrize(
    ("numel", "why"),
    [("1", "rs_ag_naive takes a multiple of 4 elements on 4 ranks, not 1"), ("N-9", "no size is left on these ranks")],
)
def test_a_proof_of_no_world_is_no_answer(capsys: pytest.CaptureFixture[str], numel: str, why: str) -> None:
    code, _, err = run(capsys, "rs_ag_naive", "--ranks", "4", "--numel", numel)
    assert 3 == code
    assert f"rsag: no world was claimed: {why}" in err
