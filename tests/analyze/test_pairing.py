"""AllGathers are given ReduceScatters that fit, by what the file records of all of them."""

from __future__ import annotations

import dataclasses

from captured import described
from rsag.analyze.pairing import Pairing, pair
from rsag.traces.events import Metadata

RS, AG = "reduce_scatter", "all_gather"


def call(collective: str, numel: int = 1024, **more: object) -> tuple[str, Metadata]:
    return collective, dataclasses.replace(described(collective, numel=numel), **more)  # type: ignore[arg-type]


def test_each_gather_has_the_scatter_of_its_own_size_in_whatever_order() -> None:
    calls = [call(RS, 1024), call(RS, 2048), call(AG, 2048), call(AG, 1024)]
    assert Pairing(differs=None, unknown=()) == pair(calls)


def test_one_scatter_serves_one_gather() -> None:
    differs = pair([call(RS), call(AG), call(AG)]).differs
    assert "an AllGather has no ReduceScatter of its own before it" == differs


def test_scatters_without_a_gather_are_counted() -> None:
    assert "2 ReduceScatters have no AllGather after it" == pair([call(RS), call(RS), call(RS), call(AG)]).differs


def test_what_one_call_lacks_is_compared_of_none() -> None:
    calls = [call(RS, dtype=None), call(RS, 2048), call(AG), call(AG, 2048, dtype="Half")]
    assert Pairing(differs=None, unknown=("dtype",)) == pair(calls)


def test_the_ranks_of_a_group_stand_for_its_name() -> None:
    assert () == pair([call(RS, group=None), call(AG)]).unknown
    assert ("group",) == pair([call(RS, group=None, group_ranks=None), call(AG)]).unknown


def test_work_grows_with_the_calls_and_not_with_their_square() -> None:
    looked_at = 0

    class Counted(int):
        def __eq__(self, other: object) -> bool:
            nonlocal looked_at
            looked_at += 1
            return int(self) == other

        __hash__ = int.__hash__

    number = 400
    calls = [call(RS, in_numel=Counted(2 * size), out_numel=Counted(size)) for size in range(number)]
    calls += [call(AG, in_numel=Counted(size), out_numel=Counted(2 * size)) for size in reversed(range(number))]
    assert None is pair(calls).differs
    assert looked_at < 50 * number
