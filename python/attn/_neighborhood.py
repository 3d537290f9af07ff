# SPDX-License-Identifier: MIT
"""Neighbourhood attention on arrays, with NATTEN's arguments."""
from __future__ import annotations

from typing import Any, Literal, Optional, Sequence, Union, overload

import numpy as np

from . import _attend, _form, _neighbors
from . import _library as c
from ._arrays import shown
from ._attend import Array
from ._errors import ArgumentError, ShapeError
from ._neighbors import Sizes


class _Call:
    """Operands [B,...,H,D] of one type, and the problems that they are divided into."""

    def __init__(self, q: Any, k: Any, v: Any, kernel_size: Sizes, stride: Sizes, dilation: Sizes,
                 is_causal: Union[bool, Sequence[bool]], scale: Optional[float], threads: int) -> None:
        self.threads = threads
        self.q, self.k, self.v = (_attend._operand(x, name) for name, x in (("q", q), ("k", k), ("v", v)))
        self.dtype = self.q.dtype
        for name, x in (("k", self.k), ("v", self.v)):
            if x.dtype != self.dtype:
                raise ArgumentError(f"{name} is of {x.dtype}, q of {self.dtype}; they must have one type")
        if scale is not None and (not _attend._is_real(scale) or not np.isfinite(scale) or not scale):
            raise ArgumentError(f"scale is {shown(scale)}; expected a finite number other than 0")
        self.scale = 0.0 if scale is None else float(scale)
        self.parts = _neighbors.parts(self.q.shape, self.k.shape, self.v.shape, kernel_size, stride, dilation, is_causal)
        self.sums = np.dtype(np.float64 if self.dtype == np.float64 else np.float32)

    def run(self, part: _neighbors.Part, arrays: dict[str, Array], direction: int, flags: int) -> None:
        """`arrays`: views in the form's axes, by the names of attn_dim's members; lse has the axes of q without
        channels."""
        problem = _form.Problem(part.form_of(), self.scale, 0.0, part.relations)
        form = _form.parse(part.form_of())
        bias = part.bias(lambda lists: np.array(lists, self.sums))
        if bias is not None:
            arrays, flags = {**arrays, "bias": bias}, flags | c.WITH_BIAS
        axes = {"q": form.q, "k": form.k, "v": form.v, "o": form.o, "lse": form.q[:-1], "bias": form.bias, "dout": form.o,
                "dq": form.q, "dk": form.k, "dv": form.v}
        shapes = [(name, axes[name], arrays[name].shape) for name in ("q", "k", "v")]
        lengths = _form.sizes_of(form, shapes, _form.taps_of(part.relations))
        table = _form.fill(problem, form, lengths, {name: (axes[name], x.shape, _attend._steps(x)) for name, x in arrays.items()},
                           _attend._DTYPES[self.dtype.name], direction)
        table.flags |= flags
        pointers = c.Arrays()
        for name, x in arrays.items():
            setattr(pointers, name, x.ctypes.data)
        _attend._planner(self.threads).plan(table).execute(pointers)

    def operands(self, part: _neighbors.Part) -> dict[str, Array]:
        return {"q": part.of_queries(self.q), "k": part.of_keys(self.k), "v": part.of_keys(self.v)}


@overload
def neighborhood_attention(q: Any, k: Any, v: Any, kernel_size: Sizes, *, stride: Sizes = ..., dilation: Sizes = ...,
                           is_causal: Union[bool, Sequence[bool]] = ..., scale: Optional[float] = ...,
                           return_lse: Literal[False] = ..., threads: int = ...) -> Array: ...


@overload
def neighborhood_attention(q: Any, k: Any, v: Any, kernel_size: Sizes, *, stride: Sizes = ..., dilation: Sizes = ...,
                           is_causal: Union[bool, Sequence[bool]] = ..., scale: Optional[float] = ...,
                           return_lse: Literal[True], threads: int = ...) -> tuple[Array, Array]: ...


def neighborhood_attention(q: Any, k: Any, v: Any, kernel_size: Sizes, *, stride: Sizes = 1, dilation: Sizes = 1,
                           is_causal: Union[bool, Sequence[bool]] = False, scale: Optional[float] = None,
                           return_lse: bool = False, threads: int = 0) -> Union[Array, tuple[Array, Array]]:
    """Each position attends to the window around it, which is shifted inwards at the borders: NATTEN's na1d, na2d and
    na3d.

    q, k and v are [B,X,H,D], [B,Y,X,H,D] or [B,Z,Y,X,H,D], float32, float64 or bfloat16, with any strides; v may have other
    channels. kernel_size, stride, dilation and is_causal: one value for all axes or one for each. An axis has at least
    kernel_size * dilation positions. stride is at most kernel_size: that many consecutive queries (of one residue
    modulo the dilation) share the window of the query in their middle (the later of two). On a causal axis they share
    the window of the last one. The window of a causal axis ends at the position itself and is cut at the beginning.
    scale: default 1/sqrt(D). threads: as in attn.build.

    Returns o [B,...,H,Dv], and the log-sum-exp [B,...,H] if requested.  Raises ShapeError, ArgumentError.
    """
    call = _Call(q, k, v, kernel_size, stride, dilation, is_causal, scale, threads)
    o, lse = np.empty((*call.q.shape[:-1], call.v.shape[-1]), call.dtype), np.empty(call.q.shape[:-1], call.sums)
    for part in call.parts:
        arrays = {**call.operands(part), "o": part.of_queries(o), "lse": part.of_queries(lse)}
        call.run(part, arrays, c.FORWARD, c.WANT_LSE)
    return (o, lse) if return_lse else o


def neighborhood_attention_backward(dout: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, kernel_size: Sizes, *, stride: Sizes = 1,
                                    dilation: Sizes = 1, is_causal: Union[bool, Sequence[bool]] = False,
                                    scale: Optional[float] = None, threads: int = 0) -> dict[str, Array]:
    """The gradients {"q", "k", "v"} of `neighborhood_attention` for dout, the gradient of o. q, k, v and the options
    must be those of the forward call; o and lse are its results (return_lse=True)."""
    call = _Call(q, k, v, kernel_size, stride, dilation, is_causal, scale, threads)
    given: dict[str, Array] = {}
    like_o = (*call.q.shape[:-1], call.v.shape[-1])
    for name, x, shape in (("dout", dout, like_o), ("o", o, like_o), ("lse", lse, like_o[:-1])):
        given[name] = _attend._operand(x, name, call.sums if name == "lse" else call.dtype)
        if given[name].shape != shape:
            raise ShapeError(f"{name} has the shape {given[name].shape}; expected {shape}")
    whole = len(call.parts) == 1
    grads = {"q": np.empty(call.q.shape, call.dtype)}
    # If several parts share keys, their gradients are summed in the accumulation type.
    grads.update((name, np.empty(x.shape, call.dtype) if whole else np.zeros(x.shape, call.sums))
                 for name, x in (("k", call.k), ("v", call.v)))
    for part in call.parts:
        arrays = {**call.operands(part), "dq": part.of_queries(grads["q"]),
                  **{name: part.of_queries(x) for name, x in given.items()}}
        own = {name: grads[name] if whole else np.empty(grads[name][part.keys()].shape, call.dtype) for name in "kv"}
        arrays.update((f"d{name}", part.parted_keys(x)) for name, x in own.items())
        call.run(part, arrays, c.BACKWARD, c.WANT_DQ | c.WANT_DK | c.WANT_DV)
        if not whole:
            for name, x in own.items():
                grads[name][part.keys()] += x
    return {name: x.astype(call.dtype, copy=False) for name, x in grads.items()}
