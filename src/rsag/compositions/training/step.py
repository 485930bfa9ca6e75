"""What a training step is, and how it is recorded: preparation first, then steps on the state that it left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rsag.collectives import Kind
from rsag.errors import UsageError
from rsag.layout import ShardLayout
from rsag.programs import Program, Recorder, Role, View
from rsag.programs.recorder import Tape
from rsag.reduction import ReduceOp

GRADIENT_OPS = (ReduceOp.SUM, ReduceOp.AVG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """What is trained: equal layers, one after another, and an optimizer that keeps `num_states` values a parameter."""

    num_layers: int
    layer_numel: int
    num_states: int = 2

    def __post_init__(self) -> None:
        if self.num_layers < 1 or self.layer_numel < 1 or self.num_states < 0:
            raise UsageError("no such stack of layers", got=self, expected="at least one layer of one parameter")

    @property
    def numel(self) -> int:
        return self.num_layers * self.layer_numel

    def layout(self, world_size: int) -> ShardLayout:
        """How one layer is split over the ranks, padded."""
        return ShardLayout(self.layer_numel, world_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What one rank keeps from step to step, layer by layer: parameters, and what the optimizer knows of them.

    Where `sharded`, a layer's parameters are the rank's own padded shard. A layer whose `optimizer` is empty is another
    rank's to update. `buckets` are memory that communication keeps for good.
    """

    parameters: tuple[View, ...]
    optimizer: tuple[tuple[View, ...] | None, ...]
    batch: View
    sharded: bool = False
    buckets: tuple[View, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStep:
    """One way to take a data-parallel training step.

    `prepare(m, full, stack)` gets the initial parameters, equal on all ranks, to keep or to give back, and returns the
    rank's state. `run(m, state, stack, op)` does forward, backward and update, and returns the gradients that it leaves
    alive: the next step begins by releasing them, as `zero_grad` does. `claims_ddp_value`: afterwards the parameters
    are what plain data parallelism makes of them.
    """

    name: str
    summary: str
    prepare: Callable[[Recorder, View, Stack], State]
    run: Callable[[Recorder, State, Stack, str], tuple[View, ...]]
    claims_ddp_value: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProgram:
    """One rank's straight line: `program.code[start:]` are the steps, what is before prepares them.

    Of `program` only the code and the input mean anything here: a step has no target collective and no single result.
    """

    step: TrainingStep
    stack: Stack
    program: Program
    start: int
    state: State


def record_steps(
    step: TrainingStep, *, rank: int, world_size: int, stack: Stack, op: ReduceOp = ReduceOp.AVG, num_steps: int = 1
) -> TrainingProgram:
    """Run `step` as `rank` sees it, `num_steps` times, and keep what it does.

    Raises UsageError for an operator that gradients are not reduced with, ProgramError as recording does.
    """
    if op not in GRADIENT_OPS:
        expected = " or ".join(one.value for one in GRADIENT_OPS)
        raise UsageError("gradients are not reduced so", got=op.value, expected=expected)
    tape = Tape(rank)
    m = Recorder(tape, range(world_size))
    full = tape.allocate(stack.numel, Role.PARAMETER, False, "caller")
    state = step.prepare(m, full, stack)
    start = len(tape.code)
    gradients: tuple[View, ...] = ()
    for _ in range(num_steps):
        m.release(*gradients)
        gradients = step.run(m, state, stack, op.value)
    program = Program(
        composition=step.name,
        target=Kind.ALL_REDUCE,
        rank=rank,
        world_size=world_size,
        numel=stack.numel,
        op=op,
        consumes=True,
        in_place=False,
        input=full,
        result=state.parameters[0],
        code=tuple(tape.code),
    )
    return TrainingProgram(step=step, stack=stack, program=program, start=start, state=state)


def record_all_steps(
    step: TrainingStep, *, world_size: int, stack: Stack, op: ReduceOp = ReduceOp.AVG, num_steps: int = 1
) -> tuple[TrainingProgram, ...]:
    """Every rank's program, in rank order."""
    return tuple(
        record_steps(step, rank=rank, world_size=world_size, stack=stack, op=op, num_steps=num_steps)
        for rank in range(world_size)
    )
