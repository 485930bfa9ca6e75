"""run.json: on what the run ran, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Literal

from rsag.records.plan import Backend


@dataclass(frozen=True, slots=True, kw_only=True)
class RankInfo:
    """One rank's process: where it ran, on which versions, with which variables. In the first line of its rows."""

    rank: int
    world_size: int
    local_rank: int
    host: str
    pid: int
    device: str
    backend: Backend
    versions: dict[str, str]
    collective_names: dict[str, str]
    environment: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchMark:
    """Of which launch a rank's rows are: `id` is random, and the same on all ranks of one launch."""

    kind: Literal["launch"] = "launch"
    id: str


class RunOutcome(str, Enum):
    COMPLETE = "complete"
    RANK_DIED = "rank-died"
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`ranks` holds those that came as far as their first line; `message` says what ended the run early."""

    schema: ClassVar[str] = "run"
    version: ClassVar[int] = 1

    started_utc: str
    rsag_version: str
    launcher: str
    command: str
    platform: str
    outcome: RunOutcome
    message: str
    seconds: float
    ranks: tuple[RankInfo, ...]
