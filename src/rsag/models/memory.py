"""What compositions and training steps hold in memory and move, from one rank's program: no run, and any scale.

The costs are those of rank 0, whose shards are the largest. Bytes on the wire are an ideal ring's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from itertools import pairwise
from typing import ClassVar

from rsag.compositions.training import Stack, TrainingStep, record_steps
from rsag.errors import UsageError
from rsag.interpreters.ledger import Moment, RankLedger, rank_ledger
from rsag.programs import Composition, Role, record
from rsag.reduction import DType, ReduceOp

TRAINING_STEP = "training step"
"""The target of what reaches no collective's result."""


class Optimizer(str, Enum):
    """What is updated with, told by the values it keeps for each parameter."""

    SGD = "sgd"
    MOMENTUM = "momentum"
    ADAM = "adam"
    ADAM_MASTER = "adam_master"  # and a copy of the parameters in the optimizer's dtype

    @property
    def num_states(self) -> int:
        return {Optimizer.SGD: 0, Optimizer.MOMENTUM: 1, Optimizer.ADAM: 2, Optimizer.ADAM_MASTER: 3}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSizes:
    """What a training step works on: the stack and the bytes of its elements.

    `activation_bytes` is what each layer keeps for backward, whatever its shape.
    """

    num_layers: int
    layer_numel: int
    param_dtype: DType
    grad_dtype: DType
    optimizer_dtype: DType
    optimizer: Optimizer
    activation_bytes: int = 0

    @property
    def stack(self) -> Stack:
        return Stack(num_layers=self.num_layers, layer_numel=self.layer_numel, num_states=self.optimizer.num_states)

    @property
    def itemsizes(self) -> dict[Role, Fraction]:
        """Bytes of an element by role. Gathers are of parameters, staging and reductions are of gradients."""
        sizes = {role: Fraction(self.grad_dtype.itemsize) for role in Role}
        sizes[Role.PARAMETER] = sizes[Role.GATHERED] = Fraction(self.param_dtype.itemsize)
        sizes[Role.OPTIMIZER] = Fraction(self.optimizer_dtype.itemsize)
        sizes[Role.ACTIVATION] = Fraction(self.activation_bytes, self.layer_numel)
        return sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBytes:
    """What is live at one moment, in all and by role, and what has just happened."""

    what: str
    site: str
    total_bytes: int
    by_role: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """One composition or training step: what is live at its end, the most at once, and bytes sent or received.

    `target` is the collective it reaches, or "training step". All costs are None where it makes no claim, which
    `not_claimed` explains. A step's end is after the update, the gradients still there.
    """

    name: str
    target: str
    summary: str
    steady: LiveBytes | None = None
    peak: LiveBytes | None = None
    wire_bytes: float | None = None
    timeline: tuple[LiveBytes, ...] = ()
    not_claimed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryModel:
    """The document of `rsag model memory --json`."""

    schema: ClassVar[str] = "memory-model"
    version: ClassVar[int] = 1

    world_size: int
    bytes: int
    training: TrainingSizes | None
    rows: tuple[MemoryRow, ...]


def predict_composition(
    composition: Composition, *, world_size: int, num_bytes: int, dtype: DType, timeline: bool = False
) -> MemoryRow:
    """The costs of `composition` on a full payload of `num_bytes`."""
    numel = whole_numel(num_bytes, dtype)
    about = MemoryRow(name=composition.name, target=composition.target.value, summary=composition.summary)
    refused = composition.why_refused(numel, world_size, ReduceOp.SUM)
    if refused is not None:
        return replace(about, not_claimed=refused)
    program = record(composition, rank=0, world_size=world_size, numel=numel, op=ReduceOp.SUM)
    return _row(rank_ledger(program, dtype.itemsize), about, timeline=timeline)


def predict_step(
    step: TrainingStep, *, world_size: int, sizes: TrainingSizes, rank: int = 0, timeline: bool = False
) -> MemoryRow:
    """The costs of one training step of `rank`, from the update before it to its own."""
    one = record_steps(step, rank=rank, world_size=world_size, stack=sizes.stack)
    about = MemoryRow(name=step.name, target=TRAINING_STEP, summary=step.summary)
    return _row(rank_ledger(one.program, sizes.itemsizes, start=one.start), about, timeline=timeline)


def whole_numel(num_bytes: int, dtype: DType) -> int:
    """How many elements `num_bytes` are; UsageError where they are none, or no whole number."""
    if num_bytes < 1 or num_bytes % dtype.itemsize:
        raise UsageError(
            f"not a whole number of {dtype.value} elements",
            got=f"{num_bytes} bytes",
            expected=f"a multiple of {dtype.itemsize} from {dtype.itemsize} up",
        )
    return num_bytes // dtype.itemsize


def equal_layers(num_bytes: int, num_layers: int, dtype: DType) -> int:
    """Parameters of each of `num_layers` equal layers of `num_bytes` in all; UsageError where it does not come out."""
    if num_layers < 1:
        raise UsageError("a model has at least one layer", got=num_layers, expected="1 or more")
    numel = whole_numel(num_bytes, dtype)
    if numel % num_layers:
        following = -(-numel // num_layers) * num_layers * dtype.itemsize
        raise UsageError(
            f"{num_layers} layers of equal size do not make up the parameters",
            got=f"{num_bytes} bytes, {numel} elements",
            do=f"choose another --layers, or --bytes {following}",
        )
    return numel // num_layers


def _row(costs: RankLedger, about: MemoryRow, *, timeline: bool) -> MemoryRow:
    return replace(
        about,
        steady=_live(costs.timeline[-1]),
        peak=_live(costs.peak),
        # What peers read of this rank's memory is not in its own program; by symmetry it is what it reads of theirs.
        wire_bytes=max(costs.sent_bytes, costs.received_bytes),
        timeline=_changes(costs) if timeline else (),
    )


def _changes(costs: RankLedger) -> tuple[LiveBytes, ...]:
    """The timeline without what weighs nothing: empty buffers, activations whose bytes are not asked for."""
    moments = costs.timeline
    changed = (now for before, now in pairwise(moments) if now.total_bytes != before.total_bytes)
    return tuple(_live(moment) for moment in (moments[0], *changed))


def _live(moment: Moment) -> LiveBytes:
    by_role = {role.value: live for role, live in moment.live_bytes.items() if live}
    return LiveBytes(what=moment.what, site=moment.site, total_bytes=moment.total_bytes, by_role=by_role)


def predict(
    *,
    world_size: int,
    num_bytes: int,
    dtype: DType,
    compositions: Sequence[Composition],
    steps: Sequence[TrainingStep] = (),
    sizes: TrainingSizes | None = None,
    timeline_of: str | None = None,
) -> MemoryModel:
    """One row for each composition, then one for each training step; `timeline_of` names the row with a timeline."""
    rows = [
        predict_composition(
            one, world_size=world_size, num_bytes=num_bytes, dtype=dtype, timeline=one.name == timeline_of
        )
        for one in compositions
    ]
    if sizes is not None:
        rows += [
            predict_step(step, world_size=world_size, sizes=sizes, timeline=step.name == timeline_of) for step in steps
        ]
    return MemoryModel(world_size=world_size, bytes=num_bytes, training=sizes, rows=tuple(rows))
