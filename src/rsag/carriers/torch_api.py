"""torch.distributed under one set of names and positional signatures, from torch 2.5 to 2.14.

Every rank here is a *global* rank, the only form that all of these versions have: `group_src`, `group_dst` and
`group_peer` came after 2.5.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch.distributed

from rsag.errors import UnsupportedError

if TYPE_CHECKING:
    from datetime import timedelta

    from torch import Tensor
    from torch.distributed import P2POp, ProcessGroup, Work
    from torch.distributed import ReduceOp as _ReduceOp

    Group = ProcessGroup | None  # None is the default group
    ReduceOp = _ReduceOp | _ReduceOp.RedOpType
    Handle = Work | None  # None when blocking

# Ours -> torch's names, the preferred first, and the positional order that callers rely on.
# Since 2.13 reduce_scatter_tensor and all_gather_into_tensor are shells of the others that warn on every call.
_COLLECTIVES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "all_reduce": (("all_reduce",), ("tensor", "op", "group", "async_op")),
    "reduce_scatter": (
        ("reduce_scatter_single", "reduce_scatter_tensor"),
        ("output", "input", "op", "group", "async_op"),
    ),
    "all_gather": (
        ("all_gather_single", "all_gather_into_tensor"),
        ("output_tensor", "input_tensor", "group", "async_op"),
    ),
    "broadcast": (("broadcast",), ("tensor", "src", "group", "async_op")),
    "reduce": (("reduce",), ("tensor", "dst", "op", "group", "async_op")),
    "batch_isend_irecv": (("batch_isend_irecv",), ("p2p_op_list",)),
    "barrier": (("barrier",), ("group", "async_op")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchApi:
    """What this torch calls each collective, decided once: a call through a field is a call of torch's own function.

    Call the fields with positional arguments only, in this order:

    - `all_reduce(tensor, op, group, async_op)`
    - `reduce_scatter(out, inp, op, group, async_op)`, `inp` being `group size` times as long as `out`
    - `all_gather(out, inp, group, async_op)`, `out` being `group size` times as long as `inp`
    - `broadcast(tensor, src, group, async_op)`
    - `reduce(tensor, dst, op, group, async_op)`
    - `batch_isend_irecv(ops)`, `ops` being a list from `send_op` and `recv_op`, all of one group
    - `barrier(group, async_op)`; over NCCL give `init_process_group` a `device_id`, or newer versions warn
    """

    all_reduce: Callable[[Tensor, ReduceOp, Group, bool], Handle]
    reduce_scatter: Callable[[Tensor, Tensor, ReduceOp, Group, bool], Handle]
    all_gather: Callable[[Tensor, Tensor, Group, bool], Handle]
    broadcast: Callable[[Tensor, int, Group, bool], Handle]
    reduce: Callable[[Tensor, int, ReduceOp, Group, bool], Handle]
    batch_isend_irecv: Callable[[list[P2POp]], list[Work]]
    barrier: Callable[[Group, bool], Handle]
    names: Mapping[str, str]  # field -> the torch function that serves it
    keeps_rank_order: bool  # whether a group may list its ranks in another than ascending order
    module: Any  # torch.distributed, or what stands in for it

    def send_op(self, tensor: Tensor, peer: int, group: Group = None) -> P2POp:
        """A send of `tensor` to global rank `peer`, to be made once and issued often by `batch_isend_irecv`."""
        op: P2POp = self.module.P2POp(self.module.isend, tensor, peer, group)
        return op

    def recv_op(self, tensor: Tensor, peer: int, group: Group = None) -> P2POp:
        """A receive into `tensor` from global rank `peer`, to be made once and issued often by `batch_isend_irecv`."""
        op: P2POp = self.module.P2POp(self.module.irecv, tensor, peer, group)
        return op

    def group_ranks(self, group: Group = None) -> list[int]:
        """The global ranks of `group`, in group order."""
        # torch 2.5 takes no None here.
        ranks: list[int] = self.module.get_process_group_ranks(group or self.module.group.WORLD)
        return ranks

    def new_group(
        self,
        ranks: Sequence[int],
        *,
        timeout: timedelta | None = None,
        backend: str | None = None,
        pg_options: object = None,
    ) -> ProcessGroup:
        """A group whose i-th rank is global rank `ranks[i]`, never sorted.

        Collective over the default group: all its ranks make all groups, in one order. A rank outside `ranks` gets
        torch's `GroupMember.NON_GROUP_MEMBER`. Raises UnsupportedError, on all ranks alike and before anything is
        made, where this torch can only make ascending groups and `ranks` do not ascend.
        """
        wanted = list(ranks)
        options: dict[str, Any] = {"timeout": timeout, "backend": backend, "pg_options": pg_options}
        if wanted != sorted(wanted):
            if not self.keeps_rank_order:
                raise _order_unsupported(wanted, "use a torch whose new_group has sort_ranks, or ascending ranks")
            options["sort_ranks"] = False
        try:
            group: ProcessGroup = self.module.new_group(wanted, **options)
        except NotImplementedError as error:  # the torchcomms path splits, and a split is always sorted
            if "sort_ranks" not in options:
                raise
            do = "unset TORCH_DISTRIBUTED_USE_TORCHCOMMS, or use ascending ranks"
            raise _order_unsupported(wanted, do) from error
        return group


def resolve(dist: Any) -> TorchApi:
    """The API of `dist`, which is torch.distributed or stands in for it.

    Raises UnsupportedError where a collective is missing, or takes its arguments in an order that we do not know.
    """
    names = {field: _choose(dist, field) for field in _COLLECTIVES}
    functions = {field: getattr(dist, name) for field, name in names.items()}
    keeps_rank_order = "sort_ranks" in inspect.signature(dist.new_group).parameters
    return TorchApi(names=names, keeps_rank_order=keeps_rank_order, module=dist, **functions)


@functools.cache
def api() -> TorchApi:
    """The API of the torch that is installed, resolved at the first call and kept."""
    return resolve(torch.distributed)


def _choose(dist: Any, field: str) -> str:
    candidates, order = _COLLECTIVES[field]
    present = [name for name in candidates if hasattr(dist, name)]
    for name in present:
        if _takes(getattr(dist, name), order):
            return name
    raise UnsupportedError(
        f"torch.distributed has no {field} that we can call",
        got=" and ".join(f"{name}{inspect.signature(getattr(dist, name))}" for name in present) or "none",
        expected=f"{' or '.join(candidates)} of ({', '.join(order)})",
        do="use torch 2.5 to 2.14, built with distributed support",
    )


def _takes(function: Callable[..., Any], order: tuple[str, ...]) -> bool:
    """Whether positional arguments in this order arrive where they are meant to, and no more are required."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return True  # a profiler's or logger's wrapper, which passes on what it gets
    positional = [p for p in parameters if p.kind is not p.KEYWORD_ONLY and p.kind is not p.VAR_KEYWORD]
    required = {p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD}
    return tuple(p.name for p in positional[: len(order)]) == order and required <= set(order)


def _order_unsupported(ranks: list[int], do: str) -> UnsupportedError:
    what = "this torch makes groups in ascending rank order only"
    return UnsupportedError(what, got=f"ranks {ranks}", expected=f"{sorted(ranks)}", do=do)
