"""From a world size and a backend to a plan."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rsag import __version__
from rsag.compositions import COMPOSITIONS
from rsag.errors import UsageError
from rsag.interpreters.ledger import ledger
from rsag.plan.kernels import plan_kernels
from rsag.plan.latency import plan_latency
from rsag.plan.memory import plan_memory
from rsag.programs import Composition, record, record_all
from rsag.records.execution import KernelsPlan
from rsag.records.latency import LatencyPlan
from rsag.records.memory import MemoryPlan
from rsag.records.plan import Arm, Backend, ContractsPlan, Experiment, Plan, Planted, Prediction
from rsag.reduction import DType, ReduceOp
from rsag.units import MIB

PREDICTED_BYTES = 256 * MIB
"""The payload that predictions are made for: the chapter's."""

SMALL_WORLD, LONG_PROGRAM = 16, 40
"""Up to so many ranks every composition is predicted; beyond, those of at most so many instructions."""

_PADDED_NUMELS = (1003, 1004)
_FLOAT_NUMEL = 20_000


def make_plan(
    *,
    world_size: int,
    backend: Backend,
    experiments: Sequence[Experiment] = tuple(Experiment),
    seed: int = 0,
    deadline_s: float = 300.0,
    planted: Sequence[Planted] = tuple(Planted),
    latency: LatencyPlan | None = None,
    memory: MemoryPlan | None = None,
    kernels: KernelsPlan | None = None,
) -> Plan:
    """The plan of one run, with the ledger's predictions at 256 MiB of float32.

    Where `latency`, `memory` or `kernels` is None, what suits the backend is done, if that is among the experiments.
    """
    if world_size < 1:
        raise UsageError("a world has at least one rank", got=world_size, expected="1 or more")
    if not 0 < deadline_s < math.inf:
        raise UsageError("a deadline lies ahead", got=deadline_s, expected="seconds above 0")
    dtype, op = DType.FLOAT32, ReduceOp.SUM
    sizes = {one.name: _predicted_numel(one, world_size, dtype) for one in COMPOSITIONS}
    arms = [one for one in COMPOSITIONS if not _is_long(one, world_size, sizes[one.name], op)]
    return Plan(
        rsag_version=__version__,
        world_size=world_size,
        backend=backend,
        seed=seed,
        deadline_s=deadline_s,
        experiments=tuple(experiments),
        dtype=dtype,
        arms=tuple(Arm(composition=one.name) for one in arms),
        predictions=tuple(row for one in arms for row in _predict(one, world_size, sizes[one.name], op, dtype)),
        contracts=_plan_contracts(world_size, planted),
        latency=latency or _default_latency(experiments, world_size, backend),
        memory=memory or _default_memory(experiments, world_size, backend),
        kernels=kernels or _default_kernels(experiments, world_size, backend),
    )


def _default_latency(experiments: Sequence[Experiment], world_size: int, backend: Backend) -> LatencyPlan | None:
    if world_size == 1 or not any(experiment.is_timed for experiment in experiments):
        return None  # one rank has nothing to compare: no byte moves
    return plan_latency(world_size=world_size, backend=backend)


def _default_memory(experiments: Sequence[Experiment], world_size: int, backend: Backend) -> MemoryPlan | None:
    return plan_memory(world_size=world_size, backend=backend) if Experiment.MEMORY in experiments else None


def _default_kernels(experiments: Sequence[Experiment], world_size: int, backend: Backend) -> KernelsPlan | None:
    return plan_kernels(world_size=world_size, backend=backend) if Experiment.KERNELS in experiments else None


def _predicted_numel(composition: Composition, world_size: int, dtype: DType) -> int:
    """The chapter's payload, or the next smaller one that divides over the ranks and that the composition takes."""
    multiple = math.lcm(composition.multiple_of(world_size), world_size)
    return PREDICTED_BYTES // dtype.itemsize // multiple * multiple


def _is_long(composition: Composition, world_size: int, numel: int, op: ReduceOp) -> bool:
    """Whether predicting it would hold up a large run: a ring's program grows with the ranks, and each has one."""
    program = record(composition, rank=0, world_size=world_size, numel=numel, op=op)
    return world_size > SMALL_WORLD and len(program.code) > LONG_PROGRAM


def _predict(
    composition: Composition, world_size: int, numel: int, op: ReduceOp, dtype: DType
) -> tuple[Prediction, ...]:
    costs = ledger(record_all(composition, world_size=world_size, numel=numel, op=op), dtype.itemsize)
    return tuple(
        Prediction(
            composition=composition.name,
            rank=row.rank,
            numel=numel,
            calls={kind.value: count for kind, count in row.calls.items()},
            steps=costs.steps,
            sent_bytes=row.sent_bytes,
            received_bytes=row.received_bytes,
            steady_bytes=row.steady_bytes,
            peak_bytes=row.peak_bytes,
        )
        for row in costs.ranks
    )


def _plan_contracts(world_size: int, planted: Sequence[Planted]) -> ContractsPlan:
    sizes = {0, 1, max(world_size - 1, 0), world_size, world_size + 1, 13, 101}
    return ContractsPlan(
        exact_numel=5 * world_size,
        # The chapter's 1003 is the product of 17 and 59; on so many ranks there would be nothing to pad.
        padded_numel=next((numel for numel in _PADDED_NUMELS if numel % world_size), _PADDED_NUMELS[0]),
        planted=tuple(planted),
        float_numel=_FLOAT_NUMEL,
        float_chunks=5,
        sizes=tuple(sorted(sizes)),
        ops=tuple(ReduceOp),
        dtypes=tuple(DType),
    )
