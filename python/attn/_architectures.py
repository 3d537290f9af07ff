# SPDX-License-Identifier: MIT
"""The library's one table of architectures, as Python data."""
from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Optional

from . import _library as c
from ._library import lib

_TYPES = {c.TYPE_NULL: "none", c.TYPE_BOOL: "bool", c.TYPE_INT: "int", c.TYPE_REAL: "float", c.TYPE_TEXT: "str",
          c.TYPE_INTS: "list of int", c.TYPE_TEXTS: "list of str", c.TYPE_REALS: "list of float"}
_SINGLE = {c.TYPE_INTS: "int or ", c.TYPE_REALS: "float or "}  # a list key with a range also accepts one number


@dataclass(frozen=True)
class Setting:
    """A config key. `default` is text; None: the key is required; "": the key is optional and has no default."""

    name: str
    type: str
    default: Optional[str]
    choices: tuple[str, ...]
    min: float
    max: float
    doc: str

    @property
    def required(self) -> bool:
        return self.default is None


@dataclass(frozen=True)
class Port:
    """A named input or output.  `shape` is for people: "(b,q,d)"."""

    name: str
    shape: str
    integer: bool
    optional: bool
    doc: str


@dataclass(frozen=True)
class Architecture:
    """An architecture that can be built by its name: config keys, inputs, outputs."""

    name: str
    summary: str
    source: str
    keys: tuple[Setting, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def _text(value: Optional[bytes]) -> str:
    return value.decode() if value else ""


def _key(key: c.Setting) -> Setting:
    choices: list[str] = []
    while key.choices and key.choices[len(choices)]:
        choices.append(key.choices[len(choices)].decode())
    default = None if key.default_text is None else key.default_text.decode()
    single = _SINGLE.get(key.type, "") if key.min < key.max else ""
    return Setting(_text(key.name), single + _TYPES[key.type], default, tuple(choices), key.min, key.max, _text(key.doc))


def _port(port: c.Port) -> Port:
    return Port(_text(port.name), _text(port.shape), port.integer, port.optional, _text(port.doc))


def of(pointer: Any) -> Architecture:
    """Converts the library's struct to an `Architecture`."""
    a = pointer.contents
    return Architecture(_text(a.name), _text(a.summary), _text(a.source),
                        tuple(_key(a.keys[i]) for i in range(a.nkeys)),
                        tuple(_port(a.inputs[i]) for i in range(a.ninputs)),
                        tuple(_port(a.outputs[i]) for i in range(a.noutputs)))


def architectures() -> dict[str, Architecture]:
    """Every architecture of `attn.build`, by name, in the library's order."""
    every = map(of, itertools.takewhile(bool, map(lib.architecture_at, itertools.count())))
    return {a.name: a for a in every}


def find(name: str) -> Optional[Architecture]:
    """The architecture called `name`, or None."""
    pointer = lib.architecture_find(name.encode())
    return of(pointer) if pointer else None
