"""Both carriers on one rank: results, memory given back for real, and what they refuse."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from rsag.carriers.groups import Groups
from rsag.carriers.owning import run_owning
from rsag.carriers.pooled import Pooled
from rsag.carriers.torch_api import api
from rsag.compositions import COMPOSITIONS, find
from rsag.errors import UnsupportedError, UsageError
from rsag.programs import Composition, Program, Recorder, View, record, record_all
from rsag.reduction import ReduceOp

pytestmark = pytest.mark.usefixtures("one_rank")

CARRIED = [composition for composition in COMPOSITIONS if not composition.symmetric]
CONSUMING = [composition for composition in CARRIED if composition.consumes]
BORROWING = [composition for composition in CARRIED if not composition.consumes]
every = pytest.mark.parametrize("composition", CARRIED, ids=lambda composition: composition.name)
every_consuming = pytest.mark.parametrize("composition", CONSUMING, ids=lambda composition: composition.name)
every_borrowing = pytest.mark.parametrize("composition", BORROWING, ids=lambda composition: composition.name)


def program_of(composition: Composition | str, numel: int, *, rank: int = 0, world_size: int = 1) -> Program:
    found = find(composition) if isinstance(composition, str) else composition
    return record(found, rank=rank, world_size=world_size, numel=numel, op=ReduceOp.SUM)


@pytest.fixture
def groups() -> Iterator[Groups]:
    """The groups that one-rank programs need: the default one."""
    with Groups([program_of("all_reduce", 4)]) as made:
        yield made


# ------------------------------------------------------------------------------------------------------------- results


@every
@pytest.mark.parametrize("numel", [0, 1, 12])
def test_on_one_rank_the_input_comes_back_from_both(composition: Composition, numel: int, groups: Groups) -> None:
    program = program_of(composition, numel)
    given = torch.arange(numel) + 5
    bound = Pooled(program, groups, dtype=given.dtype)
    for _ in range(2):
        bound.input.copy_(given)
        bound()
        assert given.tolist() == bound.result.tolist()
    assert given.tolist() == run_owning(program, given.clone(), groups).tolist()


def test_what_works_in_place_is_one_memory(groups: Groups) -> None:
    in_place = Pooled(program_of("rs_ag_in_place", 4), groups, dtype=torch.float32)
    apart = Pooled(program_of("rs_ag_naive", 4), groups, dtype=torch.float32)
    assert in_place.input.data_ptr() == in_place.result.data_ptr()
    assert apart.input.data_ptr() != apart.result.data_ptr()


@every
def test_a_bound_program_allocates_nothing(composition: Composition, groups: Groups) -> None:
    program = program_of(composition, 12)
    bound = Pooled(program, groups, dtype=torch.float32)
    before = bound.input.data_ptr(), bound.result.data_ptr()
    bound()
    assert before == (bound.input.data_ptr(), bound.result.data_ptr())


# -------------------------------------------------------------------------------------------------------------- memory


@every_consuming
def test_a_consumed_input_gives_its_memory_back(composition: Composition, groups: Groups) -> None:
    given = torch.arange(12)
    result = run_owning(program_of(composition, 12), given, groups)
    assert given.untyped_storage().nbytes() == 0
    assert list(range(12)) == result.tolist()


@every_consuming
def test_a_consumed_input_that_had_to_be_copied_gives_its_memory_back_too(
    composition: Composition, groups: Groups
) -> None:
    given = torch.arange(12).view(3, 4).t()
    expected = given.reshape(-1).tolist()
    result = run_owning(program_of(composition, 12), given, groups)
    assert (0, expected) == (given.untyped_storage().nbytes(), result.tolist())


@every_consuming
@pytest.mark.parametrize("cut", [slice(0, 12), slice(4, 16)], ids=["front", "back"])
def test_a_view_cannot_be_consumed_and_stays_whole(composition: Composition, cut: slice, groups: Groups) -> None:
    base = torch.arange(16)
    with pytest.raises(UnsupportedError, match=r"must own its memory; got a view into 128 bytes of int64"):
        run_owning(program_of(composition, 12), base[cut], groups)
    assert list(range(16)) == base.tolist()


@every_borrowing
def test_a_borrowed_input_stays(composition: Composition, groups: Groups) -> None:
    given = torch.arange(12)
    run_owning(program_of(composition, 12), given, groups)
    assert list(range(12)) == given.tolist()


def test_a_borrowed_view_may_be_reduced_and_its_surroundings_stay(groups: Groups) -> None:
    def doubled(m: Recorder, full: View, op: str) -> View:
        copy = m.allocate(len(full))
        m.copy(copy, full)
        m.combine(full, copy, op=op)
        m.release(copy)
        return full

    base = torch.arange(6)
    program = program_of(Composition(name="doubled", run=doubled, summary=""), 3)
    run_owning(program, base.view(3, 2)[:, 1], groups)
    assert [0, 2, 2, 6, 4, 10] == base.tolist()


def test_early_release_frees_the_input_before_the_gathered_buffer_exists() -> None:
    """Not at the end, when it would help nobody: the gather finds the input's memory gone already."""
    given = torch.arange(12)
    left: list[int] = []

    def all_gather(out: Tensor, inp: Tensor, group: object, asynchronous: bool) -> None:
        left.append(given.untyped_storage().nbytes())

    program = program_of("rs_ag_early_release", 12)
    with Groups([program], torch_api=dataclasses.replace(api(), all_gather=all_gather)) as groups:
        run_owning(program, given, groups)
    assert [0] == left


# ------------------------------------------------------------------------------------------------------------- refused


def test_another_ranks_program_is_refused(groups: Groups) -> None:
    program = program_of("all_reduce", 4, rank=1, world_size=2)
    with pytest.raises(UsageError, match="another rank's program; got 1; expected 0"):
        Pooled(program, groups, dtype=torch.float32)
    with pytest.raises(UsageError, match="another rank's program; got 1; expected 0"):
        run_owning(program, torch.zeros(4), groups)


def test_a_tensor_of_another_size_is_refused(groups: Groups) -> None:
    with pytest.raises(UsageError, match="all_reduce was recorded for another size; got 5; expected 4"):
        run_owning(program_of("all_reduce", 4), torch.zeros(5), groups)


@pytest.mark.parametrize(
    "tensor",
    [torch.zeros(1).expand(4), torch.zeros(4, requires_grad=True), torch.zeros(4).to_sparse()],
    ids=["expanded", "requires-grad", "sparse"],
)
def test_what_cannot_be_flattened_is_refused(tensor: Tensor, groups: Groups) -> None:
    with pytest.raises(UnsupportedError):
        run_owning(program_of("all_reduce", 4), tensor, groups)


def test_a_program_that_the_groups_were_not_made_for_is_refused(groups: Groups) -> None:
    program = program_of("all_reduce", 4, world_size=2)
    with pytest.raises(UsageError, match=r"no group was made for a program; got \(0, 1\)"):
        Pooled(program, groups, dtype=torch.float32)


def test_copies_beside_the_stream_are_not_carried(groups: Groups) -> None:
    def beside(m: Recorder, full: View, op: str) -> View:
        copy = m.allocate(len(full))
        m.wait(m.copy(copy, full, start=True))
        m.release(copy)
        return full

    program = program_of(Composition(name="beside", run=beside, summary=""), 4)
    with pytest.raises(UnsupportedError, match="beside reads peers' memory or copies beside the stream"):
        Pooled(program, groups, dtype=torch.float32)


def test_an_unknown_function_is_not_carried(groups: Groups) -> None:
    def applied(m: Recorder, full: View, op: str) -> View:
        m.apply("cast", full, full)
        return full

    program = program_of(Composition(name="applied", run=applied, summary=""), 4)
    with pytest.raises(UnsupportedError, match="an apply of 'cast' has no tensor function"):
        Pooled(program, groups, dtype=torch.float32)


# ------------------------------------------------------------------------------------------------- started and awaited


class Recorded:
    """What torch is asked for, in order: (name, call number)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []
        self._num_calls = 0

    def start(self, *arguments: Any) -> Any:
        self._num_calls += 1
        number = self._num_calls
        self.events.append(("start", number))

        class Work:
            def wait(_) -> None:  # noqa: N805 - the outer self is the one that is wanted
                self.events.append(("wait", number))

        return Work()

    def batch(self, ops: list[Any]) -> list[Any]:
        return [self.start() for _ in ops]


def test_what_is_started_is_waited_for_once_and_in_order() -> None:
    seen = Recorded()
    program = program_of("rs_ag_chunked", 8)
    with Groups([program], torch_api=dataclasses.replace(api(), all_gather=seen.start)) as groups:
        starts, waits = [("start", number) for number in range(1, 5)], [("wait", number) for number in range(1, 5)]
        run_owning(program, torch.zeros(8), groups)
        assert [*starts, *waits] == seen.events
        bound = Pooled(program, groups, dtype=torch.float32)
        seen.events.clear()
        bound()
        bound()
    numbers = [number for event, number in seen.events if event == "wait"]
    assert list(range(5, 13)) == numbers


@pytest.mark.parametrize("start", [True, False])
def test_both_halves_of_a_sendrecv_are_waited_for(start: bool) -> None:
    def to_myself(m: Recorder, full: View, op: str) -> View:
        copy = m.allocate(len(full))
        token = m.sendrecv(copy, 0, full, 0, start=start)
        if start:
            m.wait(token)
        m.release(copy)
        return full

    seen = Recorded()
    fake = dataclasses.replace(api(), batch_isend_irecv=seen.batch, module=FakeModule())
    program = program_of(Composition(name="to_myself", run=to_myself, summary=""), 4)
    with Groups([program], torch_api=fake) as groups:
        run_owning(program, torch.zeros(4), groups)
    assert [("start", 1), ("start", 2), ("wait", 1), ("wait", 2)] == seen.events


class FakeModule:
    """As much of torch.distributed as a sendrecv to oneself needs, which torch itself refuses."""

    isend = irecv = None

    class group:  # noqa: N801 - torch's name
        WORLD = "world"

    def get_process_group_ranks(self, group: object) -> list[int]:
        return [0]

    def P2POp(self, *arguments: object) -> tuple[object, ...]:  # noqa: N802 - torch's name
        return arguments


def test_programs_for_more_ranks_are_refused() -> None:
    with pytest.raises(
        UsageError, match=r"a program for more ranks than the group has; got \(0, 1\); expected 1 ranks"
    ):
        Groups(record_all(find("all_reduce"), world_size=2, numel=4, op=ReduceOp.SUM))
