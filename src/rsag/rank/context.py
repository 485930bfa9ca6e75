"""What every experiment is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rsag.records.capability import Capabilities
from rsag.records.contracts import Observation
from rsag.records.execution import ExecutionRow
from rsag.records.latency import CaseEnd, LookRow, RoundRow, WireRow
from rsag.records.memory import MemoryRow
from rsag.records.plan import Plan

Record = Observation | ExecutionRow | RoundRow | LookRow | CaseEnd | WireRow | MemoryRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One rank's side of a run. `control` is the group that carries CPU tensors; `write` appends one row."""

    plan: Plan
    rank: int
    world_size: int
    device: torch.device
    out: Path  # where this rank leaves its files
    control: Any
    capabilities: Capabilities | None  # where an experiment asks for them
    write: Callable[[Record], None]

    def observe(self, observation: Observation) -> None:
        self.write(observation)
