# SPDX-License-Identifier: MIT
"""Attention weights: with the result of a call, and of all calls in a block."""
from __future__ import annotations

import contextlib
import operator
from typing import Any, Iterator, Optional, Sequence

import numpy.typing as npt
import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from .. import _form
from .._errors import ArgumentError, UnsupportedError
from .._form import Problem
from . import _engine, _ops

# ----------------------------------------------------------------------------------- with the result


def weighted(problem: Problem, tensors: Sequence[Optional[Tensor]], seen: Optional[Tensor],
             scale: Optional[float]) -> tuple[Tensor, Tensor]:
    """The result and the weights for tensors (q, k, v, bias, mask) whose last two axes are positions and channels.
    `seen`: True where a query attends, all masks in one; None without masks.  scale: None for the default.  A compiler's
    graph ends before the call."""
    call = _outside_graphs if torch.compiler.is_compiling() else _weighted_now
    found: tuple[Tensor, Tensor] = call(problem, tensors, seen, scale)
    return found


def _weighted_now(problem: Problem, tensors: Sequence[Optional[Tensor]], seen: Optional[Tensor], scale: Optional[float]) -> Any:
    refuse_watched([x for x in tensors if x is not None])
    with torch.autocast("cpu", enabled=False):
        return _Weighted.apply(problem, seen, scale, *tensors)


_disable: Any = _disable_dynamo  # without importing the compiler, as torch.compiler.disable does
_outside_graphs = _disable(_weighted_now)


def refuse_watched(tensors: Sequence[Tensor]) -> None:
    if watched():
        raise UnsupportedError("attn: attention weights cannot be requested inside of torch.compile, a mode or a transform of PyTorch")
    if not all(map(_ops.plain, tensors)):
        raise UnsupportedError("attn: attention weights need plain tensors on the CPU, not subclasses of torch.Tensor")


def watched() -> bool:
    with torch.autocast("cpu", enabled=False):
        return not _ops.unwatched()


class _Weighted(torch.autograd.Function):
    """A gradient of the weights is computed by the formula, whose scores are stored meanwhile."""

    @staticmethod
    def forward(ctx: Any, problem: Problem, seen: Optional[Tensor], scale: Optional[float], q: Tensor, k: Tensor, v: Tensor,
                bias: Optional[Tensor], mask: Optional[Tensor]) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        o, lse, weights = _engine.forward_weights(problem, (q, k, v, bias, mask))
        ctx.save_for_backward(q, k, v, bias, mask, o, lse)
        ctx.asked = problem, seen, scale
        return o, weights

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dout: Optional[Tensor], dweights: Optional[Tensor]) -> Any:
        q, k, v, bias, mask, o, lse = ctx.saved_tensors
        problem, seen, scale = ctx.asked
        want = [*ctx.needs_input_grad[3:7], False]
        found: list[Optional[Tensor]] = [None] * 4
        if dout is not None and any(want):
            grads = iter(_engine.backward(problem, dout, (q, k, v, bias, mask), o, lse, None, want))
            found = [next(grads) if wanted else None for wanted in want[:4]]
        if dweights is not None:
            for i, grad in zip((0, 1, 3), _through_formula(problem, seen, scale, q, k, bias, dweights)):
                before = found[i]
                if grad is not None and want[i]:
                    found[i] = grad if before is None else before + grad
        return (None, None, None, *found, None)


def _through_formula(problem: Problem, seen: Optional[Tensor], scale: Optional[float], q: Tensor, k: Tensor,
                     bias: Optional[Tensor], dweights: Tensor) -> list[Optional[Tensor]]:
    """The gradients of q, k and the bias for a gradient of the weights."""
    sums = _engine.sums_of(q.dtype)
    with torch.enable_grad():
        given = [None if x is None else x.detach().requires_grad_() for x in (q, k, bias)]
        query, key, added = given
        assert query is not None and key is not None
        keys = key.to(sums)
        if min(q.dim(), k.dim()) > 2 and k.shape[-3] not in (1, q.shape[-3]):
            keys = keys.repeat_interleave(q.shape[-3] // k.shape[-3], -3)
        scores = query.to(sums) @ keys.transpose(-2, -1)
        scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
        if problem.softcap:
            scores = problem.softcap * torch.tanh(scores / problem.softcap)
        scores = scores if added is None else scores + added
        if seen is not None:
            weights = scores.masked_fill(~seen, torch.finfo(sums).min).softmax(-1) * seen
        else:
            weights = scores.softmax(-1)
        learned = [x for x in given if x is not None]
        grads = iter(torch.autograd.grad(weights, learned, dweights.to(sums)))
    return [None if x is None else next(grads) for x in given]


def seen_in(relations: Sequence[int], mask: Optional[Tensor], queries: int, keys: int) -> Optional[Tensor]:
    """The pairs that bands of one query axis and one key axis leave, and those of a mask; None for all."""
    seen = mask
    for _, _, _, lo, hi in _form.records(relations):
        ahead = torch.arange(keys, device="cpu") - torch.arange(queries, device="cpu")[:, None]
        band = (ahead >= lo) & (ahead <= hi)
        seen = band if seen is None else seen & band
    return seen


# -------------------------------------------------------------------------------- of all calls in a block


def _numbers(given: Any, name: str) -> Optional[tuple[int, ...]]:
    if given is None:
        return None
    try:
        found = tuple(map(operator.index, given))
    except TypeError:
        found = ()
    if not found:
        raise ArgumentError(f"{name} is {given!r}; expected None for all, or a list of whole numbers that is not empty")
    return found


def _at(chosen: Optional[tuple[int, ...]], n: int, name: str) -> Optional[list[int]]:
    """Indices of an axis of length n; negative ones count from its end."""
    if chosen is None:
        return None
    if min(chosen) < -n or max(chosen) >= n:
        raise ArgumentError(f"record_weights: {name}={list(chosen)}, but a call has {n} {name}")
    return [i % n for i in chosen]


class record_weights(list):  # type: ignore[type-arg]  # of tensors
    """Collects the attention weights of the calls that this thread makes in the block, without changing what they return:

        with attn.torch.record_weights() as weights:
            model(**batch)
        weights[3]                  # of the fourth call: [B, H, queries, keys]

    Calls are attn.torch's functions, those of models of transformers after `register`, and all of
    F.scaled_dot_product_attention under `enable`.  A second pass computes their weights, before dropout, without
    gradients, in float32 (float64 for float64).  layers: the indices of the calls that are recorded, from 0.  heads, rows: the
    heads and the queries; negative numbers count from the end.  Memory for the others is not needed.  The axes of the batch
    come first, with heads as the last of them, then queries and keys.  For packed sequences the batch is the sequences; under
    windows the keys are taps.  Attention in parts (shifted windows, strides) has weights for each part.  `missed` has the
    reasons for which calls have no weights here.
    """

    def __init__(self, layers: Optional[Sequence[int]] = None, heads: Optional[Sequence[int]] = None,
                 rows: Optional[Sequence[int]] = None) -> None:
        super().__init__()
        self.layers, self.heads, self.rows = (_numbers(given, name) for given, name in (
            (layers, "layers"), (heads, "heads"), (rows, "rows")))
        if self.layers is not None and min(self.layers) < 0:
            raise ArgumentError(f"layers is {list(self.layers)}; expected indices of calls, counted from 0")
        self.missed: list[str] = []
        self.calls = 0  # that were made, recorded or not

    def __enter__(self) -> "record_weights":
        _engine.recorders.open = (*_engine.recorders.open, self)
        return self

    def __exit__(self, *_: Any) -> None:
        _engine.recorders.open = tuple(one for one in _engine.recorders.open if one is not self)

    def arrays(self, batch: int = 0) -> list[npt.NDArray[Any]]:
        """The weights [H, queries, keys] of one entry of the batch, an array for each call, as `attn.plot.explore` takes
        them."""
        return [x[batch].to(_engine.sums_of(x.dtype)).numpy() for x in self]

    def _next(self) -> bool:
        """Whether the next call is recorded."""
        number = self.calls
        self.calls += 1
        return self.layers is None or number in self.layers

    def take(self, problem: Problem, tensors: Sequence[Optional[Tensor]], **others: Any) -> None:
        """Computes the weights of a call.  `others`: as _engine.forward_weights has them."""
        if not self._next():
            return
        axes = _engine.axes_of_weights(problem, tensors)
        heads = _at(self.heads, axes.heads, "heads")
        rows = _at(self.rows, axes.rows, "rows")
        self.append(_engine.forward_weights(problem._replace(dropout=0.0), tensors, heads=heads, rows=rows, **others)[2])

    def given(self, weights: Optional[Tensor], why: str) -> None:
        """Takes weights [B, H, queries, keys] that another function computed; without them, `why` is noted."""
        if not self._next():
            return
        if weights is None:
            self.missed.append(f"call {self.calls - 1}: {why}")
            return
        weights = weights.detach()
        for axis, chosen, name in ((1, self.heads, "heads"), (2, self.rows, "rows")):
            at = _at(chosen, weights.shape[axis], name)
            weights = weights if at is None else weights.index_select(axis, torch.tensor(at, device=weights.device))
        self.append(weights)


@contextlib.contextmanager
def paused() -> Iterator[Sequence[record_weights]]:
    """For the parts of a call that is recorded as a whole: nothing in the block is recorded; who would have done so."""
    local = _engine.recorders
    local.open, before = (), local.open
    try:
        yield before
    finally:
        local.open = before
