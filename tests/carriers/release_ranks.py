"""What goes wrong on Gloo ranks when a buffer is touched before its handle is waited for. Imported in ranks only."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.distributed as dist

from rsag.carriers import calls
from rsag.carriers.groups import Groups
from rsag.carriers.owning import run_owning
from rsag.carriers.pooled import Pooled
from rsag.carriers.torch_api import api
from rsag.errors import ProgramError
from rsag.programs import Composition, Program, Recorder, View, record_all
from rsag.reduction import ReduceOp

NUM_TRIES = 20
NUMEL = 2_000_000
SETTLE_S = 20.0


def main(arguments: Sequence[str]) -> None:
    """Leaves what this rank saw in the directory named."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.FileStore(os.environ["RSAG_STORE"], world_size)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    seen = {
        "written before the wait": _written(rank, world_size, waits_first=False),
        "written after the wait": _written(rank, world_size, waits_first=True),
        "refused": _refusals(rank, world_size),
        "handed out in flight": _handed_out(rank, world_size),
    }
    (Path(arguments[0]) / f"rank-{rank:04d}.json").write_text(json.dumps(seen))
    dist.destroy_process_group()


def _written(rank: int, world_size: int, *, waits_first: bool) -> int:
    """Tries that end wrong, the carriers bypassed: half of a started AllReduce's tensor is filled for the next use."""
    total = world_size * (world_size + 1) / 2
    wrong = 0
    for _ in range(NUM_TRIES):
        full = torch.full((NUMEL,), float(rank + 1))
        kept, reused = full[: NUMEL // 2], full[NUMEL // 2 :]
        dist.barrier()
        work = dist.all_reduce(full, async_op=True)
        assert work is not None
        if waits_first:
            work.wait()
        reused.fill_(-1.0)
        work.wait()
        wrong += bool((kept != total).any() or (reused != -1.0).any())
    return wrong


def dropped_handle(m: Recorder, full: View, op: str) -> View:
    m.all_reduce(full, op, start=True)
    return full


DROPPED = Composition(name="dropped_handle", run=dropped_handle, in_place=True, summary="")


def _programs(world_size: int) -> tuple[Program, ...]:
    return record_all(DROPPED, world_size=world_size, numel=NUMEL // world_size * world_size, op=ReduceOp.SUM)


def _refusals(rank: int, world_size: int) -> list[str]:
    program, programs = _programs(world_size)[rank], _programs(world_size)
    with Groups(programs) as groups:
        return [
            _refusal(lambda: Pooled(program, groups, dtype=torch.float32)),
            _refusal(lambda: run_owning(program, torch.zeros(len(program.input)), groups)),
        ]


def _refusal(carry: Callable[[], object]) -> str:
    try:
        carry()
    except ProgramError as error:
        return error.what
    return ""


def _handed_out(rank: int, world_size: int) -> int:
    """Tries in which the pooled carrier, its check disabled, hands out a result that is not there yet."""
    programs = _programs(world_size)
    total = world_size * (world_size + 1) / 2
    check, calls.require_waited = calls.require_waited, lambda _: None
    early = 0
    try:
        with Groups(programs) as groups:
            for _ in range(NUM_TRIES):
                bound = Pooled(programs[rank], groups, dtype=torch.float32)
                bound.input.fill_(rank + 1)
                dist.barrier()
                bound()
                early += bool((bound.result != total).any())
                _settle(bound, total)
    finally:
        calls.require_waited = check
    return early


def _settle(bound: Pooled, total: float) -> None:
    """Until what is in flight has landed: nobody has its handle."""
    end_s = time.monotonic() + SETTLE_S
    while bool((bound.result != total).any()):
        assert time.monotonic() < end_s, "never came"
        time.sleep(0.001)
    api().barrier(None, False)
