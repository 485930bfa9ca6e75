"""What the page shows of a record: the text, the value behind it, and the file and key that it came from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rsag.records.latency import Reason
from rsag.units import format_bytes

NOTHING = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number or word as it is shown. `source` is `FILE: KEY`; of a figure over several keys the key has a `*`.

    `value` is what stands at that key, None where there is no single one.
    """

    text: str
    source: str
    value: object = None

    def __str__(self) -> str:
        return self.text


def number(value: float | None, digits: int, source: str) -> Figure:
    """With so many digits after the point, and thousands apart."""
    return Figure(text=NOTHING if value is None else f"{value:,.{digits}f}", source=source, value=value)


def percent(value: float | None, source: str) -> Figure:
    return Figure(text=NOTHING if value is None else f"{value:.1%}", source=source, value=value)


def size(value: float | None, source: str) -> Figure:
    """Bytes in the unit that reads best."""
    return Figure(text=NOTHING if value is None else format_bytes(value), source=source, value=value)


def word(value: str, source: str) -> Figure:
    return Figure(text=value or NOTHING, source=source, value=value)


def counted(text: str, source: str) -> Figure:
    """Made from several keys: `source` has a `*` for each."""
    return Figure(text=text, source=source)


def first_of_each(reasons: Iterable[Reason]) -> dict[str, str]:
    """Each code once, with its first message."""
    found: dict[str, str] = {}
    for reason in reasons:
        found.setdefault(reason.code.value, reason.message)
    return found


def spread(values: Sequence[float | None], source: str) -> Figure:
    """Bytes over ranks, from the least to the most."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return Figure(text=NOTHING, source=source)
    return Figure(
        text=" to ".join(dict.fromkeys(format_bytes(value) for value in (known[0], known[-1]))), source=source
    )
