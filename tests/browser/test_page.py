"""The page in a browser: it opens from disk without a network, draws, steps, and keeps hostile text as text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from opened import Open

from page_runs import HOSTILE, KEPT, copy_run, edit
from rsag.analyze.compare import compare
from rsag.analyze.judged import read_judged
from rsag.cli.page import make_schedules, write_report
from rsag.records.codec import load_document
from rsag.records.verdict import Verdict
from rsag.report.page.compared import view_comparison
from rsag.report.page.render import render_comparison, render_ring, visible
from rsag.report.page.words import load_words

pytestmark = pytest.mark.browser

WORDS = load_words()


@pytest.fixture(scope="session")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ring") / "ring.html"
    path.write_text(render_ring(make_schedules(4), WORDS), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    a, b = (read_judged(run) for run in (KEPT[0], KEPT[0].with_name("latency_again_h200x2_20261130")))
    compared = compare(a, b, allow_mixed=True)
    path = tmp_path_factory.mktemp("compare") / "compare.html"
    path.write_text(render_comparison(compared, view_comparison(compared), WORDS), encoding="utf-8")
    return path


# ------------------------------------------------------------------------------------------------------------- opening


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["report", "kinds", "hostile", "ring", "comparison"])
def test_it_opens_from_disk_and_has_nothing_to_complain_of(
    request: pytest.FixtureRequest, open_page: Open, name: str, scheme: str, width: int
) -> None:
    path: Path = request.getfixturevalue(name)
    opened = open_page(path, scheme=scheme, width=width)
    opened.draw_all()

    assert ([], [path.as_uri()]) == (opened.complaints, opened.requests)


@pytest.mark.parametrize("name", ["report", "kinds", "hostile", "ring", "comparison"])
def test_nothing_sticks_out_sideways_on_a_phone(request: pytest.FixtureRequest, open_page: Open, name: str) -> None:
    page = open_page(request.getfixturevalue(name), width=390).page

    assert 390 == page.evaluate("document.documentElement.scrollWidth")


def test_a_long_word_does_not_widen_a_phone(run: Path, tmp_path: Path, open_page: Open) -> None:
    word = "x" * 5000

    def lengthen(verdict: dict[str, object]) -> None:
        reason = {"code": "not-measured", "message": word}
        verdict.update(reasons=[word], sentence=word)
        verdict["equivalence"][0].update(evidence=word, conditions=word)  # type: ignore[index]
        verdict["latency"][1].update(outcome="inconclusive", ratio=None, reasons=[reason])  # type: ignore[index]

    directory = copy_run(run, tmp_path / "run")
    edit(directory / "verdict.json", lengthen)
    page = open_page(write_report(directory), width=390).page
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")

    assert 390 == page.evaluate("document.documentElement.scrollWidth")


# ------------------------------------------------------------------------------------------------------------ on paper


def test_it_prints(report: Path, open_page: Open) -> None:
    opened = open_page(report)
    printed = opened.page.pdf(format="A4")

    assert b"%PDF" == printed[:4]
    assert [] == opened.complaints


CLOSED = """[...document.querySelectorAll('details:not([data-cycles])')].filter(
    (one) => !one.lastElementChild.checkVisibility()).length"""


def test_on_paper_nothing_is_closed_but_the_cycles_and_afterwards_all_is_as_before(
    report: Path, open_page: Open
) -> None:
    page = open_page(report).page
    page.emulate_media(media="print")
    before = page.locator("details[open]").count()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    closed = page.evaluate(CLOSED)
    cycles = page.locator("details[data-cycles][open]").count()
    page.evaluate("dispatchEvent(new Event('afterprint'))")

    assert (0, 0, before) == (closed, cycles, page.locator("details[open]").count())


def test_on_paper_nothing_is_closed_without_scripts_either(report: Path, open_page: Open) -> None:
    page = open_page(report, scripts=False).page
    table = page.locator("#ratio-table")
    on_screen = table.is_visible()
    page.emulate_media(media="print")

    assert (False, True) == (on_screen, table.is_visible())


# ----------------------------------------------------------------------------------------------------- without scripts


@pytest.mark.parametrize("name", ["report", "ring", "comparison"])
def test_without_scripts_there_is_nothing_dead_to_press_and_it_is_said(
    request: pytest.FixtureRequest, open_page: Open, name: str
) -> None:
    page = open_page(request.getfixturevalue(name), scripts=False).page

    assert [] == [one for one in page.locator("button, select, input, [data-cycles]").all() if one.is_visible()]
    assert page.locator(".no-scripts").is_visible()


# --------------------------------------------------------------------------------------------------------------- plots


def test_every_plot_has_something_drawn_in_it(report: Path, open_page: Open) -> None:
    opened = open_page(report)
    opened.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    opened.draw_all()
    drawn = opened.page.evaluate(
        """[...document.querySelectorAll('[data-plot]')].map((box) =>
             [box.dataset.plot, box.querySelectorAll('svg circle, svg path[d*=","], svg rect').length > 0])"""
    )

    assert {"ratios", "spread", "cycles", "memory", "wire"} == {kind for kind, _ in drawn}
    assert [] == [kind for kind, marks in drawn if not marks]


def test_a_plot_of_ratios_has_a_point_for_every_one_that_was_accepted(run: Path, report: Path, open_page: Open) -> None:
    opened = open_page(report)
    opened.draw_all()
    accepted = [row for row in load_document(Verdict, run / "verdict.json").latency if row.ratio is not None]

    assert len(accepted) == opened.page.locator('[data-plot="ratios"] svg circle').count()


def test_a_ratio_that_is_no_answer_has_no_place_on_the_scale(run: Path, tmp_path: Path, open_page: Open) -> None:
    def invalidate(verdict: dict[str, object]) -> None:
        verdict["latency"][1].update(outcome="invalid", ratio=None, interval=None)  # type: ignore[index]

    directory = copy_run(run, tmp_path / "run")
    edit(directory / "verdict.json", invalidate)
    opened = open_page(write_report(directory))
    opened.draw_all()
    below = """(() => {
      const svg = document.querySelector('[data-plot="ratios"] svg');
      const cross = [...svg.querySelectorAll('g[aria-label="dot"] path')].at(-1).getBoundingClientRect();
      const axis = Math.max(...[...svg.querySelectorAll('g[aria-label="rule"] line')].map(
        (line) => line.getBoundingClientRect().bottom));
      return [cross.height > 0, cross.top + cross.height / 2 > axis];
    })()"""

    assert [] == opened.complaints
    assert [True, True] == opened.page.evaluate(below)


PLOTTED = """[...document.querySelectorAll('[data-plot="ratios"] svg')].map((svg) =>
    [svg.previousElementSibling.textContent, svg.querySelectorAll('circle').length,
     svg.querySelector('g[aria-label="rect"]')?.children.length ?? 0])"""


def test_each_kind_of_buffers_has_a_plot_of_its_own_and_an_invalid_one_no_points_and_no_band(
    kinds: Path, open_page: Open
) -> None:
    opened = open_page(kinds)
    opened.draw_all()

    assert {
        ("graph, float32 sum", True, 6),
        ("graph, float32 sum, symmetric", False, 0),
        ("eager, float32 sum", True, 6),
        ("eager, float32 sum, symmetric", False, 0),
    } == {(name, points > 0, bands) for name, points, bands in opened.page.evaluate(PLOTTED)}


def test_what_is_invalid_does_not_stretch_the_axis(kinds: Path, open_page: Open) -> None:
    """The invalid ratios reach to 1.7; beside the line at 1 there is nothing."""
    opened = open_page(kinds)
    opened.draw_all()
    ticks = opened.page.evaluate(
        """[...document.querySelectorAll('[data-plot="ratios"] svg')].map((svg) =>
             [...svg.querySelectorAll('g[aria-label="y-axis tick label"] text')].map(
               (one) => Number(one.textContent)))"""
    )

    assert max(ticks[0]) > 1.5
    assert (0.9, 1.1) == (min(ticks[1]), max(ticks[1]))


def test_a_composition_has_one_colour_in_all_plots_of_the_page(kinds: Path, open_page: Open) -> None:
    opened = open_page(kinds)
    opened.draw_all()
    colours = opened.page.evaluate(
        """Object.fromEntries(['ratios', 'wire'].map((kind) => [kind, Object.fromEntries(
             [...document.querySelectorAll(`[data-legend="${kind}"] .item`)].map((one) =>
               [one.textContent, one.firstElementChild.style.color]))]))"""
    )
    of_wire = colours["wire"]

    assert colours["ratios"] == {name: of_wire[name] for name in ("rs_ag_naive", "rs_ag_in_place")}
    assert of_wire["rs_ag_naive"] == of_wire["rs_ag_naive (symmetric)"]
    assert 3 == len(set(of_wire.values()))


def test_squares_are_the_direct_arm_of_each_kind_of_buffers(kinds: Path, open_page: Open) -> None:
    opened = open_page(kinds)
    opened.draw_all()
    squares = opened.page.evaluate(
        "timings(DATA.cases[0]).filter((one) => one.symbol === 'square').map((one) => one.arm)"
    )

    assert {"all_reduce", "all_reduce (symmetric)"} == set(squares)


def test_the_table_behind_the_ratios_says_what_the_verdict_says(run: Path, report: Path, open_page: Open) -> None:
    page = open_page(report).page
    rows = [row for row in load_document(Verdict, run / "verdict.json").latency if row.role.is_compared]
    shown = page.evaluate(
        """[...document.querySelectorAll('#ratio-table tbody tr')].map((row) =>
             [...row.querySelectorAll('.num .fig, .answer .fig')].map((one) =>
               [one.dataset.source, one.textContent]))"""
    )

    assert [f"{row.median_us:,.1f}" for row in rows] == [dict(own)[_key(own, "median_us")] for own in shown]
    assert [row.ratio is not None for row in rows] == [any(".ratio" in source for source, _ in own) for own in shown]
    ratios = [text for own in shown for source, text in own if source.endswith(".ratio")]
    assert [f"{row.ratio:.3f}" for row in rows if row.ratio is not None] == ratios


def _key(own: list[list[str]], name: str) -> str:
    return next(source for source, _ in own if source.endswith(f".{name}"))


def test_the_table_of_cycles_has_every_cycle(report: Path, open_page: Open) -> None:
    page = open_page(report).page
    page.locator("details[data-cycles='0'] > summary").click()
    data = json.loads(page.locator("#data").text_content() or "")
    rows = page.locator("details[data-cycles='0'] tbody tr")
    rows.first.wait_for()

    assert len(data["cases"][0]["place"]) == rows.count()
    assert f"{data['cases'][0]['ns'][0][0] / 1e3:.1f}" == rows.first.locator("td").nth(2).text_content()


def test_where_a_figure_comes_from_is_shown_when_asked_for(report: Path, open_page: Open) -> None:
    page = open_page(report).page
    source = "getComputedStyle(document.querySelector('#claims ~ * .fig'), '::after').content"
    before = page.evaluate(source)
    page.get_by_role("button", name="Show where each figure comes from").click()

    assert "none" == before
    assert "plan.json" in page.evaluate(source) or "verdict.json" in page.evaluate(source)


# ----------------------------------------------------------------------------------------------------------- the ring


def test_the_stepper_steps_forth_and_back(ring: Path, open_page: Open) -> None:
    page = open_page(ring).page
    phase = page.locator("#phase")
    said = [phase.text_content()]
    for name in ["Step", "Step", "Step", "Step", "Back"]:
        page.get_by_role("button", name=name, exact=True).click()
        said.append(phase.text_content())

    assert [
        "Before the first step",
        "Step 1 of 6 · ReduceScatter",
        "Step 2 of 6 · ReduceScatter",
        "Step 3 of 6 · ReduceScatter",
        "Step 4 of 6 · AllGather",
        "Step 3 of 6 · ReduceScatter",
    ] == said


def test_the_stepper_says_in_words_what_every_rank_does(ring: Path, open_page: Open) -> None:
    page = open_page(ring).page
    page.get_by_role("button", name="Step", exact=True).click()
    first = page.locator("#ring-words tr").first.locator("th, td").all_text_contents()

    assert ["0", "chunk 3 to rank 1", "chunk 2 from rank 3", "recv-reduce-send", "0: 0; 1: 0; 2: 0,3; 3: 0"] == first


def test_the_last_step_leaves_every_contribution_everywhere(ring: Path, open_page: Open) -> None:
    page = open_page(ring).page
    page.locator("#position").fill("6")
    held = page.locator("#ring-words tr td:last-child").all_text_contents()

    assert ["0: 0,1,2,3; 1: 0,1,2,3; 2: 0,1,2,3; 3: 0,1,2,3"] * 4 == held
    assert 4 * 4 * 4 == page.locator("#ring-picture .lit").count()


def test_the_stepper_is_worked_by_keyboard(ring: Path, open_page: Open) -> None:
    page = open_page(ring).page
    page.locator("#position").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    on = page.locator("#phase").text_content()
    page.get_by_role("button", name="Start").focus()
    page.keyboard.press("Enter")

    assert ("Step 2 of 6 · ReduceScatter", "Before the first step") == (on, page.locator("#phase").text_content())


def test_the_stepper_plays_to_the_end(ring: Path, open_page: Open) -> None:
    page = open_page(ring).page
    page.locator("#schedule").select_option(label="AllGather")
    page.clock.install()
    page.get_by_role("button", name="Play").click()
    for _ in range(4):
        page.clock.run_for(1700)

    assert ("Step 3 of 3 · AllGather", "Play") == (
        page.locator("#phase").text_content(),
        page.locator("[data-step='play']").text_content(),
    )


@pytest.mark.parametrize(("motion", "flying"), [("reduce", 0), ("no-preference", 4)])
def test_chunks_fly_only_where_motion_is_welcome(ring: Path, open_page: Open, motion: str, flying: int) -> None:
    page = open_page(ring, motion=motion).page
    page.get_by_role("button", name="Step", exact=True).click()

    assert flying == page.evaluate("document.getAnimations().length")


# -------------------------------------------------------------------------------------------------------- hostile text


def test_hostile_text_stays_text(hostile: Path, open_page: Open) -> None:
    opened = open_page(hostile)
    opened.draw_all()

    assert opened.page.evaluate("window.hacked === undefined")
    assert visible(HOSTILE) in (opened.page.locator("body").text_content() or "")
    assert 0 == opened.page.locator("img").count()


def test_a_script_that_the_policy_does_not_name_does_not_run(report: Path, open_page: Open) -> None:
    page = open_page(report).page
    page.evaluate(
        "const s = document.createElement('script'); s.textContent = 'window.hacked = 1'; document.body.append(s)"
    )

    assert page.evaluate("window.hacked === undefined")


# ------------------------------------------------------------------------------------------------------ accessibility


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["report", "kinds", "ring", "comparison"])
def test_axe_finds_nothing_serious(
    request: pytest.FixtureRequest, open_page: Open, name: str, scheme: str, width: int
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed: make test-browser")
    opened = open_page(request.getfixturevalue(name), scheme=scheme, width=width)
    opened.draw_all()
    found = axe.Axe().run(opened.page).response["violations"]

    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    assert [] == [(one["id"], one["nodes"][0]["html"][:200]) for one in serious]
