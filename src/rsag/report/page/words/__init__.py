"""The page's own words, one catalogue for each language; what records say stays as they say it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from rsag.errors import unknown_name

DEFAULT = "en"


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """One language. `lang` is its tag, as HTML has it."""

    lang: str
    texts: Mapping[str, str]

    def __call__(self, key: str, **values: object) -> str:
        """The text of `key` with `values` in its `{places}`; KeyError for a key or a place that is not there."""
        return self.texts[key].format_map(values)

    def starting(self, prefix: str) -> dict[str, str]:
        """All texts below `prefix`, for scripts: they fill in places by themselves."""
        return {key.removeprefix(prefix): text for key, text in self.texts.items() if key.startswith(prefix)}


def languages() -> tuple[str, ...]:
    """The tags of the catalogues there are."""
    names = [entry.name for entry in files(__name__).iterdir()]
    return tuple(sorted(name.removesuffix(".json") for name in names if name.endswith(".json")))


def load_words(lang: str = DEFAULT) -> Words:
    """The catalogue of `lang`; UsageError names those there are."""
    if lang not in languages():
        raise unknown_name("language", lang, languages())
    return Words(lang=lang, texts=json.loads((files(__name__) / f"{lang}.json").read_text(encoding="utf-8")))
