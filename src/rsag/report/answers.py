"""How an outcome in time is written: the ratio where there is an answer, else the word for why there is none."""

from __future__ import annotations

from rich.text import Text

from rsag.records.latency import TimeOutcome

STYLE = {
    TimeOutcome.FASTER: "green",
    TimeOutcome.SLOWER: "yellow",
    TimeOutcome.EQUIVALENT: "green",
    TimeOutcome.INCONCLUSIVE: "dim",
    TimeOutcome.INVALID: "bold red",
}


def answer(
    outcome: TimeOutcome, ratio: float | None, interval: tuple[float, float] | None, *, between: str = " "
) -> Text:
    """`1.816x slower [1.772, 1.838]`, `inconclusive [0.972, 1.032]`, `invalid`; `between` parts word and interval."""
    word = outcome.value if ratio is None else f"{ratio:.3f}x {outcome.value}"
    text = Text(word, style=STYLE[outcome])
    if interval is not None and outcome is not TimeOutcome.INVALID:
        text.append(f"{between}[{interval[0]:.3f}, {interval[1]:.3f}]", "dim")
    return text
