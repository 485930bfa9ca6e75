"""Rank-local files: one JSON object a line, written as it happens, readable up to the moment a rank was killed.

The first line is `start`, with schema and version; the last is `end`, or `failed` where an error ended the rank.
Whoever finds neither knows that the rank was killed, or still runs.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from rsag.errors import RecordError, RsagError, RunFailedError, UsageError
from rsag.records.codec import check_header, encode, parse_json, read_bytes

SCHEMA = "rank"
VERSION = 2
_FRAME = ("start", "end", "failed")


class RowWriter:
    """Writes a rank's rows, each a whole line that is with the operating system when `write` returns.

    `start` goes into the first line. As a context manager it turns an error inside into the `failed` line, timed by
    `now_ns`. Raises UsageError where the file exists, RunFailedError where it cannot be written, RecordError for a row
    that JSON cannot hold.
    """

    def __init__(
        self, path: Path, *, start: Mapping[str, object], now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.path, self._now_ns, self._num_bytes = path, now_ns, 0
        first = _line({"kind": "start", "schema": SCHEMA, "version": VERSION}, start, path)
        try:
            # Unbuffered: a buffer would keep what a full disk refused, and offer it again with the next line.
            self._file = path.open("xb", buffering=0)
        except FileExistsError as error:
            raise UsageError(f"{path}: already there", do="give each run a directory of its own") from error
        except OSError as error:
            raise RunFailedError(f"{path}: cannot be opened", got=error.strerror) from error
        try:
            self._append(first)
        except RunFailedError:
            self._file.close()
            raise

    def write(self, row: Mapping[str, object]) -> None:
        """Append `row`; its `kind`, if it has one, must not be one of the frame: start, end, failed."""
        if row.get("kind") in _FRAME:
            raise RecordError(
                f"{self.path}: a row of kind {row['kind']!r}", do=f"keep {', '.join(_FRAME)} for the frame"
            )
        self._append(_line({}, row, self.path))

    def end(self, **fields: object) -> None:
        """Append the `end` line with `fields` and close the file: nothing follows it."""
        self._append(_line({"kind": "end"}, fields, self.path))
        self._file.close()

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._file.closed:
            return
        if error is None:
            self._file.close()
            return
        # On a full disk this write fails as well; the error that is under way must be the one that is seen.
        with contextlib.suppress(OSError, RsagError):
            failed = {"at_ns": self._now_ns(), "error": type(error).__name__, "message": str(error)}
            self._append(_line({"kind": "failed"}, failed, self.path))
        with contextlib.suppress(OSError):
            self._file.close()

    def _append(self, line: bytes) -> None:
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            # Half a line would join with the next one into garbage; a torn last line is all that a reader forgives.
            with contextlib.suppress(OSError):
                self._file.seek(self._num_bytes)
                self._file.truncate()
            raise RunFailedError(f"{self.path}: a row cannot be written", got=error.strerror) from error
        self._num_bytes += len(line)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFile:
    """What a rank left behind: all its whole rows, and in `problems` what is missing from a rank that ended well.

    `start`, `end` and `failed` hold the fields given to the writer, without kind, schema and version.
    """

    path: Path
    start: dict[str, object]
    rows: tuple[dict[str, object], ...]
    end: dict[str, object] | None
    failed: dict[str, object] | None
    problems: tuple[str, ...]

    @property
    def ended(self) -> bool:
        """Whether the rank wrote its `end` line."""
        return self.end is not None


def read_rows(path: Path) -> RankFile:
    """The rows of a rank-local file, of which only the last line may be cut short; any other flaw is a RecordError.

    Without an `end` line the rows are still returned, and `problems` says what is known of the rank's end.
    """
    *whole, tail = read_bytes(path).split(b"\n")
    lines = [_parse_row(text, path, number) for number, text in enumerate(whole, start=1)]
    problems = []
    if tail:
        try:
            lines.append(_parse_row(tail, path, len(whole) + 1))
        except RecordError:
            problems.append(f"line {len(whole) + 1} is truncated: the rank was killed while writing it")
    if not lines:
        raise RecordError(f"{path}: truncated, no whole line", do="the rank was killed before it began; see its log")
    start = check_header(lines[0], schema=SCHEMA, version=VERSION, where=f"{path}: line 1")
    if start.pop("kind", None) != "start":
        raise RecordError(f"{path}: line 1: not the start line", expected='the kind "start"')
    last = _closing_line(lines, path)
    end, failed = _fields(last, "end"), _fields(last, "failed")
    if failed is not None:
        problems.append(f"the rank failed: {failed.get('error')}: {failed.get('message')}")
    elif end is None:
        problems.append("no end line: the rank was killed, or still runs")
    rows = lines[1:] if last is None else lines[1:-1]
    return RankFile(path=path, start=start, rows=tuple(rows), end=end, failed=failed, problems=tuple(problems))


def _line(frame: Mapping[str, object], fields: Mapping[str, object], path: Path) -> bytes:
    clash = sorted(frame.keys() & fields.keys())
    if clash:
        raise RecordError(
            f"{path}: fields named {', '.join(clash)}", do="the frame of the file has these; name them otherwise"
        )
    text = json.dumps(encode({**frame, **fields}, where=str(path)), separators=(",", ":"), allow_nan=False)
    return text.encode("ascii") + b"\n"


def _parse_row(text: bytes, path: Path, number: int) -> dict[str, object]:
    row = parse_json(text, where=str(path), line=number)
    if not isinstance(row, dict):
        raise RecordError(f"{path}: line {number}: not an object", got=type(row).__name__)
    return row


def _closing_line(lines: list[dict[str, object]], path: Path) -> dict[str, object] | None:
    """The end or failed line, which nothing follows, or None."""
    for number, line in enumerate(lines[1:], start=2):
        kind = line.get("kind")
        if kind == "start":
            raise RecordError(f"{path}: line {number}: a second start line", do="two ranks may have shared one file")
        if kind in _FRAME:
            if number < len(lines):
                raise RecordError(f"{path}: line {number + 1}: a row after the {kind} line")
            return line
    return None


def _fields(last: dict[str, object] | None, kind: Literal["end", "failed"]) -> dict[str, object] | None:
    if last is None or last["kind"] != kind:
        return None
    return {key: value for key, value in last.items() if key != "kind"}
