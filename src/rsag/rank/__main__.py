"""`python -m rsag.rank --plan plan.json --out DIR`: one rank of a run, under rsag run, torchrun, srun or mpirun."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path

import torch
import torch.distributed as dist

from rsag.errors import RsagError, UsageError
from rsag.plan import write_plan
from rsag.rank.chapter import observe_chapter
from rsag.rank.collect import collect
from rsag.rank.context import Context, Record
from rsag.rank.edges import observe_edges
from rsag.rank.kernels import observe_kernels
from rsag.rank.latency import observe_latency
from rsag.rank.matrix import observe_compositions, observe_operators
from rsag.rank.memory import observe_memory
from rsag.rank.probe import attempts, probe
from rsag.rank.process import (
    Place,
    agree_on_launch,
    choose_device,
    describe,
    require_buffers,
    start_groups,
    without_graph_registration,
)
from rsag.rank.protocol import observe_protocols, switch_log_on
from rsag.rank.wire import observe_wire
from rsag.records.capability import Attempt, Capabilities, Capability
from rsag.records.codec import dump_document, encode, load_document
from rsag.records.describe import describe_run
from rsag.records.jsonl import RowWriter
from rsag.records.plan import Backend, Experiment, Plan
from rsag.records.run import LaunchMark, RankInfo, RunOutcome
from rsag.records.rundir import CAPABILITIES, PROTOCOLS, RUN, rank_file, trace_file


def main(arguments: Sequence[str] | None = None) -> int:
    """Run this process's part of the plan; the return value is the process's exit code."""
    options = _parser().parse_args(arguments)
    try:
        place = Place.from_environment(os.environ)
        if options.probe is not None:
            _probe(options, place)
        else:
            _run(options, place)
    except RsagError as error:
        print(f"rsag.rank: {error}", file=sys.stderr)  # noqa: T201 - this program's only voice is its log
        return int(error.exit_code)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rsag.rank", description=__doc__)
    parser.add_argument("--plan", type=Path, help="the plan.json to run")
    parser.add_argument("--out", type=Path, required=True, help="directory for rank-NNNN.jsonl")
    parser.add_argument("--capabilities", type=Path, help="what was probed before; without it this run probes")
    parser.add_argument("--protocols", action="store_true", help="only ask NCCL's log: protocols.json")
    parser.add_argument("--probe", type=int, metavar="FIRST", help="only probe the backend, from attempt FIRST on")
    parser.add_argument("--backend", type=Backend, default=Backend.GLOO, help="with --probe: gloo or nccl")
    parser.add_argument("--timeout", type=float, default=60.0, help="with --probe: seconds a call may take")
    return parser


def _run(options: argparse.Namespace, place: Place) -> None:
    plan = load_document(Plan, options.plan)
    if place.world_size != plan.world_size:
        raise UsageError(
            f"{options.plan} is for another number of ranks",
            got=place.world_size,
            expected=plan.world_size,
            do=f"start {plan.world_size}, or write a plan with rsag run --save-plan FILE -n {place.world_size}",
        )
    started, began = datetime.now(timezone.utc), time.perf_counter()
    options.out.mkdir(parents=True, exist_ok=True)
    device = choose_device(plan.backend, place)
    if options.protocols:
        switch_log_on()
    if plan.latency is not None:
        require_buffers(plan.latency)
        without_graph_registration(plan.latency)
    with _rows(options.out, place, plan.backend, device) as rows:
        if (
            place.store is None and place.rank == 0 and not options.protocols
        ):  # nobody else will: a run that breaks off can be judged as well
            write_plan(plan, options.out)
        control = start_groups(plan.backend, place, device, plan.deadline_s)
        rows.write(_row(LaunchMark(id=agree_on_launch(control, secrets.token_bytes(8)))))
        context = Context(
            plan=plan,
            rank=place.rank,
            world_size=place.world_size,
            device=device,
            out=options.out,
            control=control,
            capabilities=_capabilities(options, plan, place, device),
            write=lambda record: rows.write(_row(record)),
        )
        if options.protocols:
            protocols = observe_protocols(context)
            if place.rank == 0:
                dump_document(protocols, options.out / PROTOCOLS)
        else:
            for experiment in plan.experiments:
                for observe in EXPERIMENTS.get(experiment, ()):
                    observe(context)
        rows.end()
    if options.protocols:
        if place.rank == 0:
            print(f"rsag.rank: {options.out / PROTOCOLS} written; move it beside the run's plan.json")  # noqa: T201
    elif place.store is None:
        collect(rank_file, options.out, place, control)
        if plan.kernels is not None:
            collect(trace_file, options.out, place, control)
        if place.rank == 0:
            _complete(options.out, place, context, started, time.perf_counter() - began)
            print(f"rsag.rank: {options.out} is a whole run directory; next: rsag judge {options.out}")  # noqa: T201
    dist.destroy_process_group()


def _complete(out: Path, place: Place, context: Context, started: datetime, seconds: float) -> None:
    """What makes rank 0's directory a whole run directory; under our own launcher the launcher does it."""
    if context.capabilities is not None:
        dump_document(context.capabilities, out / CAPABILITIES)
    run = describe_run(
        out,
        started_utc=started,
        command=shlex.join(sys.argv),
        launcher=place.launcher,
        outcome=RunOutcome.COMPLETE,
        message=f"all {place.world_size} ranks ended well",
        seconds=seconds,
    )
    dump_document(run, out / RUN)


EXPERIMENTS: dict[Experiment, tuple[Callable[[Context], None], ...]] = {
    Experiment.CONTRACTS: (observe_chapter, observe_operators, observe_compositions, observe_edges),
    Experiment.LATENCY: (observe_latency,),
    Experiment.WIRE: (observe_wire,),
    Experiment.MEMORY: (observe_memory,),
    Experiment.KERNELS: (observe_kernels,),
}
"""What a rank does for each experiment; a proof needs no ranks."""


def _probe(options: argparse.Namespace, place: Place) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    device = choose_device(options.backend, place)
    with _rows(options.out, place, options.backend, device) as rows:
        start_groups(options.backend, place, device, options.timeout)
        probe(
            attempts()[options.probe :],
            rank=place.rank,
            world_size=place.world_size,
            device=device,
            write=lambda row: rows.write(_row(row)),
        )
        rows.end()
    dist.destroy_process_group()


def _capabilities(options: argparse.Namespace, plan: Plan, place: Place, device: torch.device) -> Capabilities | None:
    """As probed before in processes that might crash; else tried here, without what is known to crash."""
    if Experiment.CONTRACTS not in plan.experiments or options.protocols:
        return None
    if options.capabilities is not None:
        return load_document(Capabilities, options.capabilities)
    safe = [attempt for attempt in attempts() if attempt.shape == "1-D"]
    rows = probe(safe, rank=place.rank, world_size=place.world_size, device=device, write=lambda _: None)
    return Capabilities(
        backend=plan.backend, world_size=place.world_size, torch=str(torch.__version__), rows=tuple(rows)
    )


def _rows(out: Path, place: Place, backend: Backend, device: torch.device) -> RowWriter:
    return RowWriter(rank_file(out, place.rank), start=_row(describe(backend, place, device, os.environ)))


def _row(record: RankInfo | LaunchMark | Record | Attempt | Capability) -> dict[str, object]:
    row = encode(record)
    assert isinstance(row, dict)
    return row


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
