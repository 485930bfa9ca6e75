"""A run while it goes on: one calm line in a terminal, a line per finished case anywhere else."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

from rich.console import Console
from rich.status import Status

from rsag.records.codec import decode
from rsag.records.latency import ArmRole, Case, LatencyPlan, LookRow
from rsag.records.plan import Plan
from rsag.report.names import arm_name
from rsag.units import format_bytes


class Progress:
    """Tells `out` what is being done, how far it is, and what was found so far."""

    def __init__(self, plan: Plan, out: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._plan, self._out, self._clock = plan.latency, out, clock
        self._status: Status | None = None
        self._began: float | None = None
        self._so_far = ""

    @contextlib.contextmanager
    def live(self) -> Iterator[Progress]:
        """While inside, the line stands in a terminal."""
        if self._out.is_terminal:
            self._status = self._out.status("starting", spinner="dots")
            with self._status:
                yield self
            self._status = None
        else:
            yield self

    def say(self, text: str) -> None:
        """What is being done now."""
        if self._status is None:
            self._out.print(f"rsag: {text}", soft_wrap=True)
        else:
            self._status.update(text)

    def watch(self, row: Mapping[str, object]) -> None:
        """One row of rank 0."""
        if self._plan is None:
            return
        if row.get("kind") == "round":
            self._began = self._began if self._began is not None else self._clock()
            self._on_round(self._plan, int(str(row["case"])), int(str(row["round"])))
        elif row.get("kind") == "look":
            look = decode(LookRow, row)
            found = self._found(self._plan, look)
            self._so_far = f"; {found}" if look.went_on else ""
            if not look.went_on:
                self._out.print(f"rsag: {describe_case(self._plan.cases[look.case])}: {found}", soft_wrap=True)

    def _on_round(self, plan: LatencyPlan, case: int, number: int) -> None:
        if self._status is None or self._began is None:
            return
        share = (case + (number + 1) / plan.max_rounds) / len(plan.cases)
        left = (self._clock() - self._began) * (1 - share) / share
        self._status.update(
            f"case {case + 1} of {len(plan.cases)}: {describe_case(plan.cases[case])}, round {number + 1}, "
            f"{left:.0f} s left at most{self._so_far}"
        )

    def _found(self, plan: LatencyPlan, look: LookRow) -> str:
        """The ratios of the candidates as of this look."""
        parts = []
        for arm, ratio in zip(plan.arms, look.ratios):
            if arm.role is ArmRole.CANDIDATE:
                said = "no interval yet" if ratio is None else f"{ratio[0]:.3f} [{ratio[1]:.3f}, {ratio[2]:.3f}]"
                parts.append(f"{arm_name(arm)} {said}")
        return f"{', '.join(parts)} after {look.rounds} {'round' if look.rounds == 1 else 'rounds'}"


def describe_case(case: Case) -> str:
    """A case in a few words: 1 MiB float32 sum, graph x10."""
    times = f" x{case.calls}" if case.calls > 1 else ""
    return f"{format_bytes(case.bytes)} {case.dtype.value} {case.op.value}, {case.clock.value}{times}"
