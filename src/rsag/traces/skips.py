"""What readers share: what could not be used is counted, never dropped silently; text and numbers are made safe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from rsag.traces.events import Quarantine, Skipped

_NUM_KEPT = 10
_LONGEST_LINE = 1 << 20
_LONGEST_NAME = 4096
_LAST_INT64 = (1 << 63) - 1


class Skips:
    """A count of what was seen and of what had to be skipped, with the first few of those."""

    def __init__(self) -> None:
        self.num_seen = 0
        self.num_skipped = 0
        self._first: list[Skipped] = []

    def seen(self, count: int = 1) -> None:
        self.num_seen += count

    def skip(self, offset: int | Callable[[], int], reason: str) -> None:
        """One thing at `offset` (bytes from the start, or a row) cannot be used; it counts as seen elsewhere.

        An offset that takes long to find is given as a function, which is called for those that are kept only.
        """
        self.num_skipped += 1
        if len(self._first) < _NUM_KEPT:
            self._first.append(Skipped(offset=offset if isinstance(offset, int) else offset(), reason=reason))

    def add(self, other: Skips) -> None:
        """What was counted in another part of the same file."""
        self.num_seen += other.num_seen
        self.num_skipped += other.num_skipped
        self._first = sorted([*self._first, *other._first], key=lambda skipped: skipped.offset)[:_NUM_KEPT]

    def quarantine(self) -> Quarantine:
        return Quarantine(num_skipped=self.num_skipped, num_seen=self.num_seen, first=tuple(self._first))


def lines(path: Path, skips: Skips) -> Iterator[tuple[int, str]]:
    """Each line of a text file with its offset, without its end; bad UTF-8 is replaced.

    A line beyond a megabyte is no line of a log or a table: it is skipped and counted.
    """
    with path.open("rb") as file:
        offset = 0
        while raw := file.readline(_LONGEST_LINE):
            start, offset = offset, offset + len(raw)
            if not raw.endswith(b"\n") and len(raw) == _LONGEST_LINE:
                skips.seen()
                skips.skip(start, "a line of more than a megabyte")
                offset += _rest_of_line(file)
                continue
            yield start, raw.decode("utf-8", errors="replace").rstrip("\r\n")


def _rest_of_line(file: BinaryIO) -> int:
    length = 0
    while raw := file.readline(_LONGEST_LINE):
        length += len(raw)
        if raw.endswith(b"\n"):
            break
    return length


def printable(text: str) -> str:
    """`text` without what would act on a terminal or could not be written: controls and lone surrogates."""
    text = text[:_LONGEST_NAME]
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)


def int64(value: object) -> int | None:
    """`value` where it is an integer that fits 64 bits, as times, ids and counts of every format do; else None."""
    if isinstance(value, int) and not isinstance(value, bool) and -_LAST_INT64 <= value <= _LAST_INT64:
        return value
    return None
