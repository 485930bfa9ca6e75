"""From allocator events and counters to a timeline in the ledger's words; events are made by hand."""

from __future__ import annotations

from rsag.compositions import find
from rsag.programs import Program, record
from rsag.rank.allocations import Event, read_events, sampled_timeline, trace_timeline
from rsag.records.memory import MemoryMoment, Thread
from rsag.reduction import ReduceOp

CALLER, WORKER = Thread.CALLER, Thread.WORKER


def program_of(composition: str, numel: int = 16) -> Program:
    """Rank 0 of 4; elements are bytes here."""
    return record(find(composition), rank=0, world_size=4, numel=numel, op=ReduceOp.SUM)


def event(step: int, size: int, address: int, thread: Thread = CALLER) -> Event:
    return Event(step=step, thread=thread, address=address, bytes=size)


def words(moments: tuple[MemoryMoment, ...]) -> list[tuple[str, int, int]]:
    return [(moment.what, moment.bytes, moment.live_bytes) for moment in moments]


# In place: 0 allocate input, 1 reduce_scatter, 2 its wait, 3 all_gather, 4 its wait.
INPUT = event(0, 16, 0xA0)


def test_each_event_is_named_by_its_instruction_and_each_free_by_its_block() -> None:
    events = [INPUT, event(1, 16, 0xB0), event(1, -16, 0xB0), event(3, 16, 0xC0, WORKER), event(3, -16, 0xC0, WORKER)]
    timeline = trace_timeline(program_of("rs_ag_in_place"), 1, events)
    assert [
        ("allocate input", 16, 16),
        ("reduce_scatter", 16, 32),
        ("reduce_scatter", -16, 16),
        ("all_gather", 16, 32),
        ("all_gather", -16, 16),
    ] == words(timeline)
    assert [0, 1, 1, 2, 2] == [moment.block for moment in timeline]
    assert [0, 16, 16, 16, 16] == [moment.payload_bytes for moment in timeline]


def test_a_free_of_what_was_there_before_is_left_out() -> None:
    assert [("allocate input", 16, 16)] == words(
        trace_timeline(program_of("rs_ag_in_place"), 1, [event(0, -99, 0x50), INPUT])
    )


def test_a_collective_s_block_that_nobody_saw_freed_ends_with_the_collective() -> None:
    events = [INPUT, event(1, 16, 0xB0), event(3, 16, 0xC0, WORKER), event(3, -16, 0xC0, WORKER)]
    timeline = trace_timeline(program_of("rs_ag_in_place"), 1, events)
    assert [16, 32, 16, 32, 16] == [moment.live_bytes for moment in timeline]
    assert [True, True, False, True, True] == [moment.seen for moment in timeline]


def test_or_before_its_address_is_given_out_again() -> None:
    timeline = trace_timeline(
        program_of("rs_ag_in_place"), 1, [INPUT, event(1, 16, 0xB0), event(1, 16, 0xB0), event(1, -16, 0xB0)]
    )
    assert [16, 32, 16, 32, 16] == [moment.live_bytes for moment in timeline]


def test_what_the_composition_allocated_stays_alive() -> None:
    timeline = trace_timeline(program_of("reduce_scatter_only"), 1, [INPUT, event(1, 4, 0xB0)])
    assert [16, 20] == [moment.live_bytes for moment in timeline]


def test_a_worker_s_event_belongs_to_the_started_collective_of_that_size() -> None:
    """Chunked in four: the first gather is started at instruction 3 and runs on under what follows."""
    program = program_of("rs_ag_chunked")
    [late] = trace_timeline(program, 1, [event(4, 4, 0xC0, WORKER)])[:1]
    assert ("all_gather", 4) == (late.what, late.payload_bytes)


def test_marks_of_the_caller_count_instructions_and_what_follows_the_end_is_not_read() -> None:
    def memory(ts: float, tid: int, size: int, device: int = 0) -> dict[str, object]:
        return {"name": "[memory]", "ts": ts, "tid": tid, "args": {"Bytes": size, "Addr": 7, "Device Type": device}}

    trace: list[dict[str, object]] = [
        {"name": "rsag:end", "ts": 9.0, "tid": 1},
        memory(9.5, 1, -16),
        memory(6.0, 2, 8),
        memory(6.5, 2, 99, device=1),
        {"name": "rsag:step", "ts": 5.0, "tid": 1},
        {"name": "aten::empty", "ts": 1.0, "tid": 1},
        memory(2.0, 1, 16),
    ]
    assert [event(0, 16, 7), event(1, 8, 7, WORKER)] == read_events(trace)


def test_samples_become_changes_and_a_peak_inside_one_instruction_two_of_them() -> None:
    program = program_of("rs_ag_in_place")
    samples = [(116, 116), (116, 132), (116, 116), (116, 116), (116, 116), (116, 116)]
    assert [
        ("allocate input", 16, 16),
        ("reduce_scatter", 16, 32),
        ("reduce_scatter", -16, 16),
    ] == words(sampled_timeline(program, 100, samples))
