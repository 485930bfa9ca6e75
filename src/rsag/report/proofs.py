"""Proofs and the mutation score as terminal tables."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from rsag.records.proof import MutationScore, OracleVerdict, ProofOutcome, ProofRow, Proofs, Refutation
from rsag.report.tables import MARKS, plain_table

_PROOF_MARK = {
    ProofOutcome.PROVED: MARKS["good"],
    ProofOutcome.REFUTED: MARKS["bad"],
    ProofOutcome.NOT_CLAIMED: MARKS["none"],
}


def proof_table(proofs: Proofs) -> Table:
    """One line per composition: worlds, and both contracts over all operators asked for."""
    table = plain_table()
    table.add_column("composition", min_width=30)
    table.add_column("worlds", min_width=6, justify="right")
    table.add_column("full result", min_width=12)
    table.add_column("shard is a state", min_width=10)
    target = None
    for name in dict.fromkeys(row.composition for row in proofs.rows):
        rows = [row for row in proofs.rows if row.composition == name]
        if rows[0].target is not target:
            target = rows[0].target
            table.add_row(Text(f"reaching {target.value}", style="bold"))
        table.add_row(
            f"  {name}",
            f"{sum(row.num_worlds for row in rows):,}",
            _over_operators((row.op.value, row.result) for row in rows),
            _over_operators((row.op.value, row.shard) for row in rows),
        )
    return table


def _over_operators(outcomes: Iterable[tuple[str, ProofOutcome]]) -> Text:
    """One mark where all operators agree, else the operators of each outcome."""
    by_outcome: dict[ProofOutcome, list[str]] = {}
    for op, outcome in outcomes:
        by_outcome.setdefault(outcome, []).append(op)
    text = Text()
    for outcome, ops in sorted(by_outcome.items(), key=lambda item: item[0] is ProofOutcome.NOT_CLAIMED):
        mark, style = _PROOF_MARK[outcome]
        word = "-" if outcome is ProofOutcome.NOT_CLAIMED else f"{mark} {outcome.value}"
        text.append(("; " if text else "") + word, style)
        if len(by_outcome) > 1:
            text.append(f" ({', '.join(ops)})", style)
    return text


def refutation_lines(rows: Iterable[ProofRow]) -> list[Text]:
    """Each refuted row in full: where, what is missing, what is extra, which source lines."""
    lines = []
    for row in rows:
        for contract, refutation in (("full result", row.result_refutation), ("shard", row.shard_refutation)):
            if refutation is not None:
                text = Text(f"{row.composition}, {contract}, under {row.op.value}: ", style="bold")
                text.append(describe(refutation), style="not bold")
                lines.append(text)
    return lines


def describe(refutation: Refutation) -> str:
    """One counterexample in one sentence."""
    where = f" [{', '.join(refutation.sites)}]" if refutation.sites else ""
    return f"N={refutation.world_size}, M={refutation.numel}: {refutation.message}{where}"


def mutation_table(score: MutationScore) -> Table:
    """One line per planted fault: the contract it breaks, and which oracle sees it."""
    table = plain_table()
    table.add_column("planted fault", min_width=31)
    table.add_column("breaks", min_width=9)
    oracles = list(score.rows[0].oracles) if score.rows else []
    for oracle in oracles:
        table.add_column(oracle, width=8, overflow="fold")  # with 80 columns to a line, none may be wider
    table.add_column("judged", min_width=6)
    for row in score.rows:
        marks = [_kill_mark(row.oracles[oracle], wrong=row.breaks is not None) for oracle in oracles]
        named = Text(*MARKS["good"]) if row.as_named else Text(*MARKS["bad"])
        table.add_row(row.mutant, row.breaks.value if row.breaks else "nothing", *marks, named)
    table.add_section()
    table.add_row(
        Text("seen, of those that break one", style="bold"),
        str(score.num_wrong),
        *[Text(str(score.kills(oracle)), style="bold") for oracle in oracles],
        f"{sum(row.as_named for row in score.rows)}/{len(score.rows)}",
    )
    return table


def _kill_mark(verdict: OracleVerdict, *, wrong: bool) -> Text:
    if verdict is OracleVerdict.NOT_RUN:
        return Text("not run", style="dim")
    if not wrong:
        return Text("accepted" if verdict is OracleVerdict.SURVIVED else "refuted")
    return Text("seen") if verdict is OracleVerdict.KILLED else Text("blind", style="yellow")
