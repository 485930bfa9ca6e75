"""Pickles of plain data, read without ever making an object or calling a function, and as far as they go.

The standard library's unpickler loads what a pickle names, reserves the memory that it asks for, and gives nothing of
a file that is cut. Here its tokens (pickletools) drive a stack of dicts, lists, tuples and scalars.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rsag.errors import UsageError

MAX_OPCODES = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pickled:
    """What a pickle holds; `cut_at` is the byte at which it could not be followed any more, None for a whole one."""

    value: object
    cut_at: int | None
    reason: str | None = None


class _MalformedError(Exception):
    """The opcodes do not fit together: a value that is not there, a list where a dict must be."""


def load(data: bytes, *, where: str) -> Pickled:
    """The plain data in `data`; of a cut or damaged pickle, all that precedes the damage.

    Raises UsageError where it wants anything but plain data: a class, a function, an object.
    """
    machine = _Machine(where)
    offset = 0
    try:
        for count, (opcode, argument, position) in enumerate(pickletools.genops(data)):
            offset = position or 0
            if count >= MAX_OPCODES:
                return machine.cut(offset, f"more than {MAX_OPCODES:,} opcodes")
            if opcode.name == "STOP":
                return Pickled(value=machine.top(), cut_at=None)
            machine.step(opcode.name, argument)
    except (_MalformedError, ValueError, OverflowError) as error:
        return machine.cut(offset, str(error))
    return machine.cut(offset, "it has no end")


_PUSH_ARGUMENT = frozenset(
    (
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
        *("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    )
)
_PUSH_FRESH: dict[str, Callable[[], object]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
_PUT = frozenset(("PUT", "BINPUT", "LONG_BINPUT"))
_GET = frozenset(("GET", "BINGET", "LONG_BINGET"))
_IGNORED = frozenset(("PROTO", "FRAME"))
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Machine:
    """The stack, and below each mark the stack that was there before it."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        self._memo: dict[int, object] = {}

    def step(self, name: str, argument: Any) -> None:
        if name in _PUSH_ARGUMENT:
            self._stack.append(argument)
        elif name in _PUT:
            self._memo[argument] = self.top()
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = self.top()
        elif name in _GET:
            if argument not in self._memo:
                raise _MalformedError(f"{name} of what was never put")
            self._stack.append(self._memo[argument])
        elif name in _PUSH_FRESH:
            self._stack.append(_PUSH_FRESH[name]())
        elif name == "MARK":
            self._below.append(self._stack)
            self._stack = []
        elif name not in _IGNORED:
            self._combine(name, argument)

    def _combine(self, name: str, argument: Any) -> None:
        if name == "SETITEMS":
            _set_items(*self._container_and_items())
        elif name == "APPENDS":
            _append(*self._container_and_items())
        elif name == "SETITEM":
            value, key = self._pop(), self._pop()
            _set_items(self.top(), [key, value])
        elif name == "APPEND":
            value = self._pop()
            _append(self.top(), [value])
        elif name in _TUPLES:
            items = [self._pop() for _ in range(_TUPLES[name])]
            self._stack.append(tuple(reversed(items)))
        elif name in ("TUPLE", "LIST", "DICT"):
            items = self._items()
            made: Any = {} if name == "DICT" else items if name == "LIST" else tuple(items)
            if name == "DICT":
                _set_items(made, items)
            self._stack.append(made)
        elif name == "POP":
            self._pop()
        elif name == "POP_MARK":
            self._items()
        elif name == "DUP":
            self._stack.append(self.top())
        else:
            raise self._refusal(name, argument)

    def _refusal(self, name: str, argument: Any) -> UsageError:
        wanted = f"an object ({name})"
        if name in ("GLOBAL", "INST"):
            wanted = ".".join(str(argument).split(" "))
        elif name == "STACK_GLOBAL":
            wanted = ".".join(str(part) for part in self._stack[-2:] if isinstance(part, str))
        return UsageError(
            f"{self._where}: a pickle that wants more than plain data, refused",
            got=repr(wanted[:200]),
            expected="dicts, lists, tuples, text and numbers only, as a flight recorder writes",
            do="do not unpickle it by other means unless you know who wrote it",
        )

    def top(self) -> Any:
        if not self._stack:
            raise _MalformedError("nothing on the stack")
        return self._stack[-1]

    def _pop(self) -> Any:
        if not self._stack:
            raise _MalformedError("nothing on the stack")
        return self._stack.pop()

    def _items(self) -> list[Any]:
        """What is above the last mark, which goes."""
        if not self._below:
            raise _MalformedError("no mark")
        items, self._stack = self._stack, self._below.pop()
        return items

    def _container_and_items(self) -> tuple[Any, list[Any]]:
        items = self._items()
        return self.top(), items

    def cut(self, offset: int, reason: str) -> Pickled:
        """What there is where the pickle ends early: open dicts and lists are closed with what they have so far."""
        while self._below:
            container, items = (self._below[-1] or [None])[-1], self._items()
            if isinstance(container, dict):
                for key, value in zip(items[::2], items[1::2]):
                    if _is_key(key):
                        container[key] = value
            elif isinstance(container, list):
                container.extend(items)
        return Pickled(value=self._stack[0] if self._stack else None, cut_at=offset, reason=reason)


def _is_key(value: object) -> bool:
    """Scalars only: hashing a tuple nested a million deep would overflow the interpreter's own stack."""
    return value is None or isinstance(value, (str, int, float, bytes))


def _set_items(container: Any, items: list[Any]) -> None:
    if not isinstance(container, dict) or len(items) % 2 or not all(map(_is_key, items[::2])):
        raise _MalformedError("items that fit no dict")
    container.update(zip(items[::2], items[1::2]))


def _append(container: Any, items: list[Any]) -> None:
    if not isinstance(container, list):
        raise _MalformedError("items that fit no list")
    container.extend(items)
