# SPDX-License-Identifier: MIT
"""The functions of flash-attn's interface (Dao 2023, arXiv:2307.08691), on the CPU: tensors [B,L,H,D], heads last."""
from __future__ import annotations

import operator
from typing import Any, NamedTuple, Optional, Sequence, Union, cast

import torch
from torch import Tensor

from .. import _form
from .._errors import ArgumentError, ShapeError, UnsupportedError
from .._form import Problem
from . import _enable, _engine, _ops, _sdpa

Result = Union[Tensor, tuple[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


class _How(NamedTuple):
    """The settings of a call."""

    scale: Optional[float]
    left: Optional[int]   # of the window, None: no limit
    right: Optional[int]
    softcap: float        # 0: none
    slopes: Optional[Tensor]  # [H] or [B,H]
    dropout: float = 0.0

    @property
    def banded(self) -> bool:
        return self.left is not None or self.right is not None


class _Packed(NamedTuple):
    """Offsets of sequences, int32 [S + 1], and the longest ones."""

    queries: Tensor
    keys: Tensor
    longest_queries: Any
    longest_keys: Any


class _Found(NamedTuple):
    o: Tensor
    lse: Optional[Tensor] = None
    weights: Optional[Tensor] = None


# ------------------------------------------------------------------------------------------------ arguments


def _whole(name: str, x: Any) -> Any:
    if isinstance(x, (int, torch.SymInt)):
        return x
    try:
        return operator.index(cast(int, x.item()) if isinstance(x, Tensor) else x)
    except (TypeError, RuntimeError, AttributeError):
        raise TypeError(f"{name} is of type {type(x).__name__}; expected a whole number") from None


def _how(scale: Optional[float], causal: bool, window_size: Sequence[int], softcap: float, slopes: Optional[Tensor],
         dropout_p: float = 0.0) -> _How:
    if not isinstance(causal, (bool, int)):
        raise TypeError(f"causal is of type {type(causal).__name__}; expected a bool")
    try:
        left, right = (_whole("window_size", side) for side in window_size)
    except (TypeError, ValueError):
        raise ArgumentError(f"window_size is {window_size!r}; expected two whole numbers, -1 for no limit") from None
    if not isinstance(softcap, (int, float)) or not softcap <= 1e30:
        raise ArgumentError(f"softcap is {softcap!r}; expected a number up to 1e30, or 0 for none")
    if not isinstance(dropout_p, (int, float)) or not 0 <= dropout_p <= 1:
        raise ArgumentError(f"dropout_p is {dropout_p!r}; expected a probability from 0 to 1")
    return _How(scale, None if left < 0 else left, 0 if causal else None if right < 0 else right,
                float(softcap) if softcap > 0 else 0.0, slopes, float(dropout_p))


def _tensors(axes: int, shape: str, kv_shape: str, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v in the type to compute in, their shapes and types checked."""
    _sdpa.check_types(q=q, k=k, v=v)
    q, k, v = cast(tuple[Tensor, Tensor, Tensor], _sdpa.autocast(q, k, v))
    for name, x, wanted in (("q", q, shape), ("k", k, kv_shape), ("v", v, kv_shape)):
        if x.device.type not in ("cpu", "meta"):
            raise ArgumentError(f"{name} is on {x.device}; attn computes on the CPU")
        if x.dim() != axes:
            raise ShapeError(f"{name} has the shape {tuple(x.shape)}; expected {wanted}")
        if x.dtype not in _engine.TYPES and x.dtype != torch.float16:
            raise ArgumentError(f"{name} is of {x.dtype}; expected float32, bfloat16, float16 or float64")
        if x.dtype != q.dtype:
            raise ArgumentError(f"{name} is of {x.dtype}, q of {q.dtype}; they must have one type")
    if k.shape[:-1] != v.shape[:-1]:
        raise ShapeError(f"k {tuple(k.shape)}, v {tuple(v.shape)}: k and v must have the same shape but for the last axis")
    if q.shape[-1] != k.shape[-1]:
        raise ShapeError(f"q {tuple(q.shape)}, k {tuple(k.shape)}: q and k must have the same last axis")
    if axes == 4 and q.shape[0] != k.shape[0]:
        raise ShapeError(f"q has a batch of {q.shape[0]}, but k and v have a batch of {k.shape[0]}")
    if k.shape[-2] == 0 or q.shape[-2] % k.shape[-2]:
        raise ShapeError(f"q has {q.shape[-2]} heads, k and v {k.shape[-2]}; the heads of k and v must divide those of q")
    return q, k, v


def _slopes(given: Optional[Tensor], batch: Any, heads: int) -> Optional[Tensor]:
    if given is None:
        return None
    if not isinstance(given, Tensor) or not given.is_floating_point() \
            or tuple(given.shape) not in ((heads,), (batch, heads)):
        found = f"{given.dtype} {tuple(given.shape)}" if isinstance(given, Tensor) else type(given).__name__
        raise ShapeError(f"alibi_slopes is {found}; expected floating-point numbers [{heads}] or [{batch},{heads}]")
    return given


def _offsets(name: str, x: Tensor) -> Tensor:
    if not isinstance(x, Tensor) or x.dtype not in (torch.int32, torch.int64) or x.dim() != 1 or x.shape[0] < 1 \
            or x.device.type not in ("cpu", "meta"):
        found = f"{x.dtype} {tuple(x.shape)} on {x.device}" if isinstance(x, Tensor) else type(x).__name__
        raise ArgumentError(f"{name} is {found}; expected int32 [batch + 1] on the CPU")
    return x.to(torch.int32).contiguous()


# ------------------------------------------------------------------------------------------------ attention


def _band(how: _How, ahead: Any) -> tuple[Any, ...]:
    """The window of queries that are `ahead` of the first one's place among the keys."""
    if not how.banded:
        return ()
    return (_form.BAND, ord("q"), ord("k"), -_form.OPEN if how.left is None else ahead - how.left,
            _form.OPEN if how.right is None else ahead + how.right)


def _alibi(slopes: Tensor, queries: Any, keys: Any, ahead: Any, dtype: torch.dtype) -> tuple[Tensor, Tensor, tuple[Any, ...]]:
    """The table [rows, ..., H], the index and the relation of ALiBi (Press et al. 2021, arXiv:2108.12409)."""
    place = torch.arange(queries + keys - 1, device=slopes.device) - (queries - 1 + ahead)
    distance = torch.arange(queries + keys, device=slopes.device, dtype=_engine.sums_of(dtype))
    table = -distance.reshape(-1, *(1,) * slopes.dim()) * slopes.to(distance.dtype)
    index = place.abs().to(torch.int32)
    return table, index, (_form.INDEX, ord("q"), ord("k"), -1, 1, queries - 1, index.shape[0])


def _computed(problem: Problem, q: Tensor, k: Tensor, v: Tensor, table: Optional[Tensor], index: Optional[Tensor],
              packed: Optional[_Packed], seed: Optional[Tensor]) -> tuple[Tensor, Tensor]:
    half = q.dtype == torch.float16
    tensors = (q.float(), k.float(), v.float()) if half else (q, k, v)
    offsets = (None, None) if packed is None else (packed.queries, packed.keys)
    if packed is not None:
        tensors = tensors[0].unsqueeze(0), tensors[1].unsqueeze(0), tensors[2].unsqueeze(0)
    o, lse = _ops.attend(problem, *tensors, table, offsets=offsets, index=index, seed=seed)
    o = o if packed is None else o.squeeze(0)
    return (o.to(q.dtype) if half else o), lse


def _problem(how: _How, q: Tensor, batch: str, relations: tuple[Any, ...], table: Optional[Tensor]) -> Problem:
    score, scale = _sdpa._scale_of(how.scale, q.shape[-1])
    bias = "" if table is None else "1(XY)" if table.dim() == 2 else f"1{batch}(XY)"
    form = f"{batch}q(XY)c,{batch}kXc,{batch}kXv->{batch}q(XY)v;{batch}q(XY)v;{bias};"
    return Problem(form, scale, how.dropout, relations, score, how.softcap)


def _seed(how: _How) -> Optional[Tensor]:
    return _ops.new_seed() if how.dropout else None


def _with_pattern(how: _How, problem: Problem, q: Tensor, k: Tensor, places: Tensor, table: Optional[Tensor],
                  index: Optional[Tensor], packed: Optional[_Packed], seed: Optional[Tensor]) -> Tensor:
    """The weights, negative where dropped.  places: the values [.., Hkv, keys] that tell a key from the others."""
    with torch.no_grad():
        weights = _computed(problem._replace(dropout=0.0), q, k, places, table, index, packed, None)[0]
        if how.dropout == 1:
            return -weights
        return weights.where(_computed(problem, q, k, places, table, index, packed, seed)[0] != 0, -weights)


def _dense(q: Tensor, k: Tensor, v: Tensor, how: _How, probs: bool) -> _Found:
    """Attends in a batch [B,L,H,D]; probs: with the log-sum-exp [B,H,L] and the weights [B,H,L,S]."""
    batch, queries, heads, _ = q.shape
    keys = k.shape[1]
    slopes = _slopes(how.slopes, batch, heads)
    if queries == 1 and how.right is not None:
        how = how._replace(right=None)  # a query on the last key has none after it
    simple = how.left is None and (how.right is None or (how.right == 0 and queries == keys))
    if simple and slopes is None and not how.softcap and not probs:
        o: Tensor = _sdpa.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), None,
                                                       how.dropout, how.right is not None, how.scale, True)
        return _Found(o.transpose(1, 2))
    table, index, by_index = (None, None, ()) if slopes is None or queries == 0 or keys == 0 else \
        _alibi(slopes, queries, keys, keys - queries, q.dtype)
    problem = _problem(how, q, "A", _band(how, keys - queries) + by_index, None if table is None else table)
    seed = _seed(how)
    o, lse = _computed(problem, q, k, v, table, index, None, seed)
    if not probs:
        return _Found(o)
    lse = lse.reshape(batch, heads, queries)
    if not how.dropout:
        return _Found(o, lse, q.new_empty(0))
    places = torch.eye(keys, dtype=q.dtype, device=q.device).unsqueeze(1).expand(batch, keys, k.shape[2], keys)
    return _Found(o, lse, _with_pattern(how, problem, q, k, places, table, index, None, seed).transpose(1, 2))


def _varlen(q: Tensor, k: Tensor, v: Tensor, packed: _Packed, how: _How, probs: bool) -> _Found:
    """Attends in packed sequences [tokens,H,D]; probs: with the log-sum-exp [H,tokens] and the weights [B,H,L,S]."""
    heads, sequences = q.shape[1], packed.queries.shape[0] - 1
    if packed.keys.shape[0] != sequences + 1:
        raise ShapeError(f"cu_seqlens_q has the shape {tuple(packed.queries.shape)}, cu_seqlens_k {tuple(packed.keys.shape)}; they "
                         "must be equal")
    slopes = _slopes(how.slopes, sequences, heads)
    alike = packed.queries is packed.keys
    if slopes is not None and (slopes.dim() == 2 or not (alike or torch.equal(packed.queries, packed.keys))):
        return _one_by_one(q, k, v, packed, how, probs)
    q, k, v = map(_engine.own_positions, (q, k, v))
    longest = packed.longest_queries, packed.longest_keys
    table, index, by_index = (None, None, ()) if slopes is None or min(longest) == 0 else _alibi(slopes, *longest, 0, q.dtype)
    corner = int(not alike)  # bottom-right, which is the same where the lengths are
    relations = (_form.PACKED, ord("q"), ord("k"), *longest, sequences, corner, *_band(how, 0))
    problem = _problem(how, q, "S", relations + by_index, table)
    seed = _seed(how)
    o, lse = _computed(problem, q, k, v, table, index, packed, seed)
    if not probs:
        return _Found(o)
    lse = lse.reshape(heads, q.shape[0])
    if not how.dropout:
        return _Found(o, lse, q.new_empty(0))
    places = q.new_zeros(k.shape[0], k.shape[1], packed.longest_keys)
    _, at = _places(packed.keys)
    places[torch.arange(at.shape[0], device=at.device), :, at] = 1
    found = _with_pattern(how, problem, q, k, places, table, index, packed, seed)
    weights = q.new_zeros(sequences, packed.longest_queries, heads, packed.longest_keys)
    which, at = _places(packed.queries)
    weights[which, at] = found[:at.shape[0]]
    return _Found(o, lse, weights.transpose(1, 2))


def _places(offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Of each token: the number of its sequence, and its place there."""
    lengths = offsets.diff().long()
    which = torch.repeat_interleave(torch.arange(lengths.shape[0], device=offsets.device), lengths)
    return which, torch.arange(which.shape[0], device=offsets.device) - offsets[:-1].long()[which] + offsets[0].long()


def _check_offsets(name: str, offsets: Sequence[int], tokens: int, longest: int) -> None:
    """As the engine checks those of a call."""
    before = 0
    for i, at in enumerate(offsets):
        if not 0 <= at <= tokens:
            raise ArgumentError(f"{name}[{i}] is {at}; offsets must be 0 to {tokens}, the number of tokens")
        if at < before:
            raise ArgumentError(f"{name}[{i}] is {at}, less than the offset before it, {before}; offsets must not decrease")
        if i and at - before > longest:
            raise ArgumentError(f"{name}[{i}] is {at} and the offset before it {before}, so the sequence between them has "
                                f"{at - before} tokens; the longest sequence is given as {longest}")
        before = at


def _one_by_one(q: Tensor, k: Tensor, v: Tensor, packed: _Packed, how: _How, probs: bool) -> _Found:
    """Sequence by sequence: ALiBi's distances start from the last key, so that each pair of lengths has its own; packed
    sequences share one table."""
    ends, of_keys = packed.queries.tolist(), packed.keys.tolist()
    _check_offsets("cu_seqlens_q", ends, q.shape[0], packed.longest_queries)
    _check_offsets("cu_seqlens_k", of_keys, k.shape[0], packed.longest_keys)
    found: list[_Found] = []
    for i, (first, end, begin, last) in enumerate(zip(ends, ends[1:], of_keys, of_keys[1:])):
        mine = how if how.slopes is None or how.slopes.dim() == 1 else how._replace(slopes=how.slopes[i])
        found.append(_dense(q[None, first:end], k[None, begin:last], v[None, begin:last], mine, True))
    none = [q.new_zeros(n, q.shape[1], v.shape[2]) for n in (ends[0], q.shape[0] - ends[-1])]  # tokens of no sequence
    o = torch.cat([none[0], *(one.o[0] for one in found), none[1]])
    if not probs:
        return _Found(o)
    rest = [q.new_full((q.shape[1], one.shape[0]), -torch.inf, dtype=_engine.sums_of(q.dtype)) for one in none]
    lse = torch.cat([rest[0], *(cast(Tensor, one.lse)[0] for one in found), rest[1]], 1)
    if not how.dropout:
        return _Found(o, lse, q.new_empty(0))
    weights = q.new_zeros(len(found), q.shape[1], packed.longest_queries, packed.longest_keys)
    for i, one in enumerate(found):
        own = cast(Tensor, one.weights)[0]
        weights[i, :, :own.shape[1], :own.shape[2]] = own
    return _Found(o, lse, weights)


def _result(found: _Found, probs: bool) -> Result:
    if not torch.compiler.is_compiling():
        _enable.count()
    return (found.o, cast(Tensor, found.lse), cast(Tensor, found.weights)) if probs else found.o


# ------------------------------------------------------------------------------------------------ functions


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None,
                    causal: bool = False, window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
                    alibi_slopes: Optional[Tensor] = None, deterministic: bool = False,
                    return_attn_probs: bool = False) -> Result:
    """flash-attn's function of this name on the CPU: q [B, L, H, D], k and v [B, S, Hkv, D], Hkv divides H; the result is
    [B, L, H, D].  float32, bfloat16, float64, and float16, which is converted to float32 and back.

    The last query sees the last key: causal, and window_size (left, right; -1 for no limit), count from there; a query
    without keys gets zeros.  Scaled scores x become softcap * tanh(x / softcap), then alibi_slopes [H] or [B, H] times
    the distance of query and key is subtracted.  Dropout's random numbers are attn's, seeded by PyTorch's generator.
    Gradients of q, k, v, of the slopes and of the log-sum-exp; they are deterministic in any case.
    return_attn_probs: also the log-sum-exp [B, H, L], minus infinity for a query without keys, and the weights [B, H, L,
    S], negative where dropped; without dropout they are empty.
    """
    how = _how(softmax_scale, causal, window_size, softcap, alibi_slopes, dropout_p)
    q, k, v = _tensors(4, "[B,L,H,D]", "[B,S,Hkv,D]", q, k, v)
    return _result(_dense(q, k, v, how, return_attn_probs), return_attn_probs)


def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None,
                             causal: bool = False, window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
                             alibi_slopes: Optional[Tensor] = None, deterministic: bool = False,
                             return_attn_probs: bool = False) -> Result:
    """`flash_attn_func` of k and v in one tensor [B, S, 2, Hkv, D]."""
    k, v = _unpacked("kv", kv, 2, 5, "[B,S,2,Hkv,D]")
    return flash_attn_func(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                           return_attn_probs)


def flash_attn_qkvpacked_func(qkv: Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None,
                              causal: bool = False, window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
                              alibi_slopes: Optional[Tensor] = None, deterministic: bool = False,
                              return_attn_probs: bool = False) -> Result:
    """`flash_attn_func` of q, k and v in one tensor [B, L, 3, H, D]."""
    q, k, v = _unpacked("qkv", qkv, 3, 5, "[B,L,3,H,D]")
    return flash_attn_func(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                           return_attn_probs)


def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int,
                           max_seqlen_k: int, dropout_p: float = 0.0, softmax_scale: Optional[float] = None,
                           causal: bool = False, window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
                           alibi_slopes: Optional[Tensor] = None, deterministic: bool = False,
                           return_attn_probs: bool = False, block_table: Optional[Tensor] = None) -> Result:
    """`flash_attn_func` of sequences one after the other, q [tokens, H, D], k and v [tokens, Hkv, D], with their offsets,
    int32 [B + 1].  Work is in proportion to the pairs that are there; alibi_slopes [B, H], and those of sequences with other
    lengths for queries than for keys, take a call of the engine for each sequence.  return_attn_probs: also the log-sum-exp [H,
    tokens] and the weights [B, H, max_seqlen_q, max_seqlen_k].  block_table, int32 [B, blocks]: k and v are pages [n, page,
    Hkv, D], and row b has the numbers of sequence b's pages.
    """
    how = _how(softmax_scale, causal, window_size, softcap, alibi_slopes, dropout_p)
    same = cu_seqlens_q is cu_seqlens_k
    offsets = _offsets("cu_seqlens_q", cu_seqlens_q)
    of_keys = offsets if same else _offsets("cu_seqlens_k", cu_seqlens_k)
    packed = _Packed(offsets, of_keys, _whole("max_seqlen_q", max_seqlen_q), _whole("max_seqlen_k", max_seqlen_k))
    if block_table is not None:
        k, v = _paged(k, v, block_table, *_places(of_keys - of_keys[0]))
        packed = packed._replace(keys=of_keys - of_keys[0])
    q, k, v = _tensors(3, "[tokens,H,D]", "[tokens,Hkv,D]", q, k, v)
    return _result(_varlen(q, k, v, packed, how, return_attn_probs), return_attn_probs)


def flash_attn_varlen_kvpacked_func(q: Tensor, kv: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int,
                                    max_seqlen_k: int, dropout_p: float = 0.0, softmax_scale: Optional[float] = None,
                                    causal: bool = False, window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
                                    alibi_slopes: Optional[Tensor] = None, deterministic: bool = False,
                                    return_attn_probs: bool = False) -> Result:
    """`flash_attn_varlen_func` of k and v in one tensor [tokens, 2, Hkv, D]."""
    k, v = _unpacked("kv", kv, 2, 4, "[tokens,2,Hkv,D]")
    return flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale,
                                  causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs)


def flash_attn_varlen_qkvpacked_func(qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, dropout_p: float = 0.0,
                                     softmax_scale: Optional[float] = None, causal: bool = False,
                                     window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
                                     alibi_slopes: Optional[Tensor] = None, deterministic: bool = False,
                                     return_attn_probs: bool = False) -> Result:
    """`flash_attn_varlen_func` of q, k and v in one tensor [tokens, 3, H, D]."""
    q, k, v = _unpacked("qkv", qkv, 3, 4, "[tokens,3,H,D]")
    return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, dropout_p, softmax_scale, causal,
                                  window_size, softcap, alibi_slopes, deterministic, return_attn_probs)


def _unpacked(name: str, x: Tensor, n: int, axes: int, shape: str) -> tuple[Tensor, ...]:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is of type {type(x).__name__}; expected a tensor")
    if x.dim() != axes or x.shape[-3] != n:
        raise ShapeError(f"{name} has the shape {tuple(x.shape)}; expected {shape}")
    return x.unbind(-3)


# ------------------------------------------------------------------------------------------------ caches


def _pages(name: str, x: Tensor, table: Tensor) -> int:
    """The positions of a page."""
    if not isinstance(table, Tensor) or table.dim() != 2 or table.dtype not in (torch.int32, torch.int64):
        found = f"{table.dtype} {tuple(table.shape)}" if isinstance(table, Tensor) else type(table).__name__
        raise ArgumentError(f"block_table is {found}; expected int32 [B,blocks]")
    if x.dim() != 4:
        raise ShapeError(f"{name} has the shape {tuple(x.shape)}; expected [pages,positions,Hkv,D] with a block_table")
    return x.shape[1]


def _in_pages(table: Tensor, page: int, pages: int, which: Tensor, at: Tensor) -> Tensor:
    """Finds the positions `at` of sequences `which` among the positions of all pages."""
    if at.numel() and (int(at.max()) >= table.shape[1] * page or int(which.max()) >= table.shape[0]):
        raise ShapeError(f"block_table {tuple(table.shape)} has places for {table.shape[0]} sequences of at most "
                         f"{table.shape[1] * page} positions; {int(which.max()) + 1} sequences of up to "
                         f"{int(at.max()) + 1} are given")
    chosen = table.long()[which, at // page]
    wrong = chosen[(chosen < 0) | (chosen >= pages)]
    if wrong.numel():
        raise ArgumentError(f"block_table has the page {int(wrong[0])}; it must be at least 0 and below {pages}, the number of "
                            "pages")
    return chosen * page + at % page


def _paged(k: Tensor, v: Tensor, table: Tensor, which: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values of pages one after the other."""
    page = _pages("k", k, table)
    if v.shape[:3] != k.shape[:3]:
        raise ShapeError(f"k has the shape {tuple(k.shape)}, v {tuple(v.shape)}; the first three axes must be equal")
    places = _in_pages(table, page, k.shape[0], which, at)
    return k.flatten(0, 1)[places], v.flatten(0, 1)[places]


def _rotated(x: Tensor, cos: Tensor, sin: Tensor, at: Tensor, interleaved: bool) -> Tensor:
    """x [B,L,H,D] with its first channels rotated (Su et al. 2021, arXiv:2104.09864) as those of the positions `at` [B,L]."""
    half = cos.shape[1]
    cos, sin = (table[at].unsqueeze(2).to(x.dtype) for table in (cos, sin))
    turned, rest = x[..., :2 * half], x[..., 2 * half:]
    if interleaved:
        one, other = turned[..., 0::2], turned[..., 1::2]
        turned = torch.stack((one * cos - other * sin, one * sin + other * cos), -1).flatten(-2)
    else:
        one, other = turned[..., :half], turned[..., half:]
        turned = torch.cat((one * cos - other * sin, one * sin + other * cos), -1)
    return torch.cat((turned, rest), -1)


def _lengths(name: str, given: Any, batch: int, most: int) -> list[int]:
    found = [given] * batch if isinstance(given, int) else given.tolist() if isinstance(given, Tensor) and given.dim() == 1 \
        and not given.is_floating_point() else None
    if found is None or len(found) != batch or any(not 0 <= n <= most for n in found):
        raise ArgumentError(f"{name} is {given!r}; expected {batch} whole numbers from 0 to {most}")
    return found


@torch.no_grad()
def flash_attn_with_kvcache(q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Optional[Tensor] = None,
                            v: Optional[Tensor] = None, rotary_cos: Optional[Tensor] = None,
                            rotary_sin: Optional[Tensor] = None, cache_seqlens: Optional[Union[int, Tensor]] = None,
                            cache_batch_idx: Optional[Tensor] = None, cache_leftpad: Optional[Tensor] = None,
                            block_table: Optional[Tensor] = None, softmax_scale: Optional[float] = None, causal: bool = False,
                            window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, rotary_interleaved: bool = True,
                            alibi_slopes: Optional[Tensor] = None, num_splits: int = 0,
                            return_softmax_lse: bool = False) -> Union[Tensor, tuple[Tensor, Tensor]]:
    """flash-attn's function of this name on the CPU, without gradients: q [B, L, H, D] attends to the first cache_seqlens
    positions of k_cache and v_cache [Bc, S, Hkv, D], read in place; corner, window_size, softcap and alibi_slopes as in
    `flash_attn_func`.

    k and v [B, n, Hkv, D] are written into the cache behind these positions first, and take part.  cache_batch_idx
    [B]: the rows of the cache.  cache_leftpad [B]: positions before it take no part.  block_table, int32 [B, blocks]: the
    cache is pages [n, page, Hkv, D], of any length, and row b has the numbers of sequence b's pages, which are copied.
    rotary_cos and rotary_sin [positions, R / 2] rotate the first R channels of q and k, by pairs of neighbours or, if not
    rotary_interleaved, of halves.  num_splits changes nothing.  return_softmax_lse: also the log-sum-exp [B, H, L].
    """
    how = _how(softmax_scale, causal, window_size, softcap, alibi_slopes)
    _sdpa.check_types(q=q, k=k_cache, v=v_cache)
    if q.dim() != 4 or k_cache.dim() != 4:
        raise ShapeError(f"q has the shape {tuple(q.shape)}, k_cache {tuple(k_cache.shape)}; expected [B,L,H,D] and "
                         "[B,S,Hkv,D]")
    if k_cache.shape[:3] != v_cache.shape[:3]:
        raise ShapeError(f"k_cache has the shape {tuple(k_cache.shape)}, v_cache {tuple(v_cache.shape)}; the first three axes must be "
                         "equal")
    if (k is None) != (v is None):
        raise ArgumentError(f"{'k' if k is None else 'v'} is None; k and v must be given together")
    if (rotary_cos is None) != (rotary_sin is None):
        raise ArgumentError(f"{'rotary_cos' if rotary_cos is None else 'rotary_sin'} is None; rotary_cos and rotary_sin must be "
                            "given together")
    if k is not None and cache_seqlens is None:
        raise ArgumentError("k and v need cache_seqlens, the number of positions before them")
    if block_table is not None and (cache_batch_idx is not None or cache_leftpad is not None):
        raise UnsupportedError("block_table together with cache_batch_idx or cache_leftpad is not supported")
    batch, fresh = q.shape[0], 0 if k is None else k.shape[1]
    page = 0 if block_table is None else _pages("k_cache", k_cache, block_table)
    room = k_cache.shape[1] if block_table is None else block_table.shape[1] * page
    before = _lengths("cache_seqlens", room if cache_seqlens is None else cache_seqlens, batch, room - fresh)
    rows = list(range(batch)) if cache_batch_idx is None else \
        _lengths("cache_batch_idx", cache_batch_idx, batch, k_cache.shape[0] - 1)
    if block_table is None and cache_batch_idx is None and k_cache.shape[0] != batch:
        raise ShapeError(f"q has a batch of {batch}, but k_cache has a batch of {k_cache.shape[0]}")
    if rotary_cos is not None and rotary_sin is not None:
        at = torch.tensor(before, device="cpu").unsqueeze(1)
        moving = torch.arange(q.shape[1], device="cpu") * how.banded
        q = _rotated(q, rotary_cos, rotary_sin, at + moving, rotary_interleaved)
        if k is not None:
            k = _rotated(k, rotary_cos, rotary_sin, at + torch.arange(fresh, device="cpu"), rotary_interleaved)
    if k is not None:
        _append(k_cache, v_cache, k, v, before, rows, block_table, page)
    ends = [n + fresh for n in before]
    starts = [0] * batch if cache_leftpad is None else _lengths("cache_leftpad", cache_leftpad, batch, room)
    if any(start > end for start, end in zip(starts, ends)):
        raise ArgumentError(f"cache_leftpad is {starts}, but the sequences end at {ends}; a sequence must not begin after its end")
    o, lse = _of_cache(q, k_cache, v_cache, how, starts, ends, rows, cache_batch_idx, block_table)
    _enable.count()
    return (o, lse) if return_softmax_lse else o


def _append(k_cache: Tensor, v_cache: Tensor, k: Tensor, v: Any, before: list[int], rows: list[int],
            table: Optional[Tensor], page: int) -> None:
    fresh = k.shape[1]
    for name, cache, x in (("k", k_cache, k), ("v", v_cache, v)):
        wanted = (len(before), fresh, *cache.shape[2:])
        if x.shape != wanted or x.dtype != cache.dtype:
            raise ShapeError(f"{name} is {x.dtype} {tuple(x.shape)}; expected {cache.dtype} {wanted}")
        if table is None:
            for i, (row, first) in enumerate(zip(rows, before)):
                cache[row, first:first + fresh] = x[i]
        else:
            which = torch.arange(len(before), device="cpu").repeat_interleave(fresh)
            at = torch.tensor(before, device="cpu")[which] + torch.arange(fresh, device="cpu").repeat(len(before))
            places = _in_pages(table, page, cache.shape[0], which, at)
            cache[places // page, places % page] = x.flatten(0, 1)


def _of_cache(q: Tensor, k_cache: Tensor, v_cache: Tensor, how: _How, starts: list[int], ends: list[int], rows: list[int],
              chosen: Optional[Tensor], table: Optional[Tensor]) -> tuple[Tensor, Tensor]:
    batch, queries = q.shape[:2]
    if table is None and len({*zip(starts, ends)}) == 1:
        k, v = (x[:, starts[0]:ends[0]] if chosen is None else x[rows, starts[0]:ends[0]] for x in (k_cache, v_cache))
        q, k, v = _tensors(4, "[B,L,H,D]", "[B,S,Hkv,D]", q, k, v)
        found = _dense(q, k, v, how, True)
        return found.o, cast(Tensor, found.lse)
    if table is not None:  # the pages are copied
        of_keys = torch.tensor([0, *ends], dtype=torch.int32, device="cpu").cumsum(0, dtype=torch.int32)
        k, v = _paged(k_cache, v_cache, table, *_places(of_keys))
        of_queries = torch.arange(batch + 1, dtype=torch.int32, device="cpu") * queries
    else:  # what is between two sequences is one of no queries
        if chosen is not None:
            k_cache, v_cache = k_cache[rows], v_cache[rows]
        room = k_cache.shape[1]
        k, v = k_cache.flatten(0, 1), v_cache.flatten(0, 1)
        parts = [i * room + n for i in range(batch) for n in (starts[i], ends[i])]
        of_keys = torch.tensor([0, *parts], dtype=torch.int32, device="cpu")
        parts = [n * queries for i in range(batch) for n in (i, i + 1)]
        of_queries = torch.tensor([0, *parts], dtype=torch.int32, device="cpu")
    longest = int(of_keys.diff().max())
    if how.slopes is not None and table is None:
        how = how._replace(slopes=_for_gaps(_slopes(how.slopes, batch, q.shape[2])))
    packed = _Packed(of_queries, of_keys, queries, longest)
    heads = q.shape[2]
    q, k, v = _tensors(3, "[tokens,H,D]", "[tokens,Hkv,D]", q.flatten(0, 1), k, v)
    found = _varlen(q, k, v, packed, how, True)
    return (found.o.reshape(batch, queries, heads, v.shape[2]),
            cast(Tensor, found.lse).reshape(heads, batch, queries).transpose(0, 1))


def _for_gaps(slopes: Optional[Tensor]) -> Optional[Tensor]:
    """Slopes of sequences [B,H] with one for what is before each."""
    return slopes if slopes is None or slopes.dim() == 1 else slopes.repeat_interleave(2, 0)
