# SPDX-License-Identifier: MIT
"""Tensors through the engine: plans kept by what they depend on, so that a call like an earlier one costs a look-up and
a call of C."""
from __future__ import annotations

import copy
import ctypes
import math
import threading
from collections import OrderedDict
from typing import Any, Callable, NamedTuple, Optional, Sequence, cast

import torch
from torch import Tensor

from .. import _form
from .. import _library as c
from .._errors import ArgumentError
from .._form import Problem
from .._library import Context, lib
from . import _openmp

TYPES = {torch.float32: c.F32, torch.float64: c.F64, torch.bfloat16: c.BF16}
_KEPT, _KEPT_BYTES = 256, 2**28  # plans of a thread, and their workspaces
_NOTED = 1024  # kinds of calls that are PyTorch's, and plans for any scale
# The library's function once more, with arguments that ctypes converts in less time.
_execute = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
    ctypes.cast(lib.plan_execute, ctypes.c_void_p).value or 0)
_NOWHERE = ctypes.create_string_buffer(64)
_EMPTY = ctypes.addressof(_NOWHERE)  # the address of an array without elements; the engine needs a pointer
address = ctypes.addressof
_OPERANDS = ("q", "k", "v", "bias", "mask")


def _nowhere(x: Tensor) -> int:
    if x.numel():
        raise ArgumentError("a tensor without memory is not supported")  # PyTorch's ZeroTensor, for one
    return _EMPTY


class Plan:
    """One problem on tensors of known shapes and strides, for the thread that made it.

    A call takes arguments from `idle` and puts them back: a signal handler, or a finalizer, may attend in the same thread
    while another call fills its own.
    """

    def __init__(self, engine: "_Engine", problem: c.Problem, shape: Sequence[int], strides: Sequence[int],
                 rows: Sequence[int]) -> None:
        self.shape, self.strides, self.rows = tuple(shape), tuple(strides), tuple(rows)
        self.engine, self.table, self.key = engine, problem, None
        self.pointer = ctypes.c_void_p()
        self.made: list[Any] = []              # arguments, ...
        self.idle: list[tuple[Any, Any]] = []  # ... those that no call has, and where they are in memory
        self.masked: Optional[str] = None  # the array for a caller's one mask: "bias", "mask"
        self.problem: Optional[Problem] = None
        self.zeroed = bool(problem.flags & c.WITH_PACKED)  # results, before it runs
        self.taken: Any = None  # by enable(): the arguments
        self.indices: Any = None
        self.gradients: tuple[str, ...] = ()  # of a backward plan: the members of `arrays`
        self._create()
        self.bytes = lib.plan_workspace(self.pointer)
        self.layouts: tuple[Any, ...] = ()  # of a forward plan: the strides of q, k, v, o and a caller's one mask
        self.like: Tensor = None  # type: ignore[assignment]  # of a forward plan: o without memory
        self.lse: Any = None  # of a forward plan: the type of memory for lse; a small array is made faster than a tensor

    def _create(self) -> None:
        context = self.engine.context
        context.check(lib.plan_create(ctypes.byref(self.pointer), context.pointer, ctypes.byref(self.table), None))

    def fresh(self) -> tuple[Any, Any]:
        """Arguments where none are idle: in the first call, and in one that interrupts another."""
        if not self.pointer.value:  # a call that interrupted this one had no room for the plan
            self._create()
            self.engine.keep(self.key, self)
        arrays = c.Arrays()
        self.made.append(arrays)
        return arrays, (self.pointer.value, address(arrays), None)

    def evict(self) -> None:
        """Destroys the plan, which nothing finds any more."""
        self.idle.clear()
        self.made.clear()
        lib.plan_destroy(self.pointer)
        self.pointer.value = None

    def places(self, given: Optional[Tensor]) -> tuple[Optional[Tensor], Optional[Tensor]]:
        """A caller's one mask as bias and mask."""
        return (given, None) if self.masked == "bias" else (None, given)

    def fits(self, *saved: Tensor) -> bool:
        """Whether saved tensors have the same layout as before: hooks may give others of the same numbers."""
        return tuple([x.stride() for x in saved]) == self.layouts

    def outputs_like(self, dtype: torch.dtype, want_lse: bool) -> None:
        self.like = _hollow(self.shape, self.strides, dtype)
        if want_lse:
            self.lse = ctypes.c_char * (max(1, math.prod(self.rows)) * sums_of(dtype).itemsize)

    def scaled(self, scale: float) -> "Plan":
        """The plan that differs in the scale only."""
        plan = copy.copy(self)
        plan.table, plan.pointer, plan.idle = c.Problem.from_buffer_copy(self.table), ctypes.c_void_p(), []
        plan.made = []
        plan.table.scale = scale
        plan.problem = cast(Problem, self.problem)._replace(scale=scale)
        plan._create()
        return plan


def sums_of(dtype: torch.dtype) -> torch.dtype:
    """The type of scores and log-sum-exps."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _hollow(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A tensor that empty_like makes others of, in less time than empty_strided takes; its memory is given back."""
    x = torch.empty_strided(shape, strides, dtype=dtype, device="cpu")
    x.untyped_storage().resize_(0)
    return x


class _Engine:
    """A thread's context, and the plans that it made last."""

    def __init__(self, threads: int) -> None:
        self.context = Context(threads)
        self.context.hold("torch")
        self.plans: OrderedDict[Any, Plan] = OrderedDict()
        self.bytes = 0
        self.left: dict[Any, str] = {}  # kinds of calls that are PyTorch's under enable(), and why
        self.any_scale: dict[Any, Plan] = {}  # plans by kinds of calls without the scale

    @staticmethod
    def note(found: dict[Any, Any], key: Any, value: Any) -> None:
        """Adds an entry to what would grow without limit."""
        if len(found) >= _NOTED:
            found.clear()
        found[key] = value

    def keep(self, key: Any, plan: Plan) -> None:
        for _ in range(len(self.plans)):
            if len(self.plans) < _KEPT and self.bytes + plan.bytes <= _KEPT_BYTES:
                break
            oldest = next(iter(self.plans))
            old = self.plans[oldest]
            if old.made and len(old.made) == len(old.idle):
                del self.plans[oldest]
                self.bytes -= old.bytes
                old.evict()
            else:  # a call is under way
                self.plans.move_to_end(oldest)
        plan.key = key
        self.plans[key] = plan
        self.bytes += plan.bytes

    def __del__(self) -> None:
        if lib is None or not hasattr(self, "plans"):
            return
        for plan in self.plans.values():
            lib.plan_destroy(plan.pointer)
        self.context.drop("torch")


class _Engines(threading.local):
    def __init__(self) -> None:
        self.by_threads: dict[int, _Engine] = {}


_engines = _Engines()
_empty_like, _threads_now = torch.empty_like, torch.get_num_threads


def engine() -> _Engine:
    """This thread's, with as many threads as PyTorch has now."""
    threads = _threads_now()
    found = _engines.by_threads.get(threads)
    if found is None:
        if threads > 1:
            _openmp.use()
        found = _engines.by_threads[threads] = _Engine(threads)
    return found


def meta(x: Optional[Tensor]) -> Any:
    """The properties of a tensor that a plan depends on."""
    return None if x is None else (x.shape, x.stride(), x.dtype)


# ------------------------------------------------------------------------------------------------- planning


def check_types(q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], mask: Optional[Tensor]) -> None:
    if q.dtype not in TYPES:
        raise ArgumentError(f"q is of {q.dtype}; expected float32, float64 or bfloat16")
    sums = sums_of(q.dtype)
    for name, x, wanted in (("k", k, q.dtype), ("v", v, q.dtype), ("the bias", bias, sums),
                            ("the mask", mask, torch.bool)):
        if x is not None and x.dtype != wanted:
            raise ArgumentError(f"{name} is of {x.dtype}; expected {wanted} where q is of {q.dtype}")


def sizes(problem: Problem, tensors: Sequence[Any]) -> tuple[_form.Form, dict[str, Any]]:
    """The parsed form, and the length of each letter."""
    form = _form.parse(problem.form)
    shapes = [(name, getattr(form, name), x.shape) for name, x in zip(_OPERANDS, tensors) if x is not None]
    return form, _form.sizes_of(form, shapes, _form.taps_of(problem.relations))


def _describe(form: _form.Form, tensors: Sequence[Any]) -> dict[str, tuple[Any, Any, Any]]:
    return {name: (getattr(form, name), x.shape, x.stride()) for name, x in zip(_OPERANDS, tensors) if x is not None}


def _describe_sinks(described: dict[str, tuple[Any, Any, Any]], form: _form.Form, sinks: Optional[Tensor]) -> None:
    """One for each index of q's second axis."""
    if sinks is not None:
        described["sinks"] = form.q[1:2], sinks.shape, sinks.stride()


def _describe_blocks(described: dict[str, tuple[Any, Any, Any]], form: _form.Form, blocks: Optional[Tensor]) -> None:
    """For q's first two axes, blocks of queries and blocks of keys."""
    if blocks is not None:
        described["blocks"] = (*form.q[:2], ("q",), ("k",)), blocks.shape, blocks.stride()


def _place(x: Tensor) -> int:
    return x.data_ptr() or _nowhere(x)


def _others(problem: Problem, seed: Optional[Tensor], offsets: Sequence[Optional[Tensor]], sinks: Optional[Tensor],
            index: Optional[Tensor], blocks: Optional[Tensor], dlse: Optional[Tensor] = None) -> dict[str, int]:
    """Members of the arguments that few problems have.  Offsets and the index are int32 and contiguous."""
    given = {"q_offsets": offsets[0], "k_offsets": offsets[1], "sinks": sinks, "blocks": blocks, "dlse": dlse}
    found = {name: _place(x) for name, x in given.items() if x is not None}
    if seed is not None:
        found["seed_offset"] = int(seed)
    for kind, _, _, *rest in _form.records(problem.relations):
        if kind != _form.INDEX:
            continue
        place, entries = rest[2:]
        if index is None or index.dtype != torch.int32 or index.numel() != entries or not index.is_contiguous():
            raise ArgumentError(f"the index of the bias must hold {entries} contiguous numbers of int32")
        found["bias_index"] = _place(index) + 4 * place
    return found


# -------------------------------------------------------------------------------------------------- running


class _Recorders(threading.local):
    open: tuple[Any, ...] = ()  # this thread's blocks of record_weights


recorders = _Recorders()


def note(problem: Problem, tensors: Sequence[Any], **others: Any) -> None:
    """A call was computed: blocks that record weights get it.  `others`: as forward_weights has them."""
    for one in recorders.open:
        one.take(problem, tensors, **others)


def _rows(form: _form.Form, lengths: dict[str, Any], lse: Optional[Tensor]) -> tuple[Any, Any, Any]:
    """Axes, shape and strides of lse: its own, with the axes of o, or contiguous."""
    return _form.rows_of(form, lengths) if lse is None else (form.o[:-1], lse.shape, lse.stride())


def forward_plan(problem: Problem, tensors: Sequence[Any], want_lse: bool, sinks: Optional[Tensor] = None,
                 blocks: Optional[Tensor] = None, into: Sequence[Optional[Tensor]] = (None, None),
                 weights: Any = None, picks: Optional[dict[str, Sequence[int]]] = None) -> Plan:
    """A plan for tensors (q, k, v, bias, mask) like these; the caller keeps it.  into: o and lse, views of others.
    weights: axes, shape and strides of those that are requested, at these indices of these letters' dims only."""
    check_types(*tensors)
    form, lengths = sizes(problem, tensors)
    shape, strides = _form.o_layout(form, lengths) if into[0] is None else (into[0].shape, into[0].stride())
    described = _describe(form, tensors)
    described["o"] = (form.o, shape, strides)
    rows = _rows(form, lengths, into[1])
    described["lse"] = rows
    if weights is not None:
        described["weights"] = weights
    _describe_sinks(described, form, sinks)
    _describe_blocks(described, form, blocks)
    table = _form.fill(problem, form, lengths, described, TYPES[tensors[0].dtype], c.FORWARD)
    table.flags |= c.WANT_WEIGHTS if weights is not None else 0
    table.flags |= ((c.WITH_BIAS if tensors[3] is not None else 0) | (c.WITH_MASK if tensors[4] is not None else 0)
                   | (c.WITH_SINKS if sinks is not None else 0) | (c.WANT_LSE if want_lse else 0))
    indices = [(letter, (ctypes.c_int64 * len(at))(*at)) for letter, at in (picks or {}).items()]
    for i, (letter, at) in enumerate(indices):
        table.picks[i] = c.Pick(form.letters.index(letter), len(at), at)
        table.npicks = i + 1
    plan = Plan(engine(), table, shape, strides, rows[1])
    plan.indices = indices  # a plan that is made again reads them
    if into[0] is None:
        plan.outputs_like(tensors[0].dtype, want_lse)
    return plan


def run(plan: Plan, q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], mask: Optional[Tensor],
        lse: Optional[int], into: Optional[Tensor] = None, others: Optional[dict[str, int]] = None) -> Tensor:
    """o, a new tensor or `into`.  lse is the output of log-sum-exps, or their input in a backward pass; `others` has
    further members of the arguments."""
    o, idle = _empty_like(plan.like) if into is None else into, plan.idle
    try:
        arrays, where = idle.pop()
    except IndexError:
        arrays, where = plan.fresh()
    try:
        arrays.q, arrays.k = q.data_ptr() or _nowhere(q), k.data_ptr() or _nowhere(k)
        arrays.v, arrays.o, arrays.lse = v.data_ptr() or _nowhere(v), o.data_ptr() or _nowhere(o), lse
        if bias is not None:
            arrays.bias = bias.data_ptr() or _nowhere(bias)
        if mask is not None:
            arrays.mask = mask.data_ptr() or _nowhere(mask)
        if others:
            for name, place in others.items():
                setattr(arrays, name, place)
        status = _execute(*where)
    finally:
        idle.append((arrays, where))
    if status:
        plan.engine.context.check(status)
    return o


_run: Callable[..., Tensor] = run  # for sequences of tensors, whose lengths are not in their types


def has_lse(problem: Problem) -> bool:
    return problem.normalization != c.SIGMOID


def forward(problem: Problem, tensors: Sequence[Any], seed: Optional[Tensor],
            want_lse: bool, offsets: Sequence[Optional[Tensor]] = (None, None),
            sinks: Optional[Tensor] = None, index: Optional[Tensor] = None,
            blocks: Optional[Tensor] = None) -> tuple[Tensor, Optional[Tensor]]:
    mine = engine()
    key = (problem, want_lse, *map(meta, tensors), meta(sinks), meta(blocks))
    plan = mine.plans.get(key)
    if plan is None:
        plan = forward_plan(problem, tensors, want_lse and has_lse(problem), sinks, blocks)
        mine.keep(key, plan)
    others = _others(problem, seed, offsets, sinks, index, blocks)
    into = _empty_like(plan.like).zero_() if plan.zeroed else None  # what follows the last sequence
    if recorders.open:
        note(problem, tensors, offsets=offsets, sinks=sinks, index=index, blocks=blocks)
    if not want_lse:
        return _run(plan, *tensors, None, into, others), None
    lse = torch.empty(plan.rows, dtype=sums_of(tensors[0].dtype), device="cpu")
    if not has_lse(problem):
        lse.zero_()  # the operator has this output, and nothing reads it
    elif plan.zeroed:
        lse.fill_(-math.inf)
    return _run(plan, *tensors, _place(lse), into, others), lse


class Weights(NamedTuple):
    """The axes of requested weights: those of the batch, then queries, then keys."""

    axes: _form.Axes
    shape: list[int]
    heads: int  # the length of the last axis of the batch, and of the axis of queries; 0 where there is none, or several
    rows: int


def axes_of_weights(problem: Problem, tensors: Sequence[Any]) -> Weights:
    form, lengths = sizes(problem, tensors)
    for kind, query, key, *rest in _form.records(problem.relations):
        if kind == _form.PACKED:
            lengths.update(zip((chr(query), chr(key), "S"), rest))
    batch = [axis for axis in form.o if axis and axis[0] not in _form.ROLES]
    rows = [axis for axis in form.o if axis and _form.ROLES.get(axis[0]) == c.QUERY]
    keys = [axis for axis in form.k if axis and _form.ROLES.get(axis[0]) == c.KEY]
    shape = _form.shape_of((*batch, *rows, *keys), lengths)
    return Weights((*batch, *rows, *keys), shape, shape[len(batch) - 1] if batch else 0,
                   shape[len(batch)] if len(rows) == 1 else 0)


def forward_weights(problem: Problem, tensors: Sequence[Any], offsets: Sequence[Optional[Tensor]] = (None, None),
                    sinks: Optional[Tensor] = None, index: Optional[Tensor] = None, blocks: Optional[Tensor] = None,
                    heads: Optional[Sequence[int]] = None, rows: Optional[Sequence[int]] = None) -> tuple[Tensor, Tensor, Tensor]:
    """o, the log-sum-exp and the weights, of all or of these heads and rows."""
    mine = engine()
    axes, shape, _, _ = axes_of_weights(problem, tensors)
    at = sum(axis[0] not in _form.ROLES for axis in axes)  # of the queries, after the heads
    picks: dict[str, Sequence[int]] = {}
    inside: Optional[list[int]] = None  # of the heads that the engine computes, those that are requested
    if rows is not None:
        picks[axes[at][0]], shape[at] = rows, len(rows)
    if heads is not None:
        _, lengths = sizes(problem, tensors)
        each = math.prod(lengths[letter] for letter in axes[at - 1][1:])  # heads that share keys
        groups = sorted({head // each for head in heads})
        picks[axes[at - 1][0]], shape[at - 1] = groups, len(groups) * each
        inside = [groups.index(head // each) * each + head % each for head in heads]
    key = (problem, "weights", *map(meta, tensors), meta(sinks), meta(blocks), *((x, tuple(picks[x])) for x in picks))
    plan = mine.plans.get(key)
    # Zeros for what packed sequences do not have.
    weights = torch.zeros(shape, dtype=sums_of(tensors[0].dtype), device="cpu")
    if plan is None:
        plan = forward_plan(problem, tensors, has_lse(problem), sinks, blocks, weights=(axes, weights.shape, weights.stride()), picks=picks)
        mine.keep(key, plan)
    others = {"weights": _place(weights), **_others(problem, None, offsets, sinks, index, blocks)}
    lse = torch.empty(plan.rows, dtype=weights.dtype, device="cpu")
    o = _run(plan, *tensors, _place(lse), None, others)
    return o, lse, weights if inside is None else weights.index_select(at - 1, torch.tensor(inside, device="cpu"))


def forward_into(problem: Problem, tensors: Sequence[Any], o: Tensor, lse: Optional[Tensor]) -> None:
    """Writes the result to o and, where lse is not None, the log-sum-exp to lse.  Both may be views.  lse has the axes of o
    but the last."""
    mine = engine()
    key = (problem, *map(meta, tensors), o.stride(), None if lse is None else lse.stride())
    plan = mine.plans.get(key)
    if plan is None:
        plan = forward_plan(problem, tensors, lse is not None, into=(o, lse))
        mine.keep(key, plan)
    _run(plan, *tensors, None if lse is None else _place(lse), o)
    if recorders.open:
        note(problem, tensors)


def backward_into(problem: Problem, dout: Tensor, tensors: Sequence[Any], o: Tensor, lse: Tensor, want: Sequence[bool],
                  grads: Sequence[Tensor]) -> None:
    """Writes each requested gradient to its tensor in `grads`, which has no others.  lse: as forward_into wrote it."""
    mine = engine()
    key = (problem, *map(meta, tensors), meta(dout), o.stride(), lse.stride(), tuple(want), *(x.stride() for x in grads))
    plan = mine.plans.get(key)
    if plan is None:
        plan = _backward_plan(problem, dout, tensors, o, want, grads, None, None, None, lse)
        mine.keep(key, plan)
    _run_backward(plan, dout, tensors, o, _place(lse), grads)


def own_positions(x: Tensor) -> Tensor:
    """For packed sequences, whose positions each need a place in memory: a copy of a tensor that was expanded."""
    return x.contiguous() if 0 in x.stride() else x


def gradients_like(tensors: Sequence[Any], want: Sequence[bool]) -> list[Tensor]:
    """Allocates the requested gradients of q, k, v, the bias and the sinks."""
    return [_empty_like(x) for x, wanted in zip(tensors, want) if wanted and x is not None]


_WANT = (c.WANT_DQ, c.WANT_DK, c.WANT_DV, c.WANT_DBIAS, c.WANT_DSINKS)
_LEARNED = ("q", "k", "v", "bias", "sinks")


def backward(problem: Problem, dout: Tensor, tensors: Sequence[Any], o: Tensor, lse: Tensor,
             seed: Optional[Tensor], want: Sequence[bool],
             offsets: Sequence[Optional[Tensor]] = (None, None), sinks: Optional[Tensor] = None,
             index: Optional[Tensor] = None, blocks: Optional[Tensor] = None, dlse: Optional[Tensor] = None) -> list[Tensor]:
    """The requested gradients, in order."""
    if offsets[0] is not None:
        dout = own_positions(dout)
    learned = (*tensors[:4], sinks)
    grads = gradients_like(learned, want)
    mine = engine()
    key = (problem, *map(meta, tensors), meta(sinks), meta(blocks), dlse is None, meta(dout), o.stride(), tuple(want))
    plan = mine.plans.get(key)
    if plan is None:
        plan = _backward_plan(problem, dout, tensors, o, want, grads, sinks, blocks, dlse)
        mine.keep(key, plan)
    dlse = None if dlse is None else dlse.contiguous()  # as lse is
    if plan.zeroed:
        torch._foreach_zero_(grads)
    _run_backward(plan, dout, tensors, o, _place(lse), grads, _others(problem, seed, offsets, sinks, index, blocks, dlse))
    return grads


def backward_again(first: Plan, dout: Tensor, tensors: Sequence[Any], o: Tensor, lse: Any,
                   want: Sequence[bool]) -> list[Tensor]:
    """As `backward`, for a call whose forward plan determines all that a plan depends on except dout's strides."""
    grads = gradients_like(tensors, want)
    mine = engine()
    key = first, dout.stride(), want
    plan = mine.plans.get(key)
    if plan is None:
        plan = _backward_plan(cast(Problem, first.problem), dout, tensors, o, want, grads, None, None, None)
        mine.keep(key, plan)
    _run_backward(plan, dout, tensors, o, address(lse), grads)
    return grads


def _backward_plan(problem: Problem, dout: Tensor, tensors: Sequence[Any], o: Tensor, want: Sequence[bool],
                   grads: Sequence[Tensor], sinks: Optional[Tensor], blocks: Optional[Tensor], dlse: Optional[Tensor],
                   lse: Optional[Tensor] = None) -> Plan:
    names = [name for name, x, wanted in zip(_LEARNED, (*tensors[:4], sinks), want) if wanted and x is not None]
    form, lengths = sizes(problem, tensors)
    described = _describe(form, tensors)
    described.update(o=(form.o, o.shape, o.stride()), dout=(form.o, dout.shape, dout.stride()),
                     lse=_rows(form, lengths, lse))
    described.update({"d" + name: (getattr(form, name), x.shape, x.stride()) for name, x in zip(names, grads)
                      if name != "sinks"})  # whose gradient has the same layout
    _describe_sinks(described, form, sinks)
    _describe_blocks(described, form, blocks)
    table = _form.fill(problem, form, lengths, described, TYPES[o.dtype], c.BACKWARD)
    table.flags |= ((c.WITH_BIAS if tensors[3] is not None else 0) | (c.WITH_MASK if tensors[4] is not None else 0)
                   | (c.WITH_SINKS if sinks is not None else 0) | (c.WITH_DLSE if dlse is not None else 0)
                   | sum(bit for bit, name in zip(_WANT, _LEARNED) if name in names))
    plan = Plan(engine(), table, (), (), ())
    plan.gradients = tuple("d" + name for name in names)
    return plan


def _run_backward(plan: Plan, dout: Tensor, tensors: Sequence[Any], o: Tensor, lse: int, grads: Sequence[Tensor],
                  others: Optional[dict[str, int]] = None) -> None:
    places = {"dout": _place(dout), **dict(zip(plan.gradients, map(_place, grads))), **(others or {})}
    _run(plan, *tensors, lse, o, places)
