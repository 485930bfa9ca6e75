"""Gloo ranks on which, every now and then, a call does nothing: what the check of results says of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist

from rsag.carriers.groups import Groups
from rsag.carriers.pooled import Pooled
from rsag.compositions import COMPOSITIONS, find
from rsag.plan import make_plan
from rsag.programs import Composition, record_all
from rsag.rank.bench import CpuBench, Setup
from rsag.rank.context import Context, Record
from rsag.rank.matrix import observe_compositions
from rsag.rank.rounds import run_round
from rsag.rank.tiles import Tiles
from rsag.records.contracts import Observation
from rsag.records.latency import Buffers, Case, Clock
from rsag.records.plan import Backend, Experiment
from rsag.reduction import DType, ReduceOp

CALLS, NUM_CYCLES, NUMEL = 3, 2, 3600
CPU = torch.device("cpu")


@contextmanager
def skipping(skipped: Callable[[int], bool], *, first_alone: bool = False) -> Iterator[None]:
    """Of the calls of pooled programs, counted from 0, those that are `skipped` do nothing, on all ranks alike.

    With `first_alone` they do all but their first instruction: of ReduceScatter + AllGather the second half.
    """
    run = Pooled.__call__
    count = 0

    def run_or_not(bound: Pooled) -> None:
        nonlocal count
        if not skipped(count):
            run(bound)
        elif first_alone:
            for call in bound._calls[1:]:
                call()
        count += 1

    with mock.patch.object(Pooled, "__call__", run_or_not):
        yield


def num_wrong(
    composition: Composition,
    rank: int,
    op: ReduceOp,
    dtype: DType,
    skipped: Callable[[int], bool],
    *,
    first_alone: bool = False,
) -> int:
    """What one round on the monotonic clock finds wrong on this rank, with `CALLS` calls in a timing."""
    case = Case(bytes=NUMEL * dtype.itemsize, dtype=dtype, op=op, clock=Clock.CPU, calls=CALLS)
    programs = record_all(composition, world_size=2, numel=NUMEL, op=op)
    with Groups(programs) as groups, skipping(skipped, first_alone=first_alone):
        bench = CpuBench(
            Setup(
                case=case,
                programs=[programs[rank]],
                buffers=[Buffers.PLAIN],
                groups=groups,
                tiles=Tiles(op, dtype, 2, CPU),
                device=CPU,
                control=None,
            )
        )
        return run_round(bench, case=0, number=0, order=((0,),) * NUM_CYCLES, seed=0).wrong[0]


def timed(rank: int) -> Iterator[tuple[str, int, int]]:
    """(what, wrong elements of whole calls, wrong elements where the last but one call of a round is skipped)."""
    for composition in COMPOSITIONS:
        if composition.symmetric:
            continue
        for op, dtype in (
            (ReduceOp.SUM, DType.FLOAT32),
            (ReduceOp.MAX, DType.FLOAT32),
            (ReduceOp.SUM, DType.BFLOAT16),
            (ReduceOp.MAX, DType.BOOL),
        ):
            right = num_wrong(composition, rank, op, dtype, lambda _: False)
            wrong = num_wrong(composition, rank, op, dtype, lambda count: count == NUM_CYCLES * CALLS - 2)
            yield f"{composition.name} {op.value} {dtype.value}", right, wrong


def without_the_first_half(rank: int) -> Iterator[tuple[str, int]]:
    """(composition, wrong elements) where the ReduceScatter of the last call but one is left out."""

    def skipped(count: int) -> bool:
        return count == NUM_CYCLES * CALLS - 2

    for name in ("rs_ag_naive", "rs_ag_early_release", "rs_ag_in_place"):
        yield name, num_wrong(find(name), rank, ReduceOp.SUM, DType.FLOAT32, skipped, first_alone=True)


def observed(rank: int, skipped: Callable[[int], bool]) -> Iterator[tuple[str, int]]:
    """(contract, wrong elements) of every composition's conformance on buffers that are kept."""
    rows: list[Record] = []
    context = Context(
        plan=make_plan(world_size=2, backend=Backend.GLOO, experiments=(Experiment.CONTRACTS,)),
        rank=rank,
        world_size=2,
        device=CPU,
        out=Path(),
        control=None,
        capabilities=None,
        write=rows.append,
    )
    with skipping(skipped):
        observe_compositions(context)
    for row in rows:
        if isinstance(row, Observation) and row.contract.endswith("/pooled") and row.unsupported is None:
            yield row.contract, int(row.facts["wrong"])


def main(arguments: Sequence[str]) -> None:
    """`main([directory])` leaves what this rank found: of timed calls, and of the second of two runs."""
    rank = int(os.environ["RANK"])
    store = dist.FileStore(os.environ["RSAG_STORE"], 2)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    found = {
        "timed": list(timed(rank)),
        "half": list(without_the_first_half(rank)),
        "whole": list(observed(rank, lambda _: False)),
        "second": list(observed(rank, lambda count: count % 2 == 1)),
    }
    (Path(arguments[0]) / f"rank-{rank:04d}.json").write_text(json.dumps(found))
    dist.destroy_process_group()
