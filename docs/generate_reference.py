"""Writes docs/reference/compositions.md and cli.md from the code; with --check it only says whether they are stale."""
# ruff: noqa: T201 - a script speaks

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path

import click

from rsag.cli import COMMANDS, group
from rsag.collectives import Kind
from rsag.compositions import for_target
from rsag.compositions.mutants import MUTANTS
from rsag.errors import ExitCode
from rsag.interpreters.ledger import Ledger, ledger
from rsag.programs import Composition, record_all
from rsag.proofs.mutation import score
from rsag.reduction import DType, ReduceOp
from rsag.units import MIB, format_bytes

REFERENCE = Path(__file__).parent / "reference"
WORLD_SIZE, PAYLOAD_BYTES, DTYPE = 4, 256 * MIB, DType.FLOAT32
HELP_WIDTH = 100

_MADE = "<!-- Made by docs/generate_reference.py. Change that, or the code it reads, and run it again. -->"


def main() -> int:
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path} is out of date; run python docs/generate_reference.py")
        return 1 if stale else 0
    for path in stale:
        path.write_text(pages()[path])
        print(f"{path} written")
    return 0


def pages() -> dict[Path, str]:
    """Each generated page with its text."""
    return {
        REFERENCE / "compositions.md": _page(compositions_page()),
        REFERENCE / "cli.md": _page(cli_page()),
    }


def _page(lines: Iterable[str]) -> str:
    return "\n".join([_MADE, "", *lines]) + "\n"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_row(heads), _row(["---"] * len(heads)), *(_row(cells) for cells in rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


# ------------------------------------------------------------------------------------------------------ compositions


def compositions_page() -> list[str]:
    return [
        "# Compositions",
        "",
        "Every composition that `rsag` knows, in the order of its tables. `rsag prove NAME` proves one; "
        "`rsag emit NAME` prints it as plain torch.",
        "",
        "- *takes*: M must be a multiple of this (N is the number of ranks).",
        "- *input*: `kept`, the caller has it back unchanged unless the result lies in it; `in place`, the result lies "
        "in it; `consumed`, it is given away and may be released.",
        "- *folds*: values are combined pairwise outside of collectives, so no claim is made under AVG.",
        f"- The figures are the ledger's predictions for M = {format_bytes(PAYLOAD_BYTES)} of {DTYPE.value} on "
        f"N = {WORLD_SIZE} ranks, the same that `rsag run` writes into `plan.json`. *memory* is steady / peak bytes of "
        "one rank, the input included. *steps* is the longest chain of ring steps. *sent* is per rank, in units of M, "
        "over an ideal ring. Nothing here is measured.",
        *(line for kind in (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.ALL_GATHER) for line in _target(kind)),
        "",
        *_planted_faults(),
    ]


def _target(kind: Kind) -> list[str]:
    heads = ("name", "what it does", "takes", "input", "folds", "memory", "steps", "sent", "calls")
    return ["", f"## Reaching {kind.value}", "", *_table(heads, [_describe(one) for one in for_target(kind)])]


def _describe(composition: Composition) -> list[str]:
    numel = PAYLOAD_BYTES // DTYPE.itemsize
    programs = record_all(composition, world_size=WORLD_SIZE, numel=numel, op=ReduceOp.SUM)
    costs = ledger(programs, DTYPE.itemsize)
    name = f"`{composition.name}`" + (", symmetric memory" if composition.symmetric else "")
    return [
        name,
        composition.summary,
        _multiple(composition),
        "consumed" if composition.consumes else "in place" if _in_place(composition) else "kept",
        "yes" if composition.folds else "",
        _span(f"{format_bytes(row.steady_bytes)} / {format_bytes(row.peak_bytes)}" for row in costs.ranks),
        str(costs.steps),
        _sent(costs),
        ", ".join(f"{count} {kind.value}" for kind, count in costs.ranks[0].calls.items()),
    ]


def _in_place(composition: Composition) -> bool:
    first = record_all(composition, world_size=WORLD_SIZE, numel=composition.multiple_of(WORLD_SIZE), op=ReduceOp.SUM)[
        0
    ]
    return first.result.buffer == first.input.buffer


def _multiple(composition: Composition) -> str:
    worlds = range(1, 17)
    multiples = [composition.multiple_of(world_size) for world_size in worlds]
    if multiples == list(worlds):
        return "N"
    return "1" if set(multiples) == {1} else f"{composition.multiple_of(WORLD_SIZE)} at N = {WORLD_SIZE}"


def _sent(costs: Ledger) -> str:
    shares = sorted({Fraction(row.sent_bytes / PAYLOAD_BYTES) for row in costs.ranks})
    return " to ".join(dict.fromkeys(f"{float(share):g}" for share in (shares[0], shares[-1]))) + " M"


def _span(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


def _planted_faults() -> list[str]:
    judged = score(MUTANTS)
    rows = [
        (
            f"`{row.mutant}`",
            row.op.value,
            row.breaks.value if row.breaks else "nothing",
            row.refutation.message if row.refutation else "accepted: it only looks wrong",
        )
        for row in judged.rows
    ]
    return [
        "## Planted faults",
        "",
        f"The {len(MUTANTS)} mutants of `rsag prove --mutants`, and how each is refuted on {judged.world_size} ranks. "
        f"{judged.num_wrong} break a contract; the others must be accepted. Each is a few lines in "
        "[compositions/mutants](../../src/rsag/compositions/mutants); none ever runs on real ranks. "
        "[How to read a refutation](../howto/read-a-refutation.md) goes through one for each contract.",
        "",
        *_table(("name", "under", "breaks", "refuted with"), rows),
    ]


# ------------------------------------------------------------------------------------------------------ command line

_EXIT_CODES = {
    ExitCode.DONE: "Done. For `prove`: nothing refuted. For `run`, `judge`, `show`: the verdict is *pass*, and no "
    "condition of `--fail-on` is met. A slower or inconclusive case, or a control that differs, is no failure.",
    ExitCode.REFUTED: "Something is refuted: a proof, a contract on real ranks (verdict *fail*), a program that breaks "
    "a rule when recorded; or `--fail-on slower` asked for it. For `prove --mutants`: a fault is not judged as named. "
    "For `merge`: a run failed.",
    ExitCode.WRONG_USE: "The request cannot be carried out: an unknown name, an impossible size, a file that cannot be "
    "read.",
    ExitCode.NO_ANSWER: "No answer: the verdict is *invalid*, because records are missing or cut short; or "
    "`--fail-on` asked for one, and a case was not measured, or stayed inconclusive. For `prove`: no world was "
    "claimed.",
    ExitCode.RUN_FAILED: "The run itself failed: a rank died, the deadline passed, a file could not be written; "
    "or an error of rsag's own, with its traceback.",
}


def cli_page() -> list[str]:
    return [
        "# Command line",
        "",
        "`rsag COMMAND` or `python -m rsag.cli COMMAND`. Only `run` and `env` need torch "
        "(`pip install '.[torch]'` in the checkout).",
        "",
        "## Output",
        "",
        "Standard output carries the answer. Progress and errors go to standard error. With `--json` standard output "
        "holds one JSON document and nothing else; it names its `schema` and `version`. An error is one message: what "
        "failed; got X; expected Y; what to do.",
        "",
        *_table(
            ("command", "document of `--json`"),
            [
                ("`run`, `judge`, `show`", "`verdict`: see [run directory](run-directory.md#verdictjson)"),
                ("`merge`, `run --launches`", "`merge`: see [run directory](run-directory.md#mergejson)"),
                ("`compare`", "`compare`: see [run directory](run-directory.md#compare)"),
                ("`prove`", "`proofs`: see [run directory](run-directory.md#proofsjson)"),
                ("`prove --mutants`", "`mutation-score`: each planted fault, judged by each oracle"),
                ("`model memory`", "`memory-model`: what each composition or training step holds and moves, by role"),
                ("`ring`", "`ring`: who sends what to whom, step by step; up to 32 ranks"),
                ("`env`", "`env`: versions, and one `capabilities` document for each backend"),
            ],
        ),
        "",
        "Tables are as wide as the terminal; `COLUMNS=120 rsag ...` sets the width where there is none.",
        "",
        "Sizes read `64KiB`, `1MiB` (and `KB`, `MB` for powers of ten); durations `30s`, `500ms`, `2min`.",
        "",
        "## Exit codes",
        "",
        *_table(("code", "meaning"), [(str(code.value), _EXIT_CODES[code]) for code in ExitCode]),
        _row(("130", "Interrupted by Ctrl-C.")),
        "",
        "## rsag",
        "",
        *_help(group, "rsag"),
        *(line for name in COMMANDS for line in _command(name)),
        "",
        *_rank_program(),
    ]


def _command(name: str) -> list[str]:
    command = importlib.import_module(f"rsag.cli.{name}").command
    lines = ["", f"## rsag {name}", "", *_help(command, f"rsag {name}")]
    inner = command.commands if isinstance(command, click.Group) else {}
    for sub, of_group in inner.items():
        lines += ["", f"### rsag {name} {sub}", "", *_help(of_group, f"rsag {name} {sub}")]
    return lines


def _help(command: click.Command, path: str) -> list[str]:
    context = click.Context(command, info_name=path, terminal_width=HELP_WIDTH, help_option_names=["-h", "--help"])
    return ["```text", *(line.rstrip() for line in command.get_help(context).splitlines()), "```"]


def _rank_program() -> list[str]:
    options = [
        ("`--plan FILE`", "The plan to run, from `rsag run --save-plan FILE`."),
        ("`--out DIR`", "Where this rank writes `rank-NNNN.jsonl`; no such file may be there yet."),
        ("`--capabilities FILE`", "What was probed before. Without it the ranks probe for themselves."),
        ("`--protocols`", "Only ask NCCL's log what it is asked for and chooses: `protocols.json`."),
        ("`--probe FIRST`", "Only probe the backend, from attempt FIRST on. `rsag env` uses it."),
        ("`--backend NAME`, `--timeout SECONDS`", "With `--probe`: `gloo` or `nccl`; the process group's timeout."),
    ]
    return [
        "## python -m rsag.rank",
        "",
        "One rank of a run, started by torchrun, srun or mpirun (see [torchrun](../howto/torchrun.md)). It needs torch "
        "and the standard library. Its errors go to standard error, with the exit codes above.",
        "",
        *_table(("option", "meaning"), options),
    ]


if __name__ == "__main__":
    sys.exit(main())
