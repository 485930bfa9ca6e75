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
from rsag.errors import ExitCode, UsageError, unknown_name

if TYPE_CHECKING:
    from rsag.records.plan import Backend, Experiment


@click.command("run")
@click.option("--only", metavar="NAMES", help="Experiments, by commas: proof, contracts. Default: all of them.")
@click.option("--world-size", "-n", type=int, help="Ranks. Default: the GPUs (at most 4) under NCCL, 4 under Gloo.")
@click.option("--backend", metavar="NAME", help="gloo or nccl. Default: nccl where there are two GPUs or more.")
@click.option("--seed", type=int, default=0, show_default=True, help="Starts every random choice.")
@click.option("--deadline", default="300s", show_default=True, help="Ends ranks that hang.")
@click.option(
    "--runs", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Where run directories go."
)
@click.option("--out", type=click.Path(path_type=Path), help="This run's directory, instead of a new one under --runs.")
@click.option(
    "--save-plan", type=click.Path(path_type=Path), metavar="FILE", help="Write the plan, run nothing: for torchrun."
)
@json_option
def command(
    only: str | None,
    world_size: int | None,
    backend: str | None,
    seed: int,
    deadline: str,
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
    from rsag import lab
    from rsag.plan import make_plan
    from rsag.records.codec import document, dump_document
    from rsag.records.rundir import new_run_directory
    from rsag.units import parse_seconds

    on = chosen_backend(backend)
    plan = make_plan(
        world_size=_world_size(world_size, on, elsewhere=save_plan is not None),
        backend=on,
        experiments=_experiments(only),
        seed=seed,
        deadline_s=parse_seconds(deadline),
    )
    if save_plan is not None:
        try:
            save_plan.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{save_plan} cannot be written", got=error.strerror, do="name another path") from error
        dump_document(plan, save_plan)
        click.echo(
            f"{save_plan} written. On every host: torchrun --nproc-per-node={plan.world_size} -m rsag.rank "
            f"--plan {shlex.quote(str(save_plan))} --out DIR; then rsag judge DIR",
            err=True,
        )
        return ExitCode.DONE
    started = datetime.now(timezone.utc)
    directory = new_run_directory(runs, started_utc=started, out=out)
    circumstances = lab.Circumstances(
        environment=os.environ, started_utc=started, command=shlex.join(["rsag", *sys.argv[1:]])
    )
    try:
        verdict = lab.run_plan(plan, directory, circumstances, say=lambda text: click.echo(f"rsag: {text}", err=True))
    except BaseException:
        click.echo(f"rsag: what was recorded is in {directory}", err=True)
        raise
    if as_json:
        print_json(document(verdict))
    else:
        from rsag.report.tables import console
        from rsag.report.verdict import print_verdict

        print_verdict(verdict, console())
    click.echo(f"rsag: run directory {directory}", err=True)
    return exit_code(verdict.outcome.value)


def exit_code(outcome: str) -> int:
    """0 for pass, 1 for fail, 3 for invalid."""
    return {"pass": ExitCode.DONE, "fail": ExitCode.REFUTED}.get(outcome, ExitCode.NO_ANSWER)


def _experiments(only: str | None) -> tuple[Experiment, ...]:
    from rsag.records.plan import Experiment

    if only is None:
        return tuple(Experiment)
    known = {experiment.value: experiment for experiment in Experiment}
    names = [name.strip() for name in only.split(",")]
    for name in names:
        if name not in known:
            raise unknown_name("experiment", name, known)
    return tuple(experiment for experiment in Experiment if experiment.value in names)


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

    if elsewhere and asked is not None:
        return asked
    most, why = most_ranks(backend)
    if asked is None:
        return min(4, most)
    if not 1 <= asked <= most:
        raise UsageError(
            f"this machine cannot start so many {backend.value} ranks"
            if asked > most
            else "a world has at least one rank",
            got=asked,
            expected=f"1 to {most} ({why})",
            do="use torchrun on several hosts for more" if backend is Backend.NCCL else None,
        )
    return asked
