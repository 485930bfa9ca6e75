"""A run directory as the page reads it: every file that can be read, and for the others why not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rsag.errors import RecordError
from rsag.records.capability import Capabilities
from rsag.records.codec import Document, load_document
from rsag.records.plan import Experiment, Plan
from rsag.records.proof import Proofs
from rsag.records.protocol import Protocols
from rsag.records.run import Run
from rsag.records.rundir import CAPABILITIES, PLAN, PROOFS, PROTOCOLS, RUN, VERDICT
from rsag.records.verdict import Verdict

D = TypeVar("D", bound=Document)


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A file, or a part of one, that the page has to do without."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The documents of one run directory; None for what is not there, or cannot be read: `missing` tells the two."""

    directory: Path
    plan: Plan | None
    run: Run | None
    verdict: Verdict | None
    proofs: Proofs | None
    missing: tuple[Missing, ...]


def read_files(directory: Path) -> Files:
    """Whatever documents of `directory` are whole and of this release. Never raises RecordError."""
    missing: list[Missing] = []

    def read(cls: type[D], name: str, *, needed: bool) -> D | None:
        path = directory / name
        if not path.exists():
            if needed:
                missing.append(Missing(what=name, why="not there"))
            return None
        try:
            return load_document(cls, path)
        except RecordError as error:
            missing.append(Missing(what=name, why=str(error).removeprefix(f"{path}: ")))
            return None

    plan = read(Plan, PLAN, needed=True)
    experiments = () if plan is None else plan.experiments
    # The page shows these through the verdict alone; that one cannot be read is said all the same.
    read(Capabilities, CAPABILITIES, needed=False)
    read(Protocols, PROTOCOLS, needed=False)
    return Files(
        directory=directory,
        plan=plan,
        run=read(Run, RUN, needed=set(experiments) != {Experiment.PROOF}),
        verdict=read(Verdict, VERDICT, needed=True),
        # Not needed: under torchrun nothing is proved, whatever the plan says.
        proofs=read(Proofs, PROOFS, needed=False),
        missing=tuple(missing),
    )
