# SPDX-License-Identifier: MIT
"""Neighbourhoods as the engine's windows: the meaning of NATTEN's arguments (Hassani et al. 2022, arXiv:2204.07143),
for any kind of array.

Along an axis of n positions, those with the same residue modulo the dilation form an axis of their own. On this axis
`stride` consecutive queries share the window of a leader. The leader is the query in their middle (the later of two),
or the last one if the axis is causal. In an incomplete group at the end, the leader is at most the last position. The
window has kernel_size keys around its leader and is shifted inwards at the ends. On a causal axis the window ends at
the leader and is cut at the beginning, and each query attends it only up to itself.
"""
from __future__ import annotations

import itertools
import math
import operator
from typing import Any, Callable, NamedTuple, Optional, Sequence, Union

from . import _form
from ._errors import ArgumentError, ShapeError

Sizes = Union[int, Sequence[int]]
_CUT, _SHIFT = 0, 2  # borders: taps outside are masked, or the window is shifted inwards until it fits


class _Along(NamedTuple):
    """A part of one axis: its positions, its letters in the form, the axes that it is reshaped to, and its window."""

    taken: tuple[slice, slice]  # of the queries, of the keys
    queries: str
    keys: str
    query_parts: tuple[int, ...]
    key_parts: tuple[int, ...]
    relation: tuple[int, ...]
    ends: Optional[tuple[str, int, int]]  # causal queries that share a window, cut by a bias: letters, queries, taps


class Part:
    """One call of the engine: the whole problem, or a part of it."""

    def __init__(self, along: Sequence[_Along]) -> None:
        self.along = along
        named, keys = "".join(one.queries for one in along), "".join(one.keys for one in along)
        pairs = "".join(one.ends[0] for one in along if one.ends)
        self._operands, self._pairs, self._keys = f"A{named}Bc,A{keys}Bc,A{keys}Bv->A{named}Bv;A{named}Bv;", pairs, keys
        self.relations = tuple(number for one in along for number in one.relation)
        self.whole = all(taken == slice(None) for one in along for taken in one.taken)

    def form_of(self, bias: str = "", masked: bool = False) -> str:
        """The form; `bias` has the axes of a caller's, and a mask those of the keys."""
        return f"{self._operands}{bias or self._pairs};{'A' + self._keys if masked else ''}"

    def queries(self) -> tuple[slice, ...]:
        """Selects the positions of the part's queries in an array [B,positions,...]."""
        return (slice(None), *(one.taken[0] for one in self.along))

    def keys(self) -> tuple[slice, ...]:
        return (slice(None), *(one.taken[1] for one in self.along))

    def of_queries(self, x: Any) -> Any:
        """A view of an array [B,positions,...] in the form's axes."""
        return _parted(x if self.whole else x[self.queries()], [one.query_parts for one in self.along])

    def of_keys(self, x: Any) -> Any:
        return self.parted_keys(x if self.whole else x[self.keys()])

    def parted_keys(self, x: Any) -> Any:
        """As `of_keys`, for an array that has only this part's keys."""
        return _parted(x, [one.key_parts for one in self.along])

    def bias(self, make: Callable[[list[list[float]]], Any]) -> Any:
        """The bias that masks the keys of a shared window after each causal query, or None; `make` converts lists to an
        array."""
        bias: Any = None
        for one in self.along:
            if one.ends is not None:
                _, queries, taps = one.ends
                cut = make([[float("-inf") if t + queries - taps > i else 0.0 for t in range(taps)] for i in range(queries)])
                bias = cut if bias is None else bias[..., None, None] + cut
        return bias


def _parted(x: Any, each: Sequence[tuple[int, ...]]) -> Any:
    """A view in which axis 1 + i is split into axes of the lengths each[i], the first of which is inferred."""
    if not any(each):
        return x
    shape = [x.shape[0]]
    for n, lengths in zip(x.shape[1:], each):
        shape += [n // math.prod(lengths[1:]), *lengths[1:]] if lengths else [n]
    return x.reshape((*shape, *x.shape[1 + len(each):]))


def parts(query: Sequence[int], key: Sequence[int], value: Sequence[int], kernel_size: Sizes, stride: Sizes, dilation: Sizes,
          is_causal: Union[bool, Sequence[bool]]) -> list[Part]:
    """The calls of the engine that together compute neighbourhood attention of arrays [B,...,H,D] with these shapes."""
    axes = len(query) - 3
    if not 1 <= axes <= 3:
        raise ShapeError(f"query has the shape {tuple(query)}; expected [B,X,H,D] with one to three axes X")
    if tuple(query) != tuple(key):
        raise ShapeError(f"query {tuple(query)}, key {tuple(key)}: query and key must have the same shape")
    if tuple(key[:-1]) != tuple(value[:-1]):
        raise ShapeError(f"key {tuple(key)}, value {tuple(value)}: key and value must have the same shape but for the last axis")
    causal = (is_causal,) * axes if isinstance(is_causal, bool) else tuple(is_causal)
    if len(causal) != axes or not all(isinstance(one, bool) for one in causal):
        raise ArgumentError(f"is_causal is {is_causal!r}; expected True or False, or {axes} of them")
    taps, steps = per_axis(kernel_size, axes, "kernel_size"), per_axis(dilation, axes, "dilation")
    shares = per_axis(stride, axes, "stride")
    for i in range(axes):
        if query[1 + i] < taps[i] * steps[i]:
            raise ShapeError(f"axis {1 + i} of query has {query[1 + i]} positions; it must have at least kernel_size * dilation = "
                             f"{taps[i] * steps[i]}")
        if shares[i] > taps[i]:
            raise ArgumentError(f"the stride along axis {1 + i} of query is {shares[i]}; it must be at most the "
                                f"kernel_size, {taps[i]}")
    each = [_axis(i, query[1 + i], taps[i], shares[i], steps[i], causal[i]) for i in range(axes)]
    return [Part(along) for along in itertools.product(*each)]


def per_axis(given: Any, axes: int, name: str, least: int = 1) -> tuple[int, ...]:
    """Expands `given`, one number or one for each axis, to one for each axis."""
    try:
        found = (operator.index(given),) * axes if not isinstance(given, (tuple, list)) else tuple(
            operator.index(n) for n in given)
    except TypeError:
        found = ()
    if len(found) != axes or min(found, default=least) < least:
        raise ArgumentError(f"{name} is {given!r}; expected a whole number from {least} up, or {axes} of them")
    return found


def _axis(i: int, n: int, taps: int, stride: int, dilation: int, causal: bool) -> list[_Along]:
    """The whole axis if stride * dilation divides it; else each residue separately, with the rest at the end as its own
    part."""
    whole = slice(None)
    if stride == 1 or n % (stride * dilation) == 0:
        return [_along(i, taps, stride, dilation, causal, (whole, whole))]
    found = []
    for residue in range(dilation):
        same = range(residue, n, dilation)
        m = len(same)
        rest = m % stride
        at = m - rest
        found.append(_along(i, taps, stride, 1, causal, (slice(residue, residue + at * dilation, dilation),
                                                         slice(residue, n, dilation))))
        if rest:
            leader = m - 1 if causal else min(at + stride // 2, m - 1)
            first = m - taps if causal else min(max(leader - taps // 2, 0), m - taps)
            keys = slice(same[first], same[first + taps - 1] + 1, dilation)
            found.append(_along(i, taps, rest, 1, causal, (slice(same[at], n, dilation), keys), 0))
    return found


def _along(i: int, taps: int, stride: int, dilation: int, causal: bool, taken: tuple[slice, slice],
           first: Optional[int] = None) -> _Along:
    """Queries that share a window form a dim of their own; with a dilation the residues are a batch axis. `first`:
    begin of the first window; None: determined by its leader."""
    q, x, k, residue = "qrs"[i], "xyz"[i], "klm"[i], "CDE"[i]
    apart = stride > 1 and dilation > 1
    step = 1 if apart else dilation
    if first is None:
        first = (stride - 1 if causal else stride // 2) - (taps - 1 if causal else taps // 2) * step
    relation = (_form.WINDOW, ord(q), ord(k), taps, stride, step, first, _CUT if causal else _SHIFT)
    if stride == 1:
        return _Along(taken, q, k, (), (), relation, None)
    return _Along(taken, q + x + residue * apart, k + residue * apart, (-1, stride) + (dilation,) * apart,
                  (-1, dilation) * apart, relation, (x + k, stride, taps) if causal else None)


def entries(n: int, taps: int, dilation: int, causal: bool) -> list[list[int]]:
    """For each query of an axis of n positions and each tap of its window, the entry of a table of 2 * taps - 1 relative
    positions, at stride 1."""
    found = []
    for i in range(n):
        same = len(range(i % dilation, n, dilation))
        first = taps - 1 if causal else i // dilation - min(max(i // dilation - taps // 2, 0), same - taps)
        found.append([taps - 1 - first + t for t in range(taps)])
    return found
