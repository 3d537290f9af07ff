# SPDX-License-Identifier: MIT
"""The attentions that are no scaled_dot_product_attention: neighbourhoods, axes, tied rows, and biased scores."""
from __future__ import annotations

import functools
import itertools
import math
import operator
from typing import Any, Optional, Sequence, Union

import torch
from torch import Tensor

from .. import _form, _neighbors
from .. import _library as c
from .._errors import ArgumentError, ShapeError, UnsupportedError
from .._form import Problem
from .._neighbors import Sizes
from . import _engine, _ops, _sdpa


def _check(tensors: dict[str, Tensor], axes: int, shape: str) -> None:
    for name, x in tensors.items():
        if x.device.type not in ("cpu", "meta"):
            raise ArgumentError(f"{name} is on {x.device}; attn computes on the CPU")
        if x.dim() != axes:
            raise ShapeError(f"{name} has the shape {tuple(x.shape)}; expected {shape}")


def _operands(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> tuple[Tensor, ...]:
    """Query, key and value in the type to compute in; all arguments are of the types that they may have."""
    _sdpa.check_types(query=query, key=key, value=value, **options)
    return _sdpa.autocast(query, key, value)


def _attend(problem: Problem, q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor] = None,
            mask: Optional[Tensor] = None, sinks: Optional[Tensor] = None,
            index: Optional[Tensor] = None, blocks: Optional[Tensor] = None,
            offsets: tuple[Optional[Tensor], Optional[Tensor]] = (None, None)) -> tuple[Tensor, Tensor]:
    half = q.dtype == torch.float16
    tensors = (q.float(), k.float(), v.float()) if half else (q, k, v)
    o, lse = _ops.attend(problem, *tensors, bias, mask, offsets=offsets, sinks=sinks, index=index, blocks=blocks)
    return (o.to(q.dtype) if half else o), lse


def _scaled(form: str, q: Tensor, scale: Optional[float], relations: tuple[int, ...] = (),
            softcap: float = 0.0, normalization: int = 0, sigmoid_bias: Optional[float] = None) -> Problem:
    score, scale = _sdpa._scale_of(scale, q.shape[-1])
    return Problem(form, scale, 0.0, relations, score, softcap, normalization, sigmoid_bias)


# ------------------------------------------------------------------------------------------ neighbourhoods


def neighborhood_attention(query: Tensor, key: Tensor, value: Tensor, kernel_size: Sizes, stride: Sizes = 1,
                           dilation: Sizes = 1, is_causal: Union[bool, Sequence[bool]] = False,
                           scale: Optional[float] = None, *, rpb: Optional[Tensor] = None,
                           key_mask: Optional[Tensor] = None) -> Tensor:
    """Each position attends to those of the window around it, which is moved inwards at the borders (Hassani et al. 2022,
    arXiv:2204.07143), with NATTEN's arguments.

    query, key and value are [B, X, H, D], [B, Y, X, H, D] or [B, Z, Y, X, H, D]: heads last, as NATTEN has them.  An
    axis has at least kernel_size * dilation positions.  is_causal, for all axes or one by one: the window ends at the
    position itself and is cut at the beginning.  stride, at most kernel_size: so many queries in a row share the window of the
    one in their middle (the later one of two), of the last one where the axis is causal; with a dilation, a row is what has
    the same residue.  Where stride * dilation does not divide an axis, it takes several calls of the engine.
    rpb [H, 2 * kernel_size - 1, ...], one axis for each axis of positions: a bias by relative position, at stride 1; the key
    that is n * dilation positions ahead gets entry kernel_size - 1 + n.  It has a gradient.  key_mask [B or 1, ...]: bool,
    False for positions that no query attends to; a query without any gets zeros.
    """
    query, key, value = _operands(query, key, value, scale=scale, rpb=rpb, key_mask=key_mask)
    axes = query.dim() - 3
    if 1 <= axes <= 3:
        _check({"key": key, "value": value}, query.dim(), f"query's {tuple(query.shape)}")
    found = _neighbors.parts(query.shape, key.shape, value.shape, kernel_size, stride, dilation, is_causal)
    table, index, by_index = _by_position(rpb, query, kernel_size, stride, dilation, is_causal)
    if key_mask is not None and (key_mask.dtype != torch.bool or key_mask.shape[1:] != query.shape[1:-2]
                                 or key_mask.shape[:1] not in ((1,), query.shape[:1])):
        raise ShapeError(f"key_mask is {key_mask.dtype} {tuple(key_mask.shape)}; expected bool {tuple(query.shape[:-2])}")

    def computed(part: _neighbors.Part) -> Tensor:
        # Not on the default device, which may be another.
        bias = part.bias(lambda lists: torch.tensor(lists, dtype=_engine.sums_of(query.dtype), device=query.device))
        form = part.form_of("" if table is None else "1B", key_mask is not None)
        return _attend(_scaled(form, query, scale, part.relations + by_index), part.of_queries(query), part.of_keys(key),
                       part.of_keys(value), bias if table is None else table,
                       None if key_mask is None else part.of_keys(key_mask), index=index)[0]

    if len(found) == 1:
        return computed(found[0]).reshape(*query.shape[:-1], value.shape[-1])
    o: Optional[Tensor] = None
    for part in found:
        at, output = part.queries(), computed(part)
        if o is None:  # made of an output, so that vmap maps it where it maps any input
            o = output.new_empty((*query.shape[:-1], value.shape[-1]))
        o[at] = output.reshape(o[at].shape)
    assert o is not None  # an axis has at least one part
    return o


def _by_position(rpb: Optional[Tensor], query: Tensor, kernel_size: Sizes, stride: Sizes, dilation: Sizes,
                 is_causal: Union[bool, Sequence[bool]]) -> tuple[Optional[Tensor], Optional[Tensor], tuple[int, ...]]:
    """The table [rows, H], the index and the relations of a relative position bias."""
    if rpb is None:
        return None, None, ()
    axes, heads = query.dim() - 3, query.shape[-2]
    taps, steps, shares = (_neighbors.per_axis(x, axes, name) for x, name in (
        (kernel_size, "kernel_size"), (dilation, "dilation"), (stride, "stride")))
    wanted = heads, *(2 * n - 1 for n in taps)
    if tuple(rpb.shape) != wanted or not rpb.is_floating_point():
        raise ShapeError(f"rpb is {rpb.dtype} {tuple(rpb.shape)}; expected numbers {wanted}")
    if max(shares) > 1:
        raise UnsupportedError(f"rpb together with stride={stride!r} is not supported: queries that share a window have no "
                               "relative positions")
    causal = (is_causal,) * axes if isinstance(is_causal, bool) else tuple(is_causal)
    asked = tuple(query.shape[1:-2]), taps, steps, causal
    index = (_index_of_rows.__wrapped__ if _ops.watched() else _index_of_rows)(*asked).to(query.device)
    relations: tuple[int, ...] = ()
    for i in range(axes):
        relations += (_form.INDEX, ord("qrs"[i]), ord("klm"[i]), index.stride(i), index.stride(axes + i), 0, index.numel())
    return _sdpa.as_sums(rpb, query.dtype).flatten(1).t().contiguous(), index, relations


@functools.lru_cache(maxsize=16)
def _index_of_rows(lengths: Sequence[int], taps: Sequence[int], steps: Sequence[int], causal: Sequence[bool]) -> Tensor:
    """The row of the table for each query and tap, int32 [queries..., taps...]."""
    axes = len(lengths)
    with torch.inference_mode(False):  # a later call saves it for its gradients
        index = torch.zeros(1, dtype=torch.int32, device="cpu")
        for i, sizes in enumerate(zip(lengths, taps, steps, causal)):
            shape = [1] * (2 * axes)
            shape[i], shape[axes + i] = lengths[i], taps[i]
            one = torch.tensor(_neighbors.entries(*sizes), dtype=torch.int32, device="cpu").reshape(shape)
            index = index * (2 * taps[i] - 1) + one
    return index.contiguous()


def _with_axes(axes: int, query: Tensor, *rest: Any, **named: Any) -> Tensor:
    if isinstance(query, Tensor) and query.dim() != axes + 3:
        raise ShapeError(f"query has the shape {tuple(query.shape)}; expected {axes + 3} axes: B, {axes} of positions, "
                         "H, D")
    return neighborhood_attention(query, *rest, **named)


def na1d(query: Tensor, key: Tensor, value: Tensor, kernel_size: Sizes, **options: Any) -> Tensor:
    """`neighborhood_attention` on [B, X, H, D]."""
    return _with_axes(1, query, key, value, kernel_size, **options)


def na2d(query: Tensor, key: Tensor, value: Tensor, kernel_size: Sizes, **options: Any) -> Tensor:
    """`neighborhood_attention` on [B, Y, X, H, D]."""
    return _with_axes(2, query, key, value, kernel_size, **options)


def na3d(query: Tensor, key: Tensor, value: Tensor, kernel_size: Sizes, **options: Any) -> Tensor:
    """`neighborhood_attention` on [B, Z, Y, X, H, D]."""
    return _with_axes(3, query, key, value, kernel_size, **options)


# ----------------------------------------------------------------------------------------- axes, tied rows


def axial_attention(query: Tensor, key: Tensor, value: Tensor, axis: int, is_causal: bool = False,
                    scale: Optional[float] = None) -> Tensor:
    """Attention along one axis of an image, video or alignment; the other axes are batch (Ho et al. 2019,
    arXiv:1912.12180).  query [B, ..., H, D], key and value alike, the length along `axis` excepted; heads at -2."""
    query, key, value = _operands(query, key, value, axis=axis, is_causal=is_causal, scale=scale)
    rank = query.dim()
    if not 4 <= rank <= 8:
        raise ShapeError(f"query has the shape {tuple(query.shape)}; expected [B,...,H,D] of 4 to 8 axes")
    _check({"key": key, "value": value}, rank, f"{rank} axes")
    at = axis + rank if axis < 0 else axis
    if not 1 <= at < rank - 2:
        raise ArgumentError(f"axis is {axis}; expected one of the axes 1 to {rank - 3}")
    letters = list("ABCDEFG"[:rank - 1])

    def named(position: str, channel: str) -> str:
        return "".join(letters[:at] + [position] + letters[at + 1:] + [channel])

    o = named("q", "v")
    form = f"{named('q', 'c')},{named('k', 'c')},{named('k', 'v')}->{o};{o};;"
    return _attend(_scaled(form, query, scale, _sdpa.CAUSAL if is_causal else ()), query, key, value)[0]


def tied_row_attention(query: Tensor, key: Tensor, value: Tensor, scale: Optional[float] = None,
                       mask: Optional[Tensor] = None) -> Tensor:
    """One attention map for all rows of an alignment (Rao et al. 2021, MSA Transformer): the scores of the rows are added
    up, and each row's values are weighted by the common map.

    query, key and value are [B, R, C, H, D]: rows, columns.  scale: 1/sqrt(D * R) by default.  mask: bool, broadcast to
    [B, H, C, C], True where a column attends another.
    """
    query, key, value = _operands(query, key, value, mask=mask, scale=scale)
    _check({"query": query, "key": key, "value": value}, 5, "[B,R,C,H,D]")
    if mask is not None and (mask.dtype != torch.bool or mask.dim() != 4):
        raise ArgumentError(f"mask is {mask.dtype} {tuple(mask.shape)}; expected bool that broadcasts to [B,H,C,C]")
    form = "AdqBc,AdkBc,AwkBv->AwqBv;AwqBv;;" + ("ABqk" if mask is not None else "")
    return _attend(_scaled(form, query, scale), query, key, value, None, mask)[0]


# ------------------------------------------------------------------------------------------ shifted windows


def shifted_window_attention(query: Tensor, key: Tensor, value: Tensor, window_size: Sizes, shift: Sizes = 0,
                             relative_bias: Optional[Tensor] = None, scale: Optional[float] = None) -> Tensor:
    """Attention inside windows (Liu et al. 2021, arXiv:2103.14030): what Swin computes between the projections of its block, with
    the picture left where it is.

    query, key and value are [B, X, H, D], [B, Y, X, H, D] or [B, Z, Y, X, H, D].  window_size and shift: one for all axes or one
    for each; a window divides its axis, and its shift is smaller than it.  Shifted windows are those of the picture rolled by
    -shift, and positions on two sides of the seam, where the picture wraps around, do not attend to each
    other: Swin's mask of -100, but with weights of exactly zero.  relative_bias: Swin's
    relative_position_bias_table [rows, H], a row for each difference of two positions in a window; it has a gradient.
    """
    query, key, value = _operands(query, key, value, relative_bias=relative_bias, scale=scale)
    axes = query.dim() - 3
    if not 1 <= axes <= 3:
        raise ShapeError(f"query has the shape {tuple(query.shape)}; expected [B,X,H,D] with one to three axes X")
    _check({"key": key, "value": value}, query.dim(), f"query's {tuple(query.shape)}")
    if query.shape != key.shape:
        raise ShapeError(f"query {tuple(query.shape)}, key {tuple(key.shape)}: query and key must have the same shape")
    if key.shape[:-1] != value.shape[:-1]:
        raise ShapeError(f"key {tuple(key.shape)}, value {tuple(value.shape)}: key and value must have the same shape but for the "
                         "last axis")
    windows, shifts = _neighbors.per_axis(window_size, axes, "window_size"), _neighbors.per_axis(shift, axes, "shift", 0)
    for i, (n, window, moved) in enumerate(zip(query.shape[1:], windows, shifts)):
        if n % window:
            raise ShapeError(f"axis {1 + i} of query has {n} positions; the window of {window} must divide them")
        if moved >= window:
            raise ShapeError(f"the shift along axis {1 + i} of query is {moved}; it must be less than the window, {window}")
    named = ["FqGrIs"[2 * i:2 * i + 2] for i in range(axes)], ["FkGlIm"[2 * i:2 * i + 2] for i in range(axes)]
    queries, keys = ("".join(letters) for letters in named)
    pairs = "" if relative_bias is None else "B" + queries[1::2] + keys[1::2]
    problem = _scaled(f"A{queries}Bc,A{keys}Bc,A{keys}Bv->A{queries}Bv;A{queries}Bv;{pairs};", query, scale)
    bias = None if relative_bias is None else _window_bias(_sdpa.as_sums(relative_bias, query.dtype), windows, query.shape[-2])
    parts = _parts(query.shape[1:-2], windows, shifts)
    tensors = query, key, value
    if query.dtype in _engine.TYPES and _ops.unwatched() and all(map(_ops.plain, tensors)):
        o: Tensor = _Windows.apply(problem, parts, _ops.records(*tensors, bias), *tensors, bias)
        return o
    return _by_parts(problem, parts, *tensors, bias)


def _window_bias(table: Tensor, windows: Sequence[int], heads: int) -> Tensor:
    """The bias of Swin's table, [H, window of queries..., window of keys...]."""
    rows = math.prod([2 * window - 1 for window in windows])
    if tuple(table.shape) != (rows, heads):
        raise ShapeError(f"relative_bias has the shape {tuple(table.shape)}; expected [{rows},{heads}] for windows of "
                         f"{tuple(windows)}")
    # Row q - k + window - 1 of an axis: with the table and the queries in reverse order, row q + k, which unfold reads.
    axes = range(len(windows))
    bias = table.reshape(*(2 * window - 1 for window in windows), heads).flip(tuple(axes))
    for i, window in enumerate(windows):
        bias = bias.unfold(i, window, 1)
    # Contiguous along the keys, so that the engine reads and sums it in vectors.
    return bias.movedim(len(windows), 0).flip([1 + i for i in axes]).contiguous()


_Region = tuple[int, int, int]  # of an axis: its first position, its windows, and the positions of each
_Part = tuple[_Region, ...]     # of a picture


def _regions(n: int, window: int, shift: int) -> list[_Region]:
    """Where the seam cuts a window, each side is a window of its own."""
    first, last = (0, 1, shift), (n - window + shift, 1, window - shift)
    found = (first, (shift, n // window - 1, window), last) if shift and n else ((0, n // window, window),)
    return [region for region in found if region[1]]


def _parts(lengths: Sequence[int], windows: Sequence[int], shifts: Sequence[int]) -> tuple[_Part, ...]:
    return tuple(itertools.product(*map(_regions, lengths, windows, shifts)))


def _windowed(x: Tensor, part: _Part) -> Tensor:
    """A view of the part with two axes, windows and the positions in them, in place of each."""
    for i, (first, windows, each) in reversed(tuple(enumerate(part))):
        x = torch.unflatten(x.narrow(1 + i, first, windows * each), 1 + i, (windows, each))
    return x


def _by_parts(problem: Problem, parts: Sequence[_Part], q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor]) -> Tensor:
    """The outputs of all parts as one picture, by the operator."""
    axes, found = q.dim() - 3, []
    for part in parts:
        of_bias = None if bias is None else _bias_of(part, bias)
        o = _attend(problem, _windowed(q, part), _windowed(k, part), _windowed(v, part), of_bias)[0]
        for i in range(axes):
            o = torch.flatten(o, 1 + i, 2 + i)
        found.append(o)
    for i in reversed(range(axes)):
        n = len({part[i] for part in parts})
        found = [torch.cat(found[at:at + n], 1 + i) for at in range(0, len(found), n)] if n > 1 else found
    return found[0] if found else q.new_empty((*q.shape[:-1], v.shape[-1]))


@functools.lru_cache(maxsize=256)
def _layouts(parts: Sequence[_Part], shape: Sequence[int], strides: Sequence[int]) -> list[Any]:
    """Shape, strides and offset of each part's view."""
    views = [_windowed(torch.empty_strided(shape, strides, device="meta"), part) for part in parts]
    return [(x.shape, x.stride(), x.storage_offset()) for x in views]


def _of_parts(parts: Sequence[_Part], x: Optional[Tensor]) -> Sequence[Any]:
    """`_windowed` for each part, by a single call each."""
    if x is None:
        return [None] * len(parts)
    first = x.storage_offset()
    return [x.as_strided(shape, strides, first + at) for shape, strides, at in _layouts(parts, x.shape, x.stride())]


def _bias_of(part: _Part, bias: Tensor) -> Tensor:
    return bias[(slice(None), *[slice(each) for _, _, each in part + part])]


class _Windows(torch.autograd.Function):
    """All regions of plain tensors, each read and written in place in the picture."""

    @staticmethod
    def forward(ctx: Any, problem: Problem, parts: Sequence[_Part], records: bool, q: Tensor, k: Tensor, v: Tensor,
                bias: Optional[Tensor]) -> Tensor:
        o = v.new_empty(v.shape)
        lse = q.new_empty(q.shape[:-1], dtype=_engine.sums_of(q.dtype)) if records else None
        for part, of_q, of_k, of_v, *found in zip(parts, *(_of_parts(parts, x) for x in (q, k, v, o, lse))):
            of_bias = None if bias is None else _bias_of(part, bias)
            _engine.forward_into(problem, (of_q, of_k, of_v, of_bias, None), *found)
        if not records:
            return o
        ctx.asked = problem, parts
        ctx.save_for_backward(q, k, v, bias, o, lse)
        return o

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> Any:
        return (None, None, None, *_WindowsBack.apply(*ctx.asked, ctx.needs_input_grad[3:], dout, *ctx.saved_tensors))


class _WindowsBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, problem: Problem, parts: Sequence[_Part], want: Sequence[bool], dout: Tensor, q: Tensor, k: Tensor,
                v: Tensor, bias: Optional[Tensor], o: Tensor, lse: Tensor) -> Any:
        if not (_ops.unwatched() and _ops.plain(dout)):
            return _gradients_by_parts(problem, parts, want, dout, q, k, v, bias)
        # One for each of q, k and v; None where it is not requested.
        grads = [torch.empty_like(x) if needed else None for x, needed in zip((q, k, v), want)]
        dbias = torch.zeros_like(bias) if bias is not None and want[3] else None
        of_parts = (_of_parts(parts, x) for x in (q, k, v, dout, o, lse, *grads))
        for part, of_q, of_k, of_v, of_dout, of_o, of_lse, *of_grads in zip(parts, *of_parts):
            of_bias = None if bias is None else _bias_of(part, bias)
            found = [x for x in of_grads if x is not None]
            if dbias is not None and of_bias is not None:
                found.append(torch.empty_like(of_bias))
            _engine.backward_into(problem, of_dout, (of_q, of_k, of_v, of_bias, None), of_o, of_lse, want, found)
            if dbias is not None:
                _bias_of(part, dbias).add_(found[-1])
        return (*grads, dbias)

    backward = staticmethod(_ops.refuse_twice)


def _gradients_by_parts(problem: Problem, parts: Sequence[_Part], want: Sequence[bool], dout: Tensor,
                        *tensors: Optional[Tensor]) -> tuple[Optional[Tensor], ...]:
    """For a dout that the engine cannot read, or a backward pass that is watched: the operator computes both passes again."""
    with torch.enable_grad():
        leaves: list[Any] = [x if x is None else x.detach().requires_grad_(needed) for x, needed in zip(tensors, want)]
        o = _by_parts(problem, parts, *leaves)
        grads = iter(torch.autograd.grad(o, [x for x, needed in zip(leaves, want) if needed], dout))
    return tuple(next(grads) if needed else None for needed in want)


# ------------------------------------------------------------------------------------------- biased scores


def flex_attention(query: Tensor, key: Tensor, value: Tensor, *, bias: Optional[Tensor] = None,
                   mask: Optional[Tensor] = None, is_causal: bool = False,
                   window: Optional[tuple[Optional[int], Optional[int]]] = None, scale: Optional[float] = None,
                   enable_gqa: bool = False, return_lse: bool = False, score_mod: Any = None, block_mask: Any = None,
                   softcap: Optional[float] = None,
                   sinks: Optional[Tensor] = None,
                   relative_bias: Optional[tuple[Tensor, Tensor]] = None, normalization: str = "softmax",
                   sigmoid_bias: Union[float, Tensor, None] = None) -> Union[Tensor, tuple[Tensor, Tensor]]:
    """The part of PyTorch's FlexAttention that the engine can describe, with gradients of query, key, value, bias,
    sinks and a table of relative positions.

    query [B, H, L, E], key [B, Hkv, S, E], value [B, Hkv, S, Ev].  bias (added to the scaled scores) and mask (bool, True
    where a query attends) broadcast to [B, H, L, S], both at once if needed; is_causal is top-left; window (left,
    right) lets query i attend keys i - left to i + right, None for no limit.  bias and mask may be PyTorch's
    CausalBias.  softcap: scaled scores x become softcap * tanh(x / softcap), before the bias.  sinks [H]: a logit for
    each head that takes part in the sum only. relative_bias (table, index), in place of bias: query i's score of key j
    gets table[index[j - i + L - 1], h], or table[index[i, j], h] where the index has two axes; the table [rows, H] has
    a gradient, and with an index by distance [L + S - 1] (t5_buckets makes T5's) both need memory in proportion to L +
    S. block_mask: PyTorch's BlockMask; work is in proportion to its blocks.  Where it has partial blocks with a
    mask_mod of their own, that function is evaluated once for all pairs, one byte each.  return_lse: the log-sum-exp
    [B, H, L] as well, with a gradient.  normalization and sigmoid_bias: as attn.attend has them; a sigmoid_bias that is a
    tensor [H] has a gradient.  Refused: score_mod (a Python function of scores).
    """
    if score_mod is not None:
        raise UnsupportedError("score_mod is not supported; bias, softcap, mask, is_causal and window say what scores may be")
    query, key, value = _operands(query, key, value, bias=bias, mask=mask, is_causal=is_causal, scale=scale,
                                  enable_gqa=enable_gqa, sinks=sinks)
    _check({"query": query, "key": key, "value": value}, 4, "[B,H,L,E]")
    _sdpa._check(query, key, value, None, 0.0, False)
    shape = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    index: Optional[Tensor] = None
    by_index: tuple[int, ...] = ()
    if relative_bias is not None:
        if bias is not None:
            raise UnsupportedError("bias and relative_bias cannot be used together")
        table, index, by_index = _indexed(relative_bias, shape[1], shape[2], shape[3], query.dtype)
    relations = _band(is_causal, window)
    if bias is not None and _sdpa.is_causal_bias(bias):
        bias, relations = None, relations + _sdpa.band_of(bias, *shape[2:])
    if mask is not None and _sdpa.is_causal_bias(mask):
        mask, relations = None, relations + _sdpa.band_of(mask, *shape[2:])
    kind, sigmoid_bias = _normalization(normalization, sigmoid_bias, query, return_lse)
    if isinstance(sigmoid_bias, Tensor):
        if relative_bias is not None:
            raise UnsupportedError("relative_bias and a sigmoid_bias of shape [H] cannot be used together; add sigmoid_bias to the "
                                   "table of relative_bias")
        of_heads, sigmoid_bias = sigmoid_bias[:, None, None], 0.0
        bias = of_heads if bias is None else _sdpa.as_sums(bias, query.dtype) + of_heads
    bias = None if bias is None else _pairs(_sdpa.as_sums(bias, query.dtype), shape, "bias")
    if mask is not None and mask.dtype != torch.bool:
        raise ArgumentError(f"mask is of {mask.dtype}; expected bool (give numbers to add as bias)")
    mask = None if mask is None else _pairs(mask, shape, "mask")
    blocks = None
    if block_mask is not None:
        sizes, blocks, inside = _blocks(block_mask, shape)
        relations += (_form.BLOCKS, ord("q"), ord("k"), *sizes)
        if inside is not None:
            mask = inside if mask is None else mask & inside
    softcap, sinks = _softcap(softcap), _sinks(sinks, query)
    heads = "(XY)" if enable_gqa else "B"
    kv = "X" if enable_gqa else "B"
    pairs = f"A{heads}qk"
    added = f"1{heads}" if index is not None else pairs if bias is not None else ""
    form = f"A{heads}qc,A{kv}kc,A{kv}kv->A{heads}qv;Aq{heads}v;{added};{pairs if mask is not None else ''}"
    o, lse = _attend(_scaled(form, query, scale, relations + by_index, softcap, kind, sigmoid_bias), query, key, value,
                     table if index is not None else bias, mask, sinks, index, blocks)
    return (o, lse.reshape(query.shape[:3])) if return_lse else o


def _indexed(given: Sequence[Tensor], heads: int, queries: int, keys: int,
             dtype: torch.dtype) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """The table, the index and the relation of a relative bias."""
    if not isinstance(given, (tuple, list)) or len(given) != 2 or not all(isinstance(x, Tensor) for x in given):
        found = [type(x).__name__ for x in given] if isinstance(given, (tuple, list)) else type(given).__name__
        raise ArgumentError(f"relative_bias is of {found}; expected None or two tensors, (table, index)")
    table, index = given
    if table.dim() != 2 or table.shape[1] != heads or table.shape[0] < 1 or not table.is_floating_point():
        raise ShapeError(f"the table of relative_bias is {table.dtype} {tuple(table.shape)}; expected real numbers "
                         f"[rows,{heads}], a column for each head")
    by_distance = (max(queries + keys - 1, 0),)
    if tuple(index.shape) not in (by_distance, (queries, keys)) or index.dtype not in (torch.int32, torch.int64):
        raise ShapeError(f"the index of relative_bias is {index.dtype} {tuple(index.shape)}; expected whole numbers "
                         f"{list(by_distance)} by distance or {[queries, keys]}")
    if index.dtype == torch.int64:
        index = index.clamp(-1, 2**31 - 1).to(torch.int32)  # an invalid row stays invalid, and the engine refuses it
    return _sdpa.as_sums(table, dtype).contiguous(), index.contiguous(), _index_relation(index, queries, keys)


def _index_relation(index: Tensor, queries: int, keys: int) -> tuple[int, ...]:
    """The relation of an index by distance [queries + keys - 1] or of an index of pairs [queries, keys]."""
    steps = (-1, 1, max(queries - 1, 0)) if index.dim() == 1 else (keys, 1, 0)
    return (_form.INDEX, ord("q"), ord("k"), *steps, index.numel())


def t5_buckets(queries: int, keys: int, bidirectional: bool = True, num_buckets: int = 32, max_distance: int = 128) -> Tensor:
    """T5's index of relative positions for `flex_attention`'s relative_bias (Raffel et al. 2019, arXiv:1910.10683): int32
    [queries + keys - 1], the bucket of key j for query i at j - i + queries - 1.  Half of the buckets hold one distance
    each, the others ranges that grow up to max_distance; bidirectional: half of them serve keys behind the query."""
    _sdpa.check_types(queries=queries, keys=keys, num_buckets=num_buckets, max_distance=max_distance)
    each = num_buckets // 2 if bidirectional else num_buckets
    if queries < 1 or keys < 1:
        raise ArgumentError(f"queries is {queries} and keys {keys}; both must be at least 1")
    if each < 2:
        raise ArgumentError(f"num_buckets is {num_buckets}; it must be at least {4 if bidirectional else 2}, two for each "
                            "direction")
    if max_distance <= each // 2:
        raise ArgumentError(f"max_distance is {max_distance}; it must be above {each // 2}, half of the buckets of a direction")
    ahead = torch.arange(1 - queries, keys, device="cpu")
    distance = ahead.abs() if bidirectional else (-ahead).clamp(min=0)
    single = each // 2
    share = torch.log(distance.clamp(min=1).float() / single) / math.log(max_distance / single)
    ranges = (single + (share * (each - single)).long()).clamp(max=each - 1)
    found = torch.where(distance < single, distance, ranges)
    return (found + each * (ahead > 0) if bidirectional else found).to(torch.int32)


def _normalization(name: Any, sigmoid_bias: Any, query: Tensor, return_lse: bool) -> tuple[int, Any]:
    """The number of the normalization, and sigmoid_bias as a number, a tensor [H] or None."""
    if not isinstance(name, str) or name not in c.NORMALIZATIONS:
        raise ArgumentError(f"normalization is {name!r}; expected one of {', '.join(c.NORMALIZATIONS)}")
    if name != "sigmoid":
        if sigmoid_bias is not None:
            raise ArgumentError(f"sigmoid_bias needs normalization=\"sigmoid\"; the normalization is {name!r}")
    elif return_lse:
        raise UnsupportedError("the log-sum-exp is requested, but the weights of a sigmoid have no sum over the keys")
    elif isinstance(sigmoid_bias, Tensor):
        heads = query.shape[1]
        if sigmoid_bias.shape != (heads,) or not sigmoid_bias.is_floating_point():
            raise ShapeError(f"sigmoid_bias is {sigmoid_bias.dtype} {tuple(sigmoid_bias.shape)}; expected a number, or "
                             f"floating-point numbers [H] = [{heads}]")
        sigmoid_bias = _sdpa.as_sums(sigmoid_bias, query.dtype)
    elif sigmoid_bias is not None:
        if not isinstance(sigmoid_bias, (int, float)) or not math.isfinite(sigmoid_bias):
            raise ArgumentError(f"sigmoid_bias is {sigmoid_bias!r}; expected a finite number, a tensor [H] or None")
        sigmoid_bias = float(sigmoid_bias)
    return c.NORMALIZATIONS[name], sigmoid_bias


def _softcap(softcap: Optional[float]) -> float:
    if softcap is None:
        return 0.0
    if not isinstance(softcap, (int, float)) or not 1e-30 <= softcap <= 1e30:
        raise ArgumentError(f"softcap is {softcap!r}; expected a number between 1e-30 and 1e30, or None")
    return float(softcap)


def _sinks(sinks: Optional[Tensor], query: Tensor) -> Optional[Tensor]:
    if sinks is None:
        return None
    if tuple(sinks.shape) != (query.shape[1],) or not sinks.is_floating_point():
        raise ShapeError(f"sinks is {sinks.dtype} {tuple(sinks.shape)}; expected real numbers [{query.shape[1]}], one for "
                         "each head")
    return _sdpa.as_sums(sinks, query.dtype).contiguous()


def _blocks(given: Any, shape: Sequence[int]) -> tuple[tuple[int, int], Tensor, Optional[Tensor]]:
    """The parts of PyTorch's BlockMask: the sizes of a block, which blocks there are [B or 1, H or 1, ...], and the
    mask inside them if one is needed."""
    from torch.nn.attention import flex_attention as flex

    if not isinstance(given, flex.BlockMask):
        raise ArgumentError(f"block_mask is of {type(given).__name__}; expected a BlockMask of "
                            "torch.nn.attention.flex_attention")
    blocks, lengths = given.to_dense() != 0, tuple(given.seq_lengths)
    fits = all(n in (1, m) for n, m in zip(blocks.shape[:2], shape[:2])) and lengths == tuple(shape[2:])
    if blocks.device.type not in ("cpu", "meta"):
        raise ShapeError(f"block_mask is on {blocks.device}; it must be on the CPU")
    if not fits or blocks.dim() != 4:
        raise ShapeError(f"block_mask is made for {(*blocks.shape[:-2], *lengths)}, which does not broadcast to {tuple(shape)}")
    inside = None
    if given.mask_mod is not None and given.mask_mod is not flex.noop_mask and bool((given.kv_num_blocks > 0).any()):
        batch, heads = blocks.shape[:2]
        inside = flex.create_mask(given.mask_mod, batch, heads, lengths[0], lengths[1], device="cpu")
    queries, keys = given.BLOCK_SIZE
    return (int(queries), int(keys)), blocks.contiguous(), inside


def _pairs(x: Tensor, shape: Sequence[int], name: str) -> Tensor:
    """Four axes that broadcast to `shape`."""
    fits = x.dim() <= 4 and all(n in (1, m) for n, m in zip(reversed(x.shape), reversed(shape)))
    if not fits:
        raise ShapeError(f"{name} has the shape {tuple(x.shape)}, which does not broadcast to {tuple(shape)}")
    return x.reshape((1,) * (4 - x.dim()) + tuple(x.shape))


def _whole_or_none(side: Any) -> Any:
    return side if side is None or isinstance(side, torch.SymInt) else operator.index(side)


def _band(is_causal: bool, window: Optional[tuple[Optional[int], Optional[int]]]) -> tuple[int, ...]:
    try:
        left, right = (None, None) if window is None else map(_whole_or_none, window)
    except (TypeError, ValueError):
        left = right = -1
    if any(side is not None and side < 0 for side in (left, right)):
        raise ArgumentError(f"window is {window!r}; expected two whole numbers from 0 up, or None for no limit")
    right = 0 if is_causal else right
    if left is None and right is None:
        return ()
    return (_form.BAND, ord("q"), ord("k"), -_form.OPEN if left is None else -left, _form.OPEN if right is None else right)


def _corner(is_causal: Union[bool, str], queries: Tensor, keys: Tensor, banded: bool) -> str:
    """The corner of the bands of packed sequences.  Other packages differ in what True means where lengths differ."""
    if isinstance(is_causal, str):
        if is_causal not in ("top-left", "bottom-right"):
            raise ArgumentError(f"is_causal must be True, False, \"top-left\" or \"bottom-right\", not {is_causal!r}")
        return is_causal
    known = queries is keys or "meta" in (queries.device.type, keys.device.type)
    if banded and not known and (torch.compiler.is_compiling() or not torch.equal(queries, keys)):
        raise ArgumentError("cu_seqlens_q and cu_seqlens_k differ, so with is_causal=True or a window is_causal must be "
                            "\"top-left\" or \"bottom-right\" (as in flash-attn)")
    return "top-left"


def varlen_attention(query: Tensor, key: Tensor, value: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
                     max_seqlen_q: int, max_seqlen_k: int, is_causal: Union[bool, str] = False,
                     scale: Optional[float] = None, return_lse: bool = False, *,
                     window: Optional[tuple[Optional[int], Optional[int]]] = None, softcap: Optional[float] = None,
                     sinks: Optional[Tensor] = None, relative_bias: Optional[tuple[Tensor, Tensor]] = None,
                     enable_gqa: bool = False) -> Union[Tensor, tuple[Tensor, Tensor]]:
    """Packed sequences, one after the other without padding: query [tokens, H, D], key and value [tokens, Hkv, D], and the
    offsets of the sequences, int32 [S + 1] from 0 to the tokens.  max_seqlen: no sequence is longer.  is_causal:
    "top-left", query i of a sequence sees its keys up to i; "bottom-right", as flash-attn has it, the last query sees the
    last key; True, where both are the same, since queries and keys have the same offsets.  Work is in proportion to the pairs
    that are there.  window (left, right), softcap and sinks [H] as in `flex_attention`, a window from the same corner;
    relative_bias (table, index) too: its index is that of sequences of the lengths max_seqlen_q and max_seqlen_k.
    return_lse: the log-sum-exp [H, tokens] as well, with a gradient; minus infinity for queries without keys."""
    query, key, value = _operands(query, key, value, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
                                  max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, scale=scale, sinks=sinks,
                                  enable_gqa=enable_gqa)
    _check({"query": query, "key": key, "value": value}, 3, "[tokens,H,D]")
    heads, kv, divides = query.shape[1], key.shape[1], enable_gqa and key.shape[1] > 0 and query.shape[1] % key.shape[1] == 0
    if value.shape[1] != kv or (kv != heads and not divides):
        raise ShapeError(f"query has {heads} heads, key {kv} and value {value.shape[1]}; " + (
            "key and value must have the same number of heads, which must divide that of query" if enable_gqa
            else "all must have the same number of heads, or enable_gqa=True"))
    q, k, v = [_engine.own_positions(x).transpose(0, 1).unsqueeze(0) for x in (query, key, value)]
    _sdpa._check(q, k, v, None, 0.0, False)
    offsets = []
    for name, x in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        if x.dtype != torch.int32 or x.dim() != 1 or x.shape[0] < 1 or x.device.type not in ("cpu", "meta"):
            raise ArgumentError(f"{name} is {x.dtype} {tuple(x.shape)} on {x.device}; expected int32 [S + 1] on the CPU")
        offsets.append(x.contiguous())
    if offsets[0].shape != offsets[1].shape:
        raise ShapeError(f"cu_seqlens_q has the shape {tuple(offsets[0].shape)}, cu_seqlens_k {tuple(offsets[1].shape)}; they must "
                         "be equal")
    longest = int(max_seqlen_q), int(max_seqlen_k)
    band = _band(bool(is_causal), window)
    corner = _corner(is_causal, cu_seqlens_q, cu_seqlens_k, bool(band))
    relations = (_form.PACKED, ord("q"), ord("k"), *longest, offsets[0].shape[0] - 1, int(corner == "bottom-right"), *band)
    table, index, by_index = (None, None, ()) if relative_bias is None else _indexed(relative_bias, heads, *longest, query.dtype)
    shared, one = ("(XY)", "X") if enable_gqa else ("B", "B")
    form = f"S{shared}qc,S{one}kc,S{one}kv->S{shared}qv;Sq{shared}v;{'' if table is None else '1' + shared};"
    problem = _scaled(form, query, scale, relations + by_index, _softcap(softcap))
    o, lse = _attend(problem, q, k, v, table, None, _sinks(sinks, q), index, offsets=(offsets[0], offsets[1]))
    o = o.squeeze(0).transpose(0, 1)
    return (o, lse.reshape(heads, query.shape[0])) if return_lse else o
