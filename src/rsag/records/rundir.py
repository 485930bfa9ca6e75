"""Run directories: how they are named, what is in them, and which paths are refused before anything runs."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import tempfile
from datetime import datetime, timezone
from pathlib import Path

from rsag.errors import UsageError

PLAN = "plan.json"
PROGRAMS = "programs.json"
PROOFS = "proofs.json"
CAPABILITIES = "capabilities.json"
PROTOCOLS = "protocols.json"
RUN = "run.json"
NATIVE = "native.json"
VERDICT = "verdict.json"
REPORT = "report.html"

_RANK_FILE = re.compile(r"rank-(\d{4,})\.jsonl")


def new_run_directory(root: Path, *, started_utc: datetime, out: Path | None = None) -> Path:
    """An empty, writable directory made for one run: `out`, or one under `root` named by the run's UTC start.

    Two runs within a second get `20260710T081207Z` and `20260710T081207Z-2`. ValueError for a time without its zone.
    Raises UsageError for a path that goes through a file, holds something already, or cannot be written.
    """
    wanted = root if out is None else out
    nearest = next(path for path in (wanted, *wanted.absolute().parents) if os.path.exists(path))
    if not os.path.isdir(nearest):
        raise UsageError(f"{wanted} cannot be a directory", got=f"{nearest}, which is a file", do="name another path")
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        directory = _make_named(root, _name(started_utc)) if out is None else out
        _require_empty(directory)
        # A real file: permission bits do not tell of read-only mounts, or of a server that maps root to nobody.
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        raise UsageError(
            f"{wanted} is not writable", got=error.strerror, do="name a directory you may write"
        ) from error
    return directory


def require_run_directory(path: Path) -> Path:
    """`path`, if it is a run directory, which is to say holds a plan; else UsageError."""
    if not os.path.isdir(path):
        problem = "not a directory" if os.path.exists(path) else "not there"
        raise UsageError(f"{path} is {problem}", expected="a run directory")
    if not os.path.isfile(path / PLAN):
        raise UsageError(f"{path} is not a run directory", got=f"no {PLAN} in it", do="rsag run makes run directories")
    return path


def rank_file(directory: Path, rank: int) -> Path:
    """Where `rank` writes its rows."""
    return directory / f"rank-{rank:04d}.jsonl"


def trace_file(directory: Path, rank: int) -> Path:
    """Where `rank` leaves what torch's profiler saw of its kernels experiment."""
    return directory / f"trace-{rank:04d}.json.gz"


def native_trace_file(directory: Path) -> Path:
    """Where the native probe leaves what torch's profiler saw."""
    return directory / "trace-native.json.gz"


def rank_log(directory: Path, rank: int) -> Path:
    """Where what `rank` prints is kept."""
    return directory / f"rank-{rank:04d}.log"


def rank_files(directory: Path) -> list[tuple[int, Path]]:
    """The ranks that left rows in `directory`, with their files, in the order of the ranks.

    A file without one whole line is of a rank that was ended before it began, and left none.
    """
    matches = [(_RANK_FILE.fullmatch(path.name), path) for path in directory.iterdir()]
    return sorted((int(match[1]), path) for match, path in matches if match and _has_a_line(path))


def _has_a_line(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.readline().endswith(b"\n")
    except OSError:
        return True  # whoever reads it says why it cannot be read


def _name(started_utc: datetime) -> str:
    if started_utc.utcoffset() is None:
        raise ValueError(f"started_utc without a time zone: {started_utc!r}")
    return started_utc.astimezone(timezone.utc).strftime("%Y%m%dT%H%M%SZ")


def _make_named(root: Path, name: str) -> Path:
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    while True:
        # mkdir decides, not a look before it: two runs may start at once on two hosts.
        with contextlib.suppress(FileExistsError):
            directory = root / next(names)
            directory.mkdir()
            return directory


def _require_empty(directory: Path) -> None:
    num_entries = len(os.listdir(directory))
    if num_entries:
        got = f"{num_entries} {'entry' if num_entries == 1 else 'entries'}"
        do = "name a new or an empty directory, or name none and let the run name its own"
        raise UsageError(f"{directory} is not empty", got=got, do=do)
