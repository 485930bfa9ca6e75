"""run.json, made from what the ranks said in their first lines."""

from __future__ import annotations

import platform
import sys
from datetime import datetime
from pathlib import Path

from rsag import __version__
from rsag.records.codec import decode
from rsag.records.jsonl import read_rows
from rsag.records.run import RankInfo, Run, RunOutcome
from rsag.records.rundir import rank_files


def describe_run(
    directory: Path,
    *,
    started_utc: datetime,
    command: str,
    launcher: str,
    outcome: RunOutcome,
    message: str,
    seconds: float,
) -> Run:
    """The record of the run whose rank files are in `directory`; ranks that never wrote a line are not in it."""
    files = [read_rows(path) for _, path in rank_files(directory)]
    return Run(
        started_utc=started_utc.strftime("%Y-%m-%dT%H:%M:%SZ"),
        rsag_version=__version__,
        launcher=launcher,
        command=command,
        platform=f"{platform.platform()}, Python {sys.version.split()[0]}",
        outcome=outcome,
        message=message,
        seconds=round(seconds, 3),
        ranks=tuple(decode(RankInfo, file.start, where=str(file.path)) for file in files),
    )
