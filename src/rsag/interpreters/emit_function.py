"""The function that an emitted file defines, written instruction by instruction from the programs of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rsag.collectives import Kind
from rsag.interpreters.rank_expressions import expression
from rsag.programs import IDENTITY, Alloc, Instruction, Local, LocalKind, Program, Release, Role, Start, View
from rsag.reduction import DType, Family, ReduceOp, identity

Views = tuple[View, ...]
"""The same view on every rank, in rank order."""

_COMBINE = {
    ReduceOp.SUM: "{dst}.add_({src})",
    ReduceOp.PRODUCT: "{dst}.mul_({src})",
    ReduceOp.MIN: "torch.minimum({dst}, {src}, out={dst})",
    ReduceOp.MAX: "torch.maximum({dst}, {src}, out={dst})",
    ReduceOp.BAND: "{dst}.bitwise_and_({src})",
    ReduceOp.BOR: "{dst}.bitwise_or_({src})",
    ReduceOp.BXOR: "{dst}.bitwise_xor_({src})",
}
_COMBINE_BOOL = {
    ReduceOp.SUM: "{dst}.logical_or_({src})",
    ReduceOp.PRODUCT: "{dst}.logical_and_({src})",
}


@dataclass(slots=True)
class _Names:
    """Names by what they stand for: `shard` where there is one, `shard_0` and `shard_1` where there are several."""

    wanted: dict[object, str] = field(default_factory=dict)

    def __getitem__(self, key: object) -> str:
        base = self.wanted[key]
        alike = [other for other, name in self.wanted.items() if name == base]
        return base if len(alike) == 1 else f"{base}_{alike.index(key)}"


class FunctionText:
    """The definition of a function that does what `columns`, the ranks' instructions side by side, do."""

    def __init__(self, programs: Sequence[Program], columns: list[tuple[Instruction, ...]], dtype: DType) -> None:
        self.programs, self.columns, self.dtype = programs, columns, dtype
        self.first, self.world = programs[0], programs[0].world_size
        self.has_subgroups = _has_subgroups(programs)
        self.moving = [column for column in columns if not _is_empty(column)]
        self.kinds = {column[0].kind for column in self.moving if isinstance(column[0], Start)}
        self.numel = {
            column[0].view.buffer: tuple(len(step.view) for step in column if isinstance(step, Alloc))
            for column in columns
            if isinstance(column[0], Alloc)
        }
        self.names = _Names()
        self.chunked: set[int] = set()
        self._name_buffers()
        self._name_views()
        self.body: list[str] = []
        self.defined: dict[str, int | None] = {}
        self.groups: dict[tuple[tuple[int, ...], ...], str] = {}
        self.works: dict[int, str] = {}
        self._write()

    # ---------------------------------------------------------------------------------------------------- names

    def _name_buffers(self) -> None:
        gathers = self.first.target is Kind.ALL_GATHER and not self.first.in_place
        for column in self.columns:
            step = column[0]
            if isinstance(step, Alloc):
                own = ("shard" if gathers else "full") if step.role is Role.INPUT else step.role.value
                self.names.wanted[step.view.buffer] = own

    def _name_views(self) -> None:
        """What collectives cut out of a buffer gets a name; a buffer that sendrecvs cut is addressed by chunk."""
        for column in self.moving:
            step = column[0]
            if not isinstance(step, Start):
                continue
            whole_is_inp = step.kind is Kind.REDUCE_SCATTER
            for views, base in (
                (_views(column, "inp"), "part" if whole_is_inp else "shard"),
                (_views(column, "out"), "shard" if whole_is_inp else "part"),
            ):
                if views is None or self._is_whole(views):
                    continue
                if step.kind is Kind.SENDRECV:
                    self.chunked.add(views[0].buffer)
                    self.names.wanted["chunks", views[0].buffer] = "chunks"
                elif step.kind in (Kind.REDUCE_SCATTER, Kind.ALL_GATHER):
                    self.names.wanted.setdefault(views, base)
            if step.kind is Kind.SENDRECV:
                self.names.wanted["source", _ranks(column, "source")] = "source"
                self.names.wanted["dest", _ranks(column, "dest")] = "dest"

    def _is_whole(self, views: Views) -> bool:
        sizes = self.numel[views[0].buffer]
        return all((view.start, view.stop) == (0, numel) for view, numel in zip(views, sizes))

    # ----------------------------------------------------------------------------------------------------- views

    def text(self, views: Views) -> str:
        """How the function calls `views`; a hoisted one is defined at its first use."""
        buffer = views[0].buffer
        name, sizes = self.names[buffer], self.numel[buffer]
        starts, stops = [view.start for view in views], [view.stop for view in views]
        if self._is_whole(views):
            return name
        q = sizes[0] // self.world
        if buffer in self.chunked and all(len(view) == q and view.start % q == 0 for view in views):
            chunks = self._hoist(self.names["chunks", buffer], buffer, f"{name}.view({self.world}, {q})")
            return f"{chunks}[{expression([start // q for start in starts])}]"
        first = "" if not any(starts) else expression(starts)
        last = "" if tuple(stops) == sizes else expression(stops)
        sliced = f"{name}[{_slice(first, last)}]"
        return self._hoist(self.names[views], buffer, sliced) if views in self.names.wanted else sliced

    def _hoist(self, name: str, buffer: int | None, value: str) -> str:
        if name not in self.defined:
            self.defined[name] = buffer
            self.body.append(f"{name} = {value}")
        return name

    # ---------------------------------------------------------------------------------------------- instructions

    def lines(self) -> list[str]:
        """The whole definition."""
        numel, argument = len(self.first.input), self.names[self.first.input.buffer]
        group = "" if self.has_subgroups else "group"
        text = "\n".join(self.body)
        lines = [f"rank = dist.get_rank({group})"] if "rank" in text else []
        lines.append(f"world = dist.get_world_size({group})")
        lines.append(f'assert (world, {argument}.numel()) == ({self.world}, {numel}), "written out for these"')
        if "peers[" in text:
            lines.append("peers = dist.get_process_group_ranks(group or dist.group.WORLD)")
        if "**like" in text:
            lines.append(f'like = {{"dtype": {argument}.dtype, "device": {argument}.device}}')
        signature = f"def {self.first.composition}({argument}{', group=None' if group else ''}):"
        return [signature, *(f"    {line}" for line in lines + self.body)]

    def _write(self) -> None:
        for column in self.moving:
            step = column[0]
            if isinstance(step, Alloc):
                if step.role is not Role.INPUT:
                    numel = expression(self.numel[step.view.buffer])
                    self.body.append(f"{self.names[step.view.buffer]} = torch.empty({numel}, **like)")
            elif isinstance(step, Release):
                self._release(step)
            elif isinstance(step, Local):
                self._local(step, column)
            elif isinstance(step, Start):
                self._start(step, column)
            elif step.token in self.works:  # blocking calls have waited, and empty ones were never issued
                self.body.append(f"{self.works[step.token]}.wait()")
        self.body.append(f"return {self.text(tuple(program.result for program in self.programs))}")

    def _release(self, step: Release) -> None:
        buffer = step.view.buffer
        views = [name for name, owner in self.defined.items() if owner == buffer]
        for name in views:
            del self.defined[name]
        names = ", ".join([self.names[buffer], *views])
        if buffer == self.first.input.buffer:
            self.body.append(f"del {names}  # the memory goes when the caller has dropped it too")
        elif self.body[-1].startswith("del ") and "#" not in self.body[-1]:
            self.body[-1] += f", {names}"
        else:
            self.body.append(f"del {names}")

    def _local(self, step: Local, column: Sequence[Instruction]) -> None:
        dst = self.text(tuple(other.dst for other in column if isinstance(other, Local)))
        sources = [
            self.text(tuple(other.src[index] for other in column if isinstance(other, Local)))
            for index in range(len(step.src))
        ]
        if step.kind is LocalKind.COPY:
            self.body.append(f"{dst}.copy_({sources[0]})")
        elif step.kind is LocalKind.FILL:
            value = self._identity() if step.argument == IDENTITY else step.argument
            self.body.append(f"{dst}.fill_({value})")
        else:
            assert isinstance(step.argument, ReduceOp)
            table = {**_COMBINE, **_COMBINE_BOOL} if self.dtype is DType.BOOL else _COMBINE
            self.body += [table[step.argument].format(dst=dst, src=source) for source in sources]

    def _identity(self) -> str:
        value = identity(self.first.op, self.dtype)
        if value in (float("inf"), -float("inf")):
            return f'float("{value}")'
        if self.dtype.family in (Family.SIGNED, Family.UNSIGNED) and self.first.op in (ReduceOp.MIN, ReduceOp.MAX):
            return f"torch.iinfo(torch.{self.dtype.value}).{'max' if self.first.op is ReduceOp.MIN else 'min'}"
        return repr(value)

    def _start(self, step: Start, column: Sequence[Instruction]) -> None:
        group = self._group(tuple(other.group for other in column if isinstance(other, Start)))
        out, inp = (views and self.text(views) for views in (_views(column, "out"), _views(column, "inp")))
        source, dest, root = (self._peer(column, side) for side in ("source", "dest", "root"))
        op = "" if step.op is None else f"dist.ReduceOp.{step.op.name}"
        call = {
            Kind.ALL_REDUCE: f"dist.all_reduce({inp}, {op}, {group}",
            Kind.REDUCE_SCATTER: f"reduce_scatter_single({out}, {inp}, {op}, {group}",
            Kind.ALL_GATHER: f"all_gather_single({out}, {inp}, {group}",
            Kind.BROADCAST: f"dist.broadcast({inp}, {root}, {group}",
            Kind.REDUCE: f"dist.reduce({inp}, {root}, {op}, {group}",
            Kind.BARRIER: f"dist.barrier({group}",
            Kind.SENDRECV: f"sendrecv({out}, {source}, {inp}, {dest}, {group}",
        }[step.kind]
        if step.blocking:
            self.body.append(f"{call})")
            return
        work = self.works[step.token] = f"work_{len(self.works)}"
        self.body.append(f"{work} = {call}, async_op=True)")

    def _group(self, groups: tuple[tuple[int, ...], ...]) -> str:
        if set(groups) == {tuple(range(self.world))}:
            return "None" if self.has_subgroups else "group"
        if groups not in self.groups:
            self.groups[groups] = f"group_{len(self.groups)}"
            self.body.append(f"{self.groups[groups]} = subgroup({', '.join(map(str, sorted(set(groups))))})")
        return self.groups[groups]

    def _peer(self, column: Sequence[Instruction], side: str) -> str | None:
        """torch's calls take global ranks, and the caller's group need not be the default one."""
        ranks = _ranks(column, side)
        if ranks is None:
            return None
        peer = expression(ranks) if self.has_subgroups else f"peers[{expression(ranks)}]"
        return peer if side == "root" else self._hoist(self.names[side, ranks], None, peer)


def _views(column: Sequence[Instruction], side: str) -> Views | None:
    views = tuple(getattr(step, side) for step in column)
    return None if None in views else views


def _ranks(column: Sequence[Instruction], side: str) -> tuple[int, ...] | None:
    ranks = tuple(getattr(step, side) for step in column)
    return None if None in ranks else ranks


def _slice(start: str, stop: str) -> str:
    plain = all(bound.isdigit() or not bound for bound in (start, stop))
    return f"{start}:{stop}" if plain else f"{start} : {stop}".strip()


def _is_empty(column: Sequence[Instruction]) -> bool:
    """Whether it moves no element on any rank: torch need not be asked to."""
    views = [
        view
        for step in column
        if isinstance(step, (Local, Start))
        for view in ((step.dst,) if isinstance(step, Local) else (step.inp, step.out))
        if view is not None
    ]
    return bool(views) and not any(views)


def _has_subgroups(programs: Sequence[Program]) -> bool:
    world = len(programs)
    return any(isinstance(step, Start) and len(step.group) < world for program in programs for step in program.code)
