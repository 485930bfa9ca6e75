"""Which lifetimes are measured at which size, and what is refused before any rank starts."""

from __future__ import annotations

import pytest

from rsag.errors import UsageError
from rsag.lab import require_room
from rsag.plan import make_plan
from rsag.plan.memory import ARMS, plan_memory
from rsag.records.memory import MemoryArm, MemoryPlan
from rsag.records.plan import Backend, Experiment
from rsag.units import MIB


def arm(plan: MemoryPlan, composition: str) -> MemoryArm:
    return next(one for one in plan.arms if one.composition == composition)


@pytest.mark.parametrize(("backend", "size"), [(Backend.GLOO, 64 * MIB), (Backend.NCCL, 256 * MIB)])
def test_each_backend_has_its_size(backend: Backend, size: int) -> None:
    plan = make_plan(world_size=4, backend=backend, experiments=[Experiment.MEMORY]).memory
    assert plan is not None
    assert (size, list(ARMS)) == (plan.bytes, [one.composition for one in plan.arms])


def test_memory_is_planned_only_where_it_is_asked_for() -> None:
    assert make_plan(world_size=4, backend=Backend.GLOO, experiments=[Experiment.CONTRACTS]).memory is None


def test_the_payload_divides_and_what_pads_gets_one_element_more() -> None:
    plan = plan_memory(world_size=3, backend=Backend.GLOO, size=100)
    assert (96, 96, 100) == (plan.bytes, arm(plan, "rs_ag_naive").bytes, arm(plan, "rs_ag_padded").bytes)


def test_on_one_rank_there_is_nothing_to_pad() -> None:
    plan = plan_memory(world_size=1, backend=Backend.GLOO, size=100)
    assert 100 == arm(plan, "rs_ag_padded").bytes


def test_the_prediction_is_a_timeline_by_role_on_every_rank() -> None:
    found = arm(plan_memory(world_size=2, backend=Backend.GLOO, size=80), "rs_ag_early_release")
    assert [0, 1] == [row.rank for row in found.predicted]
    assert [
        ("allocate input", {"input": 80}),
        ("allocate shard", {"input": 80, "shard": 40}),
        ("release input", {"input": 0, "shard": 40}),
        ("allocate gathered", {"input": 0, "shard": 40, "gathered": 80}),
        ("release shard", {"input": 0, "shard": 0, "gathered": 80}),
    ] == [(moment.what, moment.live_bytes) for moment in found.predicted[1].timeline]


@pytest.mark.parametrize(
    ("compositions", "size", "message"),
    [(["peer"], 80, "peer cannot be measured"), (["nobody"], 80, "unknown composition"), (None, 3, "at least one")],
)
def test_what_cannot_be_measured_is_refused(compositions: list[str] | None, size: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan_memory(world_size=2, backend=Backend.GLOO, size=size, compositions=compositions)


def test_a_size_that_does_not_fit_is_refused_with_the_predicted_peak_and_what_is_free() -> None:
    plan = make_plan(world_size=4, backend=Backend.GLOO, experiments=[Experiment.MEMORY])
    needed = 4 * (144 + 64) * MIB
    require_room(plan, free_bytes=needed)
    with pytest.raises(UsageError, match=r"rs_ag_naive at 64 MiB .* peak of 144 MiB on each of 4 .* at most 831 MiB"):
        require_room(plan, free_bytes=needed - MIB)
