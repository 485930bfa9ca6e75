"""Contracts of a run as a grid of ranks, and each refutation, seen or proved, opened to rank and element."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rsag.records.contracts import ContractOutcome, ContractRow
from rsag.records.proof import Proofs, Refutation
from rsag.records.rundir import PROOFS, VERDICT
from rsag.report.page.figures import Figure, counted, word
from rsag.report.proofs import describe

MOST_RANKS = 32
"""Of more ranks the grid shows the first ones; what fails is opened on whichever rank it is."""

MOST_REFUTATIONS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One contract on one rank; None outcome where there is no such row."""

    rank: int
    outcome: ContractOutcome | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRow:
    """One contract; `seen` is what the first rank that tells of it saw, or why it was not tried."""

    contract: str
    cells: tuple[Cell, ...]
    seen: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Contracts of one name before the slash. `counts` are rows over all ranks."""

    name: str
    counts: dict[str, int]
    rows: tuple[GridRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One contract that failed on one rank."""

    contract: str
    rank: int
    expected: Figure
    got: Figure
    reason: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Disproof:
    """One composition refuted on symbols: where, what is missing, what is too much, which source lines."""

    composition: str
    contract: str
    op: str
    sentence: Figure
    rank: str
    element: str
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    sites: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractsView:
    """`num_ranks` are those that have rows, of which `ranks` are columns."""

    num_ranks: int
    ranks: tuple[int, ...]
    families: tuple[Family, ...]
    failures: tuple[Failure, ...]
    num_failures: int
    disproofs: tuple[Disproof, ...]


def view_contracts(rows: Sequence[ContractRow], proofs: Proofs | None) -> ContractsView:
    ranks = sorted({row.rank for row in rows})
    shown = ranks[:MOST_RANKS]
    by_contract: dict[str, dict[int, tuple[int, ContractRow]]] = {}
    for index, row in enumerate(rows):
        by_contract.setdefault(row.contract, {})[row.rank] = (index, row)
    families: dict[str, list[str]] = {}
    for contract in by_contract:
        families.setdefault(contract.split("/")[0], []).append(contract)
    failed = [(index, row) for index, row in enumerate(rows) if row.outcome is ContractOutcome.FAIL]
    return ContractsView(
        num_ranks=len(ranks),
        ranks=tuple(shown),
        families=tuple(
            Family(
                name=name,
                counts=dict(
                    Counter(row.outcome.value for contract in members for _, row in by_contract[contract].values())
                ),
                rows=tuple(_grid_row(contract, by_contract[contract], shown) for contract in members),
            )
            for name, members in families.items()
        ),
        failures=tuple(_failure(index, row) for index, row in failed[:MOST_REFUTATIONS]),
        num_failures=len(failed),
        disproofs=() if proofs is None else tuple(_disproofs(proofs)),
    )


def _grid_row(contract: str, of_rank: dict[int, tuple[int, ContractRow]], ranks: Sequence[int]) -> GridRow:
    cells = []
    for rank in ranks:
        index, row = of_rank.get(rank, (None, None))
        cells.append(
            Cell(
                rank=rank,
                outcome=None if row is None else row.outcome,
                source=f"{VERDICT}: contracts" if index is None else f"{VERDICT}: contracts[{index}].outcome",
            )
        )
    index, row = of_rank[min(of_rank)]
    key = "reason" if row.outcome is ContractOutcome.UNSUPPORTED else "got"
    return GridRow(
        contract=contract,
        cells=tuple(cells),
        seen=word(row.reason if key == "reason" else row.got, f"{VERDICT}: contracts[{index}].{key}"),
    )


def _failure(index: int, row: ContractRow) -> Failure:
    at = f"{VERDICT}: contracts[{index}]"
    return Failure(
        contract=row.contract,
        rank=row.rank,
        expected=word(row.expected, f"{at}.expected"),
        got=word(row.got, f"{at}.got"),
        reason=word(row.reason, f"{at}.reason"),
    )


def _disproofs(proofs: Proofs) -> list[Disproof]:
    found = []
    for index, row in enumerate(proofs.rows):
        refutations = {"result": row.result_refutation, "shard": row.shard_refutation}
        for contract, refutation in refutations.items():
            if refutation is not None:
                source = f"{PROOFS}: rows[{index}].{contract}_refutation.*"
                found.append(_disproof(row.composition, contract, refutation, source))
    return found


def _disproof(composition: str, contract: str, refutation: Refutation, source: str) -> Disproof:
    return Disproof(
        composition=composition,
        contract=contract,
        op=refutation.op.value,
        sentence=counted(describe(refutation), source),
        rank="" if refutation.rank is None else str(refutation.rank),
        element="" if refutation.element is None else str(refutation.element),
        missing=refutation.missing,
        extra=refutation.extra,
        sites=refutation.sites,
    )
