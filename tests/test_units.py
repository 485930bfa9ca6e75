from __future__ import annotations

import pytest

from rsag.errors import UsageError
from rsag.units import format_bytes, format_seconds, parse_bytes, parse_seconds


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("0", 0),
        ("17", 17),
        ("17B", 17),
        ("64KiB", 65_536),
        ("1MiB", 1_048_576),
        ("256 MiB", 268_435_456),
        ("1.5GiB", 1_610_612_736),
        ("2TiB", 2_199_023_255_552),
        ("1KB", 1_000),
        ("1MB", 1_000_000),
        ("1GB", 1_000_000_000),
    ],
)
def test_sizes_read_as_people_write_them(text: str, num_bytes: int) -> None:
    assert num_bytes == parse_bytes(text)


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1mib", "1 M", "1e3", "nan", "inf", "1.5.2KiB", "٣KiBs"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a size"):
        parse_bytes(text)


def test_a_part_of_a_byte_is_refused() -> None:
    with pytest.raises(UsageError, match="a whole number of bytes"):
        parse_bytes("1.5B")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30.0), ("30s", 30.0), ("1.5 min", 90.0), ("2h", 7200.0), ("250ms", 0.25), ("8us", 8e-6)],
)
def test_durations_read_as_people_write_them(text: str, seconds: float) -> None:
    assert pytest.approx(seconds) == parse_seconds(text)


@pytest.mark.parametrize("text", ["", "soon", "-1s", "1 day", "nan", "s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"not a duration; got .* expected a number with us, ms, s, min, h"):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (251, "251 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (65_536, "64 KiB"),
        (268_435_456, "256 MiB"),
        (1_610_612_736, "1.5 GiB"),
        (-2048, "-2 KiB"),
    ],
)
def test_bytes_are_shown_in_the_largest_unit_that_fits(num_bytes: int, text: str) -> None:
    assert text == format_bytes(num_bytes)


@pytest.mark.parametrize("text", ["0 B", "64 KiB", "256 MiB", "1.5 GiB"])
def test_a_shown_size_reads_back(text: str) -> None:
    assert text == format_bytes(parse_bytes(text))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 us"), (8.8e-6, "8.8 us"), (0.0125, "12.5 ms"), (1.25, "1.25 s"), (300, "300 s"), (-0.5, "-500 ms")],
)
def test_seconds_are_shown_in_the_unit_that_reads_best(seconds: float, text: str) -> None:
    assert text == format_seconds(seconds)
