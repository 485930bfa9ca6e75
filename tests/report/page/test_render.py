"""The page: one file that loads nothing, runs nothing but its own scripts, and shows what records say as text."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import unicodedata
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from page_runs import HOSTILE, KEPT, LATENCY, copy_run, edit, hostile_run
from rsag.analyze.compare import compare
from rsag.cli.page import make_schedules
from rsag.errors import UsageError
from rsag.records.compare import MemoryChange
from rsag.records.contracts import ContractOutcome
from rsag.records.latency import ArmRole, Buffers, TimedArm, TimeOutcome
from rsag.report.execution import PROBES
from rsag.report.page import render
from rsag.report.page.compared import view_comparison
from rsag.report.page.render import render_comparison, render_ring, render_run, visible
from rsag.report.page.view import read_view
from rsag.report.page.words import Words, languages, load_words
from saved_runs import CANDIDATE, DIRECT, judged, row

PACKAGE = Path(render.__file__).parent
SCRIPTS = [*PACKAGE.glob("vendor/*.js"), *PACKAGE.glob("assets/*.js")]
WORDS = load_words()


def page_of(directory: Path) -> str:
    return render_run(read_view(directory, WORDS), make_schedules(2), WORDS)


class Page(HTMLParser):
    """Tags with their attributes, the text of each script, and all other text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            self.scripts[-1] += data
        else:
            self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


# -------------------------------------------------------------------------------------------------------- one file


@pytest.mark.parametrize("run", KEPT, ids=lambda run: run.name)
def test_the_page_names_nothing_that_would_be_fetched(run: Path) -> None:
    page = Page(page_of(run))
    targets = [value for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "href")]

    assert [] == [target for target in targets if not str(target).startswith(("#", "data:,"))]


@pytest.mark.parametrize("run", KEPT, ids=lambda run: run.name)
def test_the_page_is_under_two_megabytes(run: Path) -> None:
    assert len(page_of(run).encode()) < 2e6


def test_the_policy_allows_the_pages_scripts_by_their_hashes_and_nothing_else() -> None:
    page = Page(page_of(LATENCY))
    policy = next(one["content"] for one in page.of("meta") if "http-equiv" in one) or ""
    kinds = [attributes.get("type") for attributes in page.of("script")]
    running = [script for script, kind in zip(page.scripts, kinds) if kind is None]
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in running]

    assert {f"'sha256-{one}'" for one in hashes} == set(re.findall(r"'sha256-[^']+'", policy))
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]


def test_the_kept_libraries_are_those_that_their_note_names() -> None:
    note = (PACKAGE / "vendor" / "README.md").read_text()
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (PACKAGE / "vendor").glob("*.js")}

    assert found == dict(re.findall(r"`([\w.]+\.js)`.*`([0-9a-f]{64})`", note))


@pytest.mark.parametrize(
    "path", [*PACKAGE.glob("vendor/*.js"), *PACKAGE.glob("assets/*.js")], ids=lambda path: path.name
)
def test_no_script_holds_what_would_end_it(path: Path) -> None:
    assert not re.search(r"</script|<!--", path.read_text(), re.IGNORECASE)


# -------------------------------------------------------------------------------------------------------- hostile text


@pytest.mark.parametrize("run", KEPT, ids=lambda run: run.name)
def test_hostile_records_add_no_element_to_the_page(tmp_path: Path, run: Path) -> None:
    safe, hostile = Page(page_of(run)), Page(page_of(hostile_run(run, tmp_path / "run")))

    assert [] == hostile.of("img")
    assert len(safe.of("script")) == len(hostile.of("script"))
    assert [] == [name for _, attributes in hostile.tags for name in attributes if name.startswith("on")]


def test_hostile_text_is_shown_as_text(tmp_path: Path) -> None:
    page = Page(page_of(hostile_run(LATENCY, tmp_path / "run")))

    assert visible(HOSTILE) in page.text


def test_hostile_text_in_the_data_stays_a_string(tmp_path: Path) -> None:
    page = Page(page_of(hostile_run(LATENCY, tmp_path / "run")))
    data = json.loads(page.scripts[0])

    assert visible(HOSTILE) in data["ratios"][0]["arm"]
    assert "<" not in page.scripts[0]


@given(st.text(st.characters(codec=None)))
def test_nothing_unseen_is_left_in_visible_text(text: str) -> None:
    kinds = {unicodedata.category(one) for one in visible(text) if one not in "\n\t"}

    assert not kinds & {"Cc", "Cf", "Cs"}


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_text_that_can_be_seen_is_left_as_it_is(text: str) -> None:
    assert text == visible(text)


# --------------------------------------------------------------------------------------------------------- what is left


@pytest.mark.parametrize("name", ["run.json", "verdict.json", "programs.json", "rank-0000.jsonl", "protocols.json"])
def test_a_page_is_made_without_any_one_file(tmp_path: Path, name: str) -> None:
    run = copy_run(LATENCY, tmp_path / "run")
    (run / name).unlink()

    assert "AllReduce" in Page(page_of(run)).text


def test_a_page_is_made_of_a_plan_alone_and_says_what_is_missing(tmp_path: Path) -> None:
    run = copy_run(LATENCY, tmp_path / "run")
    for path in run.iterdir():
        if path.name != "plan.json":
            path.unlink()
    text = Page(page_of(run)).text

    assert "There is no verdict that this release can read" in text
    assert "verdict.json: not there" in text
    assert "rank-0000.jsonl, rank-0001.jsonl: no records of these ranks" in text


def test_a_page_is_made_of_documents_that_are_not_json(tmp_path: Path) -> None:
    run = copy_run(LATENCY, tmp_path / "run")
    for name in ("plan.json", "run.json", "verdict.json", "protocols.json"):
        (run / name).write_text("<script>")
    view = read_view(run, WORDS)

    assert {"plan.json", "run.json", "verdict.json", "protocols.json"} == {one.what for one in view.missing}
    assert "What is missing" in Page(page_of(run)).text


def test_the_reason_of_a_failed_run_is_on_the_page(tmp_path: Path) -> None:
    run = copy_run(LATENCY, tmp_path / "run")
    edit(run / "run.json", lambda data: data.update(outcome="rank-died", message="rank 1 was killed by signal 9"))

    assert "The run ended early: rank 1 was killed by signal 9" in Page(page_of(run)).text


# --------------------------------------------------------------------------------------------------------------- words


def used_keys() -> set[str]:
    """The keys that templates, scripts and the view name; of those made of parts the beginning."""
    code = "".join(path.read_text() for path in [*PACKAGE.glob("templates/*.html"), *PACKAGE.glob("*.py")])
    scripts = "".join(path.read_text() for path in PACKAGE.glob("assets/*.js"))
    named = set(re.findall(r"""(?:\bt|words)\(\s*f?["']([\w.{}-]+)["']""", code))
    return named | {f"js.{key}" for key in re.findall(r'word\("([\w-]+)"', scripts)}


def test_every_text_that_is_asked_for_is_in_the_catalogue() -> None:
    whole = {key for key in used_keys() if "{" not in key and not key.endswith(".")}

    assert set() == whole - set(WORDS.texts)


def test_no_text_of_the_catalogue_is_dead() -> None:
    named = used_keys()
    begun = tuple(key.partition("{")[0] for key in named if "{" in key or key.endswith("."))
    steps = ("js.reduce-scatter", "js.all-gather", "js.copied", "js.copy_failed")  # chosen by a value in the script

    assert [] == [key for key in WORDS.texts if key not in named and not key.startswith((*begun, *steps))]


@pytest.mark.parametrize("lang", languages())
def test_every_language_has_the_same_keys(lang: str) -> None:
    assert set(WORDS.texts) == set(load_words(lang).texts)


def test_a_language_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match=r"unknown language; got 'xx'; known: en"):
        load_words("xx")


def test_the_page_and_the_terminal_name_probes_alike() -> None:
    assert PROBES == {probe: WORDS(f"probe.{probe.value}") for probe in PROBES}


def test_names_of_facts_are_translated_whatever_their_heading(tmp_path: Path) -> None:
    """Versions under a heading of the same word as the facts': they stay as the records have them."""
    words = Words(lang="en", texts={**WORDS.texts, "env.versions": WORDS("env.facts"), "env.started": "begun"})
    text = Page(render_run(read_view(LATENCY, words), (), words)).text

    assert "begun" in text
    assert "torch" in text


def test_the_page_says_its_language() -> None:
    words = Words(lang="tlh", texts=WORDS.texts)
    page = Page(render_run(read_view(LATENCY, words), (), words))

    assert [{"lang": "tlh"}] == page.of("html")


# ---------------------------------------------------------------------------------------------------------------- ring


def test_the_ring_page_holds_what_rsag_ring_prints() -> None:
    schedules = make_schedules(3)
    page = Page(render_ring(schedules, WORDS))
    data = json.loads(page.scripts[0])

    assert [one.name for one in schedules] == [one["name"] for one in data["schedules"]]
    assert 4 == len(data["schedules"][0]["document"]["steps"])


# ------------------------------------------------------------------------------------------------------------ two runs


def test_contracts_that_came_out_differently_are_on_the_page_of_two_runs() -> None:
    a = judged(0, contracts={("exact-sum", 0): ContractOutcome.PASS, ("exact-sum", 1): ContractOutcome.PASS})
    b = judged(1, contracts={("exact-sum", 0): ContractOutcome.PASS, ("exact-sum", 1): ContractOutcome.FAIL})
    compared = compare(a, b)
    page = Page(render_comparison(compared, view_comparison(compared), WORDS))

    assert re.search(r"exact-sum\s*1\s*pass\s*fail", page.text)
    assert "There are no times to hold against each other." in page.text


def test_nothing_tried_is_not_said_to_be_alike() -> None:
    compared = compare(judged(0), judged(1))
    page = Page(render_comparison(compared, view_comparison(compared), WORDS))

    assert "No contract was tried in either run." in page.text
    assert "Memory was measured in neither run." in page.text


def test_peaks_that_differ_are_on_the_page_of_two_runs() -> None:
    change = MemoryChange(composition="rs_ag_naive", bytes=2**20, rank=1, a_peak_bytes=2**21, b_peak_bytes=None)
    compared = dataclasses.replace(compare(judged(0), judged(1)), memory=(change,), num_same_memory=3)
    page = Page(render_comparison(compared, view_comparison(compared), WORDS))

    assert "1 of 4 measured peaks of one rank differ." in page.text
    assert re.search(r"rs_ag_naive\s*1 MiB\s*1\s*2 MiB\s*–", page.text)


def test_what_is_invalid_in_one_run_shows_no_interval_there() -> None:
    wrong = row(CANDIDATE, outcome=TimeOutcome.INVALID, interval=(1.646, 1.711))
    view = view_comparison(compare(judged(0, row(DIRECT), wrong), judged(1, row(DIRECT), wrong)))

    assert ["invalid", "invalid"] == [view.lines[1].a, view.lines[1].b]
    assert {(None, None)} == {(point.low, point.high) for point in view.points}


def test_a_control_in_buffers_of_its_own_is_known_by_its_role() -> None:
    control = TimedArm(role=ArmRole.CONTROL, composition="all_reduce", buffers=Buffers.SYMMETRIC)
    own = row(control, outcome=TimeOutcome.INCONCLUSIVE, interval=(0.9, 1.1))
    points = view_comparison(compare(judged(0, own), judged(1, own))).points

    assert [(ArmRole.CONTROL, "cpu, float32 sum, symmetric")] * 2 == [(point.role, point.kind) for point in points]
