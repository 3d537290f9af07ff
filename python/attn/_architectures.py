# SPDX-License-Identifier: MIT
"""The library's one table of architectures, as Python data."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from . import _library as c
from ._library import lib

_TYPES = {c.VALUE_NULL: "none", c.VALUE_BOOL: "bool", c.VALUE_INT: "int", c.VALUE_REAL: "float", c.VALUE_TEXT: "str",
          c.VALUE_INTS: "list of int", c.VALUE_TEXTS: "list of str"}


@dataclass(frozen=True)
class Key:
    """A config key.  `default` is its text; None means that the key is required, "" that none is needed."""

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
    """What can be built by its name: config keys, inputs, outputs."""

    name: str
    summary: str
    source: str
    keys: tuple[Key, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def _text(value: Optional[bytes]) -> str:
    return value.decode() if value else ""


def _key(key: c.Key) -> Key:
    choices: list[str] = []
    while key.choices and key.choices[len(choices)]:
        choices.append(key.choices[len(choices)].decode())
    default = None if key.fallback is None else key.fallback.decode()
    return Key(_text(key.name), _TYPES[key.type], default, tuple(choices), key.min, key.max, _text(key.doc))


def _port(port: c.Port) -> Port:
    return Port(_text(port.name), _text(port.shape), port.integer, port.optional, _text(port.doc))


def _architecture(a: c.Architecture) -> Architecture:
    return Architecture(_text(a.name), _text(a.summary), _text(a.source),
                        tuple(_key(a.keys[i]) for i in range(a.nkeys)),
                        tuple(_port(a.inputs[i]) for i in range(a.ninputs)),
                        tuple(_port(a.outputs[i]) for i in range(a.noutputs)))


def architectures() -> dict[str, Architecture]:
    """Every architecture that `attn.build` knows, by name, in the library's order."""
    every = (_architecture(lib.architecture_at(i).contents) for i in range(lib.architecture_count()))
    return {a.name: a for a in every}


def find(name: str) -> Optional[Architecture]:
    """The architecture called `name`, or None."""
    pointer = lib.architecture_find(name.encode())
    return _architecture(pointer.contents) if pointer else None
