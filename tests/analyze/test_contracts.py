"""Each contract passes on what a faultless backend shows, and fails on each way to miss it, in words that say where."""

from __future__ import annotations

from collections.abc import Callable

import observed
import pytest
from observed import plan_of, with_element, with_facts, with_values

from rsag.analyze.contracts import CHAPTER, FLOAT_SUM, brief, judge_contracts
from rsag.errors import RecordError
from rsag.records.contracts import ContractOutcome, ContractRow, Observation
from rsag.records.plan import Plan

PASS, FAIL, UNSUPPORTED = ContractOutcome.PASS, ContractOutcome.FAIL, ContractOutcome.UNSUPPORTED

Make = Callable[[Plan, int], Observation]
MAKERS: dict[str, Make] = {
    "exact-sum-equivalence": observed.exact_sum,
    "wrong-shard-order-rejected": observed.wrong_shard_order,
    "wrong-reduction-op-rejected": lambda plan, rank: observed.wrong_op(plan),
    "padding-and-trim-equivalence": observed.padding,
    "nondivisible-without-padding-rejected": lambda plan, rank: observed.no_padding(plan),
    FLOAT_SUM: lambda plan, rank: observed.float_sum(plan),
    "operator-matrix": lambda plan, rank: observed.checked("operator-matrix/sum/int64"),
    "composition": lambda plan, rank: observed.checked("composition/rs_ag_naive/owning"),
    "subgroup": lambda plan, rank: observed.subgroup(rank, [*range(plan.world_size)][::-1]),
    "layout": observed.strided,
    "layout/expanded-refused": lambda plan, rank: observed.refused("layout/expanded-refused", "several elements"),
    "disagreement": lambda plan, rank: observed.refused("disagreement/dtype-refused", "ranks disagree on dtype"),
}
MOOT_ON_ONE_RANK = {"wrong-shard-order-rejected", "wrong-reduction-op-rejected"}


def judge_one(plan: Plan, rank: int, seen: Observation) -> ContractRow:
    rows = judge_contracts(plan, {rank: [seen]})
    return next(row for row in rows if (row.contract, row.rank) == (seen.contract, rank))


def why_it_fails(seen: Observation, *, world_size: int = 4, rank: int = 1) -> str:
    """The reason of a failing row."""
    row = judge_one(plan_of(world_size), rank, seen)
    assert FAIL is row.outcome
    return row.reason


@pytest.mark.parametrize(
    ("contract", "world_size"),
    [(name, n) for n in (1, 2, 3, 4, 5, 17) for name in MAKERS if n > 1 or name not in MOOT_ON_ONE_RANK],
)
def test_what_a_faultless_backend_shows_passes_on_every_rank(contract: str, world_size: int) -> None:
    plan = plan_of(world_size)
    outcomes = [judge_one(plan, rank, MAKERS[contract](plan, rank)).outcome for rank in range(world_size)]
    assert [PASS] * world_size == outcomes


@pytest.mark.parametrize(
    ("rank", "shard"),
    [
        (0, (600, 604, 608, 612, 616)),
        (1, (620, 624, 628, 632, 636)),
        (2, (640, 644, 648, 652, 656)),
        (3, (660, 664, 668, 672, 676)),
    ],
)
def test_the_chapters_numbers_on_four_ranks(rank: int, shard: tuple[int, ...]) -> None:
    full = (600, 604, 608, 612, 616, 620, 624, 628, 632, 636, 640, 644, 648, 652, 656, 660, 664, 668, 672, 676)
    seen = Observation(contract="exact-sum-equivalence", values={"direct": full, "shard": shard, "gathered": full})
    row = judge_one(plan_of(4), rank, seen)
    words = " ".join(map(str, shard))
    assert PASS is row.outcome
    assert f"shard [{words}]; gathered [600 604 608 .. 672 676] (20)" == row.expected == row.got


def test_the_chapters_faults_on_four_ranks() -> None:
    plan = plan_of(4)
    rotated = (*range(660, 677, 4), *range(600, 657, 4))
    maxima = tuple(range(300, 320))
    assert rotated == observed.wrong_shard_order(plan, 0).values["gathered"]
    assert PASS is judge_one(plan, 0, observed.wrong_shard_order(plan, 0)).outcome
    assert maxima == observed.wrong_op(plan).values["gathered"]
    assert PASS is judge_one(plan, 0, observed.wrong_op(plan)).outcome


# ------------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("contract", "name"),
    [
        ("exact-sum-equivalence", "direct"),
        ("exact-sum-equivalence", "shard"),
        ("exact-sum-equivalence", "gathered"),
        ("wrong-shard-order-rejected", "shard"),
        ("wrong-shard-order-rejected", "gathered"),
        ("wrong-reduction-op-rejected", "gathered"),
        ("padding-and-trim-equivalence", "direct"),
        ("padding-and-trim-equivalence", "shard"),
        ("padding-and-trim-equivalence", "gathered"),
        ("subgroup", "shard"),
        ("subgroup", "gathered"),
        ("layout", "reduced"),
        ("layout", "base"),
    ],
)
def test_one_changed_element_is_named(contract: str, name: str) -> None:
    seen = MAKERS[contract](plan_of(4), 1)
    was = seen.values[name][2]
    assert f"{name}: element 2 is 1, not {was}" == why_it_fails(with_element(seen, name, 2, 1))


@pytest.mark.parametrize("name", ["direct", "shard", "gathered"])
def test_a_tensor_of_another_length_is_named(name: str) -> None:
    seen = observed.exact_sum(plan_of(4), 1)
    was = len(seen.values[name])
    short = with_values(seen, **{name: seen.values[name][:-1]})
    assert f"{name}: {was - 1} elements instead of {was}" == why_it_fails(short)


def test_a_neighbours_shard_is_the_wrong_shard() -> None:
    plan = plan_of(4)
    mine = with_values(observed.exact_sum(plan, 1), shard=observed.exact_sum(plan, 2).values["shard"])
    assert why_it_fails(mine) == "shard: element 0 is 640, not 620"


def test_a_rotation_that_was_not_seen_fails() -> None:
    plan = plan_of(4)
    seen = with_values(observed.wrong_shard_order(plan, 1), gathered=observed.exact_sum(plan, 1).values["gathered"])
    assert why_it_fails(seen) == "gathered: element 0 is 600, not 660"


def test_an_operator_that_made_no_difference_fails() -> None:
    plan = plan_of(4)
    seen = with_values(observed.wrong_op(plan), gathered=observed.exact_sum(plan, 1).values["gathered"])
    assert why_it_fails(seen) == "gathered: element 0 is 600, not 300"


def test_padding_that_is_not_the_identity_fails() -> None:
    seen = observed.padding(plan_of(4), 3)
    spoilt = with_element(seen, "gathered", 1003, 4)
    assert why_it_fails(spoilt, rank=3) == "gathered: element 1003 is 4, not 0"


def test_the_owner_follows_the_order_of_the_group_and_not_of_the_ranks() -> None:
    sorted_instead = with_values(observed.subgroup(1, [2, 3, 1]), order=[1, 2, 3])
    assert why_it_fails(sorted_instead) == "order: element 0 is 1, not 2"


def test_what_lies_between_strided_elements_must_stay() -> None:
    seen = with_element(observed.strided(plan_of(4), 1), "base", 3, 0)
    assert why_it_fails(seen) == "base: element 3 is 0, not 103"


# ------------------------------------------------------------------------------------------------------- size checks


def test_an_uneven_size_that_went_through_fails() -> None:
    seen = with_facts(observed.no_padding(plan_of(4)), raised=False)
    assert why_it_fails(seen) == "1003 elements went into 4 shards"


@pytest.mark.parametrize(("index", "value"), [(5, 600), (5, -8), (0, 0)])
def test_output_written_before_the_size_check_fails(index: int, value: int) -> None:
    seen = with_element(observed.no_padding(plan_of(4)), "shard", index, value)
    assert why_it_fails(seen) == "something was written before the check"


@pytest.mark.parametrize(
    ("exception", "text"),
    [
        ("RuntimeError", observed.GLOO_REFUSAL),
        ("ValueError", observed.TORCH_REFUSAL),
        ("DistBackendError", "sendcount must be divisible by nranks"),
    ],
)
def test_a_backend_checks_sizes_in_its_own_words(exception: str, text: str) -> None:
    seen = with_facts(observed.no_padding(plan_of(4)), exception=exception, text=text)
    assert PASS is judge_one(plan_of(4), 1, seen).outcome


@pytest.mark.parametrize(
    ("exception", "text"),
    [
        ("RuntimeError", "Connection closed by peer"),
        ("OutOfMemoryError", "Tried to allocate a block of size 2 GiB"),
        ("NotImplementedError", "reduce_scatter of this shape"),
        ("TypeError", "takes 2 positional arguments of equal type"),
        ("AttributeError", ""),
    ],
)
def test_whatever_else_is_raised_is_no_size_check(exception: str, text: str) -> None:
    seen = with_facts(observed.no_padding(plan_of(4)), exception=exception, text=text)
    assert "what was raised is no size check" == why_it_fails(seen)


def test_an_output_of_another_length_was_not_left_alone() -> None:
    seen = observed.no_padding(plan_of(4))
    short = with_values(seen, shard=seen.values["shard"][:-1])
    assert "something was written before the check" == why_it_fails(short)


def test_a_group_that_does_not_survive_the_size_check_fails() -> None:
    seen = with_element(observed.no_padding(plan_of(4)), "next", 0, 0)
    assert why_it_fails(seen) == "the group did not survive it"


def test_the_backends_words_are_shown_without_the_prefix_of_its_log() -> None:
    seen = with_facts(observed.no_padding(plan_of(4)), text=f"[rank1]:[W101 10:11:12] {observed.TORCH_REFUSAL}")
    assert f"ValueError: {observed.TORCH_REFUSAL}" == judge_one(plan_of(4), 1, seen).got


# ------------------------------------------------------------------------------------------------------------- floats


@pytest.mark.parametrize("which", ["whole", "chunked", "rs_ag"])
@pytest.mark.parametrize("world_size", [2, 3])
def test_one_element_beyond_the_bound_fails(which: str, world_size: int) -> None:
    seen = with_facts(observed.float_sum(plan_of(world_size)), **{f"{which}_beyond_bound": 1})
    assert "further from the float64 sum" in why_it_fails(seen, world_size=world_size)


@pytest.mark.parametrize(
    ("world_size", "differing", "outcome"),
    [(2, 0, PASS), (3, 0, FAIL), (3, 200, FAIL), (3, 201, PASS), (4, 0, FAIL)],
)
def test_above_two_ranks_more_than_one_in_a_hundred_must_differ_in_bits(
    world_size: int, differing: int, outcome: ContractOutcome
) -> None:
    plan = plan_of(world_size)
    assert plan.contracts.float_numel == 20_000
    seen = with_facts(observed.float_sum(plan), chunked_differing_bits=differing)
    assert outcome is judge_one(plan, 0, seen).outcome


# -------------------------------------------------------------------------------------------------- checks on the rank


@pytest.mark.parametrize("contract", ["operator-matrix/sum/int64", "composition/rs_ag_naive/pooled"])
def test_a_wrong_element_is_passed_on_in_the_ranks_words(contract: str) -> None:
    seen = observed.checked(contract, wrong=1, first_wrong="element 3 is 4, not 5")
    assert why_it_fails(seen) == "element 3 is 4, not 5"


@pytest.mark.parametrize("contract", ["operator-matrix/sum/int64", "composition/rs_ag_naive/pooled"])
def test_nothing_checked_is_no_pass(contract: str) -> None:
    assert why_it_fails(observed.checked(contract, checked=0)) == "nothing was checked"
    assert why_it_fails(with_facts(observed.checked(contract), cases=0)) == "nothing was checked"


@pytest.mark.parametrize("contract", ["layout/expanded-refused", "disagreement/numel-refused"])
def test_what_should_have_been_refused_and_was_not_fails(contract: str) -> None:
    row = judge_one(plan_of(4), 0, observed.refused(contract, ""))
    assert (FAIL, "it went through") == (row.outcome, row.got)


@pytest.mark.parametrize(
    ("contract", "words"),
    [
        ("layout/expanded-refused", "no such backend"),
        ("disagreement/numel-refused", "ranks disagree on dtype"),
        ("disagreement/operator-refused", "ranks disagree on op and dtype"),
        ("disagreement/dtype-refused", "connection reset"),
    ],
)
def test_a_refusal_that_names_something_else_fails(contract: str, words: str) -> None:
    assert why_it_fails(observed.refused(contract, words)) == "refused for another reason"


# --------------------------------------------------------------------------------------------------------------- rows


def test_the_chapters_five_come_first_rank_by_rank() -> None:
    plan = plan_of(4)
    matrix = observed.checked("operator-matrix/sum/int64")
    seen = {rank: [matrix, *reversed(observed.chapter(plan, rank))] for rank in range(4)}
    rows = judge_contracts(plan, seen)
    first = [(contract, rank) for contract in (*CHAPTER, FLOAT_SUM) for rank in range(4)]
    assert [*first, *((matrix.contract, rank) for rank in range(4))] == [(row.contract, row.rank) for row in rows]
    assert {PASS} == {row.outcome for row in rows}


def test_a_rank_that_never_came_to_a_contract_fails_it() -> None:
    plan = plan_of(2)
    rows = judge_contracts(plan, {0: observed.chapter(plan, 0), 1: observed.chapter(plan, 1)[:2]})
    failing = [(row.contract, row.rank) for row in rows if row.outcome is FAIL]
    assert [(contract, 1) for contract in (*CHAPTER, FLOAT_SUM)[2:]] == failing
    assert "the rank ended before it came to this contract" == rows[-1].reason


def test_no_observations_at_all_fail_the_chapter_on_every_rank() -> None:
    rows = judge_contracts(plan_of(3), {})
    assert (6 * 3, {FAIL}) == (len(rows), {row.outcome for row in rows})


def test_a_rank_outside_a_subgroup_has_no_row_of_it() -> None:
    rows = judge_contracts(plan_of(4), {rank: [observed.subgroup(rank, [2, 3, 1])] for rank in (1, 2, 3)})
    assert [1, 2, 3] == [row.rank for row in rows if row.contract == "subgroup/unsorted"]


def test_what_was_not_tried_is_unsupported_with_its_reason() -> None:
    seen = Observation(contract="operator-matrix/sum/int16", unsupported="all_reduce: RuntimeError")
    row = judge_one(plan_of(4), 0, seen)
    assert (UNSUPPORTED, "all_reduce: RuntimeError") == (row.outcome, row.reason)


@pytest.mark.parametrize(
    "seen",
    [
        Observation(contract="exact-sum-equivalence"),
        Observation(contract="operator-matrix/sum/int64"),
        Observation(contract="a-contract-of-another-release"),
    ],
)
def test_an_observation_that_no_judge_can_read_is_an_error_that_names_it(seen: Observation) -> None:
    with pytest.raises(RecordError, match=f"rank 1: an observation of {seen.contract}"):
        judge_one(plan_of(4), 1, seen)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], "[]"),
        ([1, 2, 3, 4, 5, 6], "[1 2 3 4 5 6]"),
        ([1, 2, 3, 4, 5, 6, 7], "[1 2 3 .. 6 7] (7)"),
    ],
)
def test_a_long_tensor_is_shown_by_its_ends(values: list[int], text: str) -> None:
    assert text == brief(values)
