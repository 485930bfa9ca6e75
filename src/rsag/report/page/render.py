"""Views through templates to one file: it opens from disk, loads nothing, and runs no script but its own.

Everything that records say is escaped by Jinja2; control and formatting characters are shown as escapes, so that none
changes how the text around it reads. The content security policy names the page's scripts by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rsag.analyze.meanings import DIRECT
from rsag.records.codec import encode
from rsag.records.compare import Comparison
from rsag.report.page.compared import ComparedView
from rsag.report.page.view import View
from rsag.report.page.words import Words
from rsag.units import format_bytes

_LIBRARIES = ("vendor/d3.min.js", "vendor/plot.umd.min.js")
_PACKAGE = files("rsag.report.page")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One ring schedule as `rsag ring --json` prints it, under the name that it is chosen by.

    `source` says of what it was made: the run's own programs, or a command.
    """

    name: str
    source: str
    document: Mapping[str, object]


def render_run(view: View, schedules: Sequence[Schedule], words: Words) -> str:
    """The report of one run."""
    data = {
        "direct": DIRECT,
        "ratios": view.times.points,
        "cases": [case.cycles for case in view.times.cases],
        "memory": view.memory.timelines,
        "wire": view.wire.points,
        "schedules": schedules,
        "words": words.starting("js."),
    }
    scripts = (*_LIBRARIES, "assets/page.js", "assets/plots.js", "assets/ring.js")
    return _render("run.html", words, scripts, data, view=view, schedules=schedules)


def render_ring(schedules: Sequence[Schedule], words: Words) -> str:
    """The stepper over ring schedules, alone."""
    data = {"schedules": schedules, "words": words.starting("js.")}
    return _render("ring.html", words, ("assets/page.js", "assets/ring.js"), data, schedules=schedules)


def render_comparison(compared: Comparison, view: ComparedView, words: Words) -> str:
    """Two runs laid over each other."""
    data = {"compared": view.points, "words": words.starting("js.")}
    scripts = (*_LIBRARIES, "assets/page.js", "assets/plots.js")
    return _render("compare.html", words, scripts, data, compared=compared, view=view)


def visible(text: str) -> str:
    """`text` with what cannot be seen, or turns what follows it around, written as an escape; line ends stay."""
    return "".join(
        one if one in "\n\t" or unicodedata.category(one) not in ("Cc", "Cf", "Cs") else _escape(one) for one in text
    )


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def _render(template: str, words: Words, scripts: Sequence[str], data: Mapping[str, object], **values: object) -> str:
    texts = [(_PACKAGE / name).read_text(encoding="utf-8") for name in scripts]
    return (
        _environment()
        .get_template(template)
        .render(
            t=words,
            bytes=format_bytes,
            style=Markup((_PACKAGE / "assets/page.css").read_text(encoding="utf-8")),
            scripts=[Markup(text) for text in texts],
            hashes=[_hash(text) for text in texts],
            data=_plain(encode(data)),
            **values,
        )
    )


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("rsag.report.page"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment


def _finalize(value: object) -> object:
    return value if isinstance(value, Markup) else visible(str(value))


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")


def _plain(data: object) -> object:
    """JSON data with every string as it may be shown."""
    if isinstance(data, str):
        return visible(data)
    if isinstance(data, list):
        return [_plain(item) for item in data] if data and not isinstance(data[0], (int, float)) else data
    if isinstance(data, dict):
        return {visible(key): _plain(value) for key, value in data.items()}
    return data
