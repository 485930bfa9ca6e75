"""`rsag run`: the main job."""

from __future__ import annotations

import os
import shlex
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rsag.cli.options import json_option, print_json
from rsag.cli.page import try_report, write_text
from rsag.cli.timing import Timing, plan_kernels_of, plan_memory_of, plan_timing, require_preset, timing_options
from rsag.errors import ExitCode, UsageError, unknown_name

if TYPE_CHECKING:
    from rsag.analyze.claims import FailOn
    from rsag.records.execution import KernelsPlan
    from rsag.records.latency import LatencyPlan
    from rsag.records.memory import MemoryPlan
    from rsag.records.plan import Backend, Experiment, Plan
    from rsag.records.verdict import Verdict

PATH = click.Path(path_type=Path)


@click.command("run")
@click.option("--only", metavar="NAMES", help="proof, contracts, latency, wire, memory, kernels. Default: all.")
@click.option("--world-size", "-n", type=int, help="Ranks. Default: the GPUs (at most 4) under NCCL, 4 under Gloo.")
@click.option("--backend", metavar="NAME", help="gloo or nccl. Default: nccl where there are two GPUs or more.")
@click.option("--seed", type=int, default=0, show_default=True, help="Starts every random choice.")
@click.option("--deadline", default="600s", show_default=True, help="Ends ranks that hang.")
@timing_options
@click.option("--launches", type=int, default=1, show_default=True, help="Fresh sets of processes, merged afterwards.")
@click.option("--fail-on", "conditions", multiple=True, metavar="WHAT", help="slower:10% or inconclusive: exit 1 or 3.")
@click.option("--junit", type=PATH, metavar="FILE", help="Also write the verdict as JUnit XML.")
@click.option("--runs", type=PATH, default=Path("runs"), show_default=True, help="Where run directories go.")
@click.option("--out", type=PATH, help="This run's directory, instead of a new one under --runs.")
@click.option("--save-plan", type=PATH, metavar="FILE", help="Write the plan, run nothing: for torchrun.")
@json_option
def command(
    only: str | None,
    world_size: int | None,
    backend: str | None,
    seed: int,
    deadline: str,
    timing: Timing,
    launches: int,
    conditions: tuple[str, ...],
    junit: Path | None,
    runs: Path,
    out: Path | None,
    save_plan: Path | None,
    as_json: bool,
) -> int:
    """Plan, launch, judge and report in one go: the main job.

    Without options: every experiment, at sizes that suit this machine, in a new directory under runs/. Under another
    launcher: write the plan with --save-plan, start `python -m rsag.rank --plan FILE --out DIR` on every rank with
    torchrun, srun or mpirun, then `rsag judge DIR`.
    """
    from rsag.analyze.claims import parse_fail_on
    from rsag.launch.devices import require_torch
    from rsag.plan import make_plan
    from rsag.records.codec import document, dump_document
    from rsag.records.plan import Experiment
    from rsag.records.rundir import new_run_directory
    from rsag.units import parse_seconds

    require_preset(timing)
    gates = [parse_fail_on(text) for text in conditions]
    on = chosen_backend(backend)
    ranks = _world_size(world_size, on, elsewhere=save_plan is not None)
    experiments = _experiments(only, ranks)
    plan = make_plan(
        world_size=ranks,
        backend=on,
        experiments=experiments,
        seed=seed,
        deadline_s=parse_seconds(deadline),
        latency=_plan_of_times(timing, experiments, ranks, on),
        memory=_plan_of_memory(timing, experiments, ranks, on),
        kernels=_plan_of_kernels(timing, experiments, ranks, on),
    )
    if timing.preset is not None:
        click.echo(f"rsag: preset {timing.preset}: {_sizes(plan)}", err=True)
    _check_launches(launches, plan, gated=bool(gates) or junit is not None)
    if save_plan is not None:
        try:
            save_plan.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{save_plan} cannot be written", got=error.strerror, do="name another path") from error
        dump_document(plan, save_plan)
        click.echo(
            f"{save_plan} written for {plan.world_size} ranks. Start them, on one host for example with "
            f"torchrun --nproc-per-node={plan.world_size} -m rsag.rank --plan {shlex.quote(str(save_plan))} --out DIR; "
            "then rsag judge DIR",
            err=True,
        )
        return ExitCode.DONE
    if set(plan.experiments) != {Experiment.PROOF}:
        require_torch()
    started = datetime.now(timezone.utc)
    directory = new_run_directory(runs, started_utc=started, out=out)
    if launches > 1:
        return _run_launches(plan, directory, launches, as_json)
    verdict = _run(plan, directory, started)
    if as_json:
        print_json(document(verdict))
    else:
        from rsag.report.tables import console
        from rsag.report.verdict import print_verdict

        print_verdict(verdict, console())
    try_report(directory)
    click.echo(f"rsag: run directory {directory}", err=True)
    return _gate(verdict, directory, gates, junit)


def _run(plan: Plan, directory: Path, started: datetime) -> Verdict:
    from rsag import lab
    from rsag.records.rundir import PLAN
    from rsag.report.progress import Progress
    from rsag.report.tables import console

    command_line = shlex.join(["rsag", *sys.argv[1:]])
    circumstances = lab.Circumstances(environment=os.environ, started_utc=started, command=command_line)
    try:
        with Progress(plan, console(stderr=True)).live() as progress:
            return lab.run_plan(plan, directory, circumstances, say=progress.say, watch=progress.watch)
    except BaseException:
        if (directory / PLAN).exists():
            try_report(directory)
        click.echo(f"rsag: what was recorded is in {directory}", err=True)
        raise


def _run_launches(plan: Plan, directory: Path, launches: int, as_json: bool) -> int:
    """The same plan in so many fresh sets of processes, each a run directory of its own, and what they say together."""
    import dataclasses

    from rsag.cli.merge import merge_runs

    each = []
    for number in range(launches):
        here = directory / f"launch-{number + 1:02d}"
        here.mkdir()
        click.echo(f"rsag: launch {number + 1} of {launches}", err=True)
        _run(dataclasses.replace(plan, seed=plan.seed + number), here, datetime.now(timezone.utc))
        try_report(here)
        each.append(here)
    code = merge_runs(each, as_json=as_json, into=directory)
    click.echo(f"rsag: run directories under {directory}", err=True)
    return code


def _gate(verdict: Verdict, directory: Path, gates: list[FailOn], junit_file: Path | None) -> int:
    """The exit code: of the verdict itself, else of the conditions that it meets."""
    from rsag.analyze.claims import fails
    from rsag.cli.report import junit_of
    from rsag.report.junit import latency_case

    breaches = fails(verdict.latency, gates)
    if junit_file is not None:
        cases = [("rsag.fail-on", "rows") if one.row is None else latency_case(one.row) for one in breaches]
        named = [(*case, breach.message) for case, breach in zip(cases, breaches)]
        write_text(junit_file, junit_of(directory, named))
    for breach in breaches:
        click.echo(f"rsag: --fail-on: {breach.message}", err=True)
    code = exit_code(verdict.outcome.value)
    if code or not breaches:
        return code
    return min(breach.exit_code for breach in breaches)  # a regression that is shown goes before an answer that lacks


def exit_code(outcome: str) -> int:
    """0 for pass, 1 for fail, 3 for invalid."""
    return {"pass": ExitCode.DONE, "fail": ExitCode.REFUTED}.get(outcome, ExitCode.NO_ANSWER)


def _experiments(only: str | None, ranks: int) -> tuple[Experiment, ...]:
    """Those asked for that `ranks` can do."""
    from rsag.records.plan import Experiment

    known = {experiment.value: experiment for experiment in Experiment}
    names = list(known) if only is None else [name.strip() for name in only.split(",")]
    for name in names:
        if name not in known:
            raise unknown_name("experiment", name, known)
    asked = [experiment for experiment in Experiment if experiment.value in names]
    able = [experiment for experiment in asked if ranks > 1 or not experiment.is_timed]
    if able != asked:
        why = "on one rank no byte moves: there is nothing to compare"
        if not able:
            raise UsageError(why, do="ask for two ranks or more with -n")
        click.echo(f"rsag: {why}; {' and '.join(one.value for one in asked if one.is_timed)} left out", err=True)
    return tuple(able)


def _plan_of_times(
    timing: Timing, experiments: tuple[Experiment, ...], ranks: int, backend: Backend
) -> LatencyPlan | None:
    """What was asked to be timed; None for the default."""
    from rsag.records.plan import Experiment

    if timing.is_default:
        return None
    if not any(experiment.is_timed for experiment in experiments):
        if timing.is_what_alone and {Experiment.MEMORY, Experiment.KERNELS} & set(experiments):
            return None
        raise UsageError(
            "nothing is timed in this run",
            got="options that say what to time",
            do="add latency or wire to --only, on two ranks or more",
        )
    return plan_timing(timing, ranks, backend)


def _plan_of_memory(
    timing: Timing, experiments: tuple[Experiment, ...], ranks: int, backend: Backend
) -> MemoryPlan | None:
    """The largest payload and the compositions that were asked for; None for the default."""
    from rsag.records.plan import Experiment

    return None if timing.is_default or Experiment.MEMORY not in experiments else plan_memory_of(timing, ranks, backend)


def _plan_of_kernels(
    timing: Timing, experiments: tuple[Experiment, ...], ranks: int, backend: Backend
) -> KernelsPlan | None:
    """The payload that was asked for, or a preset's; None for the default."""
    from rsag.records.plan import Experiment

    if timing.is_default or Experiment.KERNELS not in experiments:
        return None
    return plan_kernels_of(timing, ranks, backend, with_times=any(one.is_timed for one in experiments))


def _sizes(plan: Plan) -> str:
    """`latency at 64 KiB, 1 MiB; memory at 16 MiB`: what of a preset is run, and how large."""
    from rsag.units import format_bytes

    parts = []
    if plan.latency is not None:
        parts.append("latency at " + ", ".join(dict.fromkeys(format_bytes(case.bytes) for case in plan.latency.cases)))
    if plan.memory is not None:
        parts.append(f"memory at {format_bytes(plan.memory.bytes)}")
    if plan.kernels is not None:
        parts.append(f"kernels at {format_bytes(plan.kernels.bytes)} a rank")
    return "; ".join(parts)


def _check_launches(launches: int, plan: Plan, *, gated: bool) -> None:
    if launches < 1:
        raise UsageError("a run is launched at least once", got=launches, expected="1 or more")
    if launches > 1 and plan.latency is None:
        raise UsageError("launches are merged by their times, and nothing is timed", do="leave out --launches")
    if launches > 1 and gated:
        raise UsageError(
            "--fail-on and --junit look at one launch",
            got=f"--launches {launches}",
            do="leave out the one or the other",
        )


def chosen_backend(name: str | None) -> Backend:
    """The backend called `name`, or the one that suits this machine."""
    from rsag.launch.devices import count_gpus
    from rsag.records.plan import Backend

    if name is None:
        return Backend.NCCL if count_gpus() >= 2 else Backend.GLOO
    try:
        return Backend(name.lower())
    except ValueError:
        raise unknown_name("backend", name, (backend.value for backend in Backend)) from None


def _world_size(asked: int | None, backend: Backend, *, elsewhere: bool) -> int:
    from rsag.launch.devices import most_ranks
    from rsag.records.plan import Backend

    if asked is not None and asked < 1:
        raise UsageError("a world has at least one rank", got=asked, expected="1 or more")
    if asked is not None and elsewhere:
        return asked  # this machine may have no GPU at all
    most, why = most_ranks(backend)
    if asked is None:
        return min(4, most)
    if asked > most:
        raise UsageError(
            f"this machine cannot start so many {backend.value} ranks",
            got=asked,
            expected=f"1 to {most} ({why})",
            do="use torchrun on several hosts for more" if backend is Backend.NCCL else None,
        )
    return asked
