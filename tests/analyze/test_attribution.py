"""A launch belongs to every span around it on its thread; checked against the plain product of all with all."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from rsag.analyze.attribution import Launches, enclosing
from rsag.records.kernels import Rule
from rsag.traces.events import DeviceOperation, Launch, OperationKind


@dataclass(frozen=True)
class Span:
    process: int | None
    thread: int | None
    start_ns: int | None
    end_ns: int | None


def span(start: int, end: int, *, process: int = 1, thread: int = 1) -> Span:
    return Span(process, thread, start, end)


SPANS = st.lists(
    st.builds(
        lambda process, thread, start, length: Span(process, thread, start, start + length),
        st.integers(1, 2),
        st.integers(1, 2),
        st.integers(0, 12),
        st.integers(0, 8),
    ),
    max_size=12,
)


def lies_in(inner: Span, outer: Span, rule: Rule) -> bool:
    assert None not in (inner.start_ns, inner.end_ns, outer.start_ns, outer.end_ns)
    if inner.process != outer.process:
        return False
    if rule is Rule.ANY_THREAD:
        return outer.start_ns <= inner.start_ns <= outer.end_ns
    return inner.thread == outer.thread and outer.start_ns <= inner.start_ns and inner.end_ns <= outer.end_ns


@given(SPANS, SPANS, st.sampled_from(Rule))
def test_the_sweep_finds_what_comparing_all_with_all_finds(outer: list[Span], inner: list[Span], rule: Rule) -> None:
    naive = [{index for index, one in enumerate(outer) if lies_in(query, one, rule)} for query in inner]
    assert naive == [set(found) for found in enclosing(outer, inner, rule)]


@given(SPANS, SPANS)
def test_the_weaker_rule_never_loses_a_launch_that_the_stronger_one_finds(outer: list[Span], inner: list[Span]) -> None:
    strong, weak = (enclosing(outer, inner, rule) for rule in (Rule.SAME_THREAD, Rule.ANY_THREAD))
    assert all(set(one) <= set(other) for one, other in zip(strong, weak))


def test_nested_ranges_of_one_name_are_all_found_outermost_first() -> None:
    ranges = [span(2, 8), span(0, 10), span(3, 4)]
    assert [(1, 0)] == enclosing(ranges, [span(5, 6)], Rule.SAME_THREAD)


def test_a_launch_that_outlives_the_range_is_not_in_it() -> None:
    assert [()] == enclosing([span(0, 10)], [span(9, 11)], Rule.SAME_THREAD)


def test_a_launch_that_outlives_the_range_counts_by_the_weaker_rule() -> None:
    assert [(0,)] == enclosing([span(0, 10)], [span(9, 11)], Rule.ANY_THREAD)


def test_what_has_no_launch_or_no_time_lies_in_nothing() -> None:
    timeless = Span(1, 1, None, None)
    assert [(), ()] == enclosing([span(0, 10)], [None, timeless], Rule.SAME_THREAD)


def operation(process: int | None, correlation: int | None = 7) -> DeviceOperation:
    return DeviceOperation(
        kind=OperationKind.KERNEL,
        name="ncclDevKernel_SendRecv",
        start_ns=0,
        end_ns=1,
        process=process,
        device=0,
        stream=0,
        correlation=correlation,
    )


def launch(process: int) -> Launch:
    return Launch(process=process, thread=1, start_ns=0, end_ns=1, correlation=7, api="cuLaunchKernelEx")


def test_processes_with_the_same_correlation_ids_are_kept_apart() -> None:
    launches = Launches([launch(1), launch(2)])
    assert [launch(1), launch(2)] == [launches.of(operation(1)), launches.of(operation(2))]


def test_an_operation_of_no_known_process_is_found_where_only_one_process_used_its_id() -> None:
    assert launch(1) == Launches([launch(1)]).of(operation(None))


def test_an_operation_of_no_known_process_is_not_guessed_at_where_two_used_its_id() -> None:
    assert Launches([launch(1), launch(2)]).of(operation(None)) is None


def test_an_operation_without_an_id_has_no_launch() -> None:
    assert Launches([launch(1)]).of(operation(1, correlation=None)) is None
