"""`rsag prove`: compositions on symbols, without torch."""

from __future__ import annotations

import click

from rsag.cli.options import json_option, parse_ops, print_json
from rsag.errors import ExitCode


@click.command("prove")
@click.argument("compositions", nargs=-1, metavar="[COMPOSITION]...")
@click.option("--ranks", default="1-8", show_default=True, help="Rank counts N: 1-8, or 2,4,8.")
@click.option(
    "--numel",
    default="0,1,N-1,N,N+1,2N+1,3N",
    show_default=True,
    help="Payload sizes M in elements: numbers, ranges, expressions in N.",
)
@click.option("--op", default="sum,max,product", show_default=True, help="Reduction operators.")
@click.option("--mutants", is_flag=True, help="Judge the planted faults instead, and say which oracle sees which.")
@json_option
def command(compositions: tuple[str, ...], ranks: str, numel: str, op: str, mutants: bool, as_json: bool) -> int:
    """Prove compositions on symbols, or find the counterexample; needs no torch.

    Without a COMPOSITION all of them. Exit code 1 if any is refuted, 3 if no world was claimed; with --mutants, 1 if
    any fault is not judged as named.
    """
    if mutants:
        return _mutants(as_json)
    from rsag.compositions import COMPOSITIONS, find
    from rsag.proofs.prove import prove_all
    from rsag.proofs.scope import Numels, parse_ranks
    from rsag.records.codec import document

    chosen = [find(name) for name in compositions] or list(COMPOSITIONS)
    proofs = prove_all(chosen, world_sizes=parse_ranks(ranks), numels=Numels.parse(numel), ops=parse_ops(op))
    if as_json:
        print_json(document(proofs))
    else:
        from rsag.report.proofs import proof_table, refutation_lines
        from rsag.report.tables import console

        out = console()
        out.print(proof_table(proofs))
        for line in refutation_lines(proofs.refuted):
            out.print(line)
        out.print(
            f"\n{proofs.num_worlds:,} worlds in {proofs.seconds:.2f} s: N in {ranks}, M in {{{numel}}}, under "
            f"{', '.join(one.value for one in proofs.ops)}."
        )
        out.print(f"Scope: {proofs.scope}.", style="dim")
    if not proofs.num_worlds:
        why = next((row.not_claimed for row in proofs.rows if row.not_claimed), "no size is left on these ranks")
        click.echo(f"rsag: no world was claimed: {why}", err=True)
        return ExitCode.NO_ANSWER
    return ExitCode.REFUTED if proofs.refuted else ExitCode.DONE


def _mutants(as_json: bool) -> int:
    from rsag.compositions.mutants import MUTANTS
    from rsag.proofs.mutation import score
    from rsag.records.codec import document

    judged = score(MUTANTS)
    if as_json:
        print_json(document(judged))
    else:
        from rsag.report.proofs import mutation_table
        from rsag.report.tables import console

        out = console()
        out.print(mutation_table(judged))
        out.print(
            f"\nOn {judged.world_size} ranks. 'blind': the oracle passes a wrong composition. The first two see the "
            "full result of one lucky schedule; a wrong shard state, a race or a lifetime is out of their sight."
        )
    return ExitCode.DONE if all(row.as_named for row in judged.rows) else ExitCode.REFUTED
