"""One recorded instruction as one call on tensors: what both carriers are made of."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rsag.carriers.groups import Groups
from rsag.carriers.torch_types import combiner, identity_of, torch_op
from rsag.collectives import Kind
from rsag.errors import ProgramError, UnsupportedError
from rsag.programs import IDENTITY, Local, LocalKind, Program, Start, View, Wait

Call = Callable[[], object]


class Calls:
    """Makes zero-argument calls out of a program's instructions. `at` gives a view's tensor, 1-D and contiguous.

    Raises ProgramError for a program that leaves something in flight.
    """

    def __init__(self, program: Program, groups: Groups, at: Callable[[View], Tensor], dtype: torch.dtype) -> None:
        require_waited(program)
        self._program, self._groups, self._at, self._dtype = program, groups, at, dtype
        self._works: dict[int, Any] = {}
        self._blocking = {step.token for step in program.code if isinstance(step, Start) and step.blocking}

    def make(self, step: Local | Start | Wait) -> Call | None:
        """The call for `step`; None where there is nothing to do."""
        if isinstance(step, Local):
            return self._local(step)
        if isinstance(step, Start):
            return self._start(step)
        return None if step.token in self._blocking else partial(self._wait, step.token)

    def _local(self, step: Local) -> Call | None:
        if step.token is not None or any(view.rank != self._program.rank for view in step.src):
            raise UnsupportedError(
                f"{self._program.composition} reads peers' memory or copies beside the stream",
                do="it is proved and counted, not carried by tensors",
            )
        if len(step.dst) == 0:
            return None
        dst = self._at(step.dst)
        if step.kind is LocalKind.COPY:
            return partial(dst.copy_, self._at(step.src[0]))
        if step.kind is LocalKind.FILL:
            value = identity_of(self._program.op.value, self._dtype) if step.argument == IDENTITY else step.argument
            return partial(dst.fill_, value)
        if step.kind is LocalKind.COMBINE:
            combine = combiner(str(step.argument.value), self._dtype)  # type: ignore[union-attr]
            sources = [self._at(view) for view in step.src]
            if len(sources) == 1:
                return partial(combine, dst, sources[0])
            return partial(_combine_all, combine, dst, sources)
        raise UnsupportedError(f"an apply of {step.argument!r} has no tensor function")

    def _start(self, step: Start) -> Call | None:
        call = self._communication(step)
        if call is None or step.blocking:
            return call
        return partial(self._issue, step.token, call)

    def _communication(self, step: Start) -> Call | None:
        api, asynchronous = self._groups.api, not step.blocking
        group = self._groups.group(step.group)
        op = None if step.op is None else torch_op(step.op.value)
        if step.kind is Kind.BARRIER:
            return partial(api.barrier, group, asynchronous)
        if step.kind is Kind.SENDRECV:
            return self._sendrecv(step, group)
        assert step.out is not None
        assert step.inp is not None
        out, inp = self._at(step.out), self._at(step.inp)
        root = None if step.root is None else self._groups.global_rank(step.root)
        if step.kind is Kind.ALL_REDUCE:
            return partial(api.all_reduce, inp, op, group, asynchronous)  # type: ignore[arg-type]
        if step.kind is Kind.REDUCE_SCATTER:
            return partial(api.reduce_scatter, out, inp, op, group, asynchronous)  # type: ignore[arg-type]
        if step.kind is Kind.ALL_GATHER:
            return partial(api.all_gather, out, inp, group, asynchronous)
        if step.kind is Kind.BROADCAST:
            return partial(api.broadcast, inp, root, group, asynchronous)  # type: ignore[arg-type]
        return partial(api.reduce, inp, root, op, group, asynchronous)  # type: ignore[arg-type]

    def _sendrecv(self, step: Start, group: Any) -> Call | None:
        api, ops = self._groups.api, []
        if step.inp and step.dest is not None:  # an empty message is sent by nobody and awaited by nobody
            ops.append(api.send_op(self._at(step.inp), self._groups.global_rank(step.dest), group))
        if step.out and step.source is not None:
            ops.append(api.recv_op(self._at(step.out), self._groups.global_rank(step.source), group))
        if not ops:
            return None
        issue = partial(api.batch_isend_irecv, ops)
        return partial(_wait_all, issue) if step.blocking else issue

    def _issue(self, token: int, call: Call) -> None:
        self._works[token] = call()

    def _wait(self, token: int) -> None:
        works = self._works.pop(token, None)
        if works is not None:
            for work in works if isinstance(works, list) else (works,):
                work.wait()


def require_waited(program: Program) -> None:
    """Raise ProgramError where an operation is started and never waited for.

    A carrier hands its buffers out when the program ends, to be read, filled again or freed. A proof refutes such a
    program; this is for those that nobody proved.
    """
    waited = {step.token for step in program.code if isinstance(step, Wait)}
    for step in program.code:
        if isinstance(step, (Start, Local)) and step.token is not None and step.token not in waited:
            raise ProgramError(
                f"{program.composition} ends with an operation in flight",
                got=f"no wait for {step.site}",
                do="wait for it",
            )


def _combine_all(combine: Callable[[Tensor, Tensor], object], dst: Tensor, sources: list[Tensor]) -> None:
    for source in sources:
        combine(dst, source)


def _wait_all(issue: Callable[[], list[Any]]) -> None:
    for work in issue():
        work.wait()
