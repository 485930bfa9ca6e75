"""The shim calls the right torch function, with the right arguments, whatever this torch calls it."""

from __future__ import annotations

import inspect
import multiprocessing
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from rsag.carriers.torch_api import TorchApi, api, resolve
from rsag.errors import UnsupportedError

SUM = dist.ReduceOp.SUM
FIELDS = ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "batch_isend_irecv", "barrier"]

COMMON = {
    "all_reduce": "tensor op group async_op",
    "broadcast": "tensor src group async_op",
    "reduce": "tensor dst op group async_op",
    "batch_isend_irecv": "p2p_op_list",
    "barrier": "group async_op",
    "new_group": "ranks timeout backend pg_options",
}
OLD = {
    "reduce_scatter_tensor": "output input op group async_op",
    "all_gather_into_tensor": "output_tensor input_tensor group async_op",
}
NEW = {
    "reduce_scatter_single": "output input op group async_op",
    "all_gather_single": "output_tensor input_tensor group async_op",
}
SORTS = {"new_group": COMMON["new_group"] + " sort_ranks"}


class FakeDist(SimpleNamespace):
    """Stands in for torch.distributed: functions with these parameters, whose calls are kept."""

    def __init__(self, **signatures: str) -> None:
        super().__init__(calls=[], **{n: self._function(n, names.split()) for n, names in signatures.items()})

    def _function(self, name: str, parameters: list[str]) -> Callable[..., str]:
        def call(*args: Any, **kwargs: Any) -> str:
            self.calls.append((name, args, kwargs))
            return f"result of {name}"

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        call.__signature__ = inspect.Signature([inspect.Parameter(p, kind) for p in parameters])  # type: ignore[attr-defined]
        return call


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_is_the_torch_function_itself_so_that_a_call_costs_no_frame(field: str) -> None:
    assert getattr(dist, api().names[field]) is getattr(api(), field)


@pytest.mark.parametrize(
    ("signatures", "expected"),
    [
        (OLD, ("reduce_scatter_tensor", "all_gather_into_tensor")),
        (NEW, ("reduce_scatter_single", "all_gather_single")),
        (OLD | NEW, ("reduce_scatter_single", "all_gather_single")),
    ],
    ids=["old names only", "new names only", "both"],
)
def test_the_name_that_does_not_warn_is_chosen(signatures: dict[str, str], expected: tuple[str, str]) -> None:
    fake = FakeDist(**COMMON, **signatures)
    resolved = resolve(fake)
    assert expected == (resolved.names["reduce_scatter"], resolved.names["all_gather"])
    resolved.reduce_scatter("out", "in", SUM, None, True)  # type: ignore[arg-type]
    resolved.all_gather("out", "in", None, False)  # type: ignore[arg-type]
    assert [
        (expected[0], ("out", "in", SUM, None, True), {}),
        (expected[1], ("out", "in", None, False), {}),
    ] == fake.calls


def test_a_new_name_with_another_argument_order_is_passed_over_for_the_old_one() -> None:
    fake = FakeDist(**COMMON, **OLD, **NEW | {"reduce_scatter_single": "input output op group async_op"})
    assert resolve(fake).names["reduce_scatter"] == "reduce_scatter_tensor"


@pytest.mark.parametrize("order", ["tensor group op async_op", "tensor op group async_op stream"])
def test_arguments_that_would_be_misread_are_refused(order: str) -> None:
    fake = FakeDist(**COMMON | OLD | {"all_reduce": order})
    with pytest.raises(UnsupportedError, match=r"no all_reduce .* got all_reduce\(tensor, .* expected all_reduce of"):
        resolve(fake)


def test_optional_arguments_behind_ours_do_not_matter() -> None:
    fake = FakeDist(**COMMON, **OLD)
    fake.broadcast = lambda tensor, src=None, group=None, async_op=False, group_src=None: (tensor, src)
    assert resolve(fake).broadcast("t", 3, None, False) == ("t", 3)  # type: ignore[arg-type, comparison-overlap]


def test_a_wrapper_that_passes_everything_on_is_accepted() -> None:
    fake = FakeDist(**COMMON, **OLD)
    fake.all_reduce = wrapper = lambda *args, **kwargs: None
    assert wrapper is resolve(fake).all_reduce


def test_a_missing_collective_is_named_with_the_names_that_were_tried() -> None:
    with pytest.raises(UnsupportedError, match=r"no reduce_scatter .* got none; expected reduce_scatter_single or"):
        resolve(FakeDist(**COMMON))


@pytest.mark.parametrize("new_group", [{}, SORTS], ids=["always sorts", "has sort_ranks"])
def test_an_ascending_group_is_asked_for_in_the_oldest_form(new_group: dict[str, str]) -> None:
    fake = FakeDist(**COMMON | OLD | new_group)
    assert resolve(fake).new_group((1, 3), backend="gloo") == "result of new_group"  # type: ignore[comparison-overlap]
    assert fake.calls == [("new_group", ([1, 3],), {"timeout": None, "backend": "gloo", "pg_options": None})]


def test_another_rank_order_is_kept_where_torch_can() -> None:
    fake = FakeDist(**COMMON | OLD | SORTS)
    resolve(fake).new_group([3, 1, 2])
    options = {"timeout": None, "backend": None, "pg_options": None, "sort_ranks": False}
    assert [("new_group", ([3, 1, 2],), options)] == fake.calls


def test_another_rank_order_is_refused_before_anything_is_made_where_torch_sorts() -> None:
    fake = FakeDist(**COMMON, **OLD)
    with pytest.raises(UnsupportedError, match=r"got ranks \[3, 1, 2\]; expected \[1, 2, 3\]; use a torch"):
        resolve(fake).new_group([3, 1, 2])
    assert fake.calls == []


def _split_cannot(ranks: Any, sort_ranks: bool = True, **options: Any) -> None:
    raise NotImplementedError("split_group")


def test_a_torch_that_splits_instead_says_so_for_another_rank_order_only() -> None:
    fake = FakeDist(**COMMON, **OLD)
    fake.new_group = _split_cannot
    with pytest.raises(UnsupportedError, match="TORCH_DISTRIBUTED_USE_TORCHCOMMS"):
        resolve(fake).new_group([1, 0])
    with pytest.raises(NotImplementedError, match="split_group"):
        resolve(fake).new_group([0, 1])


@pytest.fixture
def four_fake_ranks() -> Iterator[TorchApi]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield api()
    dist.destroy_process_group()


def test_group_ranks_are_global_ranks_in_group_order(four_fake_ranks: TorchApi) -> None:
    assert four_fake_ranks.group_ranks() == [0, 1, 2, 3]
    assert four_fake_ranks.group_ranks(four_fake_ranks.new_group([0, 2])) == [0, 2]


@pytest.mark.skipif(not api().keeps_rank_order, reason="this torch sorts the ranks of a new group")
def test_torch_keeps_the_rank_order_that_was_asked_for(four_fake_ranks: TorchApi) -> None:
    assert four_fake_ranks.group_ranks(four_fake_ranks.new_group([3, 0, 1])) == [3, 0, 1]


def test_a_rank_outside_the_group_gets_no_group(four_fake_ranks: TorchApi) -> None:
    group: object = four_fake_ranks.new_group([1, 2])
    assert group == dist.GroupMember.NON_GROUP_MEMBER


@pytest.fixture
def one_rank() -> Iterator[TorchApi]:
    """A Gloo group of one rank, under which every warning is an error."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield api()
    dist.destroy_process_group()


CALLS: dict[str, Callable[[TorchApi, torch.Tensor, torch.Tensor, bool], dist.Work | None]] = {
    "all_reduce": lambda a, out, inp, start: a.all_reduce(out.copy_(inp), SUM, None, start),
    "reduce_scatter": lambda a, out, inp, start: a.reduce_scatter(out, inp, SUM, None, start),
    "all_gather": lambda a, out, inp, start: a.all_gather(out, inp, None, start),
    "broadcast": lambda a, out, inp, start: a.broadcast(out.copy_(inp), 0, None, start),
    "reduce": lambda a, out, inp, start: a.reduce(out.copy_(inp), 0, SUM, None, start),
}


@pytest.mark.parametrize("field", CALLS)
def test_a_blocking_call_is_done_when_it_returns(field: str, one_rank: TorchApi) -> None:
    out, inp = torch.zeros(3), torch.tensor([1.0, 2.0, 3.0])
    assert CALLS[field](one_rank, out, inp, False) is None
    assert out.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("field", CALLS)
def test_a_started_call_is_done_when_it_has_been_waited_for(field: str, one_rank: TorchApi) -> None:
    out, inp = torch.zeros(3), torch.tensor([1.0, 2.0, 3.0])
    work = CALLS[field](one_rank, out, inp, True)
    assert work is not None
    work.wait()
    assert out.tolist() == [1.0, 2.0, 3.0]


def test_a_barrier_returns_and_a_started_one_gives_a_handle(one_rank: TorchApi) -> None:
    assert one_rank.barrier(None, False) is None
    work = one_rank.barrier(None, True)
    assert work is not None
    work.wait()


def _on_a_group_of_ranks_1_and_2(rank: int, store: str) -> list[list[float]]:
    """The results, on rank 1 or 2, of the calls that name a rank, in a group where global and group ranks differ."""
    file_store = dist.FileStore(store, 3)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=file_store, rank=rank, world_size=3)
    torch_api = api()
    group = torch_api.new_group([1, 2])
    results: list[torch.Tensor] = []
    if rank != 0:
        mine, got, total = torch.tensor([float(rank)]), torch.zeros(1), torch.tensor([float(rank)])
        peer = 3 - rank
        ops = [torch_api.send_op(mine, peer, group), torch_api.recv_op(got, peer, group)]
        for work in torch_api.batch_isend_irecv(ops):
            work.wait()
        torch_api.broadcast(mine, 2, group, False)
        torch_api.reduce(total, 1, SUM, group, False)
        results = [got, mine] + ([total] if rank == 1 else [])
    torch_api.barrier(None, False)
    dist.destroy_process_group()
    return [result.tolist() for result in results]


@pytest.mark.multirank
def test_peers_and_roots_are_global_ranks_in_a_subgroup_too(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed"])
    with context.Pool(3) as pool:
        arguments = [(rank, str(tmp_path / "store")) for rank in range(3)]
        results = pool.starmap_async(_on_a_group_of_ranks_1_and_2, arguments, chunksize=1).get(timeout=60)
    assert results == [[], [[2.0], [2.0], [3.0]], [[1.0], [2.0]]]
