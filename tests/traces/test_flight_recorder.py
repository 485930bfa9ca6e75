"""Flight-recorder dumps give calls with sizes, groups and states, whatever wrote them and however they are damaged."""

from __future__ import annotations

import contextlib
import json
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsag.errors import UsageError
from rsag.traces import flight_recorder, pickled
from rsag.traces.events import Capture, LimitCode

Find = Callable[[str], Path]


def entry(**fields: Any) -> dict[str, Any]:
    return {
        "record_id": 0,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "thread_id": "77",
        "collective_seq_id": 1,
        "p2p_seq_id": 0,
        "op_id": 1,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 1000,
        "input_sizes": [[2, 3]],
        "input_dtypes": ["Float"],
        "output_sizes": [[2, 3]],
        "output_dtypes": ["Float"],
        "state": "scheduled",
        "time_discovered_completed_ns": None,
        "retired": False,
        "is_p2p": False,
        **fields,
    }


def dump(*entries: Any, **fields: Any) -> dict[str, Any]:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    return {"version": "2.10", "pg_config": config, "comm_lib_version": "2.28.9", "entries": list(entries), **fields}


def read(tmp_path: Path, document: object, name: str = "fr.rank1.json") -> Capture:
    path = tmp_path / name
    if isinstance(document, bytes):
        path.write_bytes(document)
    elif name.endswith(".json"):
        path.write_text(json.dumps(document))
    else:
        path.write_bytes(pickle.dumps(document, protocol=4))
    return flight_recorder.read(path)


def collectives(capture: Capture) -> list[str | None]:
    return [call.metadata.collective for call in capture.calls]


THREE_ROUNDS = ["nccl:all_reduce", "nccl:_reduce_scatter_base", "nccl:_all_gather_base"]


@pytest.mark.parametrize("name", ["fr_ok.rank0.pkl", "fr_ok.rank0.json", "fr_ok.rank1.pkl", "fr_ok.rank1.json"])
def test_our_recording_has_eleven_calls_in_pickle_and_json_alike(recorded: Find, name: str) -> None:
    capture = flight_recorder.read(recorded(name))
    assert 11 == len(capture.calls)
    assert ("nccl", "2.28.9", 2, int(name[10])) == (
        capture.origin.backend,
        capture.origin.library_version,
        capture.origin.world_size,
        capture.origin.rank,
    )
    assert (1048576, "Float", "0", (0, 1)) == (
        capture.calls[1].metadata.in_numel,
        capture.calls[1].metadata.dtype,
        capture.calls[1].metadata.group,
        capture.calls[1].metadata.group_ranks,
    )
    assert 0 == capture.quarantine.num_skipped


def test_pickle_and_json_of_one_moment_tell_the_same(recorded: Find) -> None:
    one, other = (flight_recorder.read(recorded(f"fr_ok.rank0.{kind}")) for kind in ("pkl", "json"))
    assert [call.metadata for call in one.calls] == [call.metadata for call in other.calls]


def test_swapped_calls_of_two_ranks_stand_in_the_order_that_each_made_them(recorded: Find) -> None:
    ranks = [collectives(flight_recorder.read(recorded(f"fr_swapped.rank{rank}.pkl"))) for rank in (0, 1)]
    first = next(index for index, pair in enumerate(zip(*ranks)) if pair[0] != pair[1])
    assert ranks[0][first : first + 2] == ranks[1][first : first + 2][::-1]


def test_gloo_dumps_have_groups_that_nothing_describes_and_calls_that_are_done(public: Find) -> None:
    for name in ("gloo/fr_gloo_rank0.pickle", "gloo/fr_gloo_rank0.json"):
        capture = flight_recorder.read(public(name))
        assert 9 == len(capture.calls)
        assert {"completed"} == {call.state for call in capture.calls}
        assert LimitCode.NOT_AS_CALLED in {limit.code for limit in capture.limits}


@pytest.mark.parametrize("fault", ["gpu_error_1st", "lock_gil_1st"])
def test_the_published_dumps_of_a_broken_job_are_read_whole(public: Find, fault: str) -> None:
    captures = [flight_recorder.read(public(f"flight_recorder/{fault}/_dump_{rank}")) for rank in range(16)]
    assert list(range(16)) == [capture.origin.rank for capture in captures]
    assert 0 == sum(capture.quarantine.num_skipped for capture in captures)
    assert {16} == {capture.origin.world_size for capture in captures}


def test_ranks_that_held_the_lock_have_nothing_in_their_dumps(public: Find) -> None:
    empty = [
        rank
        for rank in range(16)
        if not flight_recorder.read(public(f"flight_recorder/lock_gil_1st/_dump_{rank}")).calls
    ]
    assert [9, 14] == empty


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_container-node02_5", 5),
        ("_dump_14", 14),
        ("trace_0", 0),
        ("fr.rank3.pkl", 3),
        ("host7-rank_2.pickle", 2),
        ("dump.pkl", None),
    ],
)
def test_the_rank_is_in_the_name_of_the_file(tmp_path: Path, name: str, rank: int | None) -> None:
    assert rank == read(tmp_path, pickle.dumps(dump(), protocol=2), name).origin.rank


def test_older_dumps_call_the_library_nccl_version(tmp_path: Path) -> None:
    document = dump(entry(), version="2.9", nccl_version="2.27.3")
    del document["comm_lib_version"]
    assert "2.27.3" == read(tmp_path, document).origin.library_version


@pytest.mark.parametrize(
    ("fields", "status", "expected"),
    [
        ({}, {}, "scheduled"),
        ({"retired": True}, {}, "completed"),
        ({}, {"0": {"last_completed_collective": "1"}}, "completed"),
        ({}, {"0": {"last_completed_collective": 0}}, "scheduled"),
        ({"state": "started"}, {}, "started"),
    ],
)
def test_a_call_is_completed_when_it_is_retired_or_its_group_is_past_it(
    tmp_path: Path, fields: dict[str, Any], status: dict[str, Any], expected: str
) -> None:
    (call,) = read(tmp_path, dump(entry(**fields), pg_status=status)).calls
    assert expected == call.state


def test_elements_of_several_tensors_are_added_up(tmp_path: Path) -> None:
    (call,) = read(tmp_path, dump(entry(input_sizes=[[2, 3], [], [4]], output_sizes=[]))).calls
    assert (11, None) == (call.metadata.in_numel, call.metadata.out_numel)


def test_point_to_point_calls_have_a_sequence_of_their_own(tmp_path: Path) -> None:
    (call,) = read(tmp_path, dump(entry(is_p2p=True, p2p_seq_id=9))).calls
    assert 9 == call.metadata.sequence


def test_calls_that_the_ring_dropped_are_a_limit(tmp_path: Path) -> None:
    limits = {limit.code: limit.message for limit in read(tmp_path, dump(entry(record_id=40))).limits}
    assert "40 calls" in limits[LimitCode.TRUNCATED]


@pytest.mark.parametrize("bad", [None, 7, {}, {"profiling_name": 3, "state": "scheduled"}, {"profiling_name": "x"}])
def test_an_entry_that_is_none_is_counted_and_the_others_are_read(tmp_path: Path, bad: object) -> None:
    capture = read(tmp_path, dump(entry(), bad, entry()))
    assert (2, 1, 3) == (len(capture.calls), capture.quarantine.num_skipped, capture.quarantine.num_seen)
    assert 1 == capture.quarantine.first[0].offset


def test_times_that_run_backwards_are_not_used_and_counted(tmp_path: Path) -> None:
    capture = read(tmp_path, dump(entry(time_discovered_completed_ns=999)))
    assert (None, None) == (capture.calls[0].start_ns, capture.calls[0].end_ns)
    assert 1 == capture.quarantine.num_skipped


def test_integers_beyond_64_bits_are_no_numbers(tmp_path: Path) -> None:
    capture = read(tmp_path, dump(entry(collective_seq_id=1 << 80, input_sizes=[[1 << 40, 1 << 40]])))
    assert (None, None) == (capture.calls[0].metadata.sequence, capture.calls[0].metadata.in_numel)


def test_names_that_would_act_on_a_terminal_are_made_harmless(tmp_path: Path) -> None:
    (call,) = read(tmp_path, dump(entry(profiling_name="nccl:\x1b[2J\ud800"))).calls
    assert "nccl:\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}" == call.metadata.collective


class Harm:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("harm",))


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_pickle_that_wants_a_global_is_refused_by_its_name(
    tmp_path: Path, protocol: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=r"(?:__builtin__|builtins)\.print"):
        read(tmp_path, pickle.dumps(dump(Harm()), protocol=protocol), "fr.pkl")
    assert "" == capsys.readouterr().out


@pytest.mark.parametrize("protocol", range(2, 6))
def test_every_protocol_of_pickle_is_read(tmp_path: Path, protocol: int) -> None:
    assert 2 == len(read(tmp_path, pickle.dumps(dump(entry(), entry()), protocol=protocol), "fr.pkl").calls)


def test_a_cut_pickle_gives_the_calls_before_the_cut(recorded: Find, tmp_path: Path) -> None:
    whole = recorded("fr_ok.rank0.pkl").read_bytes()
    capture = read(tmp_path, whole[: len(whole) // 2], "fr.pkl")
    assert 3 <= len(capture.calls) < 11
    assert LimitCode.TRUNCATED in {limit.code for limit in capture.limits}
    assert capture.quarantine.num_skipped >= 1


def test_cut_json_gives_the_calls_before_the_cut(recorded: Find, tmp_path: Path) -> None:
    whole = recorded("fr_ok.rank0.json").read_bytes()
    capture = read(tmp_path, whole[: len(whole) // 2])
    assert 3 <= len(capture.calls) < 11
    assert "2.28.9" == capture.origin.library_version
    assert LimitCode.TRUNCATED in {limit.code for limit in capture.limits}


def test_one_damaged_entry_of_json_costs_no_other(recorded: Find, tmp_path: Path) -> None:
    damaged = recorded("fr_ok.rank0.json").read_bytes().replace(b'"is_p2p":false', b'"is"p2p":false', 1)
    capture = read(tmp_path, damaged)
    assert (10, 1) == (len(capture.calls), capture.quarantine.num_skipped)


@pytest.mark.parametrize("document", [{"version": "2.10"}, [], 7])
def test_what_is_no_dump_is_refused(tmp_path: Path, document: object) -> None:
    with pytest.raises(UsageError, match="not a flight recorder's dump"):
        read(tmp_path, document, "fr.pkl")


def test_one_huge_list_held_many_times_is_walked_once(tmp_path: Path) -> None:
    sizes = [[1]] * 100_000
    held = [entry(input_sizes=sizes, output_sizes=sizes) for _ in range(10_000)]
    assert 10_000 == len(read(tmp_path, dump(*held), "fr.pkl").calls)


def test_lists_nested_a_hundred_thousand_deep_do_no_harm(tmp_path: Path) -> None:
    deep = b"]" * 100_000 + b"a" * 99_999
    assert pickled.load(b"\x80\x02" + deep + b".", where="x").cut_at is None
    with pytest.raises(UsageError):
        read(tmp_path, b"\x80\x02" + deep + b".", "fr.pkl")


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02]r\xff\xff\xff\x7f.",  # a memo's place far out
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",  # bytes that are not there
        b"\x80\x02t.",
        b"\x80\x02}].",
        b"\x80\x02(}K\x01u.",
        b"\x80\x02h\x07.",
        b"\x80\x02}](K\x01sK\x02u.",
        b"\x80\x02",
    ],
)
def test_pickles_that_ask_for_the_impossible_are_only_cut(data: bytes) -> None:
    pickled.load(data, where="x")


def test_a_pickle_of_plain_data_is_what_pickle_makes_of_it() -> None:
    value = {"a": [1, -2, 1 << 70, 2.5, None, True], "b": (b"x", "\u00e9", {}), "c": [("t",) * 5, {"d": ()}]}
    for protocol in range(3, 6):  # 2 has no bytes
        assert value == pickled.load(pickle.dumps(value, protocol=protocol), where="x").value


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@given(PLAIN, st.integers(3, 5))
def test_any_plain_data_is_what_pickle_makes_of_it(value: object, protocol: int) -> None:
    assert value == pickled.load(pickle.dumps(value, protocol=protocol), where="x").value


@given(PLAIN, st.integers(2, 5), st.data())
def test_a_pickle_may_be_cut_or_changed_anywhere(value: object, protocol: int, data: st.DataObject) -> None:
    whole = bytearray(pickle.dumps(value, protocol=protocol))
    where = data.draw(st.integers(2, len(whole) - 1))
    whole[where] = data.draw(st.integers(0, 255))
    for damaged in (bytes(whole), bytes(whole[:where])):
        with contextlib.suppress(UsageError):
            pickled.load(damaged, where="x")


@given(st.lists(st.dictionaries(st.sampled_from(sorted(entry())), PLAIN, max_size=6).map(lambda it: entry(**it))))
def test_entries_of_anything_give_calls_or_are_counted(
    tmp_path_factory: pytest.TempPathFactory, entries: list[dict[str, Any]]
) -> None:
    capture = read(tmp_path_factory.mktemp("fuzz"), dump(*entries), "fr.pkl")
    assert len(entries) == capture.quarantine.num_seen
    assert len(entries) <= len(capture.calls) + capture.quarantine.num_skipped


def test_dumps_are_known_by_how_they_begin_and_kineto_is_none_of_them(recorded: Find) -> None:
    heads = {name: recorded(name).read_bytes()[:4096] for name in ("fr_ok.rank0.pkl", "fr_ok.rank0.json")}
    assert all(flight_recorder.sniff(head, Path(name)) for name, head in heads.items())
    assert not flight_recorder.sniff(b'{"schemaVersion": 1, "distributedInfo": {"pg_config": []}}', Path("x.json"))


def test_our_recording_holds_three_rounds_and_nothing_else(recorded: Find) -> None:
    counted = Counter(collectives(flight_recorder.read(recorded("fr_ok.rank0.pkl"))))
    assert set(THREE_ROUNDS) <= set(counted)
