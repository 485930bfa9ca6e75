"""nvtx_kern_sum, as CSV: kernels that Nsight Systems has already attributed to ranges and added up.

From `nsys stats --report nvtx_kern_sum --format csv` (before 2023 `nvtxkernsum`). A kernel counts in every range that
encloses its launch, so that nested ranges count it more than once; the sums are over all devices of a process.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path

from rsag.traces.events import Capture, Format, Limit, LimitCode, Origin, SummedKernels
from rsag.traces.kernel_names import is_communication
from rsag.traces.skips import Skips, int64, lines, printable

_RANGE, _KERNEL = "NVTX Range", "Kernel Name"
_NUM_INSTANCES, _COUNT = "NVTX Inst", "Kern Inst"
_TOTAL = re.compile(r"Total Time(?: \((?P<unit>[^)]*)\))?")
# --timeunit; the header says which. Without a unit: nanoseconds, nsys' default.
_NS_PER_UNIT = {
    **dict.fromkeys(("ns", "nsec", "nanoseconds"), 1),
    **dict.fromkeys(("us", "μs", "µs", "usec", "microseconds"), 1_000),
    **dict.fromkeys(("ms", "msec", "milliseconds"), 1_000_000),
    **dict.fromkeys(("s", "sec", "seconds"), 1_000_000_000),
}


def sniff(head: bytes, _path: Path) -> bool:
    """Whether a line of `head` is this report's header; lines of nsys itself may precede it."""
    return any(_is_header(line.split(b",")) for line in head.split(b"\n"))


def _is_header(cells: Sequence[bytes]) -> bool:
    stripped = {cell.strip(b'\xef\xbb\xbf \r"') for cell in cells}
    return _RANGE.encode() in stripped and _KERNEL.encode() in stripped


def read(path: Path) -> Capture:
    """The sums over kernels that communicate, in the order of the file."""
    skips = Skips()
    sums: list[SummedKernels] = []
    num_other = 0
    for offset, row in _rows(path, skips):
        skips.seen()
        try:
            summed = _summed(row)
        except _BadRowError as error:
            skips.skip(offset, str(error))
            continue
        if is_communication(summed.name):
            sums.append(summed)
        else:
            num_other += summed.count
    return Capture(
        source=str(path),
        format=Format.NSYS_CSV,
        origin=Origin(tool="Nsight Systems, nvtx_kern_sum"),
        sums=tuple(sums),
        num_other_kernels=num_other,
        limits=(
            Limit(
                code=LimitCode.NO_DEVICES,
                message="nvtx_kern_sum adds up over devices and instances: which GPU ran how many, and in which order, "
                "cannot be told; `nsys export --type sqlite` keeps it",
            ),
            Limit(
                code=LimitCode.NO_COUNTS,
                message="nvtx_kern_sum has no counts and dtypes of the calls; a torch.profiler trace has",
            ),
        ),
        quarantine=skips.quarantine(),
    )


class _BadRowError(Exception):
    """A row that lacks a number, or has one that cannot be."""


def _rows(path: Path, skips: Skips) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Each row under this report's headers, by column; other text and other reports in the file are passed over."""
    header: list[str] | None = None
    for offset, line in lines(path, skips):
        cells = _cells(line)
        if cells is None:
            skips.seen()
            skips.skip(offset, "a line that is no CSV")
        elif _RANGE in cells and _KERNEL in cells:
            header = cells
        elif not line.strip():
            header = None  # ends a table: what follows is another report
        elif header is not None:
            # A short row is judged by what it lacks; a cell too many is a kernel's name with a comma, unquoted.
            joined = [*cells[: len(header) - 1], ",".join(cells[len(header) - 1 :])]
            yield offset, dict(zip(header, joined))


def _cells(line: str) -> list[str] | None:
    try:
        return next(csv.reader([line.removeprefix("\ufeff")]), [])
    except csv.Error:
        return None


def _summed(row: Mapping[str, str]) -> SummedKernels:
    name = row.get(_KERNEL)
    if not name:
        raise _BadRowError("a row without the kernel's name")
    return SummedKernels(
        # nsys puts `domain:` before each range, and the default domain has no name.
        range=printable(row[_RANGE].removeprefix(":")),
        style=printable(row.get("Style", "")),
        process=_integer(row["PID"]) if row.get("PID") else None,
        thread=_integer(row["TID"]) if row.get("TID") else None,
        range_instances=_integer(row.get(_NUM_INSTANCES) or "0"),
        count=_positive(_integer(row.get(_COUNT, "")), _COUNT),
        total_ns=_positive(_total_ns(row), "Total Time"),
        name=printable(name),
    )


def _positive(value: int, what: str) -> int:
    if value <= 0:
        raise _BadRowError(f"{what} is {value}")
    return value


def _integer(text: str) -> int:
    text = text.strip()
    value = int64(int(text)) if re.fullmatch(r"-?[0-9]{1,19}", text) else None
    if value is None:
        raise _BadRowError(f"no number: {text[:40]!r}")
    return value


def _total_ns(row: Mapping[str, str]) -> int:
    for column, text in row.items():
        found = _TOTAL.fullmatch(column.strip())
        if found is None:
            continue
        factor = _NS_PER_UNIT.get((found["unit"] or "ns").strip())
        if factor is None:
            raise _BadRowError(f"times in a unit that is not known: {column[:40]!r}")
        try:
            total = Decimal(text.strip()[:40]) * factor
            rounded = int64(int(total.to_integral_value())) if abs(total) < 1 << 63 else None
        except (InvalidOperation, OverflowError, ValueError):
            rounded = None
        if rounded is None:
            raise _BadRowError(f"no time: {text[:40]!r}")
        return rounded
    raise _BadRowError("a row without Total Time")
