"""From which run something was made: what a document over several runs says of each of them."""

from __future__ import annotations

from dataclasses import dataclass

from rsag.records.run import RunOutcome
from rsag.records.verdict import VerdictOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSource:
    """One run directory, as it was named, and how that run ended and was judged."""

    directory: str
    started_utc: str
    seed: int
    outcome: RunOutcome
    verdict: VerdictOutcome
