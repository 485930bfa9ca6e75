"""What a proof says: the contracts, the outcomes, and the counterexample."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from rsag.collectives import Kind
from rsag.reduction import ReduceOp


class Contract(str, Enum):
    """What a composition promises; a mutant names the one it breaks."""

    PROGRAM = "program"  # each rank's program keeps the rules that need no other rank to see
    AGREEMENT = "agreement"  # ranks issue the same calls on a group in the same order
    PROGRESS = "progress"  # every rank comes to its end, whatever the buffering
    ORDER = "order"  # conflicting accesses are ordered, and what is started is waited for
    RESULT = "result"  # every rank's result is the target collective's, up to the order of reduction
    SHARD = "shard"  # between the halves, shards partition the reduced elements, and padding is the identity


class ProofOutcome(str, Enum):
    PROVED = "proved"
    REFUTED = "refuted"
    NOT_CLAIMED = "not-claimed"  # the composition does not take this operator or size, or has no such state


@dataclass(frozen=True, slots=True, kw_only=True)
class Refutation:
    """A counterexample. `element` counts in the result (or shard); `sites` are source lines, the latest first."""

    contract: Contract
    message: str
    world_size: int
    numel: int
    op: ReduceOp
    rank: int | None = None
    element: int | None = None
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofRow:
    """One composition under one operator: the worlds checked, and both contracts with their first counterexample.

    `not_claimed` says why worlds were left out, if any were.
    """

    composition: str
    target: Kind
    op: ReduceOp
    num_worlds: int
    num_not_claimed: int
    result: ProofOutcome
    shard: ProofOutcome
    result_refutation: Refutation | None = None
    shard_refutation: Refutation | None = None
    not_claimed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proofs:
    """proofs.json: what was proved or refuted, and within which scope."""

    schema: ClassVar[str] = "proofs"
    version: ClassVar[int] = 1

    world_sizes: tuple[int, ...]
    numels: str
    ops: tuple[ReduceOp, ...]
    num_worlds: int
    seconds: float
    scope: str
    rows: tuple[ProofRow, ...]

    @property
    def refuted(self) -> tuple[ProofRow, ...]:
        return tuple(row for row in self.rows if ProofOutcome.REFUTED in (row.result, row.shard))


class OracleVerdict(str, Enum):
    KILLED = "killed"
    SURVIVED = "survived"
    NOT_RUN = "not-run"  # refused before there was a program


@dataclass(frozen=True, slots=True, kw_only=True)
class MutantRow:
    """One planted fault: the contract it breaks (None: it only looks wrong), the one found broken, and who saw it."""

    mutant: str
    op: ReduceOp
    breaks: Contract | None
    found: Contract | None
    as_named: bool
    result: ProofOutcome
    refutation: Refutation | None
    oracles: dict[str, OracleVerdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationScore:
    """Every mutant judged by every oracle, in one world size."""

    schema: ClassVar[str] = "mutation-score"
    version: ClassVar[int] = 1

    world_size: int
    rows: tuple[MutantRow, ...]

    def kills(self, oracle: str) -> int:
        """How many of the mutants that do break a contract `oracle` sees."""
        return sum(row.breaks is not None and row.oracles[oracle] is OracleVerdict.KILLED for row in self.rows)

    @property
    def num_wrong(self) -> int:
        return sum(row.breaks is not None for row in self.rows)
