"""How commands make the page of a run: the view of its records, and the ring from its programs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rsag.errors import RsagError, UsageError

if TYPE_CHECKING:
    from rsag.programs import Program
    from rsag.report.page.render import Schedule

MOST_DRAWN = 12
"""Of more ranks the page shows a ring of `STAND_IN`: by symmetry each rank does the same, and a picture has an end."""

STAND_IN = 8

RINGS = {
    "AllReduce, in place": "ring_all_reduce",
    "ReduceScatter": "ring_reduce_scatter",
    "ReduceScatter, in place": "ring_reduce_scatter_in_place",
    "AllGather": "ring_all_gather",
    "AllGather, in place": "ring_all_gather_in_place",
}


def write_report(directory: Path, *, out: Path | None = None, lang: str | None = None) -> Path:
    """Make the page of the run in `directory` from what is there, and say where it is."""
    from rsag.records.rundir import REPORT
    from rsag.report.page.render import render_run
    from rsag.report.page.view import read_view
    from rsag.report.page.words import DEFAULT, load_words

    words = load_words(lang or DEFAULT)
    path = directory / REPORT if out is None else out
    write_text(path, render_run(read_view(directory, words), schedules_of(directory), words))
    return path


def try_report(directory: Path) -> None:
    """`write_report` beside a job that is done, or has failed, whatever becomes of its page."""
    try:
        path = write_report(directory)
    except RsagError as error:
        click.echo(f"rsag: no report page: {error}", err=True)
    else:
        click.echo(f"rsag: report {path}", err=True)


def write_text(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written", got=error.strerror, do="name another path") from error


def put_text(text: str, out: Path | None) -> None:
    """On standard output, or into the file that was asked for."""
    if out is None:
        click.echo(text, nl=False)
    else:
        write_text(out, text)


def schedules_of(directory: Path) -> tuple[Schedule, ...]:
    """The rings of the run's world size: of its own recorded programs where it has them, else recorded anew."""
    from rsag.programs.document import load_programs
    from rsag.records.codec import load_document
    from rsag.records.plan import Plan
    from rsag.records.rundir import PLAN, PROGRAMS

    try:
        world_size = load_document(Plan, directory / PLAN).world_size
    except RsagError:
        world_size = STAND_IN
    if world_size > MOST_DRAWN:
        return make_schedules(STAND_IN)
    try:
        recorded = load_programs(directory / PROGRAMS)
        return tuple(
            _schedule(name, f"{PROGRAMS}: {composition}", [one for one in recorded if one.composition == composition])
            for name, composition in RINGS.items()
        )
    except (RsagError, LookupError):
        return make_schedules(world_size)


def make_schedules(world_size: int, numel: int | None = None) -> tuple[Schedule, ...]:
    """The rings over `world_size` ranks, as `rsag ring` records them; none over one rank, where nothing moves."""
    from rsag.compositions import find
    from rsag.programs import record_all
    from rsag.reduction import ReduceOp

    if world_size < 2:
        return ()
    whole = 5 * world_size if numel is None else numel
    schedules = []
    for name, composition in RINGS.items():
        programs = record_all(find(composition), world_size=world_size, numel=whole, op=ReduceOp.SUM)
        collective = composition.removeprefix("ring_").removesuffix("_in_place")
        in_place = ["--in-place"] if composition.endswith("_in_place") else []
        arguments = ["--world-size", str(world_size), "--numel", str(whole), "--collective", collective, *in_place]
        schedules.append(_schedule(name, shlex.join(["rsag", "ring", *arguments, "--json"]), programs))
    return tuple(schedules)


def _schedule(name: str, source: str, programs: Sequence[Program]) -> Schedule:
    from rsag.cli.ring import ring_document
    from rsag.interpreters.ring_schedule import ring_schedule
    from rsag.report.page.render import Schedule

    return Schedule(name=name, source=source, document=ring_document(ring_schedule(programs)))
