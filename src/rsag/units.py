"""Sizes and durations as people write them: `64KiB`, `1MiB`, `30s`."""

from __future__ import annotations

import re

from rsag.errors import UsageError

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40

_SIZES = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_DURATIONS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*\Z")


def parse_bytes(text: str) -> int:
    """`text` in bytes: a number with B, KiB, MiB, GiB, TiB, KB, MB or GB (bytes where no unit is given)."""
    value = _parse(text, _SIZES, "B", "size")
    if value != int(value):
        raise UsageError("a size is a whole number of bytes", got=repr(text), expected="for example 64KiB")
    return int(value)


def parse_seconds(text: str) -> float:
    """`text` in seconds: a number with us, ms, s, min or h (seconds where no unit is given)."""
    return _parse(text, _DURATIONS, "s", "duration")


def _parse(text: str, units: dict[str, float] | dict[str, int], default: str, kind: str) -> float:
    match = _NUMBER.match(text)
    unit = (match.group(2) or default) if match else ""
    if match is None or unit not in units:
        raise UsageError(f"not a {kind}", got=repr(text), expected=f"a number with {', '.join(units)}")
    return float(match.group(1)) * units[unit]


def format_bytes(count: float) -> str:
    """`count` bytes in the largest binary unit that keeps it at least 1: `64 KiB`, `251 B`, `1.5 GiB`."""
    for unit, size in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(count) >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count:g} B"


def format_seconds(seconds: float) -> str:
    """`seconds` in the unit that reads best: `1.25 s`, `12.5 ms`, `8.8 us`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(seconds) >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds * 1e6:.4g} us"
