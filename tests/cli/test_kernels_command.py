"""`rsag kernels`: what it ends with, and what it prints for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from captured import OWN
from rsag.cli import main
from rsag.records.codec import check_header, decode
from rsag.records.kernels import KernelsDocument

EAGER = [OWN / f"eager.rank{rank}.json.gz" for rank in (0, 1)]


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["kernels", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, out, err


def test_two_ranks_are_read_together(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *EAGER)
    assert (0, "") == (code, err)
    assert "both ranks: the same collectives in the same order in direct, decomposed" in out


def test_json_is_the_document_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *EAGER, "--json")
    fields = check_header(json.loads(out), schema="kernels", version=1, where="stdout")
    answer = decode(KernelsDocument, fields)
    assert (0, {"all_reduce": 5}) == (code, answer.kernels_in("direct", device=0))


def test_a_glob_chooses_ranges(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *EAGER, "--range", "dec*", "--json")
    assert {"decomposed"} == {row["range"] for row in json.loads(out)["ranges"]}


def test_the_weaker_rule_is_asked_for_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, OWN / "ddp.rank0.json.gz", "--any-thread", "--json")
    document = json.loads(out)
    assert "any-thread" == document["rule"]
    assert {"all_reduce": 2} == document["ranges"][0]["collectives"]


def test_a_file_that_is_no_trace_is_wrong_use(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("nothing of the kind")
    code, out, err = run(capsys, path)
    assert (2, "") == (code, out)
    assert "notes.txt" in err


def test_a_file_that_is_not_there_is_wrong_use(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, tmp_path / "absent.json.gz")
    assert 2 == code
    assert "absent.json.gz" in err


def test_no_file_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == run(capsys)[0]
