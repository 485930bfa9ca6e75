"""NCCL's tuning lines, in each form that its versions write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsag.records.protocol import Choice

PREFIX = "host:603:603 [0] NCCL INFO "


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("1048576 Bytes -> Algo 1 proto 2 time 17.500000", (None, ("RING", "SIMPLE"), None)),
        ("AllReduce: 1048576 Bytes -> Algo 4 proto 0 time 17.500000", ("AllReduce", ("NVLS", "LL"), None)),
        (
            "ReduceScatter: 512 Bytes -> Algo PAT proto LL128 channel{Lo..Hi}={2..5}",
            ("ReduceScatter", ("PAT", "LL128"), 4),
        ),
        (
            "AllReduce [Symmetric]: 512 Bytes -> Kernel AllReduce_RSxLD_AGxST nchannels 16 nthreads 512 nWorks 1",
            ("AllReduce", ("AllReduce_RSxLD_AGxST",), 16),
        ),
        ("AllReduce: 512 Bytes -> Algo 9 proto 3 time 1.0", ("AllReduce", ("9", "3"), None)),
    ],
)
def test_function_way_and_channels_of_each_form(
    line: str, expected: tuple[str | None, tuple[str, ...], int | None]
) -> None:
    choice = Choice.parse(PREFIX + line)
    assert choice is not None
    assert expected == (choice.function, choice.how, choice.channels)


def test_what_the_library_does_not_say_is_left_out_of_the_text() -> None:
    assert "a call RING SIMPLE" == str(Choice.parse("8 Bytes -> Algo 1 proto 2 time 1.0"))


def test_a_symmetric_kernel_is_named_and_has_no_protocol() -> None:
    line = "AllGather [Symmetric]: 512 Bytes -> Kernel AllGather_ST nchannels 4 nthreads 512"
    choice = Choice.parse(line)
    assert choice is not None
    assert (None, None, "AllGather AllGather_ST x4") == (choice.algorithm, choice.protocol, str(choice))


@given(st.text() | st.from_regex(r"\w*: ?\d+ Bytes -> (Algo \w+ proto \w+ time|Kernel \w+ nchannels \d+)"))
def test_any_line_gives_a_choice_or_nothing(line: str) -> None:
    choice = Choice.parse(line)
    assert choice is None or str(choice)
