from __future__ import annotations

import json
from typing import Any

import pytest

from rsag.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["ring", *arguments])
    out, err = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, out, err


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code, out, err = run(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    loaded: dict[str, Any] = json.loads(out)
    return loaded


def test_the_table_names_chunks_phases_steps_and_words(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--world-size", "4", "--numel", "20")
    lines = out.splitlines()

    assert (code, err) == (0, "")
    assert lines[:2] == [
        "Ring all_reduce, in place: 4 ranks, 20 elements",
        "chunks: 0=[0:5], 1=[5:10], 2=[10:15], 3=[15:20]",
    ]
    assert lines[7:10] == [
        "reduce-scatter",
        "step  rank  chunk -> rank  chunk <- rank  word                   ranks in it",
        "   1     0  3 -> 1         2 <- 3         recv-reduce-send       0,3",
    ]
    assert "all-gather" in lines
    assert lines[-8:] == [
        "words on each rank",
        "  send                     1",
        "  recv-reduce-send         2",
        "  recv-reduce-copy-send    1",
        "  recv-copy-send           2",
        "  recv                     1",
        "",
        "6 steps; each rank sends 30 elements, 3/2 of the payload",
    ]


@pytest.mark.parametrize("world_size", [1, 2, 16, 17, 24])
@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter", "all_gather"])
def test_the_table_fits_eighty_columns(capsys: pytest.CaptureFixture[str], collective: str, world_size: int) -> None:
    numel = world_size * (1 << 28)
    arguments = ("--collective", collective, "--world-size", str(world_size), "--numel", str(numel))
    code, out, _ = run(capsys, *arguments)

    assert code == 0
    assert max(map(len, out.splitlines())) <= 80


def test_a_large_ring_shows_rank_0_only_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--world-size", "17")

    assert "Rank 0 only, for there are more than 16 ranks." in out
    assert sum("recv" in line and "->" not in line for line in out.splitlines()) == 5 - 1
    assert sum(" -> 1 " in line for line in out.splitlines()) == 32


def test_one_rank_has_nothing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--world-size", "1", "--numel", "3")

    assert (code, out.splitlines()[-1]) == (0, "Nothing moves on one rank.")


def test_the_document_drives_an_animation(capsys: pytest.CaptureFixture[str]) -> None:
    loaded = document(capsys, "--world-size", "2", "--numel", "6")
    row = {"rank": 0, "sends": 1, "to": 1, "receives": 0, "from": 1, "word": "recv-reduce-copy-send"}

    assert loaded["steps"][0]["ranks"][0] == {**row, "holds": {"0": [0, 1], "1": [0]}}
    assert [(step["step"], step["phase"]) for step in loaded["steps"]] == [(1, "reduce-scatter"), (2, "all-gather")]
    del loaded["steps"]
    words = {"send": 1, "recv-reduce-copy-send": 1, "recv": 1}
    assert loaded == {
        "schema": "ring",
        "version": 1,
        "world_size": 2,
        "numel": 6,
        "collective": "all_reduce",
        "in_place": True,
        "chunks": [[0, 3], [3, 6]],
        "initial": [{"rank": 0, "holds": {"0": [0], "1": [0]}}, {"rank": 1, "holds": {"0": [1], "1": [1]}}],
        "opening": ["send", "send"],
        "words": {"0": words, "1": words},
        "wire_fraction": "1",
    }


@pytest.mark.parametrize(
    ("arguments", "in_place", "opening"),
    [
        (("--collective", "all_gather"), False, "copy-send"),
        (("--collective", "all_gather", "--in-place"), True, "send"),
        (("--collective", "reduce_scatter"), False, "send"),
        (("--collective", "reduce_scatter", "--in-place"), True, "send"),
        (("--in-place",), True, "send"),
    ],
)
def test_the_collective_and_its_place_can_be_chosen(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], in_place: bool, opening: str
) -> None:
    loaded = document(capsys, *arguments)

    assert (loaded["in_place"], loaded["opening"][0]) == (in_place, opening)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--world-size", "4", "--numel", "18"), "the next is 20"),
        (("--world-size", "4", "--numel", "0"), "the next is 4"),
        (("--world-size", "4", "--numel", "-3"), "the next is 4"),
        (("--world-size", "0"), "at least one rank"),
        (("--world-size", "33", "--json"), "at most 32"),
        (("--collective", "broadcast"), "broadcast"),
    ],
)
def test_wrong_use_ends_with_2_and_no_answer(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = run(capsys, *arguments)

    assert (code, out) == (2, "")
    assert message in err
