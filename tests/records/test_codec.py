"""What is read is what was written; anything else is an error that names the key."""

from __future__ import annotations

import enum
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import ClassVar, Literal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rsag.errors import RecordError, RunFailedError, UsageError
from rsag.records.codec import decode, dump_document, encode, load_document


class Clock(str, enum.Enum):
    HOST = "host"
    GRAPH = "graph"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    kind: Literal["plain"] = "plain"
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    kind: Literal["window"] = "window"
    pool: str | None
    inner: Window | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    name: str
    buffers: Plain | Window
    clock: Clock
    limit: int | str | None = None

    def __post_init__(self) -> None:
        if self.name == "":
            raise UsageError("an arm needs a name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    schema: ClassVar[str] = "plan"
    version: ClassVar[int] = 3

    arms: tuple[Arm, ...]
    margin: float
    span: tuple[int, float]
    environment: dict[str, str]
    where: Path
    profile: bool
    calls: Literal[1, 10] = 1
    notes: object = None
    extras: tuple[str, ...] = field(default_factory=tuple)


finite = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(max_size=5)
plains = st.builds(Plain, num_bytes=st.integers())
windows = st.recursive(
    st.builds(Window, pool=st.none() | words),
    lambda inner: st.builds(Window, pool=st.none() | words, inner=inner),
    max_leaves=3,
)
arms = st.builds(
    Arm,
    name=st.text(min_size=1, max_size=5),
    buffers=plains | windows,
    clock=st.sampled_from(Clock),
    limit=st.integers() | words | st.none(),
)
free_json = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)
plans = st.builds(
    Plan,
    arms=st.lists(arms, max_size=3).map(tuple),
    margin=finite,
    span=st.tuples(st.integers(), finite),
    environment=st.dictionaries(words, words, max_size=3),
    where=words.filter(lambda word: "\0" not in word).map(Path),
    profile=st.booleans(),
    calls=st.sampled_from([1, 10]),
    notes=free_json,
    extras=st.lists(words, max_size=2).map(tuple),
)

PLAN = Plan(
    arms=(
        Arm(name="native", buffers=Plain(num_bytes=64), clock=Clock.HOST),
        Arm(name="in-place", buffers=Window(pool="p", inner=Window(pool=None)), clock=Clock.GRAPH, limit=3),
    ),
    margin=0.02,
    span=(1, 2.5),
    environment={"NCCL_ALGO": "Ring", "a b": "c"},
    where=Path("runs/a"),
    profile=True,
)


@given(plans)
def test_a_plan_comes_back_as_it_was(plan: Plan) -> None:
    assert plan == decode(Plan, json.loads(json.dumps(encode(plan))))


@given(arms)
def test_an_arm_comes_back_with_every_type_as_it_was(arm: Arm) -> None:
    assert repr(arm) == repr(decode(Arm, json.loads(json.dumps(encode(arm)))))


def test_fields_are_encoded_in_their_order() -> None:
    assert [field.name for field in fields(Plan)] == list(_encoded())


def test_fields_with_defaults_may_be_absent() -> None:
    assert Plain(num_bytes=1) == decode(Plain, {"num_bytes": 1})


def test_an_integer_is_taken_for_a_float() -> None:
    margin = decode(Plan, {**_encoded(), "margin": 1}).margin
    assert ("1.0", float) == (repr(margin), type(margin))


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    value: int | float


@pytest.mark.parametrize("value", [3, 3.0])
def test_beside_an_int_a_float_keeps_its_type(value: float) -> None:
    assert repr(Number(value=value)) == repr(decode(Number, json.loads(json.dumps(encode(Number(value=value))))))


def _encoded() -> dict[str, object]:
    data = encode(PLAN)
    assert isinstance(data, dict)
    return data


Steps = tuple["str | int", ...]


def _keys(data: object, at: Steps = ()) -> Iterator[Steps]:
    """The paths of all keys that a dataclass gives; those of free JSON and of a dict are no business of the schema."""
    if at == ("environment",) or at[:1] == ("notes",):
        return
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for step, value in items:
        if isinstance(step, str):
            yield (*at, step)
        yield from _keys(value, (*at, step))


def _may_be_absent(steps: Steps) -> bool:
    # Where only one dataclass is possible, its kind has a default like any other field.
    return steps[-1] in {"calls", "notes", "extras", "limit", "inner"} or steps[-2:] == ("inner", "kind")


def _owner(data: object, steps: Steps) -> dict[str, object]:
    for step in steps[:-1]:
        data = data[step]  # type: ignore[index]
    assert isinstance(data, dict)
    return data


def _refused(data: object, *message: str) -> None:
    with pytest.raises(RecordError) as caught:
        decode(Plan, data, where="plan.json")
    assert str(caught.value).startswith(": ".join(filter(None, ("plan.json", *message))))


def _text(steps: Steps) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")


spots = plans.map(encode).flatmap(lambda data: st.tuples(st.just(data), st.sampled_from(list(_keys(data)))))


@given(spots.filter(lambda spot: not _may_be_absent(spot[1])))
def test_a_dropped_key_is_named_with_its_path(spot: tuple[object, Steps]) -> None:
    data, steps = spot
    del _owner(data, steps)[str(steps[-1])]
    _refused(data, _text(steps[:-1]), f"missing key '{steps[-1]}'")


@given(spots)
def test_an_added_key_is_named_with_its_path(spot: tuple[object, Steps]) -> None:
    data, steps = spot
    _owner(data, steps)["foo"] = 1
    _refused(data, _text(steps[:-1]), "unknown key 'foo'; expected one of ")


@given(spots.filter(lambda spot: spot[1] != ("notes",)), st.sampled_from([[None], {"foo": None}, 1.5, True]))
def test_a_value_of_another_type_is_named_with_its_path(spot: tuple[object, Steps], value: object) -> None:
    data, steps = spot
    assume((steps, value) not in [(("margin",), 1.5), (("profile",), True)])
    _owner(data, steps)[str(steps[-1])] = value
    _refused(data, _text(steps))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"profile": 1}, "profile: wrong type; got integer 1; expected boolean"),
        ({"calls": True}, "calls: wrong type; got boolean true; expected integer"),
        ({"calls": 2}, "calls: unknown value; got integer 2; expected one of 1, 10"),
        ({"margin": True}, "margin: wrong type; got boolean true; expected integer or number"),
        ({"margin": float("nan")}, "margin: not a finite number; got number nan"),
        ({"margin": 10**400}, "margin: not a finite number; got integer 1000"),
        ({"span": [1]}, "span: wrong length; got 1; expected 2"),
        ({"span": [1, "x"]}, 'span[1]: wrong type; got string "x"; expected integer or number'),
        ({"arms": {}}, "arms: wrong type; got object; expected array"),
        ({"environment": {"a": None}}, "environment.a: wrong type; got null; expected string"),
        ({"environment": {"a b": 1}}, "environment['a b']: wrong type"),
        ({"where": 3}, "where: wrong type; got integer 3; expected string"),
    ],
)
def test_what_is_wrong_with_a_value_is_said(change: dict[str, object], message: str) -> None:
    _refused({**_encoded(), **change}, message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clock": "wall"}, 'arms[0].clock: unknown value; got string "wall"; expected one of "host", "graph"'),
        ({"limit": 1.5}, "arms[0].limit: wrong type; got number 1.5; expected null or integer or string"),
        ({"buffers": {}}, "arms[0].buffers: missing key 'kind'; expected one of \"plain\""),
        ({"buffers": {"kind": "x"}}, 'arms[0].buffers.kind: unknown value; got string "x"; expected one of "plain"'),
        ({"buffers": {"kind": []}}, "arms[0].buffers.kind: wrong type; got array; expected string"),
        ({"name": ""}, "arms[0]: an arm needs a name"),
    ],
)
def test_what_is_wrong_inside_an_arm_is_said(change: dict[str, object], message: str) -> None:
    arm = encode(PLAN.arms[0])
    assert isinstance(arm, dict)
    _refused({**_encoded(), "arms": [{**arm, **change}]}, message)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_not_finite_is_not_encoded(value: float) -> None:
    with pytest.raises(RecordError, match=r"^fits\[1\]: not a finite number; got (nan|-?inf)"):
        encode({"fits": (1.0, value)})


@pytest.mark.parametrize(("value", "message"), [({1: 2}, "the key 1"), ({"a": {2}}, "^a: cannot .* got a set")])
def test_what_json_has_no_word_for_is_not_encoded(value: object, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        encode(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambiguous:
    value: Clock | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Untagged:
    value: Plain | Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    value: list[int]


@pytest.mark.parametrize(
    ("cls", "message"), [(Ambiguous, "share a JSON type"), (Untagged, "need a kind"), (Unknown, "no such type")]
)
def test_a_schema_that_would_need_guessing_is_a_mistake(cls: type, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        decode(cls, {"value": "host"})


def test_a_document_leads_with_schema_and_version(tmp_path: Path) -> None:
    dump_document(PLAN, tmp_path / "plan.json")
    lines = (tmp_path / "plan.json").read_text().split("\n")
    expected = ["{", ' "schema": "plan",', ' "version": 3,', ' "arms": [']
    assert (expected, ["}", ""]) == (lines[:4], lines[-2:])


@given(plan=plans)
def test_a_document_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, plan: Plan) -> None:
    path = tmp_path_factory.mktemp("documents") / "plan.json"
    dump_document(plan, path)
    assert plan == load_document(Plan, path)


def test_a_document_replaces_the_one_before_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")
    dump_document(PLAN, path)
    assert (PLAN, [path]) == (load_document(Plan, path), list(tmp_path.iterdir()))


def test_a_document_is_readable_by_whom_the_umask_allows(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    dump_document(PLAN, tmp_path / "plan.json")
    assert (tmp_path / "usual").stat().st_mode == (tmp_path / "plan.json").stat().st_mode


def test_a_write_that_fails_leaves_the_old_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "plan.json"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunFailedError, match=r"plan\.json: cannot be written; got No space left"):
        dump_document(PLAN, path)
    assert ("old", [path]) == (path.read_text(), list(tmp_path.iterdir()))


HEAD = '"schema": "plan", "version": 3'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n "schema": plan}', "not JSON: line 2, column 12: Expecting value"),
        ('{\n "schema": "pl', "truncated, the JSON ends early: line 2, column 12"),
        ("", "truncated, the JSON ends early: line 1, column 1"),
        ("{} {}", "not JSON: line 1, column 4: Extra data"),
        ("[1]", "not an object; got array; expected an object with schema and version"),
        ('{"version": 3}', "missing key 'schema'"),
        ('{"schema": "plan"}', "missing key 'version'"),
        ('{"schema": "run", "version": 3}', 'another schema; got string "run"; expected "plan"'),
        ('{"schema": "plan", "version": 2}', "another version; got integer 2; expected 3; written by another release"),
        ('{"schema": "plan", "version": true}', "another version; got boolean true; expected 3"),
        (f"{{{HEAD}}}", "missing key 'arms'"),
        (f'{{{HEAD}, "margin": NaN}}', "not JSON that rsag writes; got the number NaN"),
        (f'{{{HEAD}, "margin": 1e999}}', "not JSON that rsag writes; got the number 1e999"),
        (f'{{{HEAD}, "arms": 1, "arms": 2}}', "not JSON that rsag writes; got the key 'arms' twice"),
        ("[" * 200_000, "not JSON that rsag writes; got "),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(RecordError) as caught:
        load_document(Plan, path)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(b'{"\xff": 1}')
    with pytest.raises(RecordError, match=r"plan\.json: not JSON that rsag writes; got 'utf-8' codec"):
        load_document(Plan, path)


def test_a_file_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"plan\.json: not there"):
        load_document(Plan, tmp_path / "plan.json")


def test_a_directory_in_the_place_of_a_file_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot be read; got Is a directory"):
        load_document(Plan, tmp_path)


def test_a_document_cut_anywhere_is_truncated(tmp_path: Path) -> None:
    path, notes = tmp_path / "plan.json", [True, False, None, -1.5e-300, 'é\\"\U0001f600', 1e22]
    dump_document(decode(Plan, {**_encoded(), "notes": notes}), path)
    text = path.read_text().rstrip()
    for length in range(len(text)):
        path.write_text(text[:length])
        with pytest.raises(RecordError, match="truncated, the JSON ends early: line"):
            load_document(Plan, path)
