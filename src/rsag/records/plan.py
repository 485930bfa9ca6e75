"""plan.json: what is going to be run, and what the ledger predicts of it, written before anything runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from rsag.records.execution import KernelsPlan
from rsag.records.latency import Buffers, LatencyPlan
from rsag.records.memory import MemoryPlan
from rsag.reduction import DType, ReduceOp


class Backend(str, Enum):
    GLOO = "gloo"
    NCCL = "nccl"


class Experiment(str, Enum):
    """What `rsag run` can do, in the order it does it."""

    PROOF = "proof"
    CONTRACTS = "contracts"
    LATENCY = "latency"
    WIRE = "wire"
    MEMORY = "memory"
    KERNELS = "kernels"

    @property
    def is_timed(self) -> bool:
        """Whether it is about cases and arms, which one rank cannot compare."""
        return self in (Experiment.LATENCY, Experiment.WIRE)


class Planted(str, Enum):
    """The faults of the chapter's negative contracts: each is planted, and must then be seen."""

    SHARD_ORDER = "wrong-shard-order"
    REDUCTION_OP = "wrong-reduction-op"
    NO_PADDING = "nondivisible-without-padding"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """What is compared: a composition, in one kind of buffer, under settings of the library."""

    composition: str
    buffers: Buffers = Buffers.PLAIN
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What one rank will do in one arm: calls by kind, steps of the longest chain, ideal wire bytes, memory."""

    composition: str
    rank: int
    numel: int
    calls: dict[str, int]
    steps: int
    sent_bytes: float
    received_bytes: float
    steady_bytes: int
    peak_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractsPlan:
    """Sizes and faults of the contracts experiment.

    `exact_numel` is a multiple of the world size, `padded_numel` (above one rank) is not. `float_numel` random numbers
    are reduced whole and in `float_chunks` pieces.
    """

    exact_numel: int
    padded_numel: int
    planted: tuple[Planted, ...]
    float_numel: int
    float_chunks: int
    sizes: tuple[int, ...]
    ops: tuple[ReduceOp, ...]
    dtypes: tuple[DType, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run. `seed` starts every random choice, on all ranks alike."""

    schema: ClassVar[str] = "plan"
    version: ClassVar[int] = 1

    rsag_version: str
    world_size: int
    backend: Backend
    seed: int
    deadline_s: float
    experiments: tuple[Experiment, ...]
    dtype: DType
    arms: tuple[Arm, ...]
    predictions: tuple[Prediction, ...]
    contracts: ContractsPlan
    latency: LatencyPlan | None = None
    memory: MemoryPlan | None = None
    kernels: KernelsPlan | None = None

    def prediction(self, composition: str, rank: int) -> Prediction | None:
        """What is predicted of one rank in one composition, where the ledger was asked."""
        rows = (row for row in self.predictions if row.composition == composition and row.rank == rank)
        return next(rows, None)
