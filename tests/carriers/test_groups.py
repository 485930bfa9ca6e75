"""The groups that programs need: made in one order, closed again, refused where torch cannot make them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
import torch.distributed as dist

from rsag.carriers.groups import Groups
from rsag.carriers.torch_api import TorchApi, api
from rsag.compositions import find
from rsag.errors import UnsupportedError
from rsag.programs import Composition, Program, Recorder, View, record_all
from rsag.reduction import ReduceOp

pytestmark = pytest.mark.usefixtures("one_rank")


class FakeWorld:
    """A default group of `size` ranks whose subgroups are their lists of ranks; making the `fails_at`th fails."""

    GroupMember = dist.GroupMember

    def __init__(self, size: int, *, fails_at: int | None = None) -> None:
        self.made: list[list[int]] = []
        self._size, self._fails_at = size, fails_at
        self.group = type("group", (), {"WORLD": "world"})

    def get_process_group_ranks(self, group: object) -> list[int]:
        return list(range(self._size))

    def new_group(self, ranks: Sequence[int], **options: object) -> list[int]:
        if len(self.made) == self._fails_at:
            raise RuntimeError("no more sockets")
        self.made.append(list(ranks))
        return self.made[-1]

    def api(self, *, keeps_rank_order: bool = True) -> TorchApi:
        return dataclasses.replace(api(), module=self, keeps_rank_order=keeps_rank_order)


@pytest.fixture
def destroyed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    gone: list[Any] = []
    monkeypatch.setattr(dist, "destroy_process_group", gone.append)
    return gone


def programs_of(name: str, world_size: int = 4) -> tuple[Program, ...]:
    return record_all(find(name), world_size=world_size, numel=4 * world_size, op=ReduceOp.SUM)


def backwards() -> tuple[Program, ...]:
    def run(m: Recorder, full: View, op: str) -> View:
        if m.rank in (0, 1):
            m.sub([0, 1]).all_reduce(full, op)
        if m.rank in (1, 2):
            m.sub([2, 1]).all_reduce(full, op)
        return full

    composition = Composition(name="backwards", run=run, summary="")
    return record_all(composition, world_size=3, numel=3, op=ReduceOp.SUM)


def test_every_rank_makes_all_subgroups_in_one_order_whatever_the_order_of_programs() -> None:
    worlds = [FakeWorld(4), FakeWorld(4)]
    programs = programs_of("two_level")
    Groups(programs, torch_api=worlds[0].api())
    Groups(programs[::-1], torch_api=worlds[1].api())
    assert [[0, 1], [0, 2], [1, 3], [2, 3]] == worlds[0].made == worlds[1].made


def test_the_whole_is_not_made_anew() -> None:
    world = FakeWorld(4)
    groups = Groups(programs_of("rs_ag_naive"), torch_api=world.api())
    assert ([], None) == (world.made, groups.group((0, 1, 2, 3)))


def test_what_was_made_is_closed_once_and_the_whole_stays(destroyed: list[Any]) -> None:
    world = FakeWorld(4)
    with Groups(programs_of("two_level"), torch_api=world.api()) as groups:
        assert destroyed == []
    groups.close()
    assert sorted(world.made) == sorted(destroyed)


def test_ranks_in_another_order_are_kept_where_torch_can() -> None:
    world = FakeWorld(3)
    groups = Groups(backwards(), torch_api=world.api())
    assert [[0, 1], [2, 1]] == world.made
    assert groups.group((2, 1)) == [2, 1]


def test_ranks_in_another_order_are_refused_where_torch_cannot_and_nothing_is_left(destroyed: list[Any]) -> None:
    world = FakeWorld(3)
    with pytest.raises(UnsupportedError, match=r"ascending rank order only; got ranks \[2, 1\]; expected \[1, 2\]"):
        Groups(backwards(), torch_api=world.api(keeps_rank_order=False))
    assert world.made == destroyed == [[0, 1]]


def test_groups_made_before_a_failure_are_closed(destroyed: list[Any]) -> None:
    world = FakeWorld(4, fails_at=2)
    with pytest.raises(RuntimeError, match="no more sockets"):
        Groups(programs_of("two_level"), torch_api=world.api())
    assert sorted(destroyed) == [[0, 1], [0, 2]]
