# SPDX-License-Identifier: MIT
"""Forms: descriptions from which the engine's table of dimensions is made.

A form names the axes of q, k, v, o, bias and mask by letters, as einsum does:

    "AHqc,AHkc,AHkv->AHqv;AqHv;1Hqk;"

Upper case letters are BATCH dims; q r s x y z QUERY, k l m KEY, c d CONTRACT, v w VALUE.  Letters in parentheses share an axis,
the last one innermost. An axis of length 1 broadcasts, and so does a letter that a tensor lacks. Three more lists
follow o: its letters in the order of memory, the axes of the bias, and the axes of the mask. "1" is an axis of length
1.
"""
from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple, Optional, Sequence

from . import _library as c
from ._errors import ShapeError

Axes = tuple[tuple[str, ...], ...]
ROLES = {**dict.fromkeys("qrsxyz", c.QUERY), **dict.fromkeys("klm", c.KEY), **dict.fromkeys("cd", c.CONTRACT),
         **dict.fromkeys("vw", c.VALUE)}
BAND, WINDOW, PACKED, INDEX, BLOCKS = range(5)  # the first number of a relation
OPEN = 2**63 - 1         # of a band: no limit


class Problem(NamedTuple):
    """The problem, without the tensors."""

    form: str
    scale: float = 0.0  # 0: the engine's default, 1/sqrt of the channels
    dropout: float = 0.0
    relations: tuple[int, ...] = ()
    score: int = 0
    softcap: float = 0.0  # 0: none
    normalization: int = 0
    sigmoid_bias: Optional[float] = None  # None: the engine's default, -log of the keys


class Form(NamedTuple):
    q: Axes
    k: Axes
    v: Axes
    o: Axes
    memory: Axes  # o's, outermost first
    bias: Axes
    mask: Axes
    letters: tuple[str, ...]  # in the order of the table of dimensions
    rows: tuple[str, ...]     # the letters of lse


def _axes(text: str) -> Axes:
    found: list[tuple[str, ...]] = []
    group: Optional[list[str]] = None
    for letter in text:
        if letter == "(":
            group = []
        elif letter == ")":
            found.append(tuple(group or ()))
            group = None
        elif group is not None:
            group.append(letter)
        else:
            found.append(() if letter == "1" else (letter,))
    return tuple(found)


@functools.lru_cache(maxsize=256)
def parse(text: str) -> Form:
    operands, rest = text.split("->")
    q, k, v = map(_axes, operands.split(","))
    o, memory, bias, mask = map(_axes, rest.split(";"))
    seen = dict.fromkeys(letter for axes in (o, q, k, v) for axis in axes for letter in axis)
    letters = tuple(sorted(seen, key=lambda letter: ROLES.get(letter, c.BATCH)))  # stable
    rows = tuple(letter for letter in letters if ROLES.get(letter, c.BATCH) in (c.BATCH, c.QUERY))
    return Form(q, k, v, o, memory, bias, mask, letters, rows)


def _product(sizes: dict[str, Any], letters: Sequence[str]) -> Any:
    product = 1
    for letter in letters:
        product = product * sizes[letter]
    return product


def sizes_of(form: Form, shapes: Sequence[tuple[str, Axes, Sequence[Any]]], taps: dict[str, int]) -> dict[str, Any]:
    """The length of each letter, from the operands' shapes; `taps` has the lengths of keys with a window."""
    sizes: dict[str, Any] = {}
    shared = []
    for name, axes, shape in shapes:
        if len(axes) != len(shape):
            raise ShapeError(f"{name} has the shape {tuple(shape)}; expected {len(axes)} axes")
        for axis, n in zip(axes, shape):
            if len(axis) > 1:
                shared.append((name, axis, n))
            elif axis and axis[0] not in taps:
                _learn(sizes, name, axis[0], n, shapes)
    sizes.update(taps)
    for name, axis, n in sorted(shared, key=lambda entry: len(entry[1])):
        unknown = [letter for letter in axis if letter not in sizes]
        known = _product(sizes, [letter for letter in axis if letter in sizes])
        if len(unknown) == 1 and known != 0 and n % known == 0:
            sizes[unknown[0]] = n // known
        elif (unknown or known != n) and n != 1:
            wanted = f"a multiple of {known}" if unknown else known
            raise ShapeError(f"{name} has an axis of {n}; the other operands need {wanted}: {_shown(shapes)}")
    for letter in form.letters:
        sizes.setdefault(letter, 1)
    return sizes


def _shown(shapes: Sequence[tuple[str, Axes, Sequence[Any]]]) -> str:
    return ", ".join(f"{name} {tuple(shape)}" for name, _, shape in shapes)


def _learn(sizes: dict[str, Any], name: str, letter: str, n: Any, shapes: Any) -> None:
    known = sizes.get(letter)
    if known is None or known == 1:
        sizes[letter] = n
    elif n not in (1, known):
        raise ShapeError(f"{name} has an axis of {n}, but another operand has {known} there: {_shown(shapes)}")


def taps_of(relations: Sequence[int]) -> dict[str, int]:
    """The number of taps of each key letter with a window."""
    return {chr(key): rest[0] for kind, _, key, *rest in records(relations) if kind == WINDOW}


def records(relations: Sequence[int]) -> list[Sequence[int]]:
    """Parses a list of numbers that holds these relations one after the other:

    (BAND, query letter, key letter, lo, hi)
    (WINDOW, query letter, key letter, taps, step, dilation, offset, border)
    (PACKED, query letter, key letter, longest of queries, longest of keys, sequences, whether bands see the last query at
    the last key): the axes of these letters hold the sequences one after the other, and S is the dim of the sequences.
    (INDEX, query letter, key letter, step of a query, step of a key, place, entries): the bias is a table, whose first axis
    are rows; pair (i, j) reads the row whose number is at place + i * step + j * step of an index of so many entries.
    (BLOCKS, query letter, key letter, queries, keys): the sizes of a block of the mask of blocks.
    """
    found, at = [], 0
    while at < len(relations):
        end = at + {BAND: 5, WINDOW: 8, PACKED: 7, INDEX: 7, BLOCKS: 5}[relations[at]]
        found.append(relations[at:end])
        at = end
    return found


def shape_of(axes: Axes, sizes: dict[str, Any]) -> list[Any]:
    return [_product(sizes, axis) for axis in axes]


def o_layout(form: Form, sizes: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """The shape and strides of o."""
    step: Any = 1
    steps: dict[str, Any] = {}
    for axis in reversed(form.memory):
        for letter in reversed(axis):
            steps[letter] = step
            step = step * sizes[letter]
    return shape_of(form.o, sizes), [steps[axis[-1]] if axis else 1 for axis in form.o]


def rows_of(form: Form, lengths: dict[str, int]) -> tuple[Any, list[int], list[int]]:
    """Axes, shape and strides of lse."""
    shape = [lengths[letter] for letter in form.rows]
    strides: list[int] = []
    step = 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= n
    return tuple((letter,) for letter in form.rows), shape, strides


_MEMBER = {name: getattr(c.Dim, name).offset // 8 for name in ("n", *c.STRIDES)}
_DIM = ctypes.sizeof(c.Dim) // 8
_Numbers = ctypes.c_int64 * (_DIM * c.MAX_DIMS)


@functools.lru_cache(maxsize=256)
def _blank(letters: tuple[str, ...]) -> tuple[bytes, dict[str, int]]:
    """A table of these dims without lengths and strides, and the offsets of each dim's numbers."""
    table = c.Problem(ndims=len(letters), own_grad_strides=True)
    for i, letter in enumerate(letters):
        table.dims[i].role = ROLES.get(letter, c.BATCH)
    return bytes(table), {letter: i * _DIM for i, letter in enumerate(letters)}


def fill(problem: Problem, form: Form, lengths: dict[str, int], tensors: dict[str, tuple[Any, Any, Any]],
         dtype: int, direction: int) -> c.Problem:
    """The engine's table; `tensors` has axes, shape and strides by the name of attn_dim's member."""
    blank, first = _blank(form.letters)
    table = c.Problem.from_buffer_copy(blank)
    table.dtype, table.direction, table.scale, table.dropout = dtype, direction, problem.scale, problem.dropout
    table.score, table.softcap, table.normalization = problem.score, problem.softcap, problem.normalization
    if problem.sigmoid_bias is not None:
        table.sigmoid_bias, table.own_sigmoid_bias = problem.sigmoid_bias, True
    numbers = _Numbers.from_buffer(table, c.Problem.dims.offset)  # faster than setting members
    for letter, at in first.items():
        numbers[at + _MEMBER["n"]] = lengths[letter]
    for name, (axes, shape, strides) in tensors.items():
        member = _MEMBER[name]
        for axis, n, stride in zip(axes, shape, strides):
            if n == 1:
                continue  # a broadcast, or one element
            for letter in reversed(axis):
                numbers[first[letter] + member] = stride
                stride *= lengths[letter]
    place = {letter: i for i, letter in enumerate(form.letters)} if problem.relations else {}
    _relate(table, problem.relations, place, form, tensors)
    for name, flag in c.MAY_BROADCAST:
        if name in tensors and not any(stride for n, stride in zip(*tensors[name][1:]) if n != 1):
            table.broadcast |= flag
    return table


def _relate(table: c.Problem, relations: Sequence[int], place: dict[str, int], form: Form, tensors: Any) -> None:
    for kind, query, key, *rest in records(relations):
        pair = place[chr(query)], place[chr(key)]
        if kind == BAND:
            lo, hi = rest
            table.bands[table.nbands] = c.Band(*pair, -OPEN - 1 if lo == -OPEN else lo, hi)
            table.nbands += 1
        elif kind == PACKED:
            queries, keys, sequences, align_ends = rest
            batch = place["S"]
            table.packed = c.Packed(batch, *pair, tensors["q"][1][form.q.index((chr(query),))],
                                    tensors["k"][1][form.k.index((chr(key),))], bool(align_ends))
            table.dims[pair[0]].n, table.dims[pair[1]].n, table.dims[batch].n = queries, keys, sequences
            table.flags |= c.WITH_PACKED
        elif kind == INDEX:
            table.dims[pair[0]].bias, table.dims[pair[1]].bias = rest[:2]
            _, shape, strides = tensors["bias"]
            table.bias_index = c.BiasIndex(shape[0], strides[0])
            table.flags |= c.WITH_BIAS_INDEX
        elif kind == BLOCKS:
            table.blocks = c.Blocks(*pair, *rest)
            table.flags |= c.WITH_BLOCKS
        else:
            _, step, dilation, offset, border = rest
            size = tensors["k"][1][form.k.index((chr(key),))]
            table.windows[table.nwindows] = c.Window(*pair, size, step, dilation, offset, border)
            table.nwindows += 1
