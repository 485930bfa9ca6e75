"""An Nsight Systems export as a database: which tables and columns it has, and rows as far as they can be read.

Tables are made only when there is something in them, and newer exports add a suffix to some names, so nothing is taken
for granted. The file is opened read-only and immutable: nothing is written beside it, and no lock can hold us up.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rsag.errors import UsageError
from rsag.traces.skips import Skips

KERNELS, COPIES, GRAPHS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
CALLS, RANGES, STRINGS = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "StringIds"
_OF_NSYS = (KERNELS, COPIES, GRAPHS, CALLS, RANGES)
# The second where SQLite's own message about a damaged schema is no UTF-8.
_DAMAGE = (sqlite3.Error, UnicodeDecodeError)
_TEMPORARY = {"communication": "id, name", "wanted": "correlation, process"}
_SUFFIX = re.compile(r"_V\d+\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table that is there. Columns that are not read as NULL."""

    name: str
    columns: frozenset[str]

    def column(self, name: str) -> str:
        return f't."{name}"' if name in self.columns else "NULL"

    def missing(self, *names: str) -> tuple[str, ...]:
        return tuple(name for name in names if name not in self.columns)

    @property
    def quoted(self) -> str:
        return '"' + self.name.replace('"', '""') + '"'


class Database:
    """An open export. Raises UsageError for what is no SQLite database, or none of Nsight Systems'."""

    def __init__(self, path: Path, skips: Skips) -> None:
        self._path, self._skips = path, skips
        self.damage: str | None = None
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        self._connection = sqlite3.connect(uri, uri=True, isolation_level=None)
        self._connection.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
        self._tables = self._opened()
        if not any(self.table(name) for name in _OF_NSYS):
            found = ", ".join(sorted(self._tables)[:8]) or "no tables"
            self.close()
            raise UsageError(
                f"{path}: not an export of Nsight Systems",
                got=found,
                expected=f"any of {', '.join(_OF_NSYS)}",
                do="export a report with: nsys export --type sqlite REPORT.nsys-rep",
            )

    def _opened(self) -> dict[str, Table]:
        try:
            self._connection.execute("PRAGMA trusted_schema = OFF")
            tables = self._read_tables_of_what_is_there()
            self._connection.execute("PRAGMA temp_store = MEMORY")
            for table, columns in _TEMPORARY.items():
                self._connection.execute(f"CREATE TEMP TABLE {table} ({columns})")
                self._connection.execute(f"CREATE UNIQUE INDEX temp.{table}_index ON {table} ({columns})")
            return tables
        except _DAMAGE as error:
            self.close()
            raise UsageError(f"{self._path}: not a readable SQLite database", got=error) from error

    def _read_tables_of_what_is_there(self) -> dict[str, Table]:
        try:
            return self._read_tables()
        except _DAMAGE as error:
            # A file shorter than it says is refused whole, unless its schema is open to repair.
            self._connection.execute("PRAGMA writable_schema = ON")
            tables = self._read_tables()
            self._damaged(error)
            return tables

    def _damaged(self, error: Exception) -> None:
        if self.damage is None:
            self._skips.seen()
            self._skips.skip(0, f"the database cannot be read to its end: {error}")
        self.damage = str(error)

    def close(self) -> None:
        self._connection.close()

    def _read_tables(self) -> dict[str, Table]:
        # Plain tables only: a view or a virtual table in a file from elsewhere would run what its author wrote.
        names = self._connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        )
        tables = {}
        for (name,) in names.fetchall():
            table = Table(name=name, columns=frozenset())
            columns = self._connection.execute(f"PRAGMA table_info({table.quoted})").fetchall()
            tables[name] = Table(name=name, columns=frozenset(column[1] for column in columns))
        return tables

    def table(self, name: str) -> Table | None:
        """The table of this name, or the newest of its suffixed forms."""
        suffixed = sorted(other for other in self._tables if _SUFFIX.sub("", other) == name)
        return self._tables.get(name) or (self._tables[suffixed[-1]] if suffixed else None)

    def rows(self, sql: str, *parameters: object) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, one at a time; where the file is damaged they end, and `damage` says why."""
        try:
            yield from self._connection.execute(sql, parameters)
        except _DAMAGE as error:
            self._damaged(error)

    def first(self, sql: str, *parameters: object) -> Any:
        """The first value of the first row; None where there is none."""
        return next((row[0] for row in self.rows(sql, *parameters)), None)

    def keep(self, table: str, rows: Collection[tuple[object, ...]]) -> None:
        """Fills one of the temporary tables, which lie in memory and not in the file, for queries to join with."""
        self._connection.executemany(f"INSERT OR IGNORE INTO temp.{table} VALUES (?, ?)", rows)


@dataclass(slots=True)
class Processes:
    """Numbers for the processes of an export: the pid itself on the machine of the first, a larger one on others.

    A globalPid or globalTid has the thread's id in bits 0 to 23, the process's in 24 to 47, and VM and hardware above:
    a file merged of several hosts' reports may have one pid twice.
    """

    _machine: int | None = None

    def of(self, global_id: int) -> int:
        """Different for different processes."""
        if self._machine is None:
            self._machine = global_id >> 48 << 24
        return (global_id >> 24) ^ self._machine

    def shifted_id(self, process: int) -> int:
        """What the ids of this process have above the thread's."""
        return process ^ (self._machine or 0)
