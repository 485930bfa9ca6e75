"""On what a run ran, and how to repeat it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rsag.records.plan import Plan
from rsag.records.run import RankInfo, Run, RunOutcome
from rsag.records.rundir import PLAN, RUN
from rsag.report.page.figures import Figure, number, word

MOST_RANKS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One fact about the run, or one version or variable: a value for each group of ranks that shares it."""

    name: str
    values: tuple[tuple[str, Figure], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one rank ran."""

    rank: int
    host: Figure
    device: Figure
    local_rank: Figure
    pid: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentView:
    """`where` sums up the topology as far as it is recorded: hosts, ranks, devices."""

    facts: tuple[Setting, ...]
    where: str
    places: tuple[Place, ...]
    num_ranks: int
    versions: tuple[Setting, ...]
    variables: tuple[Setting, ...]
    repeat: tuple[str, ...]


def view_environment(plan: Plan | None, run: Run | None, directory: Path) -> EnvironmentView:
    ranks = () if run is None else run.ranks
    return EnvironmentView(
        facts=tuple(_facts(plan, run)),
        where=_where(ranks),
        places=tuple(_place(index, info) for index, info in enumerate(ranks[:MOST_RANKS])),
        num_ranks=len(ranks),
        versions=_settings(ranks, "versions"),
        variables=_settings(ranks, "environment"),
        repeat=tuple(_repeat(plan, run, directory)),
    )


def _facts(plan: Plan | None, run: Run | None) -> list[Setting]:
    figures = []
    if run is not None:
        figures += [
            ("started", word(run.started_utc, f"{RUN}: started_utc")),
            ("took", Figure(text=f"{run.seconds:.1f} s", source=f"{RUN}: seconds", value=run.seconds)),
            ("ended", word(run.outcome.value, f"{RUN}: outcome")),
            ("message", word(run.message, f"{RUN}: message")),
            ("launcher", word(run.launcher, f"{RUN}: launcher")),
            ("platform", word(run.platform, f"{RUN}: platform")),
            ("rsag", word(run.rsag_version, f"{RUN}: rsag_version")),
        ]
    if plan is not None:
        figures += [
            ("backend", word(plan.backend.value, f"{PLAN}: backend")),
            ("ranks", number(plan.world_size, 0, f"{PLAN}: world_size")),
            ("seed", Figure(text=str(plan.seed), source=f"{PLAN}: seed", value=plan.seed)),
            ("dtype", word(plan.dtype.value, f"{PLAN}: dtype")),
        ]
    return [Setting(name=name, values=(("", figure),)) for name, figure in figures]


def _where(ranks: Sequence[RankInfo]) -> str:
    """`8 ranks on 2 hosts, 8 NVIDIA H200`: hosts are told apart by name."""
    if not ranks:
        return ""
    hosts = len({info.host for info in ranks})
    devices = ", ".join(
        f"{sum(other.device == device for other in ranks)} {device}"
        for device in dict.fromkeys(info.device for info in ranks)
    )
    return f"{len(ranks)} {_noun(len(ranks), 'rank')} on {hosts} {_noun(hosts, 'host')}: {devices}"


def _noun(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"


def _place(index: int, info: RankInfo) -> Place:
    at = f"{RUN}: ranks[{index}]"
    return Place(
        rank=info.rank,
        host=word(info.host, f"{at}.host"),
        device=word(info.device, f"{at}.device"),
        local_rank=Figure(text=str(info.local_rank), source=f"{at}.local_rank", value=info.local_rank),
        pid=Figure(text=str(info.pid), source=f"{at}.pid", value=info.pid),
    )


def _settings(ranks: Sequence[RankInfo], key: str) -> tuple[Setting, ...]:
    """Each name once; where ranks differ, each value with the ranks that have it."""
    names = sorted({name for info in ranks for name in getattr(info, key)})
    settings = []
    for name in names:
        holders: dict[str, list[int]] = {}
        for index, info in enumerate(ranks):
            if name in getattr(info, key):
                holders.setdefault(getattr(info, key)[name], []).append(index)
        values = []
        for value, own in holders.items():
            source = f"{RUN}: ranks[{own[0]}].{key}.{name}"
            who = "" if len(own) == len(ranks) else _ranks([ranks[index].rank for index in own])
            values.append((who, word(value, source)))
        settings.append(Setting(name=name, values=tuple(values)))
    return tuple(settings)


def _ranks(ranks: Sequence[int]) -> str:
    listed = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return f"{_noun(len(ranks), 'rank')} {listed}"


def _repeat(plan: Plan | None, run: Run | None, directory: Path) -> list[str]:
    """Commands, as they would be typed: the one that made the run, and those that judge and show it again.

    `directory` is named as it was given: from there the commands find it.
    """
    lines = []
    if run is not None and run.command:
        lines.append(run.command)
    if plan is not None and (run is None or run.launcher != "local"):
        lines.append(f"torchrun --nproc-per-node={plan.world_size} -m rsag.rank --plan {PLAN} --out DIR")
    if run is not None and run.outcome is not RunOutcome.COMPLETE:
        lines.append("rsag env")
    name = shlex.quote(str(directory))
    return [*lines, f"rsag judge {name}", f"rsag report {name}"]
