"""A run while it goes on: one calm view in a terminal, a line per finished case anywhere else.

In a terminal the view has a line for what is being done, and below it one for each experiment of the ranks: how far it
is, and what was found so far. It goes when the run ends; what each case came to stays above it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from rsag.records.codec import decode
from rsag.records.latency import ArmRole, Gate, LatencyPlan, LookRow
from rsag.records.plan import Experiment, Plan
from rsag.report.names import arm_name, case_name
from rsag.report.tables import MARKS

_EXPERIMENT_OF = {
    "observation": Experiment.CONTRACTS,
    "round": Experiment.LATENCY,
    "look": Experiment.LATENCY,
    "case-end": Experiment.LATENCY,
    "wire": Experiment.WIRE,
    "memory": Experiment.MEMORY,
    "execution": Experiment.KERNELS,
}
"""Of which experiment a rank's row is, by its kind."""


class Progress:
    """Tells `out` what is being done, how far it is, and what was found so far."""

    def __init__(self, plan: Plan, out: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._plan, self._out, self._clock = plan.latency, out, clock
        self._of = _totals(plan)
        self._experiments = tuple(one for one in plan.experiments if one is not Experiment.PROOF)
        self._live: Live | None = None
        self._spinner = Spinner("dots")
        self._began: float | None = None
        self._doing, self._so_far = "starting", ""
        self._rows: dict[Experiment, int] = {}
        self._far: dict[Experiment, str] = {}

    @contextlib.contextmanager
    def live(self) -> Iterator[Progress]:
        """While inside, the view stands in a terminal."""
        if not self._out.is_terminal:
            yield self
            return
        with Live(console=self._out, transient=True, get_renderable=self.view, refresh_per_second=8) as self._live:
            yield self
        self._live = None

    def view(self) -> RenderableType:
        """The view as of now."""
        head = Table.grid(padding=(0, 1))
        head.add_row(self._spinner, Text(self._doing))
        return Group(head, *map(self._line, self._experiments)) if self._rows else head

    def _line(self, experiment: Experiment) -> Text:
        active = experiment is self._active
        kind = "none" if experiment not in self._rows or active else "good"
        mark, style = ("▸", "bold") if active else MARKS[kind]
        return Text.assemble(f"  {mark} {experiment.value:<10}", (self._far.get(experiment, ""), ""), style=style)

    @property
    def _active(self) -> Experiment | None:
        """The last one that has rows: a rank does one after the other."""
        return next((one for one in reversed(self._experiments) if one in self._rows), None)

    def say(self, text: str) -> None:
        """What is being done now."""
        if self._live is None:
            self._out.print(f"rsag: {text}", soft_wrap=True)
        self._doing = text

    def watch(self, row: Mapping[str, object]) -> None:
        """One row of rank 0."""
        experiment = _EXPERIMENT_OF.get(str(row.get("kind")))
        if experiment is None:
            return
        self._rows[experiment] = self._rows.get(experiment, 0) + 1
        if experiment is not Experiment.LATENCY:
            self._far[experiment] = f"{self._rows[experiment]}{self._of.get(experiment, '')}"
        elif self._plan is None:
            return
        elif row["kind"] == "round":
            self._began = self._began if self._began is not None else self._clock()
            self._on_round(self._plan, int(str(row["case"])), int(str(row["round"])))
        elif row["kind"] == "look":
            self._on_look(self._plan, decode(LookRow, row))

    def _on_round(self, plan: LatencyPlan, case: int, number: int) -> None:
        if self._began is None:
            return
        share = (case + (number + 1) / plan.max_rounds) / len(plan.cases)
        left = (self._clock() - self._began) * (1 - share) / share
        self._far[Experiment.LATENCY] = (
            f"case {case + 1} of {len(plan.cases)}: {case_name(plan.cases[case])}, round {number + 1}, "
            f"{left:.0f} s left at most{self._so_far}"
        )

    def _on_look(self, plan: LatencyPlan, look: LookRow) -> None:
        found = self._found(plan, look)
        self._so_far = f"; {found}" if look.went_on else ""
        if not look.went_on:
            self._far[Experiment.LATENCY] = f"{look.case + 1} of {len(plan.cases)} cases"
            self._out.print(f"rsag: {case_name(plan.cases[look.case])}: {found}", soft_wrap=True)

    def _found(self, plan: LatencyPlan, look: LookRow) -> str:
        """What the candidates come to as of this look: a ratio only where its interval leaves 1 out."""
        rounds = f"{look.rounds} {'round' if look.rounds == 1 else 'rounds'}"
        if plan.gate is Gate.CV:
            return f"{rounds}, to be judged by their CV"
        parts = [
            f"{arm_name(arm)} {_answer(ratio)}"
            for arm, ratio in zip(plan.arms, look.ratios)
            if arm.role is ArmRole.CANDIDATE
        ]
        return f"{', '.join(parts)} after {rounds}"


def _answer(ratio: tuple[float, float, float] | None) -> str:
    if ratio is None:
        return "no interval yet"
    estimate, low, high = ratio
    words = "inconclusive" if low <= 1 <= high else f"{estimate:.3f}x {'slower' if low > 1 else 'faster'}"
    return f"{words} [{low:.3f}, {high:.3f}]"


def _totals(plan: Plan) -> dict[Experiment, str]:
    """What follows the number of rank 0's rows: of how many where the plan tells, and of what."""
    totals = {Experiment.CONTRACTS: " tried", Experiment.WIRE: " counts of bytes"}
    if plan.memory is not None:
        totals[Experiment.MEMORY] = f" of {len(plan.memory.arms)} compositions"
    if plan.kernels is not None:
        totals[Experiment.KERNELS] = f" of {len(plan.kernels.arms)} ranges"
    return totals
