"""`rsag model memory`: what it prints for people and for programs, and what it refuses."""

from __future__ import annotations

import json
import sys

import pytest

from rsag.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["model", "memory", *arguments])
    out, err = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, out, err


@pytest.mark.parametrize("size", ["256MiB", "1TiB", "1023"])
@pytest.mark.parametrize("what", [(), ("--training", "all", "--layers", "1", "--activations", "3MiB")])
def test_no_line_is_wider_than_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, size: str, what: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(capsys, "--world-size", "1024", "--bytes", size, "--param-dtype", "int8", *what)
    assert code == 0
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80
    assert "…" not in out


def test_steady_peak_and_wire_of_one_composition(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--composition", "rs_ag_naive")
    assert (0, "") == (code, err)
    assert "rs_ag_naive 256 MiB 576 MiB 384 MiB 1.5" in " ".join(out.split())


def test_a_training_step_has_a_line_for_its_end_and_one_for_its_peak(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--training", "zero2", "--world-size", "2", "--bytes", "1GiB")
    words = " ".join(out.split())
    assert "zero2 2.5 GiB 1 GiB 512 MiB 1 GiB 1 GiB" in words
    assert "at the peak 2.562 GiB 1 GiB 576 MiB 1 GiB" in words
    assert "reaching" not in words


def test_the_document_has_every_row_and_the_timeline_that_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--composition", "rs_ag_early_release,all_reduce", "--timeline", "rs_ag_early_release", "--json")
    code, out, err = run(capsys, *arguments)
    found = json.loads(out)
    assert (0, "", "memory-model", 1) == (code, err, found["schema"], found["version"])
    assert [256, 320, 64, 320, 256] == [moment["total_bytes"] >> 20 for moment in found["rows"][0]["timeline"]]
    assert ["all_reduce", []] == [found["rows"][1]["name"], found["rows"][1]["timeline"]]


def test_a_timeline_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--composition", "rs_ag_early_release", "--timeline", "rs_ag_early_release")
    assert "64 MiB release input shard 64 MiB" in " ".join(out.split())


def test_what_is_not_claimed_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--world-size", "3", "--composition", "rs_ag_naive")
    assert code == 0
    assert "rs_ag_naive takes a multiple of 3 elements on 3 ranks" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--composition", "rs_ag_naiv"), "unknown composition; got 'rs_ag_naiv'; did you mean rs_ag_naive"),
        (("--training", "zero9"), "unknown training step"),
        (("--training", ""), "an empty name in a list"),
        (("--training", "ddp", "--layers", "3"), "choose another --layers, or --bytes 268435464"),
        (("--training", "ddp", "--layers", "0"), "a model has at least one layer"),
        (("--training", "ddp", "--optimizer", "adm"), "unknown optimizer; got 'adm'; did you mean adam"),
        (("--bytes", "7"), "not a whole number of float32 elements; got 7 bytes"),
        (("--bytes", "0"), "not a whole number of float32 elements; got 0 bytes"),
        (("--bytes", "many"), "not a size"),
        (("--param-dtype", "float3"), "unknown dtype"),
        (("--world-size", "0"), "a world has at least one rank"),
        (("--composition", "all_reduce", "--timeline", "peer"), "unknown row for a timeline"),
    ],
)
def test_wrong_use_is_exit_code_2_and_says_what_to_do(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (2, "") == (code, out)
    assert message in err


def test_it_needs_no_torch(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert 0 == run(capsys, "--training", "all")[0]
