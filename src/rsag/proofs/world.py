"""One world: one composition on N ranks with M elements under one operator, proved or refuted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rsag.collectives import COLLECTIVES, Kind
from rsag.errors import ProgramError
from rsag.interpreters.algebra import Cells
from rsag.interpreters.communication import ShardState
from rsag.interpreters.machine import Outcome, needs_order, run
from rsag.interpreters.order import AccessLog
from rsag.interpreters.refuted import Refuted
from rsag.interpreters.symbols import EMPTY, Symbols
from rsag.programs import Composition, Program, View, record_all
from rsag.records.proof import Contract, Refutation
from rsag.reduction import ReduceOp


@dataclass(frozen=True, slots=True)
class WorldProof:
    """What was found in one world: None is proved; `has_shards` is False where no reduce_scatter over all ranks ran."""

    result: Refutation | None
    shard: Refutation | None
    has_shards: bool


class Prover:
    """Proves worlds under one operator; what it has interned in one serves in the next."""

    def __init__(self, op: ReduceOp) -> None:
        self.op = op
        self.symbols = Symbols(op)
        self._promised: dict[tuple[Kind, int, int], list[Cells]] = {}

    def prove(self, composition: Composition, world_size: int, numel: int) -> WorldProof:
        """Both contracts of `composition`, which must accept `numel`."""
        try:
            programs = record_all(composition, world_size=world_size, numel=numel, op=self.op)
        except ProgramError as error:
            found = Refuted(Contract.PROGRAM, str(error))
            return WorldProof(self._refutation(found, world_size, numel), None, False)
        result = shard = None
        outcome: Outcome | None = None
        try:
            outcome = run(programs, self.symbols, AccessLog(world_size) if needs_order(programs) else None)
            self._check_result(programs, outcome)
            self._check_loans(programs, outcome)
        except Refuted as found:
            result = self._refutation(found, world_size, numel)
        has_shards = outcome is not None and bool(outcome.shards)
        if outcome is not None and has_shards:
            try:
                self._check_shards(outcome.shards, world_size, numel)
            except Refuted as found:
                shard = self._refutation(found, world_size, numel)
        return WorldProof(result, shard, has_shards)

    # ------------------------------------------------------------------------------------------------- contracts

    def promised(self, target: Kind, world_size: int, numel: int) -> list[Cells]:
        """What `target` promises each rank, by its postcondition."""
        key = (target, world_size, numel)
        known = self._promised.get(key)
        if known is None:
            known = self._promised[key] = [
                self._promised_to(target, rank, world_size, numel) for rank in range(world_size)
            ]
        return known

    def _promised_to(self, target: Kind, rank: int, world_size: int, numel: int) -> Cells:
        promise = COLLECTIVES[target]
        count = promise.count(numel, world_size)
        send_numel = promise.send_numel(count, world_size)
        inputs = [self.symbols.inputs(source, send_numel) for source in range(world_size)]
        rows = []
        for element in range(promise.recv_numel(count, world_size)):
            sources = promise.postcondition(rank, element, count=count, world_size=world_size)
            assert sources is not None
            rows.append([inputs[source][position] for source, position in sources])
        return self.symbols.reduce(self.op, [list(column) for column in zip(*rows)]) if rows else []

    def _check_result(self, programs: Sequence[Program], outcome: Outcome) -> None:
        first = programs[0]
        wanted = self.promised(first.target, first.world_size, first.numel)
        for program, want in zip(programs, wanted):
            got = outcome.read(program.result)
            if got == want:
                continue
            if len(got) != len(want):
                message = f"rank {program.rank} returns {len(got)} elements instead of {len(want)}"
                raise Refuted(Contract.RESULT, message, rank=program.rank)
            element = next(index for index, pair in enumerate(zip(got, want)) if pair[0] != pair[1])
            raise self._difference(
                Contract.RESULT,
                f"rank {program.rank} element {element}",
                got[element],
                want[element],
                rank=program.rank,
                element=element,
                sites=self._writers(programs, program.result, element),
            )

    def _check_loans(self, programs: Sequence[Program], outcome: Outcome) -> None:
        """An input that the caller keeps is as it was, and the result is elsewhere.

        Of what works in place the recorder knows that the result is inside; what is consumed nobody asks for.
        """
        for program in programs:
            if program.consumes or program.in_place:
                continue
            if program.result.buffer == program.input.buffer:
                message = f"rank {program.rank}'s result lies in an input that the caller keeps: declare in_place"
                raise Refuted(Contract.PROGRAM, message, rank=program.rank)
            lent = self.symbols.inputs(program.rank, len(program.input))
            for element, pair in enumerate(zip(outcome.read(program.input), lent)):
                if pair[0] != pair[1]:
                    raise Refuted(
                        Contract.RESULT,
                        f"rank {program.rank} changes element {element} of an input that the caller keeps",
                        rank=program.rank,
                        element=element,
                        sites=self._writers(programs, program.input, element),
                    )

    def _check_shards(self, shards: Sequence[ShardState], world_size: int, numel: int) -> None:
        """Each logical element is reduced in exactly one place, and everything else is the identity."""
        reduced = self.promised(Kind.ALL_REDUCE, world_size, numel)[0]
        missing = dict(zip(reduced, range(numel)))
        for state in shards:
            for element, value in enumerate(state.cells):
                if value == EMPTY or missing.pop(value, None) is not None:
                    continue
                raise self._difference(
                    Contract.SHARD,
                    f"rank {state.rank}'s shard, element {element}, is neither a reduced element nor the identity of "
                    f"{self.op.value}",
                    value,
                    EMPTY,
                    rank=state.rank,
                    element=element,
                    sites=(state.site,),
                )
        if missing:
            element = min(missing.values())
            raise Refuted(Contract.SHARD, f"no shard holds element {element}", element=element)

    # --------------------------------------------------------------------------------------------- counterexamples

    def _difference(
        self, contract: Contract, where: str, got: int, want: int, *, rank: int, element: int, sites: tuple[str, ...]
    ) -> Refuted:
        have, need = self.symbols.contributions(got), self.symbols.contributions(want)
        missing = tuple(
            _weighted(name, need[name] - have.get(name, 0)) for name in need if need[name] > have.get(name, 0)
        )
        extra = tuple(
            _weighted(name, have[name] - need.get(name, 0)) for name in have if have[name] > need.get(name, 0)
        )
        parts = [f"missing {_some(missing)}"] if missing else []
        parts += [f"extra {_some(extra)}"] if extra else []
        return Refuted(
            contract,
            f"{where}: {', '.join(parts)}",
            rank=rank,
            element=element,
            missing=missing,
            extra=extra,
            sites=sites,
        )

    def _writers(self, programs: Sequence[Program], view: View, element: int) -> tuple[str, ...]:
        """The source lines that wrote the element of `view`, the latest first: the run again, now with a log."""
        log = AccessLog(len(programs))
        run(programs, self.symbols, log)
        writers = (access.site for access in log.writers(view, element))
        return tuple(dict.fromkeys(writers))

    def _refutation(self, found: Refuted, world_size: int, numel: int) -> Refutation:
        return Refutation(
            contract=found.contract,
            message=found.message,
            world_size=world_size,
            numel=numel,
            op=self.op,
            rank=found.rank,
            element=found.element,
            missing=found.missing,
            extra=found.extra,
            sites=found.sites,
        )


def _weighted(name: str, weight: object) -> str:
    return name if weight == 1 else f"{weight} {name}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
