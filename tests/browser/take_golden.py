"""Pictures of a run's page, for people: what it looked like when somebody last looked.

python tests/browser/take_golden.py RUN

Nothing compares them, since fonts differ between machines. After a change of the page take them again, look at both
(and at dark and print), and commit them with the change, so that whoever reads it sees what it did.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from rsag.cli.page import write_report

GOLDEN = Path(__file__).parent / "golden"
SCALE = {1440: 0.6, 390: 1.0}
"""Pixels of the picture for one of the page, by the width of the window."""

MOST_HIGH = 7000


def main(run: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        page_file = write_report(run, out=Path(scratch) / "report.html")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for width, scale in SCALE.items():
            page = browser.new_page(viewport={"width": width, "height": MOST_HIGH}, device_scale_factor=scale)
            page.goto(page_file.absolute().as_uri())
            page.evaluate("for (const name of ['beforeprint', 'afterprint']) dispatchEvent(new Event(name))")  # draws
            page.screenshot(path=GOLDEN / f"report-{width}.jpg", type="jpeg", quality=70)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
