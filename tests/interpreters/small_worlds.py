"""Compositions of a few lines, recorded and run on all their ranks."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from rsag.collectives import Kind
from rsag.interpreters import machine
from rsag.interpreters.order import AccessLog
from rsag.interpreters.refuted import Refuted
from rsag.interpreters.symbols import Symbols
from rsag.programs import Composition, Program, Recorder, View, record_all
from rsag.programs.program import any_numel
from rsag.records.proof import Contract
from rsag.reduction import ReduceOp

Body = Callable[[Recorder, View], object]
Value = dict[str, "int | Fraction"]


def programs(
    body: Body,
    *,
    world_size: int = 2,
    numel: int = 1,
    op: ReduceOp = ReduceOp.SUM,
    target: Kind = Kind.ALL_REDUCE,
    consumes: bool = False,
    symmetric: bool = False,
) -> tuple[Program, ...]:
    """Every rank's program of `body`; where it returns no view, the result is its input."""

    def run(m: Recorder, full: View, _: str) -> View:
        result = body(m, full)
        return result if isinstance(result, View) else full

    composition = Composition(
        name="small",
        run=run,
        summary="",
        target=target,
        consumes=consumes,
        symmetric=symmetric,
        multiple_of=any_numel,
    )
    return record_all(composition, world_size=world_size, numel=numel, op=op)


def run(recorded: tuple[Program, ...]) -> list[list[Value]]:
    """What each rank's result is made of, after a run with every check."""
    symbols = Symbols(recorded[0].op)
    outcome = machine.run(recorded, symbols, AccessLog(len(recorded)))
    return [[symbols.contributions(value) for value in outcome.read(program.result)] for program in recorded]


def refutation(recorded: tuple[Program, ...]) -> Refuted:
    """How a run of `recorded` is refuted."""
    with pytest.raises(Refuted) as caught:
        run(recorded)
    return caught.value


def verdict(recorded: tuple[Program, ...]) -> Contract | None:
    """The contract that a run breaks, or None."""
    try:
        run(recorded)
    except Refuted as found:
        return found.contract
    return None
