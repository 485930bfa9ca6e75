"""One run directory as one value: all that the page shows, each figure with the file and key it came from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rsag.records.plan import Experiment, Plan
from rsag.records.rundir import require_run_directory
from rsag.report.page.contracts import ContractsView, view_contracts
from rsag.report.page.environment import EnvironmentView, view_environment
from rsag.report.page.files import Missing, read_files
from rsag.report.page.headline import Claim, Headline, view_claims, view_headline
from rsag.report.page.kernels import KernelsView, view_kernels
from rsag.report.page.memory import MemoryView, view_memory
from rsag.report.page.ranks import read_ranks
from rsag.report.page.times import TimesView, detailed_cases, view_times
from rsag.report.page.wire import WireView, view_wire
from rsag.report.page.words import Words


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The whole page but for its words and the ring, which is no record of a run."""

    name: str
    experiments: tuple[str, ...]
    missing: tuple[Missing, ...]
    headline: Headline
    claims: tuple[Claim, ...]
    times: TimesView
    memory: MemoryView
    kernels: KernelsView
    wire: WireView
    contracts: ContractsView
    environment: EnvironmentView


def read_view(directory: Path, words: Words) -> View:
    """What there is in `directory`, with what is missing said; UsageError where it is no run directory at all."""
    files = read_files(require_run_directory(directory))
    plan, verdict = files.plan, files.verdict
    ranks, missing = read_ranks(directory, _num_ranks(plan), detailed_cases(plan))
    return View(
        name=directory.resolve().name,
        experiments=() if plan is None else tuple(one.value for one in plan.experiments),
        missing=(*files.missing, *missing),
        headline=view_headline(files, words),
        claims=view_claims(files, words),
        times=view_times(plan, () if verdict is None else verdict.latency, ranks, words),
        memory=view_memory(plan, () if verdict is None else verdict.memory, ranks, words),
        kernels=view_kernels(plan, verdict),
        wire=view_wire(() if verdict is None else verdict.wire),
        contracts=view_contracts(() if verdict is None else verdict.contracts, files.proofs),
        environment=view_environment(plan, files.run, directory),
    )


def _num_ranks(plan: Plan | None) -> int:
    """How many ranks leave a file: none where the run does nothing but prove."""
    return 0 if plan is None or set(plan.experiments) == {Experiment.PROOF} else plan.world_size
