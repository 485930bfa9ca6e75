"""Observations of contracts, judged: one row per contract and rank, in the order of the tables.

The chapter's five, subgroups and layouts are judged here, element by element against a formula; a negative contract
passes only when its planted fault shows, and shows as predicted. The operator matrix and the compositions were held
against an exact oracle on the rank: of those only the counts come here. A refusal must name what it refuses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rsag.errors import RecordError
from rsag.layout import ShardLayout
from rsag.records.contracts import SENTINEL, ContractOutcome, ContractRow, Observation
from rsag.records.plan import Plan

PASS, FAIL, UNSUPPORTED = ContractOutcome.PASS, ContractOutcome.FAIL, ContractOutcome.UNSUPPORTED

CHAPTER = (
    "exact-sum-equivalence",
    "wrong-shard-order-rejected",
    "wrong-reduction-op-rejected",
    "padding-and-trim-equivalence",
    "nondivisible-without-padding-rejected",
)
"""The chapter's five, first in every table."""

FLOAT_SUM = "float-sum-within-bound-not-bitwise"
LEAST_DIFFERING = 0.01
OBSERVATION = "an observation"
"""What a row expects of a rank that never came to its contract."""

_LOG_PREFIX = re.compile(r"^\[rank\d+\]:\[[^\]]*\]\s*")  # torch puts its own log's prefix into some messages


_SIZE_WORDS = re.compile(r"size|shape|divisib|numel|equal", re.IGNORECASE)
_NO_SIZE_CHECK = {"MemoryError", "OutOfMemoryError", "NotImplementedError", "TypeError"}
"""Exceptions of memory, of a missing implementation, of arguments: whatever they say, no size was checked."""

_INTENT_FIELDS = {"operator": "op", "dtype": "dtype", "numel": "numel"}


@dataclass(frozen=True, slots=True)
class Judgement:
    outcome: ContractOutcome
    expected: str
    got: str
    reason: str = ""


Judge = Callable[[Plan, int, Observation], Judgement]


def judge_contracts(plan: Plan, observed: Mapping[int, Sequence[Observation]]) -> tuple[ContractRow, ...]:
    """Every rank's observations as rows, contract by contract; a contract that some rank never observed fails there."""
    by_contract: dict[str, dict[int, Observation]] = {name: {} for name in (*CHAPTER, FLOAT_SUM)}
    for rank, observations in observed.items():
        for observation in observations:
            by_contract.setdefault(observation.contract, {})[rank] = observation
    return tuple(
        _row(plan, name, rank, ranks.get(rank))
        for name, ranks in by_contract.items()
        for rank in range(plan.world_size)
        if rank in ranks or not name.startswith("subgroup/")  # a rank outside a subgroup observes nothing
    )


def _row(plan: Plan, contract: str, rank: int, observation: Observation | None) -> ContractRow:
    if observation is None:
        judgement = Judgement(FAIL, OBSERVATION, "none", "the rank ended before it came to this contract")
    elif observation.unsupported is not None:
        judgement = Judgement(UNSUPPORTED, "", "", observation.unsupported)
    else:
        try:
            judgement = _judge_of(contract)(plan, rank, observation)
        except (KeyError, ValueError) as error:
            raise RecordError(
                f"rank {rank}: an observation of {contract} that no judge here can read", got=repr(error)
            ) from error
    return ContractRow(
        contract=contract,
        rank=rank,
        outcome=judgement.outcome,
        expected=judgement.expected,
        got=judgement.got,
        reason=judgement.reason,
    )


def _judge_of(contract: str) -> Judge:
    if contract in _JUDGES:
        return _JUDGES[contract]
    return _JUDGES[contract.split("/")[0]]


# -------------------------------------------------------------------------------------------------- the chapter's five


def chapter_sum(world_size: int, numel: int) -> list[int]:
    """The formula: the sum over ranks r of 100 r + i, at every i."""
    return [50 * world_size * (world_size - 1) + world_size * i for i in range(numel)]


def _exact_sum(plan: Plan, rank: int, seen: Observation) -> Judgement:
    want = chapter_sum(plan.world_size, plan.contracts.exact_numel)
    start, stop = ShardLayout(len(want), plan.world_size).slot(rank)
    return _compare(
        {"direct": want, "shard": want[start:stop], "gathered": want},
        seen,
        show=("shard", "gathered"),
    )


def _wrong_shard_order(plan: Plan, rank: int, seen: Observation) -> Judgement:
    want = chapter_sum(plan.world_size, plan.contracts.exact_numel)
    layout = ShardLayout(len(want), plan.world_size)
    q, (start, stop) = layout.shard_numel, layout.slot(rank)
    rotated = [want[(i - q) % len(want)] for i in range(len(want))]
    return _compare({"shard": want[start:stop], "gathered": rotated}, seen, differs_from=want)


def _wrong_op(plan: Plan, rank: int, seen: Observation) -> Judgement:  # noqa: ARG001 - the same on every rank
    numel, last = plan.contracts.exact_numel, plan.world_size - 1
    maxima = [100 * last + i for i in range(numel)]
    return _compare({"gathered": maxima}, seen, differs_from=chapter_sum(plan.world_size, numel))


def _padding(plan: Plan, rank: int, seen: Observation) -> Judgement:
    layout = ShardLayout(plan.contracts.padded_numel, plan.world_size)
    want = chapter_sum(plan.world_size, layout.numel)
    padded = want + [0] * layout.padding
    start, stop = layout.slot(rank)
    return _compare({"direct": want, "shard": padded[start:stop], "gathered": padded}, seen, show=("gathered",))


def _no_padding(plan: Plan, rank: int, seen: Observation) -> Judgement:  # noqa: ARG001 - the same on every rank
    want = chapter_sum(plan.world_size, plan.contracts.exact_numel)
    shard = seen.values["shard"]
    said = _LOG_PREFIX.sub("", str(seen.facts.get("text", "")))
    text = f"{seen.facts.get('exception', 'nothing raised')}: {said}".rstrip(": ")
    expected = "the backend's size check, output untouched, next AllReduce right"
    if not seen.facts["raised"]:
        return Judgement(FAIL, expected, text, f"{seen.facts['input']} elements went into {plan.world_size} shards")
    if not _is_size_check(str(seen.facts["exception"]), said):
        return Judgement(FAIL, expected, text, "what was raised is no size check")
    if list(shard) != [SENTINEL] * int(seen.facts["output"]):
        return Judgement(FAIL, expected, f"{text}; output {brief(shard)}", "something was written before the check")
    if list(seen.values["next"]) != want:
        return Judgement(FAIL, expected, f"{text}; next {brief(seen.values['next'])}", "the group did not survive it")
    return Judgement(PASS, expected, text)


def _is_size_check(exception: str, text: str) -> bool:
    """Whether the words are about sizes, in whichever words this backend has for them."""
    return exception not in _NO_SIZE_CHECK and _SIZE_WORDS.search(text) is not None


def _compare(
    wanted: Mapping[str, list[int]],
    seen: Observation,
    *,
    show: tuple[str, ...] = ("gathered",),
    differs_from: list[int] | None = None,
) -> Judgement:
    """Element by element; `differs_from` is what a negative contract must not look like."""
    expected = "; ".join(f"{name} {brief(wanted[name])}" for name in show)
    got = "; ".join(f"{name} {brief(seen.values[name])}" for name in show)
    for name, want in wanted.items():
        have = list(seen.values[name])
        if have != want:
            return Judgement(FAIL, expected, got, f"{name}: {_first_difference(have, want)}")
    if differs_from is not None and list(seen.values["gathered"]) == differs_from:
        return Judgement(FAIL, expected, got, "the fault cannot be seen at this size")
    return Judgement(PASS, expected, got)


def _first_difference(have: Sequence[float], want: Sequence[float]) -> str:
    if len(have) != len(want):
        return f"{len(have)} elements instead of {len(want)}"
    at = next(index for index, pair in enumerate(zip(have, want)) if pair[0] != pair[1])
    return f"element {at} is {have[at]}, not {want[at]}"


def brief(values: Sequence[float]) -> str:
    """A tensor in a few words: its ends and its length."""
    if len(values) <= 6:
        return f"[{' '.join(str(value) for value in values)}]"
    head, tail = " ".join(map(str, values[:3])), " ".join(map(str, values[-2:]))
    return f"[{head} .. {tail}] ({len(values)})"


# --------------------------------------------------------------------------------------------------------- the others


def _float_sum(plan: Plan, rank: int, seen: Observation) -> Judgement:  # noqa: ARG001 - the same on every rank
    facts = seen.facts
    beyond = {key: int(facts[f"{key}_beyond_bound"]) for key in ("whole", "chunked", "rs_ag")}
    share = int(facts["chunked_differing_bits"]) / int(facts["numel"])
    rs_ag = int(facts["rs_ag_differing_bits"]) / int(facts["numel"])
    expected = "all within (N-1) eps sum|x|"
    if plan.world_size > 2:
        expected += f"; in {facts['chunks']} pieces more than {LEAST_DIFFERING:.0%} differ in bits"
    got = f"beyond the bound {sum(beyond.values())}; differing in bits: pieces {share:.1%}, RS+AG {rs_ag:.1%}"
    if any(beyond.values()):
        return Judgement(FAIL, expected, got, "a sum is further from the float64 sum than any order of summing allows")
    if plan.world_size > 2 and share <= LEAST_DIFFERING:
        return Judgement(FAIL, expected, got, "the order of summing did not show")
    return Judgement(PASS, expected, got)


def _checked(plan: Plan, rank: int, seen: Observation) -> Judgement:  # noqa: ARG001 - the oracle was on the rank
    checked, wrong = int(seen.facts["checked"]), int(seen.facts["wrong"])
    expected = "every element as the exact oracle"
    got = f"{checked} elements in {seen.facts['cases']} cases, {wrong} wrong"
    if wrong:
        return Judgement(FAIL, expected, got, str(seen.facts["first_wrong"]))
    if not checked or not int(seen.facts["cases"]):
        return Judgement(FAIL, expected, got, "nothing was checked")
    return Judgement(PASS, expected, got)


def _subgroup(plan: Plan, rank: int, seen: Observation) -> Judgement:  # noqa: ARG001 - the order is in the values
    """The i-th rank of the group as it was asked for owns shard i."""
    ranks = [int(value) for value in seen.values["ranks"]]
    q = len(seen.values["shard"])
    want = [100 * sum(ranks) + len(ranks) * i for i in range(q * len(ranks))]
    index = ranks.index(rank)
    return _compare(
        {"order": ranks, "gathered": want, "shard": want[index * q : (index + 1) * q]}, seen, show=("order", "shard")
    )


def _layout(plan: Plan, rank: int, seen: Observation) -> Judgement:
    positions = [int(value) for value in seen.values["positions"]]
    n = plan.world_size
    reduced = [50 * n * (n - 1) + n * position for position in positions]
    base = [100 * rank + position for position in range(len(seen.values["base"]))]
    for position, value in zip(positions, reduced):
        base[position] = value
    return _compare({"reduced": reduced, "base": base}, seen, show=("reduced",))


def _refused(plan: Plan, rank: int, seen: Observation) -> Judgement:  # noqa: ARG001 - the same on every rank
    """By its words, which name what is wrong and nothing else."""
    refused = str(seen.facts["refused"])
    if seen.contract.startswith("disagreement/"):
        field = _INTENT_FIELDS[seen.contract.removeprefix("disagreement/").removesuffix("-refused")]
        expected = f"refused before any call, for {field}"
        is_named = {name for name in _INTENT_FIELDS.values() if re.search(rf"\b{name}\b", refused)} == {field}
    else:
        expected = "refused before any call, for several elements in one place"
        is_named = "several elements" in refused
    if not refused:
        return Judgement(FAIL, expected, "it went through")
    return Judgement(PASS if is_named else FAIL, expected, refused, "" if is_named else "refused for another reason")


_JUDGES: dict[str, Judge] = {
    "exact-sum-equivalence": _exact_sum,
    "wrong-shard-order-rejected": _wrong_shard_order,
    "wrong-reduction-op-rejected": _wrong_op,
    "padding-and-trim-equivalence": _padding,
    "nondivisible-without-padding-rejected": _no_padding,
    FLOAT_SUM: _float_sum,
    "operator-matrix": _checked,
    "composition": _checked,
    "subgroup": _subgroup,
    "layout": _layout,
    "layout/expanded-refused": _refused,
    "disagreement": _refused,
}
"""By the whole name, or by the part before the slash."""
