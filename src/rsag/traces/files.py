"""Any file to its events: what it is, is told by how it begins and never by its name alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rsag.errors import UsageError
from rsag.traces import flight_recorder, kineto, nccl_log, nsys, nsys_csv
from rsag.traces.chunks import inflate_head, is_gzip
from rsag.traces.events import Capture

HEAD_BYTES = 64 << 10


class Reader(Protocol):
    """One format's module."""

    def sniff(self, head: bytes, path: Path, /) -> bool: ...
    def read(self, path: Path, /) -> Capture: ...


# In this order: of two that could be meant, the more particular first.
READERS: tuple[Reader, ...] = (nsys, kineto, flight_recorder, nsys_csv, nccl_log)

WHAT_IS_READ = """\
torch.profiler traces (Chrome JSON, plain or .gz), Nsight Systems exports (nsys export --type sqlite), \
nvtx_kern_sum as CSV (nsys stats --report nvtx_kern_sum --format csv), NCCL logs (NCCL_DEBUG=INFO \
NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING), flight-recorder dumps of torch (pickle or JSON)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    """A kind of file that is known and not read: what it is, and what to do instead."""

    what: str
    do: str


_BY_SUFFIX = {
    ".nsys-rep": _Refused(
        what="a report of Nsight Systems, whose format is closed",
        do="export it where nsys is installed: nsys export --type sqlite --output {stem}.sqlite {name}",
    ),
    ".qdrep": _Refused(
        what="a report of an old Nsight Systems, whose format is closed",
        do="export it where nsys is installed: nsys export --type sqlite --output {stem}.sqlite {name}",
    ),
    ".ncu-rep": _Refused(
        what="a report of Nsight Compute, which has no launches and no ranges over time",
        do="capture with: nsys profile --trace=cuda,nvtx ...",
    ),
}
_UNPACK = "unpack it and name the files in it"
_BY_BEGINNING = {
    b"PK\x03\x04": _Refused(what="a zip archive", do=_UNPACK),
    b"PAR1": _Refused(
        what="a Parquet table, as recipes of Nsight Systems write",
        do="give the export that it was made of: nsys export --type sqlite REPORT.nsys-rep",
    ),
    b"\x28\xb5\x2f\xfd": _Refused(what="compressed with zstd", do="decompress it"),
    b"\xfd7zXZ\x00": _Refused(what="compressed with xz", do="decompress it"),
    b"BZh": _Refused(what="compressed with bzip2", do="decompress it"),
}
_EXECUTION_TRACE = _Refused(
    what="an execution trace (PyTorch or Chakra), which has operators and no time line of the devices",
    do="capture with torch.profiler (CPU and CUDA activities) and export_chrome_trace",
)
_TAR = _Refused(what="a tar archive", do=_UNPACK)


def read_trace(path: Path) -> Capture:
    """All in a file that bears on communication, whatever its format.

    Raises UsageError for a file that is missing, empty, a folder, or of no format that is read; where it is known what
    it is, the error says what to give instead.
    """
    head = _head(path)
    refused = _refusal(path, head)
    if refused is not None:
        do = refused.do.format(name=path.name, stem=path.stem)
        raise UsageError(f"{path}: {refused.what}", expected=WHAT_IS_READ, do=do)
    for reader in READERS:
        if reader.sniff(head, path):
            return reader.read(path)
    instead = "decompress it: of gzip files only torch.profiler's traces are read" if is_gzip(head) else None
    begins = f"one that begins {head[:16]!r}"
    raise UsageError(f"{path}: not a file that is read", got=begins, expected=WHAT_IS_READ, do=instead)


def _head(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise UsageError(f"{path}: a folder", expected=WHAT_IS_READ, do="name the files in it")
        if path.exists() and not path.is_file():
            raise UsageError(f"{path}: not a regular file", do="write what it gives into a file first")
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except FileNotFoundError as error:
        raise UsageError(f"{path}: not there") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read", got=error.strerror) from error
    if not head:
        raise UsageError(f"{path}: empty", expected=WHAT_IS_READ)
    return head


def _refusal(path: Path, head: bytes) -> _Refused | None:
    by_name = _BY_SUFFIX.get(path.suffix.lower())
    if by_name is not None:
        return by_name
    for beginning, refused in _BY_BEGINNING.items():
        if head.startswith(beginning):
            return refused
    text = inflate_head(head, HEAD_BYTES)
    if text[257:262] == b"ustar":
        return _TAR
    return _EXECUTION_TRACE if _is_execution_trace(text) else None


def _is_execution_trace(text: bytes) -> bool:
    start = text[:4096]
    return start.lstrip().startswith(b"{") and b'"schema"' in start and (b'"nodes"' in start or b"chakra" in start)
