"""`rsag ring`: a ring schedule, step by step, as a table, as JSON, or as a page that steps through it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from rsag.cli.options import json_option, parse_world_size, print_json
from rsag.compositions import find
from rsag.errors import UsageError
from rsag.interpreters.ring_schedule import Holdings, RankStep, RingSchedule, RingStep, ring_schedule
from rsag.programs import record_all
from rsag.reduction import ReduceOp

MAX_ROWS_PER_STEP = 16
"""Above this many ranks only rank 0's row is printed: by symmetry the others say the same, one chunk on."""

MAX_JSON_RANKS = 32
"""The document says what every rank holds after every step, so it grows with the fourth power of N: 13 MB at 32."""

_WIDTH = 80


@click.command()
@click.option("--world-size", type=int, default=4, show_default=True, help="Ranks round the ring.")
@click.option("--numel", type=int, help="Elements of the full payload, a multiple of the ranks.  [default: 5 a rank]")
@click.option(
    "--collective",
    type=click.Choice(["all_reduce", "reduce_scatter", "all_gather"]),
    default="all_reduce",
    show_default=True,
)
@click.option(
    "--in-place", is_flag=True, help="Output inside the input, or input inside the output; AllReduce always is."
)
@click.option("--html", "as_html", is_flag=True, help="A page with a stepper over the AllReduce and its halves.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Where the page goes.  [default: stdout]")
@json_option
def command(
    world_size: int,
    numel: int | None,
    collective: str,
    in_place: bool,
    as_html: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Print a ring schedule, step by step, in NCCL's own words."""
    parse_world_size(world_size)
    numel = 5 * world_size if numel is None else numel
    _check_numel(numel, world_size)
    if as_json and as_html:
        raise UsageError("one answer, in one form", got="--json and --html", do="leave one of them out")
    if out is not None and not as_html:
        raise UsageError("only a page goes into a file", got=f"--out {out}", do="add --html")
    if as_html:
        _write_page(world_size, numel, out)
        return
    if as_json and world_size > MAX_JSON_RANKS:
        raise UsageError(
            "the schedule as JSON grows with the fourth power of the ranks",
            got=world_size,
            expected=f"at most {MAX_JSON_RANKS}",
            do="leave --json out",
        )
    name = f"ring_{collective}" + ("_in_place" if in_place and collective != "all_reduce" else "")
    programs = record_all(find(name), world_size=world_size, numel=numel, op=ReduceOp.SUM)
    schedule = ring_schedule(programs)
    if as_json:
        print_json(ring_document(schedule))
        return
    for line in _lines(schedule):
        click.echo(line)


def _write_page(world_size: int, numel: int, out: Path | None) -> None:
    """The page steps through all schedules, whichever was asked for: the reader chooses there."""
    from rsag.cli.page import MOST_DRAWN, make_schedules, put_text
    from rsag.report.page.render import render_ring
    from rsag.report.page.words import load_words

    if world_size > MOST_DRAWN:
        raise UsageError(
            "a picture of so many ranks shows nothing",
            got=world_size,
            expected=f"at most {MOST_DRAWN}",
            do="leave --html out, or ask for fewer: each rank does the same, one chunk on",
        )
    page = render_ring(make_schedules(world_size, numel), load_words())
    put_text(page, out)


def _check_numel(numel: int, world_size: int) -> None:
    if numel >= 1 and numel % world_size == 0:
        return
    following = max(1, -(-numel // world_size)) * world_size
    raise UsageError(
        f"a ring over {world_size} ranks cuts the payload into {world_size} equal chunks",
        got=f"{numel} elements",
        expected=f"a multiple of {world_size}",
        do=f"the next is {following}",
    )


def ring_document(schedule: RingSchedule) -> dict[str, Any]:
    """`schedule` as `--json` prints it, and as the page steps through it."""
    return {
        "schema": "ring",
        "version": 1,
        "world_size": schedule.world_size,
        "numel": schedule.numel,
        "collective": schedule.collective.value,
        "in_place": schedule.in_place,
        "chunks": schedule.chunks,
        "initial": [{"rank": rank, "holds": _keyed(holds)} for rank, holds in enumerate(schedule.initial)],
        "opening": schedule.opening,
        "steps": [
            {"step": step.step, "phase": step.phase.value, "ranks": [_rank_document(row) for row in step.ranks]}
            for step in schedule.steps
        ],
        "words": {str(rank): counts for rank, counts in enumerate(schedule.words)},
        "wire_fraction": str(schedule.wire_fraction),
    }


def _rank_document(row: RankStep) -> dict[str, Any]:
    return {
        "rank": row.rank,
        "sends": row.sends,
        "to": row.dest,
        "receives": row.receives,
        "from": row.source,
        "word": row.word,
        "holds": _keyed(row.holds),
    }


def _keyed(holds: Holdings) -> dict[str, tuple[int, ...]]:
    """As JSON has it: keys are strings there."""
    return {str(chunk): ranks for chunk, ranks in holds.items()}


# -------------------------------------------------------------------------------------------------------- for people


def _lines(schedule: RingSchedule) -> Iterable[str]:
    place = "in place" if schedule.in_place else "out of place"
    num_steps = len(schedule.steps)
    yield f"Ring {schedule.collective.value}, {place}: {_count(schedule.world_size, 'rank')}, {schedule.numel} elements"
    yield from textwrap.wrap(_chunks(schedule.chunks), _WIDTH, subsequent_indent="        ")
    if num_steps == 0:
        yield "Nothing moves on one rank."
        return
    yield ""
    yield "A word begins with what arrives in its step and ends with what the next step"
    yield f"sends; before the first step each rank opens with {schedule.opening[0]}. The last column"
    yield "lists whose contributions are then in the chunk that arrived."
    if schedule.world_size > MAX_ROWS_PER_STEP:
        yield f"Rank 0 only, for there are more than {MAX_ROWS_PER_STEP} ranks."
    yield from _table(schedule)
    yield ""
    yield from _words(schedule.words)
    yield ""
    _, chunk_numel = schedule.chunks[0]
    fraction = f"{schedule.wire_fraction} of the payload"
    yield f"{_count(num_steps, 'step')}; each rank sends {num_steps * chunk_numel} elements, {fraction}"


def _table(schedule: RingSchedule) -> Iterable[str]:
    """One table per phase. A blank line ends a step that takes several rows."""
    shown = schedule.world_size if schedule.world_size <= MAX_ROWS_PER_STEP else 1
    heads = ("step", "rank", "chunk -> rank", "chunk <- rank", "word", "ranks in it")
    rows = [[_cells(step, row) for row in step.ranks[:shown]] for step in schedule.steps]
    widths = [max(map(len, column)) for column in zip(heads, *(row for cells in rows for row in cells))]
    phase = None
    for step, cells in zip(schedule.steps, rows):
        if step.phase is not phase:
            phase = step.phase
            yield ""
            yield click.style(phase.value, bold=True)
            yield _row(heads, widths)
        elif shown > 1:
            yield ""
        yield from (_row(row, widths) for row in cells)


def _cells(step: RingStep, row: RankStep) -> tuple[str, ...]:
    number = str(step.step) if row.rank == 0 else ""
    contributors = _ranges(row.holds[row.receives])
    return (
        number,
        str(row.rank),
        f"{row.sends} -> {row.dest}",
        f"{row.receives} <- {row.source}",
        row.word,
        contributors,
    )


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    step, rank, *texts = cells
    parts = [step.rjust(widths[0]), rank.rjust(widths[1])]
    parts += [text.ljust(width) for text, width in zip(texts, widths[2:])]
    return "  ".join(parts).rstrip()


def _words(words: Sequence[dict[str, int]]) -> Iterable[str]:
    """The counts of one rank, said once where all are alike."""
    groups: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for rank, counts in enumerate(words):
        groups.setdefault(tuple(counts.items()), []).append(rank)
    for counted, ranks in groups.items():
        yield "words on each rank" if len(groups) == 1 else f"words on rank {_ranges(ranks)}"
        width = max(len(name) for name, _ in counted)
        yield from (f"  {name.ljust(width)}  {count:3}" for name, count in counted)


def _chunks(chunks: Sequence[tuple[int, int]]) -> str:
    """Element ranges, half-open as in Python; of many the first two and the last."""
    texts = [f"{index}=[{start}:{stop}]" for index, (start, stop) in enumerate(chunks)]
    if len(texts) > MAX_ROWS_PER_STEP:
        texts = [*texts[:2], "...", texts[-1]]
    return "chunks: " + ", ".join(texts)


def _ranges(ranks: Sequence[int]) -> str:
    """Ascending ranks, runs of three and more shortened: `0,1` and `0-3,7`."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
