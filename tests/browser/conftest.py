"""A browser without a network, and pages in files for it to open."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from opened import Open, Opened

from page_runs import hostile_run, kinds_run, whole_run
from rsag.cli.page import write_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
    if CHROMIUM is None:
        pytest.skip("there is no chromium: make test-browser")
    with sync_api.sync_playwright() as playwright:
        # No sandbox: root, which containers run as, may not have one; the pages are our own.
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    contexts: list[BrowserContext] = []

    def opened(
        path: Path, *, width: int = 1440, scheme: str = "light", motion: str = "reduce", scripts: bool = True
    ) -> Opened:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            offline=True,
            java_script_enabled=scripts,
            color_scheme=scheme,  # type: ignore[arg-type]
            reduced_motion=motion,  # type: ignore[arg-type]
        )
        contexts.append(context)
        one = Opened(page=context.new_page())
        one.page.on("console", lambda message: one.complaints.append(message.text))
        one.page.on("pageerror", lambda error: one.complaints.append(str(error)))
        one.page.on("dialog", lambda dialog: one.complaints.append(dialog.message))
        one.page.on("request", lambda request: one.requests.append(request.url))
        one.page.goto(path.absolute().as_uri())
        return one

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with every experiment, and its page beside it."""
    directory = whole_run(tmp_path_factory.mktemp("whole") / "run")
    write_report(directory)
    return directory


@pytest.fixture(scope="session")
def report(run: Path) -> Path:
    return run / "report.html"


@pytest.fixture(scope="session")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run with two kinds of buffers; in one of them AllReduce differs from itself."""
    return write_report(kinds_run(tmp_path_factory.mktemp("kinds") / "run", control_differs=True))


@pytest.fixture(scope="session")
def hostile(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the same run with hostile text wherever text is free."""
    return write_report(hostile_run(run, tmp_path_factory.mktemp("hostile") / "run"))
