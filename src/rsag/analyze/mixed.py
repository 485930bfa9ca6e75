"""In what runs differ apart from their numbers: hardware, versions, variables, plan.

Host name, process id, start time, seed and place on the disk are no difference: launches of one plan differ in them.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum

from rsag.analyze.judged import JudgedRun
from rsag.records.compare import Difference
from rsag.records.latency import Case, LatencyPlan, TimedArm
from rsag.records.plan import Plan
from rsag.records.run import RankInfo

ABSENT, NO_MORE = "none", "no more"

_PLACE_PREFIXES = ("SLURM_", "OMPI_COMM_WORLD_", "PMI_")
_PLACE_NAMES = {
    *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "NCCL_COMM_ID", "NCCL_HOSTID"),
    *("NCCL_DEBUG_FILE", "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
    *("CUDA_HOME", "CUDA_PATH", "CUDA_CACHE_PATH", "TORCH_HOME", "TORCH_EXTENSIONS_DIR"),
}
"""Variables that say where a job runs or writes. What chooses a library or a topology by a path is not among them."""

_VERSION, _VARIABLE, _PLAN = "version of", "variable", "plan:"
_KINDS = (_VERSION, _VARIABLE, _PLAN)

_Words = dict[str, tuple[str, ...]]
"""Field by field what a run is; a list has a word for each entry, in any order."""


def differences(a: JudgedRun, b: JudgedRun) -> tuple[Difference, ...]:
    """Field by field what differs, with both values; () for two launches of one plan on one kind of machine."""
    own, other = _circumstances(a), _circumstances(b)
    return tuple(
        Difference(field=field, a=_surplus(own, other, field), b=_surplus(other, own, field))
        for field in sorted({*own, *other}, key=_place)
        if Counter(own.get(field, ())) != Counter(other.get(field, ()))
    )


def _place(field: str) -> tuple[int, str]:
    """The machine first, its versions and variables next, the plan last; by name among each."""
    return next((place for place, kind in enumerate(_KINDS, start=1) if field.startswith(kind)), 0), field


def in_words(found: Iterable[Difference], a: str, b: str) -> str:
    """All of `found` in one line of an error; `a` and `b` name the runs."""
    return f"{a} vs {b}: {' | '.join(f'{one.field}: {one.a} vs {one.b}' for one in found)}"


def _surplus(own: _Words, other: _Words, field: str) -> str:
    """What `own` has and `other` has not."""
    more = Counter(own.get(field, ())) - Counter(other.get(field, ()))
    return "; ".join(more.elements()) or (NO_MORE if field in own else ABSENT)


def _circumstances(judged: JudgedRun) -> _Words:
    plan, run = judged.plan, judged.run
    words = {
        "world size": str(plan.world_size),
        "backend": plan.backend.value,
        "devices": _devices(run.ranks),
        "ranks by host": _ranks_by_host(run.ranks),
        "rsag version": run.rsag_version,
        "platform": run.platform,
        **_over_ranks(_VERSION, [rank.versions for rank in run.ranks]),
        **_over_ranks(_VARIABLE, [_that_matter(rank.environment) for rank in run.ranks]),
    }
    return {**{field: (word,) for field, word in words.items()}, **_of_plan(plan.latency), **_of_kernels(plan)}


def _devices(ranks: Iterable[RankInfo]) -> str:
    return ", ".join(f"{count} x {device}" for device, count in Counter(rank.device for rank in ranks).items())


def _ranks_by_host(ranks: Iterable[RankInfo]) -> str:
    """`0 1 | 2 3` for two ranks on each of two hosts, whatever their names."""
    hosts: dict[str, list[str]] = {}
    for rank in ranks:
        hosts.setdefault(rank.host, []).append(str(rank.rank))
    return " | ".join(" ".join(own) for own in hosts.values())


def _over_ranks(kind: str, tables: list[dict[str, str]]) -> dict[str, str]:
    """Each name's value, or every rank's where they differ."""
    names = {name for table in tables for name in table}
    values = {name: [table.get(name, ABSENT) for table in tables] for name in names}
    return {f"{kind} {name}": own[0] if len(set(own)) == 1 else ", ".join(own) for name, own in values.items()}


def _that_matter(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(_PLACE_PREFIXES) and name not in _PLACE_NAMES
    }


def _of_plan(timing: LatencyPlan | None) -> _Words:
    """Everything that is timed and how, so that a field added to the plan counts by itself."""
    if timing is None:
        return {}
    words = {field.name: getattr(timing, field.name) for field in dataclasses.fields(timing)}
    del words["wire_cases"]  # what is counted, not timed
    return {
        f"{_PLAN} cases": tuple(map(_case, words.pop("cases"))),
        f"{_PLAN} arms": tuple(map(_arm, words.pop("arms"))),
        **{f"{_PLAN} {name.replace('_', ' ')}": (_word(value),) for name, value in words.items()},
    }


def _of_kernels(plan: Plan) -> _Words:
    """What was profiled; nothing where it was not."""
    if plan.kernels is None:
        return {}
    words = {field.name: getattr(plan.kernels, field.name) for field in dataclasses.fields(plan.kernels)}
    words["arms"] = ", ".join(f"{arm.range}: {arm.composition}" for arm in plan.kernels.arms)
    words["padded"] = ", ".join(plan.kernels.padded)
    return {f"{_PLAN} kernels {name.replace('_', ' ')}": (_word(value),) for name, value in words.items()}


def _case(case: Case) -> str:
    """With every byte: two sizes must not read the same."""
    return f"{case.bytes:,} B {case.dtype.value} {case.op.value} {case.clock.value} x{case.calls}"


def _arm(arm: TimedArm) -> str:
    extras = [arm.buffers.value, *(f"{key}={value}" for key, value in sorted(arm.settings.items()))]
    return f"{arm.role.value} {arm.composition} ({' '.join(extras)})"


def _word(value: object) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    return ABSENT if value is None else str(value)
