# SPDX-License-Identifier: MIT
"""attn's kernels of PyTorch's products of matrices: aten::mm, addmm, bmm, baddbmm and their .out.

Linear layers come to these operators, in the forward pass and in the backward pass, and so do matmul, einsum and compiled
graphs.  Nothing of a call is kept but its plan, which has sizes and strides and no numbers: a weight may change at any
time.
"""
from __future__ import annotations

import ctypes
import itertools
import threading
from typing import Any, Callable, Optional

import torch
from torch import Tensor

from .. import _library as c
from .._library import lib
from . import _engine, _wins

_multiply = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(
    ctypes.cast(lib.multiply, ctypes.c_void_p).value or 0)
_F32, _F16 = torch.float32, torch.float16
_empty_like = torch.empty_like
_threads_now = torch.get_num_threads
_precision = torch.get_float32_matmul_precision
_KEPT = 1024  # plans of a thread
FEW = "PyTorch is faster for products of little work"
SLOWER = "PyTorch is faster for products of this kind"


class Left:
    """A reason to leave products to PyTorch, and how many were left for it; a count needs no lock."""
    all: dict[str, "Left"] = {}

    def __init__(self, why: str) -> None:
        self.why, self._counter, self._looks = why, itertools.count(), 0
        self.tick = self._counter.__next__
        Left.all[why] = self

    def count(self) -> int:
        self._looks += 1
        return self.tick() - self._looks + 1


_few, _LEAST_WORK = Left(FEW), _wins.LEAST_WORK


class _Arguments:
    """An attn_product, and its matrices."""

    def __init__(self, table: c.Product) -> None:
        self.table = c.Product.from_buffer_copy(table)
        self.a, self.b, self.c = self.table.a, self.table.b, self.table.c
        self.factor, self.residual = self.table.factor, self.table.residual
        self.where = ctypes.addressof(self.table)


class Plan:
    """A product of tensors of known shapes and strides, for the thread that made it.

    A call takes arguments from `idle` and puts them back: a signal handler, or a finalizer, may multiply in the same thread
    while another call fills its own.
    """

    def __init__(self, context: Any, table: c.Product, shape: tuple[int, ...]) -> None:
        self.context, self.table, self.shape = context, table, shape
        self.pointer = context.pointer.value
        self.idle: list[_Arguments] = []
        strides = (shape[-1], 1) if len(shape) == 2 else (shape[1] * shape[2], shape[2], 1)
        self.like = _engine._hollow(shape, strides, _F32)
        self.residual = table.residual.row != 0 or table.residual.column != 0

    def run(self, a: Tensor, b: Tensor, bias: Optional[Tensor], out: Tensor) -> Tensor:
        idle = self.idle
        try:
            arguments = idle.pop()
        except IndexError:
            arguments = _Arguments(self.table)
        try:
            arguments.a.data, arguments.b.data, arguments.c.data = a.data_ptr(), b.data_ptr(), out.data_ptr()
            if bias is not None:
                if self.residual:
                    arguments.residual.data = bias.data_ptr()
                else:
                    arguments.table.bias = bias.data_ptr()
            status = _multiply(self.pointer, arguments.where)
        finally:
            idle.append(arguments)
        if status:
            self.context.check(status)
        return out


class _Plans(threading.local):
    def __init__(self) -> None:
        self.by_threads: dict[int, dict[Any, Any]] = {}


_plans = _Plans()


def _describe(table: c.Product, name: str, x: Tensor, batched: bool) -> None:
    strides = x.stride()
    setattr(table, name, c.Matrix(None, c.F32, strides[-2], strides[-1], strides[0] if batched else 0))


def _reads_well(x: Tensor) -> bool:
    """Whether numbers along one of the last two axes are adjacent, and lines do not overlap."""
    row, column = x.stride()[-2:]
    rows, columns = x.shape[-2:]
    return (column == 1 and (row >= columns or rows == 1)) or (row == 1 and (column >= rows or columns == 1))


def _refusal(a: Tensor, b: Tensor, bias: Optional[Tensor], always: bool) -> Optional[str]:
    """Why attn leaves a product to PyTorch; what PyTorch would refuse is left to it, words and all."""
    dims = a.dim()
    if a.dtype not in (_F32, _F16):
        return f"products of {a.dtype}"
    if a.dtype != b.dtype or (bias is not None and bias.dtype != a.dtype):
        return "the types of a product's matrices differ"
    if dims not in (2, 3) or b.dim() != dims or a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        return "the sizes of a product's matrices do not fit"
    for x in (a, b) if bias is None else (a, b, bias):
        if x.device.type != "cpu" or x.layout != torch.strided:
            return "a matrix of a product is not strided or not on the CPU"
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    batch = a.shape[0] if dims == 3 else 1
    if 0 in (m, n, k, batch):
        return "a product is empty"
    if not _reads_well(a) or not _reads_well(b):
        return "a matrix of a product has neither adjacent rows nor adjacent columns"
    if bias is not None and not _bias_fits(bias, a, b):
        return "what is added to a product is neither a row nor a matrix of adjacent numbers"
    return None if always or _wins.product_wins(batch, m, n, k, a.dtype is _F16, _precision()) else SLOWER


def _bias_fits(bias: Tensor, a: Tensor, b: Tensor) -> bool:
    m, n = a.shape[-2], b.shape[-1]
    if a.dim() == 3:
        return bias.shape == (a.shape[0], m, n)
    if bias.dim() == 1:
        return bias.shape[0] == n and (bias.stride(0) == 1 or n == 1)
    return bias.shape == (m, n) and (bias.stride(1) == 1 or n == 1)


def _plan_for(a: Tensor, b: Tensor, bias: Optional[Tensor]) -> Plan:
    batched = a.dim() == 3
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    table = c.Product(m=m, n=n, k=k, batch=a.shape[0] if batched else 1)
    _describe(table, "a", a, batched)
    _describe(table, "b", b, batched)
    shape = (a.shape[0], m, n) if batched else (m, n)
    table.c = c.Matrix(None, c.F32, n, 1, m * n if batched else 0)
    if bias is not None and batched:
        table.add = True
    elif bias is not None and bias.dim() == 2:
        table.residual = c.Matrix(None, c.F32, bias.stride(0), 1, 0)
    return Plan(_engine.engine().context, table, shape)


def find(a: Tensor, b: Tensor, bias: Optional[Tensor]) -> Any:
    """A Plan, or a Left."""
    threads = _threads_now()
    plans = _plans.by_threads.get(threads)
    if plans is None:
        plans = _plans.by_threads[threads] = {}
    key = (a.shape, b.shape, a.stride(), b.stride(), a.dtype, b.dtype,
           None if bias is None else (bias.shape, bias.stride(), bias.dtype), _always, _precision())
    plan = plans.get(key)
    if plan is None:
        plan = _refusal(a, b, bias, _always)
        if plan is not None:
            plan = Left.all.get(plan) or Left(plan)
        else:
            wide: list[Any] = [x if x is None or x.dtype is _F32 else _wide_meta(x) for x in (a, b, bias)]
            plan = _plan_for(*wide)
        if len(plans) >= _KEPT:
            plans.clear()
        plans[key] = plan
    return plan


def _wide_meta(x: Tensor) -> Tensor:
    """As x converted to float32 is laid out."""
    return x.to(_F32)


def _run(plan: Plan, a: Tensor, b: Tensor, bias: Optional[Tensor], out: Optional[Tensor]) -> Tensor:
    if a.dtype is _F16:
        wide = _run(plan, a.to(_F32), b.to(_F32), None if bias is None else bias.to(_F32), None)
        return wide.to(_F16) if out is None else out.copy_(wide)
    to = _empty_like(plan.like) if out is None else out
    if plan.table.add:
        assert bias is not None
        to.copy_(bias)
        return plan.run(a, b, None, to)
    return plan.run(a, b, bias, to)


def _extent(x: Tensor) -> tuple[int, int]:
    begin = x.data_ptr()
    return begin, begin + x.element_size() * (1 + sum((n - 1) * step for n, step in zip(x.shape, x.stride())))


def _apart(out: Tensor, plan: Plan, *others: Optional[Tensor]) -> bool:
    """Whether `out` has the layout of a new result, and shares no memory with what is read."""
    if out.shape != plan.like.shape or out.stride() != plan.like.stride() or out.device.type != "cpu":
        return False
    begin, end = _extent(out)
    for x in others:
        if x is not None:
            first, last = _extent(x)
            if first < end and begin < last:
                return False
    return True


# ------------------------------------------------------------------------------------------------- kernels


_on = False      # whether attn takes products
_always = False  # whether it takes slower ones too


def choose(on: bool, always: bool) -> None:
    global _on, _always
    _on, _always = on, always


def count() -> None:
    """Counts a product that attn took; `enable` replaces both functions."""


def count_other(way: str, why: str) -> None:
    """Counts a product that PyTorch computed."""


def _decide(a: Tensor, b: Tensor, bias: Optional[Tensor], out: Optional[Tensor]) -> Optional[Tensor]:
    """A result, or None where PyTorch computes."""
    found = find(a, b, bias)
    if type(found) is Left:
        found.tick()
        return None
    if out is not None and (out.dtype is not a.dtype or not _apart(out, found, a, b, bias)):
        count_other("PyTorch", "the result of a product has another layout, or overlaps what is read")
        return None
    count()
    return _run(found, a, b, bias, out)


def _may_be(a: Tensor, b: Tensor) -> bool:
    """Whether a product may be attn's, by its type and its work; most that may not are told here, in the shortest time."""
    dtype = a.dtype
    if dtype is not _F32 and dtype is not _F16:
        (_ticks.get(dtype) or _tick_of(dtype))()
        return False
    if not _always:
        try:
            if a.numel() * b.size(-1) < _LEAST_WORK:
                _few_tick()
                return False
        except IndexError:
            return False  # no matrix: PyTorch's words
    return True


_ticks: dict[torch.dtype, Callable[[], int]] = {}  # counts products of types that attn does not take
_few_tick = _few.tick


def _tick_of(dtype: torch.dtype) -> Callable[[], int]:
    why = f"products of {dtype}"
    _ticks[dtype] = (Left.all.get(why) or Left(why)).tick
    return _ticks[dtype]


def _mm(beneath: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def kernel(keys: Any, a: Tensor, b: Tensor) -> Tensor:
        if _on and _may_be(a, b):
            found = _decide(a, b, None, None)
            if found is not None:
                return found
        return beneath(keys, a, b)
    return kernel


def _mm_out(beneath: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def kernel(keys: Any, a: Tensor, b: Tensor, *, out: Tensor) -> Tensor:
        found = _decide(a, b, None, out) if _on and _may_be(a, b) else None
        return beneath(keys, a, b, out=out) if found is None else found
    return kernel


def _addmm(beneath: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def kernel(keys: Any, bias: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
        if beta == 1 and alpha == 1:
            if _on and _may_be(a, b):
                found = _decide(a, b, bias, None)
                if found is not None:
                    return found
            return beneath(keys, bias, a, b)
        return beneath(keys, bias, a, b, beta=beta, alpha=alpha)
    return kernel


def _addmm_out(beneath: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def kernel(keys: Any, bias: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Tensor) -> Tensor:
        if beta == 1 and alpha == 1:
            found = _decide(a, b, bias, out) if _on and _may_be(a, b) else None
            return beneath(keys, bias, a, b, out=out) if found is None else found
        return beneath(keys, bias, a, b, beta=beta, alpha=alpha, out=out)
    return kernel


_aten = torch.ops.aten
# The operators, and the makers of their kernels.
KERNELS = ((_aten.mm.default, _mm), (_aten.mm.out, _mm_out), (_aten.bmm.default, _mm), (_aten.bmm.out, _mm_out),
           (_aten.addmm.default, _addmm), (_aten.addmm.out, _addmm_out), (_aten.baddbmm.default, _addmm),
           (_aten.baddbmm.out, _addmm_out))
