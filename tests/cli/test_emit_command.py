from __future__ import annotations

import pytest

from rsag.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["emit", *arguments])
    out, err = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, out, err


def test_standard_output_is_the_file_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "rs_ag_in_place")

    compile(out, "emitted", "exec")
    assert (code, err) == (0, "")
    assert "# rsag emit rs_ag_in_place --world-size 4 --numel 20 --op sum --dtype float32\n" in out


def test_size_operator_and_dtype_reach_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("rs_ag_padded", "--world-size", "3", "--numel", "7", "--op", "MAX", "--dtype", "int64")
    code, out, _ = run(capsys, *arguments)

    assert code == 0
    assert "padding[7:].fill_(torch.iinfo(torch.int64).min)" in out
    assert "(world, full.numel()) == (3, 7)" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rs_ag_inplace",), "did you mean rs_ag_in_place"),
        (("peer",), "symmetric memory"),
        (("rs_ag_in_place", "--numel", "18"), "multiple of 4"),
        (("rs_ag_padded", "--numel", "0"), "nothing to communicate"),
        (("rs_ag_in_place", "--world-size", "0"), "at least one rank"),
        (("rs_ag_in_place", "--op", "plus"), "unknown operator"),
        (("rs_ag_in_place", "--dtype", "float31"), "did you mean float32"),
        (("ring_all_reduce", "--op", "avg"), "average cannot be folded"),
        (("all_reduce", "--op", "band"), "bitwise operators are for integers"),
        ((), "Missing argument"),
    ],
)
def test_wrong_use_ends_with_2_and_no_text(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = run(capsys, *arguments)

    assert (code, out) == (2, "")
    assert message in err
