"""Whether AllReduce = ReduceScatter + AllGather, in its meanings, by what a run proved, observed and counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rsag.analyze.wire import bytes_differ
from rsag.records.contracts import ContractOutcome, ContractRow
from rsag.records.execution import ExecutionRow
from rsag.records.latency import ArmRole, PredictionOutcome, RoundRow, WireVerdict
from rsag.records.plan import Plan, Prediction
from rsag.records.proof import ProofOutcome, Proofs
from rsag.records.verdict import Equivalence, Holds, Meaning
from rsag.units import format_bytes

DIRECT, DECOMPOSED = "all_reduce", "rs_ag_in_place"


def not_examined(meaning: Meaning, why: str) -> Equivalence:
    return Equivalence(meaning=meaning, holds=Holds.CANNOT_TELL, evidence=why, conditions="")


# -------------------------------------------------------------------------------------------------------------- result


def judge_result(
    plan: Plan,
    proofs: Proofs | None,
    contracts: Sequence[ContractRow],
    rounds: Iterable[RoundRow],
    profiled: Iterable[ExecutionRow] = (),
    *,
    complete: bool = True,
) -> Equivalence:
    """By the proofs, the contracts, and what the timed and profiled calls left; one wrong element anywhere is a no.

    Where the records are not complete, nothing wrong in what is left of them is no yes.
    """
    every = (_proved(proofs), _observed(plan, contracts), _timed(plan, rounds), _profiled(plan, profiled))
    found = [one for one in every if one is not None]
    if not all(right for right, _ in found):
        holds = Holds.NO
    else:
        holds = Holds.YES if found and complete else Holds.CANNOT_TELL
    return Equivalence(
        meaning=Meaning.RESULT,
        holds=holds,
        evidence="; ".join(words for _, words in found) or "neither proved nor tested in this run",
        conditions="one group in one rank order, one operator, equal shards or padding with its identity, shards left "
        "alone in between; floats up to the order of summing, not bit for bit",
    )


_Found = tuple[bool, str]
"""Whether all of it was right, and the words for it."""


def _proved(proofs: Proofs | None) -> _Found | None:
    if proofs is None:
        return None
    about = [row for row in proofs.rows if row.composition.startswith("rs_ag")]
    refuted = any(row.result is ProofOutcome.REFUTED for row in about)
    worlds = sum(row.num_worlds for row in about)
    return not refuted, f"{worlds:,} worlds {'refuted in part' if refuted else 'proved'} on symbols"


def _observed(plan: Plan, contracts: Sequence[ContractRow]) -> _Found | None:
    checked = [row for row in contracts if row.outcome is not ContractOutcome.UNSUPPORTED]
    if not checked:
        return None
    passed = sum(row.outcome is ContractOutcome.PASS for row in checked)
    ranks = f"{plan.world_size} {plan.backend.value} ranks"
    return passed == len(checked), f"{passed} of {len(checked)} contract rows pass on {ranks}"


def _timed(plan: Plan, rounds: Iterable[RoundRow]) -> _Found | None:
    """Every rank looks at every timed result, in every cycle, warm-up included."""
    timing = plan.latency
    if timing is None:
        return None
    calling = [arm for arm, one in enumerate(timing.arms) if one.role is not ArmRole.NULL]
    num_results = num_wrong = 0
    for row in rounds:
        num_results += sum(len(row.ns[arm]) for arm in calling if arm < len(row.ns))
        num_wrong += sum(row.wrong)
    if not num_results:
        return None
    if num_wrong:
        return False, f"{num_wrong:,} wrong elements in {num_results:,} timed results"
    return True, f"every element of {num_results:,} timed results right"


def _profiled(plan: Plan, rows: Iterable[ExecutionRow]) -> _Found | None:
    """Every rank looks at every result of the marked ranges."""
    wrong = [row.wrong for row in rows]
    if plan.kernels is None or not wrong:
        return None
    num_results = len(wrong) * plan.kernels.calls
    if any(wrong):
        return False, f"{sum(wrong):,} wrong elements in {num_results:,} profiled results"
    return True, f"every element of {num_results:,} profiled results right"


# --------------------------------------------------------------------------------------------------------------- steps


def judge_steps(plan: Plan, wire: Sequence[WireVerdict]) -> Equivalence:
    """From the ledger, what both ways are predicted to take on a ring; then what the wire's counters say of it."""
    direct, decomposed = plan.prediction(DIRECT, rank=0), plan.prediction(DECOMPOSED, rank=0)
    if direct is None or decomposed is None:
        return not_examined(Meaning.STEPS, f"the plan predicts nothing for {DIRECT} and {DECOMPOSED}")
    same = (direct.steps, direct.sent_bytes) == (decomposed.steps, decomposed.sent_bytes)
    evidence = (
        f"predicted: AllReduce {direct.steps} steps, ReduceScatter + AllGather {decomposed.steps}; "
        f"per rank {_payloads(direct, plan)} M and {_payloads(decomposed, plan)} M on the wire"
    )
    counted = _counted(plan, wire)
    if counted is not None:
        same, evidence = same and counted[0], f"{evidence}; {counted[1]}"
    return Equivalence(
        meaning=Meaning.STEPS,
        holds=Holds.YES if same else Holds.NO,
        evidence=evidence,
        conditions="steps by the ring's model alone, bytes by it unless counted; the library may choose another "
        "algorithm for either",
    )


def _counted(plan: Plan, wire: Sequence[WireVerdict]) -> _Found | None:
    """The largest payload at which the bytes differ, or at which they are the same where they do everywhere."""
    told = [row for row in wire if row.outcome is not PredictionOutcome.CANNOT_TELL and row.buffers is wire[0].buffers]
    direct = {(row.bytes, row.rank): row for row in told if row.composition == DIRECT}
    pairs = sorted(
        (
            (direct[row.bytes, row.rank], row)
            for row in told
            if row.composition == DECOMPOSED and (row.bytes, row.rank) in direct
        ),
        key=lambda pair: (-pair[0].bytes, pair[0].rank),
    )
    if not pairs:
        return None
    apart = next((pair for pair in pairs if bytes_differ(plan, *pair)), None)
    one, other = apart or pairs[0]
    at = f"at {format_bytes(one.bytes)}"
    if apart is None:
        return True, f"counted too: {_multiple(one)} M and {_multiple(other)} M {at}"
    why = dict.fromkeys(reason.message.partition(": ")[0] for row in apart for reason in row.reasons)
    words = f" ({'; '.join(why)})" if why else ""
    return False, f"counted: {_multiple(one)} M against {_multiple(other)} M {at}{words}"


def _multiple(row: WireVerdict) -> str:
    return f"{(row.measured_bytes or 0) / row.bytes:.2f}"


def _payloads(prediction: Prediction, plan: Plan) -> str:
    return f"{prediction.sent_bytes / (prediction.numel * plan.dtype.itemsize):.4g}"
