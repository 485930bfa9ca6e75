"""Training steps on symbols: are the updated parameters those of plain data parallelism, and is every access ordered?

What data parallelism promises is computed here without ranks, buffers or collectives: every rank's gradient from the
same parameters, reduced, one update. Compute is uninterpreted and element by element, so the proof says that the same
functions meet the same operands, up to the order of reduction; it says nothing about rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

from rsag.compositions.training import Stack, TrainingProgram, TrainingStep, record_all_steps
from rsag.errors import ProgramError
from rsag.interpreters.machine import Outcome, run
from rsag.interpreters.order import AccessLog
from rsag.interpreters.refuted import Refuted
from rsag.interpreters.symbols import Cells, Symbols, as_cells
from rsag.records.proof import Contract, Refutation
from rsag.reduction import ReduceOp

NUM_STEPS = 2
"""The second step computes with what the first has left: a stale copy shows there."""


class Replicated(Symbols):
    """Symbols of training: the initial parameters are the same on all ranks, and applies can be taken apart again."""

    def __init__(self, op: ReduceOp) -> None:
        super().__init__(op)
        self._applied_to: dict[int, tuple[str, tuple[int, ...]]] = {}

    def inputs(self, rank: int, numel: int) -> Cells:  # noqa: ARG002 - that is the point
        return super().inputs(0, numel)

    def apply(self, name: str, columns: Sequence[Cells]) -> Cells:
        cells = super().apply(name, columns)
        self._applied_to.update(zip(cells, ((name, row) for row in zip(*columns))))
        return cells

    def where_they_part(self, got: int, want: int) -> tuple[str, int, int]:
        """The applies that two values have in common from the outside in, and the first operands that differ."""
        path = []
        while got in self._applied_to and want in self._applied_to:
            (name, have), (other, need) = self._applied_to[got], self._applied_to[want]
            if name != other or len(have) != len(need):
                break
            path.append(name)
            got, want = next(pair for pair in zip(have, need) if pair[0] != pair[1])
        return " of ".join(reversed(path)), got, want


class TrainingProver:
    """Proves training steps under one operator; what it has interned in one world serves in the next."""

    def __init__(self, op: ReduceOp = ReduceOp.AVG) -> None:
        self.op = op
        self.symbols = Replicated(op)

    def prove(self, step: TrainingStep, world_size: int, stack: Stack, num_steps: int = NUM_STEPS) -> Refutation | None:
        """None where every rank's parameters, whole or its shards, are data parallelism's after `num_steps` steps."""
        try:
            for steps in range(1, num_steps + 1):  # the earlier a difference shows, the plainer it is
                programs = record_all_steps(step, world_size=world_size, stack=stack, op=self.op, num_steps=steps)
                outcome = run([one.program for one in programs], self.symbols, AccessLog(world_size))
                self._check(programs, outcome, self.promised(world_size, stack, steps))
        except ProgramError as error:
            return self._refutation(Refuted(Contract.PROGRAM, str(error)), world_size, stack)
        except Refuted as found:
            return self._refutation(found, world_size, stack)
        return None

    def promised(self, world_size: int, stack: Stack, num_steps: int) -> list[Cells]:
        """Each layer's parameters after `num_steps` steps of plain data parallelism."""
        apply, numel = self.symbols.apply, stack.layer_numel
        full = self.symbols.inputs(0, stack.numel)
        parameters = [full[layer * numel : (layer + 1) * numel] for layer in range(stack.num_layers)]
        states = [
            [apply(f"state {number} so far", [layer]) for number in range(stack.num_states)] for layer in parameters
        ]
        batches = [apply(f"batch {rank}", [parameters[0]]) for rank in range(world_size)]
        for _ in range(num_steps):
            of_ranks = [self._gradients(parameters, batch) for batch in batches]
            for layer, local in enumerate(zip(*of_ranks)):
                gradient = as_cells(self.symbols.reduce(self.op, local))
                states[layer] = [
                    apply(f"state {number}", [state, gradient]) for number, state in enumerate(states[layer])
                ]
                parameters[layer] = apply("update", [parameters[layer], *states[layer], gradient])
        return parameters

    def _gradients(self, parameters: Sequence[Cells], batch: Cells) -> list[Cells]:
        """One rank's own, layer by layer."""
        apply = self.symbols.apply
        came_in = [batch]
        for layer in parameters:
            came_in.append(apply("layer", [layer, came_in[-1]]))
        upstream = apply("loss", [came_in.pop()])
        gradients = []
        for layer, inp in zip(reversed(parameters), reversed(came_in)):
            gradients.append(apply("gradient", [layer, inp, upstream]))
            upstream = apply("back", [layer, inp, upstream])
        return gradients[::-1]

    def _check(self, programs: Sequence[TrainingProgram], outcome: Outcome, promised: Sequence[Cells]) -> None:
        for one in programs:
            rank, world_size = one.program.rank, one.program.world_size
            start, stop = (
                one.stack.layout(world_size).valid_range(rank) if one.state.sharded else (0, one.stack.layer_numel)
            )
            for layer, view in enumerate(one.state.parameters):
                got, want = as_cells(outcome.read(view))[: stop - start], promised[layer][start:stop]
                for element, (have, need) in enumerate(zip(got, want), start):
                    if have != need:
                        raise self._difference(rank, layer, element, have, need)

    def _difference(self, rank: int, layer: int, element: int, got: int, want: int) -> Refuted:
        path, got, want = self.symbols.where_they_part(got, want)
        have, need = (
            tuple(f"{weight} {name}" if weight != 1 else name for name, weight in contributions.items())
            for contributions in (self.symbols.contributions(got), self.symbols.contributions(want))
        )
        where = f"rank {rank} layer {layer} element {element}" + (f", operand of {path}" if path else "")
        return Refuted(
            Contract.RESULT,
            f"{where}: {' + '.join(have)}; data parallelism has {' + '.join(need)}",
            rank=rank,
            element=element,
            missing=need,
            extra=have,
        )

    def _refutation(self, found: Refuted, world_size: int, stack: Stack) -> Refutation:
        return Refutation(
            contract=found.contract,
            message=found.message,
            world_size=world_size,
            numel=stack.numel,
            op=self.op,
            rank=found.rank,
            element=found.element,
            missing=found.missing,
            extra=found.extra,
            sites=found.sites,
        )
