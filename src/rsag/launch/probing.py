"""Ask a backend what it can do, in ranks that may crash: what took them down is noted, and the rest is tried again."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from rsag.errors import RunFailedError
from rsag.launch.local import ForkServer
from rsag.launch.messages import Outcome
from rsag.launch.report import LaunchReport, failure, signal_name
from rsag.records.capability import Ability, Attempt, Capabilities, Capability
from rsag.records.codec import decode
from rsag.records.jsonl import RankFile, read_rows
from rsag.records.plan import Backend
from rsag.records.rundir import rank_files

ENTRY = "rsag.rank.__main__:main"
MAX_CRASHES = 20

_WORST_FIRST = (Ability.CRASHED, Ability.WRONG, Ability.REFUSED, Ability.SUPPORTED)
_DEADLINE_S = {Backend.GLOO: 60.0, Backend.NCCL: 180.0}


def probe_backend(server: ForkServer, backend: Backend, world_size: int, out: Path) -> Capabilities:
    """Everything the rank program knows to try, each with its worst outcome over the ranks.

    Leaves nothing in `out`. Raises RunFailedError where the ranks cannot even start.
    """
    rows: dict[int, Capability] = {}
    torch_version = ""
    first = 0
    with tempfile.TemporaryDirectory(prefix=".probe-", dir=out) as scratch:
        for number in range(MAX_CRASHES + 1):
            here = Path(scratch) / f"{number:02d}"
            report = server.run(
                entry=ENTRY,
                arguments=["--probe", str(first), "--backend", backend.value, "--out", str(here.absolute())],
                world_size=world_size,
                out=here,
                deadline_s=_DEADLINE_S[backend],
            )
            files = [read_rows(path) for _, path in rank_files(here)]
            torch_version = torch_version or _torch_version(files)
            found, unfinished = _read(files)
            if report.outcome is Outcome.OK:
                rows.update(found)
                break
            if not unfinished:
                raise failure(report)
            # The others go on without the rank that crashed, and fail at everything: what came after says nothing.
            crashed_at = min(unfinished)
            rows.update({index: capability for index, capability in found.items() if index < crashed_at})
            rows[crashed_at] = _crash(unfinished[crashed_at], report)
            first = crashed_at + 1
        else:
            raise RunFailedError(f"{backend.value} crashed at {MAX_CRASHES} different calls", do="see rank-*.log")
    known = tuple(rows[index] for index in sorted(rows))
    return Capabilities(backend=backend, world_size=world_size, torch=torch_version, rows=known)


def _torch_version(files: Iterable[RankFile]) -> str:
    for file in files:
        versions = file.start.get("versions")
        if isinstance(versions, dict):
            return str(versions.get("torch", ""))
    return ""


def _read(files: Iterable[RankFile]) -> tuple[dict[int, Capability], dict[int, Attempt]]:
    """What every rank found, at its worst, and by attempt what a rank was trying when its rows ended."""
    found: dict[int, Capability] = {}
    open_: dict[int, Attempt] = {}
    for file in files:
        trying: Attempt | None = None
        for row in file.rows:
            if row["kind"] == "trying":
                trying = decode(Attempt, row, where=str(file.path))
            elif trying is not None:
                capability = decode(Capability, row, where=str(file.path))
                found[trying.index] = _worse(found.get(trying.index, capability), capability)
                trying = None
        if trying is not None:
            open_[trying.index] = trying
    return found, open_


def _worse(one: Capability, other: Capability) -> Capability:
    return min(one, other, key=lambda capability: _WORST_FIRST.index(capability.ability))


def _crash(attempt: Attempt, report: LaunchReport) -> Capability:
    cause = report.cause
    if cause is None:
        reason = f"did not end within {report.deadline_s:g} s"
    elif cause.signal is not None:
        reason = f"{signal_name(cause.signal)} ended the process"
    else:
        reason = f"the process ended with exit code {cause.exit_code}"
    return Capability(
        collective=attempt.collective,
        op=attempt.op,
        dtype=attempt.dtype,
        shape=attempt.shape,
        ability=Ability.CRASHED,
        reason=reason,
    )
