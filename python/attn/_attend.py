# SPDX-License-Identifier: MIT
"""The attention engine on arrays of any strides."""
from __future__ import annotations

import ctypes
import operator
import sys
import threading
from collections import OrderedDict
from typing import Any, Literal, Optional, Sequence, Union, overload

import numpy as np
import numpy.typing as npt

from . import _library as c
from ._arrays import as_array, shown
from ._errors import ArgumentError, ShapeError
from ._library import Context, lib

_LARGEST, _SMALLEST = 2**63 - 1, -(2**63)
_DTYPES = {"float32": c.F32, "float64": c.F64, "bfloat16": c.BF16}
_PLANS_KEPT = 32  # of each thread

Array = npt.NDArray[Any]
Normalization = Literal["softmax", "hardmax", "none", "sigmoid"]
Window = Union[int, Sequence[Optional[int]]]


class _Plan:
    """A plan of the library, destroyed with this object."""

    def __init__(self, context: Context, problem: c.Problem) -> None:
        self.context, self.pointer = context, ctypes.c_void_p()
        context.hold(id(self))
        context.check(lib.plan_create(ctypes.byref(self.pointer), context.pointer, ctypes.byref(problem), None))

    def __del__(self) -> None:
        if lib is None or not hasattr(self, "context"):
            return
        lib.plan_destroy(self.pointer)
        self.context.drop(id(self))

    def execute(self, arrays: c.Arrays) -> None:
        status = lib.plan_execute(self.pointer, ctypes.byref(arrays), None)
        if status:
            self.context.check(status)


class _Planner:
    """A thread's context and its latest plans.

    Planning is cheap compared to an execution, except for a few tokens. Equal problems are frequent.
    """

    def __init__(self, threads: int) -> None:
        self.context = Context(threads)
        self.context.hold("planner")
        self._plans: OrderedDict[bytes, _Plan] = OrderedDict()

    def plan(self, problem: c.Problem) -> _Plan:
        key = bytes(problem)
        plan = self._plans.pop(key, None) or _Plan(self.context, problem)
        _keep(self._plans, key, plan)
        return plan

    def __del__(self) -> None:
        if lib is not None and hasattr(self, "_plans"):
            self.context.drop("planner")


def _keep(kept: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    """The latest _PLANS_KEPT entries stay."""
    kept[key] = value
    while len(kept) > _PLANS_KEPT:
        kept.popitem(last=False)


def _address_said(x: Array) -> int:
    address: int = x.__array_interface__["data"][0]
    return address


def _address_read(x: Array) -> int:
    """Reads the address from the array's struct, where it follows Python's own fields (NumPy's C interface,
    PyArrayObject_fields). This takes a tenth of the time."""
    return _pointer_at(id(x) + _HEAD).value or 0


_pointer_at, _HEAD, _probe = ctypes.c_void_p.from_address, object.__basicsize__, np.empty(1)
_address = (_address_read if sys.implementation.name == "cpython" and _address_read(_probe) == _address_said(_probe)
            else _address_said)


_CONSTANTS = (type(None), bool, int, float, str, np.generic)


def _is_constant(option: Any) -> bool:
    """Whether the value cannot change after the call; the number in a tensor can."""
    return isinstance(option, _CONSTANTS) or (isinstance(option, tuple) and all(map(_is_constant, option)))


class _Seen:
    """Calls whose arrays are all read in place, keyed by everything that decides their plan. An equal call needs no
    checks, which matters for a few tokens."""

    def __init__(self) -> None:
        self._calls: OrderedDict[Any, tuple[_Plan, list[tuple[str, tuple[int, ...], Any]]]] = OrderedDict()

    def key(self, arrays: dict[str, Any], said: tuple[Any, ...]) -> Any:
        """`said`: the options; they also distinguish calls whose arrays have other names."""
        found: list[Any] = [said]
        for x in arrays.values():
            if type(x) is not np.ndarray:
                return None
            found += (x.shape, x.strides, x.dtype)
        return tuple(found)

    def again(self, key: Any, given: dict[str, Any]) -> Optional[list[Array]]:
        """The results of a call that is in the cache; None for others."""
        try:
            seen = self._calls.get(key)
        except TypeError:  # an option that cannot be hashed
            return None
        if seen is None:
            return None
        arrays, places = c.Arrays(), 0
        for name, x in given.items():
            at = _address(x)
            places |= at
            setattr(arrays, name, at)
        if places % 8:  # the alignment of the largest type
            return None
        results = []
        for name, shape, dtype in seen[1]:
            result = np.empty(shape, dtype)
            setattr(arrays, name, _address(result))
            results.append(result)
        seen[0].execute(arrays)
        return results

    def note(self, key: Any, call: "_Call", plan: _Plan, given: dict[str, Any], results: dict[str, Array]) -> None:
        """Adds a call to the cache if its options are constants and no array had to be copied."""
        if not _is_constant(key[0]):
            return
        if any(getattr(call.arrays, name) != _address(x) for name, x in given.items()):
            return
        if not all(result.flags.c_contiguous for result in results.values()):
            return
        try:
            _keep(self._calls, key, (plan, [(name, x.shape, x.dtype) for name, x in results.items()]))
        except TypeError:
            return


class _Thread(threading.local):
    """The state of each thread. Threads do not share a context, so their calls run in parallel."""

    def __init__(self) -> None:
        self.planners: dict[int, _Planner] = {}
        self.seen = _Seen()


_local = _Thread()


def _planner(threads: int) -> _Planner:
    if threads not in _local.planners:
        _local.planners[threads] = _Planner(threads)
    return _local.planners[threads]


# ------------------------------------------------------------------------------------------------ operands


def _four_axes(x: Array, name: str, layout: str) -> Array:
    """A view as [B,T,H,D] for any layout; a missing batch or head axis gets length 1."""
    if x.ndim == 4:
        return x if layout == "bthd" else x.transpose(0, 2, 1, 3)
    if x.ndim == 3:
        return x[:, :, None, :]
    if x.ndim == 2:
        return x[None, :, None, :]
    raise ShapeError(f"{name} has the shape {x.shape}; expected [B,T,H,D], [B,H,T,D] (layout=\"bhtd\"), [B,T,D] or "
                     "[T,D]")


def _operand(x: Any, name: str, dtype: Optional[np.dtype[Any]] = None) -> Array:
    """An array that the engine can read in place: strides are whole elements, and the byte order is the machine's."""
    array = as_array(x, name)
    if dtype is None and array.dtype.name not in _DTYPES:
        raise ArgumentError(f"{name} is of {array.dtype}; expected float32, float64 or bfloat16")
    if array.dtype.kind not in "biuf" and array.dtype.name not in _DTYPES:
        raise ArgumentError(f"{name} is of {array.dtype}; expected real numbers")
    if dtype is not None and array.dtype != dtype:
        array = array.astype(dtype)
    whole = all(stride % array.itemsize == 0 for stride in array.strides) and array.dtype.isnative
    return array if whole and array.flags.aligned else array.astype(array.dtype.newbyteorder("="), copy=True)


def _steps(x: Array) -> tuple[int, ...]:
    """Strides in elements; 0 along axes of length 1, for which NumPy's strides are arbitrary."""
    return tuple(0 if n == 1 else stride // x.itemsize for n, stride in zip(x.shape, x.strides))


def _int32(x: Array, most: int) -> Array:
    """Integers of any type; those below -1 or above `most` become -1 or `most`. NumPy 2.0 refuses a bound that is a Python
    integer outside of the array's type."""
    return np.clip(x, np.int64(-1), np.int64(most)).astype(np.int32)


def _is_real(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) or getattr(value, "shape", None) == ()


def _two(pair: Any, name: str, wanted: str) -> tuple[Any, Any]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ArgumentError(f"{name} is of {type(pair).__name__}; expected {wanted}")
    return pair[0], pair[1]


class _Call:
    """One problem: its operands as [B,T,H,D] views, and its dims b, g (heads of k and v), r (query heads for each), q,
    k, c, v."""

    def __init__(self, q: Any, k: Any, v: Any, layout: str, direction: int) -> None:
        if layout not in ("bthd", "bhtd"):
            raise ArgumentError(f"layout must be \"bthd\" or \"bhtd\", not {layout!r}")
        self.layout, self.given_q = layout, _operand(q, "q")
        self.dtype = self.given_q.dtype
        self.given = {"q": self.given_q, "k": _operand(k, "k"), "v": _operand(v, "v")}
        for name, x in self.given.items():
            if x.dtype != self.dtype:
                raise ArgumentError(f"{name} is of {x.dtype}, q of {self.dtype}; they must have one type")
            if x.ndim != self.given_q.ndim:
                raise ShapeError(f"{name} has the shape {x.shape}, q {self.given_q.shape}; they must have the same number of "
                                 "axes")
        self.q, self.k, self.v = (_four_axes(x, name, layout) for name, x in self.given.items())
        self._check_sizes()
        self.sums = np.dtype(np.float64 if self.dtype == np.float64 else np.float32)  # of lse, weights and bias
        self.table: Any = None  # the index of a relative bias
        self.bias_of_heads: Any = None  # sigmoid_bias [H], which the engine reads as a part of the bias
        self.shape_of_bias: Any = None  # that of the caller's bias, if there are both
        self.arrays = c.Arrays()
        self.kept: list[Array] = []  # keeps the memory behind `arrays` alive
        self.problem = c.Problem(ndims=7, dtype=_DTYPES[self.dtype.name], direction=direction, own_grad_strides=True,
                                 lens_dim=4)
        for i, (role, n) in enumerate(((c.BATCH, self.batch), (c.BATCH, self.kv_heads), (c.BATCH, self.group),
                                       (c.QUERY, self.queries), (c.KEY, self.keys), (c.CONTRACT, self.q.shape[3]),
                                       (c.VALUE, self.v.shape[3]))):
            self.problem.dims[i].role, self.problem.dims[i].n = role, n
        self.place_query("q", self.q, 5)
        self.place_key("k", self.k, 5)
        self.place_key("v", self.v, 6)

    def _check_sizes(self) -> None:
        self.batch, self.queries, self.heads = self.q.shape[:3]
        self.keys, self.kv_heads = self.k.shape[1:3]
        shapes = f"q {self.given['q'].shape}, k {self.given['k'].shape}, v {self.given['v'].shape}"
        if self.k.shape[0] != self.batch:
            raise ShapeError(f"q and k must have the same batch: {shapes}")
        if self.v.shape[:3] != self.k.shape[:3]:
            raise ShapeError(f"k and v must have the same batch, number of keys and number of heads: {shapes}")
        if self.k.shape[3] != self.q.shape[3]:
            raise ShapeError(f"the channels of q and k differ: {shapes}")
        if self.heads != self.kv_heads and (self.kv_heads == 0 or self.heads % self.kv_heads):
            raise ShapeError(f"k and v have {self.kv_heads} heads, which must divide the {self.heads} heads of q: {shapes} "
                             f"(layout={self.layout!r})")
        self.group = self.heads // self.kv_heads if self.kv_heads else 1

    # The field of the table of dims for each of NumPy's strides.

    def _place(self, name: str, steps: Sequence[int]) -> None:
        self.problem.broadcast |= dict(c.MAY_BROADCAST).get(name, 0) if not any(steps) else 0
        for i, step in enumerate(steps):
            setattr(self.problem.dims[i], name, step)

    def _point(self, name: str, x: Array) -> None:
        setattr(self.arrays, name, x.ctypes.data)
        self.kept.append(x)

    def place_query(self, name: str, x: Array, channels: int) -> None:
        """x [B,Tq,H,channels]: q, o and their gradients; `channels` is the dim of its last axis."""
        b, t, h, d = _steps(x)
        steps = [b, h * self.group, h, t, 0, 0, 0]
        steps[channels] = d
        self._place(name, steps)
        self._point(name, x)

    def place_key(self, name: str, x: Array, channels: int) -> None:
        """x [B,Tk,Hkv,channels]: k, v and their gradients."""
        b, t, h, d = _steps(x)
        steps = [b, h, 0, 0, t, 0, 0]
        steps[channels] = d
        self._place(name, steps)
        self._point(name, x)

    def place_pairs(self, name: str, x: Array) -> None:
        """x [B,H,Tq,Tk]: mask, bias, its gradient, weights."""
        b, h, q, k = _steps(x)
        self._place(name, [b, h * self.group, h, q, k, 0, 0])
        self._point(name, x)

    def place_rows(self, name: str, x: Array) -> None:
        """x [B,H,Tq]: lse."""
        b, h, q = _steps(x)
        self._place(name, [b, h * self.group, h, q, 0, 0, 0])
        self._point(name, x)

    # ---- masks, bias, lengths and windows

    def pairs(self, x: Array, name: str) -> Array:
        """A view broadcast to [B,H,Tq,Tk]."""
        wanted = (self.batch, self.heads, self.queries, self.keys)
        try:
            return np.broadcast_to(x, wanted)
        except ValueError:
            raise ShapeError(f"{name} has the shape {x.shape}, which does not broadcast to [B,H,Tq,Tk] = "
                             f"{list(wanted)}") from None

    def mask(self, mask: Any) -> None:
        array = as_array(mask, "mask")
        if array.dtype not in (np.bool_, np.uint8):
            raise ArgumentError(f"mask is of {array.dtype}; expected bool, True where a query attends a key")
        self.place_pairs("mask", self.pairs(array, "mask"))
        self.problem.flags |= c.WITH_MASK

    def bias(self, bias: Any) -> None:
        self.given_bias = _operand(bias, "bias", self.sums)
        self.place_pairs("bias", self.pairs(self.given_bias, "bias"))
        self.problem.flags |= c.WITH_BIAS

    def key_lengths(self, lens: Any) -> None:
        array = np.asarray(as_array(lens, "key_lengths"))
        if array.dtype.kind not in "iu" or array.shape not in ((self.batch,), (self.batch, self.queries)):
            raise ShapeError(f"key_lengths is {array.dtype} {array.shape}; expected integers [B] = [{self.batch}] or [B,Tq] = "
                             f"[{self.batch},{self.queries}]")
        array = _int32(array, min(self.keys, 2**31 - 1))
        steps = _steps(array)
        self._place("lens", [steps[0], 0, 0, steps[1] if array.ndim == 2 else 0, 0, 0, 0])
        self._point("lens", array)
        self.problem.flags |= c.WITH_LENS

    def _sides(self, window: Window) -> tuple[Optional[int], Optional[int]]:
        """Left and right; numbers beyond all keys are reduced so that they fit the library's integers."""
        pair = (window, window) if isinstance(window, (int, np.integer)) else window
        try:
            left, right = pair
            sides = [side if side is None else operator.index(side) for side in (left, right)]
        except (TypeError, ValueError):
            sides = [-1]
        if any(side is not None and side < 0 for side in sides):
            raise ArgumentError("window must be a whole number or (left, right), each at least 0 or None for no limit, not "
                                f"{window!r}")
        most = self.queries + self.keys
        left, right = (side if side is None else min(side, most) for side in sides)
        return left, right

    def band(self, causal: Union[bool, str, None], window: Optional[Window]) -> None:
        """Key j is attended by query i if -left <= j - i - shift <= right."""
        if isinstance(causal, np.ndarray) or causal not in (None, False, True, "top-left", "bottom-right"):
            raise ArgumentError(f"causal must be True, False, \"top-left\" or \"bottom-right\", not {causal!r}")
        left = right = None
        if window is not None:
            left, right = self._sides(window)
        if causal:
            right = 0
        if left is None and right is None:
            return
        aligned = causal == "bottom-right" and not self.problem.packed.align_ends  # else the engine aligns sequences
        shift = self.keys - self.queries if aligned else 0
        self.problem.nbands = 1
        self.problem.bands[0] = c.Band(3, 4, _SMALLEST if left is None else shift - left,
                                       _LARGEST if right is None else shift + right)

    def options(self, causal: Any, mask: Any, bias: Any, scale: Optional[float], key_lengths: Any, window: Any,
                mask_fill: float, dropout: float, seed: int) -> None:
        self.band(causal, window)
        if mask is not None:
            self.mask(mask)
        if bias is not None:
            self.bias(bias)
        if key_lengths is not None:
            self.key_lengths(key_lengths)
        most = float(np.finfo("f8" if self.dtype == np.float64 else "f4").max)
        for name, value in (("scale", 1.0 if scale is None else scale), ("mask_fill", mask_fill), ("dropout", dropout)):
            if not _is_real(value):
                raise ArgumentError(f"{name} is {shown(value)}, which is not a real number")
            if name != "dropout" and not abs(value) <= most:
                raise ArgumentError(f"{name} is {shown(value)}, which is not a finite {self.sums}")
        if not isinstance(seed, (int, np.integer)):
            raise ArgumentError(f"seed is {shown(seed)}, which is not a whole number")
        if scale is not None and not scale:
            raise ArgumentError("scale is 0: all scores would be equal")
        self.problem.scale = 0.0 if scale is None else float(scale)
        self.problem.mask_fill, self.problem.dropout, self.problem.seed = mask_fill, dropout, int(seed) % 2**64

    # ---- features of newer models

    def more(self, softcap: Any, sinks: Any, relative_bias: Any, block_mask: Any) -> None:
        if softcap is not None:
            if not _is_real(softcap) or not 1e-30 <= softcap <= 1e30:
                raise ArgumentError(f"softcap is {shown(softcap)}; expected a number between 1e-30 and 1e30")
            self.problem.softcap = float(softcap)
        if sinks is not None:
            self.sinks(sinks)
        if relative_bias is not None:
            self.relative(*_two(relative_bias, "relative_bias", "(table, index)"))
        if block_mask is not None:
            self.blocks(*_two(block_mask, "block_mask", "(blocks, (queries, keys))"))

    def normalize(self, normalization: Any, top_k: Any, sigmoid_bias: Any) -> None:
        if not isinstance(normalization, str) or normalization not in c.NORMALIZATIONS:
            raise ArgumentError(f"normalization is {shown(normalization)}; expected one of {', '.join(c.NORMALIZATIONS)}")
        try:
            self.problem.top_k = max(min(operator.index(top_k), _LARGEST), -1)
        except TypeError:
            raise ArgumentError(f"top_k is {shown(top_k)}, which is not a whole number") from None
        self.problem.normalization = c.NORMALIZATIONS[normalization]
        if sigmoid_bias is None:
            return
        if normalization != "sigmoid":
            raise ArgumentError(f"sigmoid_bias needs normalization=\"sigmoid\"; the normalization is {normalization!r}")
        self.problem.own_sigmoid_bias = True
        if not _is_real(sigmoid_bias):
            self.add_bias_of_heads(sigmoid_bias)
        elif not abs(sigmoid_bias) <= (float(np.finfo(np.float64).max) if self.sums == np.float64 else float(np.finfo(np.float32).max)):
            raise ArgumentError(f"sigmoid_bias is {shown(sigmoid_bias)}, which is not a finite {self.sums}")
        else:
            self.problem.sigmoid_bias = float(sigmoid_bias)

    def add_bias_of_heads(self, given: Any) -> None:
        self.bias_of_heads = _operand(given, "sigmoid_bias", self.sums)
        if self.bias_of_heads.shape != (self.heads,):
            raise ShapeError(f"sigmoid_bias has the shape {self.bias_of_heads.shape}; expected a number or [H] = "
                             f"[{self.heads}]")
        if self.table is not None:
            raise ArgumentError("relative_bias and a sigmoid_bias of shape [H] cannot be used together; add sigmoid_bias to the "
                                "table of relative_bias")
        added = self.bias_of_heads[:, None, None]
        if self.problem.flags & c.WITH_BIAS:
            self.shape_of_bias = self.given_bias.shape
            added = self.given_bias + added
        self.bias(added)

    def packed(self, offsets: Any, causal: Any, others: dict[str, Any]) -> None:
        """Sequences end to end along the axes of positions. Dim 0 counts them; dims 3 and 4 have the maximum
        lengths."""
        for name, value in others.items():
            if value is not None:
                raise ArgumentError(f"offsets and {name} cannot be used together")
        if self.batch != 1:
            raise ShapeError(f"q has the shape {self.given_q.shape}; packed sequences must have a batch of 1")
        found = []
        for name, x, n in zip("qk", _two(offsets, "offsets", "(of the queries, of the keys)"), (self.queries, self.keys)):
            array = np.asarray(as_array(x, f"the offsets of {name}"))
            if array.dtype.kind not in "iu" or array.ndim != 1 or not len(array):
                raise ArgumentError(f"the offsets of {name} are {array.dtype} {array.shape}; expected integers of one axis")
            if array[0] != 0 or array[-1] != n:
                raise ArgumentError(f"the offsets of {name} go from {array[0]} to {array[-1]}; expected 0 to {n}, the number of "
                                    f"positions of {name}")
            if (array[1:] < array[:-1]).any():
                at = int((array[1:] < array[:-1]).argmax())
                raise ArgumentError(f"the offsets of {name} decrease from {array[at]} to {array[at + 1]}; they must not decrease")
            if n >= 2**31:
                raise ArgumentError(f"{name} has {n} packed positions; at most 2^31 - 1 are supported")
            found.append(np.ascontiguousarray(array.astype(np.int32)))
            self._point(f"{name}_offsets", found[-1])
        if len(found[0]) != len(found[1]):
            raise ShapeError(f"offsets has {len(found[0])} offsets of queries and {len(found[1])} of keys; both must have the "
                             "same number")
        self.problem.dims[0].n = len(found[0]) - 1
        for dim, array in zip((3, 4), found):
            self.problem.dims[dim].n = int(np.diff(array).max(initial=0))
        ends = isinstance(causal, str) and causal == "bottom-right"
        self.problem.packed = c.Packed(0, 3, 4, self.queries, self.keys, ends)
        self.problem.flags |= c.WITH_PACKED

    def place_heads(self, name: str, step: int) -> None:
        self._place(name, [0, step * self.group, step, 0, 0, 0, 0])

    def sinks(self, sinks: Any) -> None:
        self.given_sinks = np.ascontiguousarray(_operand(sinks, "sinks", self.sums))
        if self.given_sinks.shape != (self.heads,):
            raise ShapeError(f"sinks has the shape {self.given_sinks.shape}; expected [H] = [{self.heads}]")
        self.place_heads("sinks", 1)
        self._point("sinks", self.given_sinks)
        self.problem.flags |= c.WITH_SINKS

    def relative(self, table: Any, index: Any) -> None:
        """A bias read through an index: along queries and keys its strides refer to the index."""
        if self.problem.flags & c.WITH_BIAS:
            raise ArgumentError("bias and relative_bias cannot be used together")
        self.table = np.ascontiguousarray(_operand(table, "the table of relative_bias", self.sums))
        if self.table.ndim != 2 or self.table.shape[1] != self.heads or not len(self.table):
            raise ShapeError(f"the table of relative_bias has the shape {self.table.shape}; expected [rows,{self.heads}]")
        rows = np.asarray(as_array(index, "the index of relative_bias"))
        distances = max(self.queries + self.keys - 1, 0)
        if rows.dtype.kind not in "iu" or rows.shape not in ((distances,), (self.queries, self.keys)):
            raise ShapeError(f"the index of relative_bias is {rows.dtype} {rows.shape}; expected integers [{distances}] by "
                             f"distance or [{self.queries},{self.keys}]")
        by_distance = rows.ndim == 1
        rows = np.ascontiguousarray(_int32(rows, 2**31 - 1))  # invalid entries stay so
        self.place_heads("bias", 1)
        self.problem.dims[3].bias, self.problem.dims[4].bias = (-1, 1) if by_distance else (self.keys, 1)
        self.problem.bias_index = c.BiasIndex(len(self.table), self.heads)
        self._point("bias", self.table)
        self._point("bias_index", rows[max(self.queries - 1, 0):] if by_distance else rows)
        self.problem.flags |= c.WITH_BIAS | c.WITH_BIAS_INDEX

    def blocks(self, blocks: Any, sizes: Any) -> None:
        array = as_array(blocks, "the blocks of block_mask")
        try:
            queries, keys = (operator.index(n) for n in sizes)
        except (TypeError, ValueError):
            queries = keys = 0
        if array.dtype not in (np.bool_, np.uint8):
            raise ArgumentError(f"the blocks of block_mask are of {array.dtype}; expected bool")
        if not (0 < queries < 2**31 and 0 < keys < 2**31):
            raise ArgumentError(f"the sizes of a block in block_mask are {shown(sizes)}; expected (queries, keys), two whole "
                                "numbers from 1 to 2^31 - 1")
        wanted = (self.batch, self.heads, -(-self.queries // queries), -(-self.keys // keys))
        try:
            self.place_pairs("blocks", np.broadcast_to(array, wanted))
        except ValueError:
            raise ShapeError(f"the blocks of block_mask have the shape {array.shape}, which does not broadcast to "
                             f"{list(wanted)}") from None
        self.problem.blocks = c.Blocks(3, 4, queries, keys)
        self.problem.flags |= c.WITH_BLOCKS

    # ---- results

    def make(self, like: Array, channels: Optional[int] = None) -> Array:
        """A new array [B,T,H,channels] whose memory has the caller's layout."""
        b, t, h, d = like.shape
        d = d if channels is None else channels
        if self.layout == "bhtd":
            return np.empty((b, h, t, d), self.dtype).transpose(0, 2, 1, 3)
        return np.empty((b, t, h, d), self.dtype)

    def outer(self, x: Array) -> Array:
        """[B,T,H,D] converted to the axes of the caller's operands."""
        if self.given_q.ndim == 4:
            return x if self.layout == "bthd" else x.transpose(0, 2, 1, 3)
        return x[:, :, 0] if self.given_q.ndim == 3 else x[0, :, 0]

    def outer_rows(self, x: Array) -> Array:
        """[B,H,Tq] or [B,H,Tq,Tk] without the axes that the caller's operands lack."""
        rows: Array = x if self.given_q.ndim == 4 else x[:, 0] if self.given_q.ndim == 3 else x[0, 0]
        return rows

    def execute(self, threads: int) -> _Plan:
        plan = _planner(threads).plan(self.problem)
        plan.execute(self.arrays)
        return plan


@overload
def attend(q: Any, k: Any, v: Any, *, layout: str = ..., causal: Union[bool, str, None] = ..., mask: Any = ...,
           bias: Any = ..., scale: Optional[float] = ..., key_lengths: Any = ..., window: Optional[Window] = ...,
           mask_fill: float = ..., dropout: float = ..., seed: int = ..., softcap: Optional[float] = ...,
           sinks: Any = ..., relative_bias: Any = ..., block_mask: Any = ..., offsets: Any = ...,
           normalization: Normalization = ..., top_k: int = ..., sigmoid_bias: Any = ..., return_lse: Literal[False] = ...,
           return_weights: Literal[False] = ..., threads: int = ...) -> Array: ...


@overload
def attend(q: Any, k: Any, v: Any, *, layout: str = ..., causal: Union[bool, str, None] = ..., mask: Any = ...,
           bias: Any = ..., scale: Optional[float] = ..., key_lengths: Any = ..., window: Optional[Window] = ...,
           mask_fill: float = ..., dropout: float = ..., seed: int = ..., softcap: Optional[float] = ...,
           sinks: Any = ..., relative_bias: Any = ..., block_mask: Any = ..., offsets: Any = ...,
           normalization: Normalization = ..., top_k: int = ..., sigmoid_bias: Any = ..., return_lse: Literal[True],
           return_weights: Literal[False] = ..., threads: int = ...) -> tuple[Array, Array]: ...


@overload
def attend(q: Any, k: Any, v: Any, *, layout: str = ..., causal: Union[bool, str, None] = ..., mask: Any = ...,
           bias: Any = ..., scale: Optional[float] = ..., key_lengths: Any = ..., window: Optional[Window] = ...,
           mask_fill: float = ..., dropout: float = ..., seed: int = ..., softcap: Optional[float] = ...,
           sinks: Any = ..., relative_bias: Any = ..., block_mask: Any = ..., offsets: Any = ...,
           normalization: Normalization = ..., top_k: int = ..., sigmoid_bias: Any = ..., return_lse: Literal[False] = ...,
           return_weights: Literal[True], threads: int = ...) -> tuple[Array, Array]: ...


@overload
def attend(q: Any, k: Any, v: Any, *, layout: str = ..., causal: Union[bool, str, None] = ..., mask: Any = ...,
           bias: Any = ..., scale: Optional[float] = ..., key_lengths: Any = ..., window: Optional[Window] = ...,
           mask_fill: float = ..., dropout: float = ..., seed: int = ..., softcap: Optional[float] = ...,
           sinks: Any = ..., relative_bias: Any = ..., block_mask: Any = ..., offsets: Any = ...,
           normalization: Normalization = ..., top_k: int = ..., sigmoid_bias: Any = ..., return_lse: Literal[True],
           return_weights: Literal[True], threads: int = ...) -> tuple[Array, Array, Array]: ...


@overload
def attend(q: Any, k: Any, v: Any, *, layout: str = ..., causal: Union[bool, str, None] = ..., mask: Any = ...,
           bias: Any = ..., scale: Optional[float] = ..., key_lengths: Any = ..., window: Optional[Window] = ...,
           mask_fill: float = ..., dropout: float = ..., seed: int = ..., softcap: Optional[float] = ...,
           sinks: Any = ..., relative_bias: Any = ..., block_mask: Any = ..., offsets: Any = ...,
           normalization: Normalization = ..., top_k: int = ..., sigmoid_bias: Any = ..., return_lse: bool = ...,
           return_weights: bool = ..., threads: int = ...) -> Union[Array, tuple[Array, ...]]: ...


def attend(q: Any, k: Any, v: Any, *, layout: str = "bthd", causal: Union[bool, str, None] = None, mask: Any = None,
           bias: Any = None, scale: Optional[float] = None, key_lengths: Any = None, window: Optional[Window] = None,
           mask_fill: float = 0.0, dropout: float = 0.0, seed: int = 0, softcap: Optional[float] = None,
           sinks: Any = None, relative_bias: Any = None, block_mask: Any = None, offsets: Any = None,
           normalization: Normalization = "softmax", top_k: int = 0, sigmoid_bias: Any = None, return_lse: bool = False,
           return_weights: bool = False, threads: int = 0) -> Union[Array, tuple[Array, ...]]:
    """softmax(scale q k^T + bias) v, or another normalization, in memory independent of the number of keys.

    q [B,Tq,H,D], k [B,Tk,Hkv,D], v [B,Tk,Hkv,Dv] with layout="bthd"; [B,H,T,D] with "bhtd"; or [B,T,D], or [T,D],
    with one head. PyTorch's scaled_dot_product_attention uses "bhtd". Set the layout explicitly for its arrays: the two
    layouts cannot be told apart by shape, and a wrong one gives wrong numbers without an error. Hkv divides H
    (grouped queries). Arrays are float32, float64 or bfloat16, from NumPy or any DLPack source. Any strides, also
    negative and 0, are read in place. float64 takes several times as long as float32. A large call that no fast solver
    supports gives a warning.

    causal:      True or "top-left": key j for query i if j <= i; "bottom-right": the last query attends the last key.
    mask:        bool, broadcast to [B,H,Tq,Tk]; True where a query attends a key.
    bias:        real, broadcast to [B,H,Tq,Tk]; added to the scaled scores.
    scale:       default 1/sqrt(D).
    key_lengths:  integers [B] or [B,Tq]: keys at or past the length are masked.
    window:      (left, right) or one number for both: keys from i - left to i + right; None: no limit.  With
                 causal="bottom-right" the window moves along.
    mask_fill:   0: masked keys are left out, and a query without keys gives zeros; else the score of masked keys.
    dropout:     drop probability of the weights; the dropped positions depend only on (seed, position).
    softcap:     scaled scores x become softcap * tanh(x / softcap), before the bias.
    sinks:       real [H]: one logit per head that only enters the softmax's sum.
    relative_bias: (table, index) in place of a bias: table [rows,H] real, index integers [Tq + Tk - 1] by distance,
                 with the row for query i and key j at j - i + Tq - 1, or [Tq,Tk] by pairs.
    block_mask:  (blocks, (queries, keys)): blocks is bool, broadcast to [B,H,blocks of queries,blocks of keys]; the
                 work is proportional to the visible blocks.
    offsets:     (of the queries, of the keys): packed sequences. B is 1, and sequence s has the positions from
                 offsets[s] to offsets[s + 1]; causal and window apply within each sequence. Without mask, bias,
                 relative_bias, key_lengths, block_mask and return_weights.
    normalization: how scores become weights. "softmax"; "hardmax": a query's first largest score has weight 1, all
                 others 0, and only v has a gradient; "none": the weights are the scores, which should not be negative;
                 "sigmoid": the weight of score x is 1 / (1 + exp(-(x + sigmoid_bias))), without a sum over the keys, so
                 that there is no lse.
    sigmoid_bias: a number, or real [H]; None: -log(Tk), or of the keys of a packed sequence. Masks do not change it. Set
                 it if keys arrive one by one: a cache has fewer keys than the whole text.
    top_k:       0: all keys; else a query's softmax is over its top_k largest scores (ties by the lower key), and all
                 other keys are masked.
    threads:     as in attn.build.

    Returns o [B,Tq,H,Dv] in the operands' layout, then lse [B,H,Tq] and weights [B,H,Tq,Tk] (before dropout) if
    requested, as a tuple.  Raises ShapeError, ArgumentError. """
    key, given = None, {"q": q, "k": k, "v": v}
    plain = sigmoid_bias is None or _is_real(sigmoid_bias)
    if mask is bias is key_lengths is softcap is sinks is relative_bias is block_mask is offsets is None and not return_weights \
            and plain:
        key = _local.seen.key(given, (layout, causal, scale, window, mask_fill, dropout, seed, normalization, top_k,
                                       sigmoid_bias, threads, return_lse))
    if key is not None and (again := _local.seen.again(key, given)) is not None:
        return again[0] if len(again) == 1 else tuple(again)
    call = _Call(q, k, v, layout, c.FORWARD)
    if offsets is not None:
        call.packed(offsets, causal, {"mask": mask, "bias": bias, "key_lengths": key_lengths, "block_mask": block_mask,
                                      "relative_bias": relative_bias, "return_weights": return_weights or None})
    call.options(causal, mask, bias, scale, key_lengths, window, mask_fill, dropout, seed)
    call.more(softcap, sinks, relative_bias, block_mask)
    call.normalize(normalization, top_k, sigmoid_bias)
    o = call.make(call.q, call.v.shape[3])
    call.place_query("o", o, 6)
    results = [call.outer(o)]
    rows = (call.batch, call.heads, call.queries)
    if return_lse:
        lse = np.empty(rows, call.sums)
        call.place_rows("lse", lse)
        call.problem.flags |= c.WANT_LSE
        results.append(call.outer_rows(lse))
    if return_weights:
        weights = np.empty(rows + (call.keys,), call.sums)
        call.place_pairs("weights", weights)
        call.problem.flags |= c.WANT_WEIGHTS
        results.append(call.outer_rows(weights))
    plan = call.execute(threads)
    if key is not None:
        _local.seen.note(key, call, plan, given, dict(zip(("o", "lse"), results)))
    return results[0] if len(results) == 1 else tuple(results)


def attend_backward(dout: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, *, layout: str = "bthd",
                    causal: Union[bool, str, None] = None, mask: Any = None, bias: Any = None,
                    scale: Optional[float] = None, key_lengths: Any = None, window: Optional[Window] = None,
                    mask_fill: float = 0.0, dropout: float = 0.0, seed: int = 0, softcap: Optional[float] = None,
                    sinks: Any = None, relative_bias: Any = None, block_mask: Any = None, offsets: Any = None,
                    normalization: Normalization = "softmax", top_k: int = 0, sigmoid_bias: Any = None,
                    wrt: Sequence[str] = ("q", "k", "v", "bias", "sinks", "sigmoid_bias"), dlse: Any = None,
                    threads: int = 0) -> dict[str, Array]:
    """The gradients of `attend` for dout, the gradient of o.

    q, k, v and the options must be those of the call of `attend`; o and lse are its results (return_lse=True). The lse
    of normalization="sigmoid" is None. "sigmoid_bias" has a gradient if it is [H]. Returns
    the gradients in `wrt` by name, each in its operand's shape. "bias" requires a bias and is summed over its broadcast
    axes, or it is the table's gradient of a relative_bias. "sinks" requires sinks. dlse, in the shape of lse, is the
    gradient of lse if the loss depends on lse; rows without keys ignore it.
    """
    wrt = tuple(dict.fromkeys(wrt))  # read once: `wrt` may be an iterator, and may name an operand twice
    key, given = None, {"q": q, "k": k, "v": v, "o": o, "dout": dout, **({} if lse is None else {"lse": lse})}
    plain = sigmoid_bias is None or _is_real(sigmoid_bias)
    if mask is bias is key_lengths is softcap is sinks is relative_bias is block_mask is offsets is dlse is None and plain:
        said = ("backward", layout, causal, scale, window, mask_fill, dropout, seed, normalization, top_k, sigmoid_bias,
                threads, wrt)
        key = _local.seen.key(given, said)
    if key is not None and (again := _local.seen.again(key, given)) is not None:
        return dict(zip([name for name in wrt if name in ("q", "k", "v")], again))
    call = _Call(q, k, v, layout, c.BACKWARD)
    if offsets is not None:
        call.packed(offsets, causal, {"mask": mask, "bias": bias, "key_lengths": key_lengths, "block_mask": block_mask,
                                      "relative_bias": relative_bias})
    call.options(causal, mask, bias, scale, key_lengths, window, mask_fill, dropout, seed)
    call.more(softcap, sinks, relative_bias, block_mask)
    call.normalize(normalization, top_k, sigmoid_bias)
    shape = call.outer(np.broadcast_to(np.empty((), call.dtype), call.q.shape[:3] + call.v.shape[3:])).shape
    for name, x in (("o", o), ("dout", dout)):
        array = _operand(x, name, call.dtype)
        if array.shape != shape:
            raise ShapeError(f"{name} has the shape {array.shape}; expected {shape}")
        call.place_query(name, _four_axes(array, name, layout), 6)
    if (lse is None) != (normalization == "sigmoid"):
        raise ArgumentError(f"lse is None; normalization={normalization!r} needs the lse that attend returned" if lse is None
                            else "lse is given, but normalization=\"sigmoid\" has none; expected None")
    log_sums = None if lse is None else _rows(call, lse, "lse")
    if dlse is not None and log_sums is not None:
        log_sums = np.ascontiguousarray(log_sums)  # dlse has the strides of lse
        call._point("dlse", np.ascontiguousarray(_rows(call, dlse, "dlse")))
        call.problem.flags |= c.WITH_DLSE
    if log_sums is not None:
        call.place_rows("lse", log_sums)
    grads: dict[str, Array] = {}
    sums_of_bias: Optional[Array] = None
    for name in wrt:
        if name not in ("q", "k", "v", "bias", "sinks", "sigmoid_bias"):
            raise ArgumentError(f"wrt: there is no gradient of {name!r}; q, k, v, bias, sinks and sigmoid_bias have one")
        if call.bias_of_heads is not None and name in ("bias", "sigmoid_bias"):
            if name == "sigmoid_bias" or bias is not None:
                grads[name] = sums_of_bias = _want(call, "bias") if sums_of_bias is None else sums_of_bias
        elif {"sigmoid_bias": None, "bias": bias if relative_bias is None else relative_bias,
              "sinks": sinks}.get(name, q) is not None:
            grads[name] = _want(call, name)
    plan = call.execute(threads)
    if call.bias_of_heads is not None:
        for name in grads.keys() & {"bias", "sigmoid_bias"}:
            whole = name == "bias"
            found = _summed(grads[name], call.shape_of_bias if whole else (call.heads, 1, 1))
            grads[name] = found if whole else found.reshape(call.heads)
    if key is not None:
        _local.seen.note(key, call, plan, given, {"d" + name: grad for name, grad in grads.items()})
    return grads


def _summed(x: Array, shape: tuple[int, ...]) -> Array:
    """The sum over the axes along which an array of this shape was broadcast to that of x."""
    x = x.sum(tuple(range(x.ndim - len(shape))))
    return np.asarray(x.sum(tuple(i for i, n in enumerate(shape) if n == 1 != x.shape[i]), keepdims=True))


def _rows(call: _Call, given: Any, name: str) -> Array:
    """lse and its gradient as [B,H,Tq]."""
    array, rows = _operand(given, name, call.sums), (call.batch, call.heads, call.queries)
    wanted = call.outer_rows(np.broadcast_to(0, rows)).shape
    if array.shape not in (wanted, rows):
        raise ShapeError(f"{name} has the shape {array.shape}; expected {wanted}")
    return array.reshape(rows)


def _want(call: _Call, name: str) -> Array:
    """Adds an array for the gradient of an operand to the problem; returns the array in the operand's shape."""
    if name == "sinks" or (name == "bias" and call.table is not None):
        given = call.given_sinks if name == "sinks" else call.table
        found = np.empty(given.shape, call.sums)
        call._point("d" + name, found)
        if name == "bias":
            call.place_heads("dbias", found.strides[1] // found.itemsize)
        call.problem.flags |= c.WANT_DSINKS if name == "sinks" else c.WANT_DBIAS
        return found
    if name == "bias":
        # Broadcast axes have stride 0 in the gradient too, so the engine sums over them.
        grad = np.empty(call.given_bias.shape, call.sums)
        call.place_pairs("dbias", np.lib.stride_tricks.as_strided(grad, *_broadcast(call, grad)))
        call.problem.flags |= c.WANT_DBIAS
        return grad
    like = getattr(call, name)
    grad = call.make(like)
    (call.place_query if name == "q" else call.place_key)("d" + name, grad, 6 if name == "v" else 5)
    call.problem.flags |= {"q": c.WANT_DQ, "k": c.WANT_DK, "v": c.WANT_DV}[name]
    return call.outer(grad)


def _broadcast(call: _Call, x: Array) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of x broadcast to [B,H,Tq,Tk]; the result of np.broadcast_to would be read-only."""
    view = np.broadcast_to(x, (call.batch, call.heads, call.queries, call.keys))
    return view.shape, view.strides
