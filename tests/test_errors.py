from __future__ import annotations

import pytest

from rsag.errors import (
    AgreementError,
    ExitCode,
    ProgramError,
    RecordError,
    RsagError,
    RunFailedError,
    UnsupportedError,
    UsageError,
    unknown_name,
)


def test_the_four_parts_make_one_sentence() -> None:
    error = RsagError("no such size", got=7, expected="a multiple of 4", do="pad to 8")
    assert str(error) == "no such size; got 7; expected a multiple of 4; pad to 8"


def test_parts_that_are_not_given_are_left_out() -> None:
    assert str(RsagError("no such size")) == "no such size"
    assert str(RsagError("no such size", do="pad to 8")) == "no such size; pad to 8"


@pytest.mark.parametrize("got", [0, "", False])
def test_a_part_that_is_empty_is_still_shown(got: object) -> None:
    assert f"no such size; got {got}" == str(RsagError("no such size", got=got))


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (UsageError, 2),
        (RecordError, 2),
        (UnsupportedError, 2),
        (ProgramError, 1),
        (AgreementError, 1),
        (RunFailedError, 4),
    ],
)
def test_each_kind_has_its_exit_code(kind: type[RsagError], code: int) -> None:
    assert code == kind("").exit_code
    assert ExitCode(code) is kind.exit_code


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    error = unknown_name("operator", "summ", ["sum", "max", "product"])
    assert str(error) == "unknown operator; got 'summ'; did you mean sum?"


def test_a_name_like_none_is_answered_with_all() -> None:
    error = unknown_name("operator", "xyzzy", iter(["sum", "max"]))
    assert str(error) == "unknown operator; got 'xyzzy'; known: sum, max"
