# SPDX-License-Identifier: MIT
"""scaled_dot_product_attention as torch.nn.functional has it."""
from __future__ import annotations

import itertools
import math
from typing import Any, Callable, Literal, NamedTuple, Optional, Union, cast, overload

import torch
from torch import Tensor

from .. import _form
from .._errors import ArgumentError, ShapeError, UnsupportedError
from .._form import Problem
from . import _engine, _ops, _weights

_LEADING = "ABCDEFGHIJ"
CAUSAL = (_form.BAND, ord("q"), ord("k"), -_form.OPEN, 0)
_HALVES = (torch.bfloat16, torch.float16)
_CONSTANT = 5  # the score that is the same for all pairs: the meaning of a scale of 0


class Asked(NamedTuple):
    """A call as the engine takes it."""

    problem: Problem
    q: Tensor
    k: Tensor
    v: Tensor
    bias: Optional[Tensor]
    mask: Optional[Tensor]


@overload
def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = ...,
                                 dropout_p: float = ..., is_causal: bool = ..., scale: Optional[float] = ...,
                                 enable_gqa: bool = ..., *, return_weights: Literal[False] = ...) -> Tensor: ...
@overload
def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = ...,
                                 dropout_p: float = ..., is_causal: bool = ..., scale: Optional[float] = ...,
                                 enable_gqa: bool = ..., *, return_weights: Literal[True]) -> tuple[Tensor, Tensor]: ...
def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, scale: Optional[float] = None,
                                 enable_gqa: bool = False, *,
                                 return_weights: bool = False) -> Union[Tensor, tuple[Tensor, Tensor]]:
    """torch.nn.functional.scaled_dot_product_attention by attn's engine: the same arguments, the same meaning.

    query [..., L, E], key [..., S, E], value [..., S, Ev]; leading axes broadcast.  float32, bfloat16, float64, and
    float16, which is converted to float32 and back.  Memory is linear in L and S for all gradients; that of a float
    mask is as large as the mask.  A mask may be PyTorch's CausalBias.  Nested tensors of the jagged layout, [B, H, j, E], are
    packed sequences.  return_weights: the weights [..., L, S] as well, with gradients; not with dropout.  Raises
    attn.ShapeError, attn.ArgumentError, attn.UnsupportedError and TypeError.
    """
    if dropout_p == 0 and return_weights is False and _unwatched():
        found: Optional[Tensor] = quick(query, key, value, attn_mask, is_causal, scale, enable_gqa)
        if found is not None:
            return found
    check_types(query=query, key=key, value=value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal,
                scale=scale, enable_gqa=enable_gqa, return_weights=return_weights)
    if any(x is not None and x.is_nested for x in (query, key, value, attn_mask)):
        return _nested(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, return_weights)
    query, key, value = autocast(query, key, value)
    if attn_mask is not None and attn_mask.dtype in _HALVES and torch.is_autocast_enabled("cpu"):
        attn_mask = attn_mask.float()  # autocast gives the operator a mask of query's type
    asked = _ask(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if return_weights:
        return _with_weights(query, asked, dropout_p, scale)
    return computed(query, asked)


def computed(query: Tensor, asked: Asked) -> Tensor:
    """The result of a call, in query's type, by the operator."""
    o = _ops.attend(asked.problem, *asked[1:])[0]
    return o if o.dtype == query.dtype else o.to(query.dtype)


def _with_weights(query: Tensor, asked: Asked, dropout_p: float, scale: Optional[float]) -> tuple[Tensor, Tensor]:
    if dropout_p:
        raise UnsupportedError("return_weights together with dropout_p is not supported")
    seen = _weights.seen_in(asked.problem.relations, asked.mask, asked.q.shape[-2], asked.k.shape[-2])
    o, weights = _weights.weighted(asked.problem, asked[1:], seen, scale)
    return o.to(query.dtype), weights.to(query.dtype)


def _nested(query: Any, key: Any, value: Any, mask: Optional[Tensor], dropout_p: float, is_causal: bool,
            scale: Optional[float], enable_gqa: bool, return_weights: bool) -> Tensor:
    """Jagged sequences as packed ones."""
    from ._variants import varlen_attention

    if mask is not None or dropout_p or return_weights:
        raise UnsupportedError("nested tensors together with attn_mask, dropout_p or return_weights are not supported")
    ends, packed = [], []
    for name, x in (("query", query), ("key", key), ("value", value)):
        if not x.is_nested or x.layout != torch.jagged or x.dim() not in (3, 4):
            kind = f"is nested, {x.layout} of {x.dim()} axes" if x.is_nested else f"is a tensor {tuple(x.shape)}"
            raise ArgumentError(f"{name} {kind}; expected nested tensors of the jagged layout, [B,H,j,E] or [B,j,E]")
        if x._ragged_idx != x.dim() - 2:
            raise UnsupportedError(f"{name} is a nested tensor whose axis of sequences is {x._ragged_idx - x.dim()}; it must be -2")
        if x.lengths() is not None:
            raise UnsupportedError(f"{name} is a nested tensor with gaps between its sequences; x.contiguous() has no gaps")
        ends.append(x.offsets().to(torch.int32))
        packed.append(x.values().transpose(0, 1) if x.dim() == 4 else x.values().unsqueeze(1))
    if ends[1] is not ends[2] and not torch.equal(ends[1], ends[2]):
        raise ShapeError("key and value are nested tensors whose sequences have different lengths; they must be equal")
    longest = [int(x.diff().max()) if x.shape[0] > 1 else 0 for x in ends]
    q, k, v = packed
    corner = "top-left" if is_causal else False
    o: Any = varlen_attention(q, k, v, ends[0], ends[1], longest[0], longest[1], corner, scale, enable_gqa=enable_gqa)
    o = o.transpose(0, 1) if query.dim() == 4 else o.squeeze(1)
    return torch.nested.nested_tensor_from_jagged(o, query.offsets(), jagged_dim=query.dim() - 2)


def autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Query, key and value in the type that PyTorch's own operator gives them under autocast."""
    if not torch.is_autocast_enabled("cpu"):
        return tensors
    wanted = torch.get_autocast_dtype("cpu")
    return tuple(x.to(wanted) if x.is_floating_point() and x.dtype not in (wanted, torch.float64) else x for x in tensors)


# ------------------------------------------------------------------------------------ a call like an earlier one

_unwatched, _plain, _PLAIN, _direct = _ops.unwatched, _ops.plain, _ops._PLAIN, _ops._Direct.apply
_records, _engine_now, _run = torch.is_grad_enabled, _engine.engine, _engine._run
_recorders = _engine.recorders


def quick(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], is_causal: bool,
          scale: Optional[float], enable_gqa: bool, refuses: Optional[Callable[..., Optional[str]]] = None) -> Any:
    """The result for plain tensors; None where the long way has to look.  `refuses`, called with the arguments of a first
    call of its kind, decides whether attn takes such calls: the result is its reason where it does not."""
    if (is_causal is not False and is_causal is not True) or (enable_gqa is not False and enable_gqa is not True):
        return None  # 1 would find the plan of True
    if not (type(query) in _PLAIN and query.is_cpu and not query.is_neg() and type(key) in _PLAIN and key.is_cpu
            and not key.is_neg() and type(value) in _PLAIN and value.is_cpu and not value.is_neg()):
        return None
    if attn_mask is None:
        of_mask = None
        grad = _records() and (query.requires_grad or key.requires_grad or value.requires_grad)
    elif _plain(attn_mask):
        if attn_mask.dtype is torch.bfloat16 is query.dtype:
            attn_mask = as_sums(attn_mask, query.dtype)
        of_mask = attn_mask.shape, attn_mask.stride(), attn_mask.dtype, attn_mask.requires_grad
        grad = _records() and (query.requires_grad or key.requires_grad or value.requires_grad or of_mask[3])
    else:
        return None
    if scale is not None and not isinstance(scale, (float, int)):
        return None  # a tensor's number may change
    mine = _engine_now()
    try:
        kind = (query.shape, key.shape, value.shape, query.stride(), key.stride(), value.stride(), query.dtype, key.dtype,
                value.dtype, is_causal, scale, enable_gqa, grad, of_mask)
    except RuntimeError:
        return None  # nested and sparse tensors have no shape or no strides
    plan = mine.plans.get(kind)
    if plan is None or (refuses is not None and plan.taken is not refuses):
        plan = _first_of_kind(mine, kind, plan, refuses, (query, key, value, attn_mask, 0.0, is_causal, scale, enable_gqa),
                              grad)
        if plan is None or isinstance(plan, str):
            return plan
    if _recorders.open:
        _engine.note(cast(Problem, plan.problem), (query, key, value, *plan.places(attn_mask)))
    if attn_mask is None:
        return _direct(plan, query, key, value) if grad else _run(plan, query, key, value, None, None, None)
    return _direct(plan, query, key, value, attn_mask) if grad else _run(plan, query, key, value,
                                                                        *plan.places(attn_mask), None)


def _first_of_kind(mine: Any, kind: Any, plan: Any, refuses: Optional[Callable[..., Optional[str]]],
                   call: tuple[Any, ...], grad: bool) -> Any:
    """A plan for calls of this kind; what `quick` returns where there is none."""
    why = mine.left.get((refuses, kind))
    if why is not None:
        return why
    scale = call[6]
    near = mine.any_scale.get((*kind[:10], *kind[11:])) if plan is None and scale != 0 else None
    if near is not None and near.taken is refuses:
        plan = near.scaled(_scale_of(scale, call[0].shape[-1])[1])
        mine.keep(kind, plan)
        return plan
    why = None if refuses is None else refuses(*call[:4], call[5], call[7])
    if why is not None:
        mine.note(mine.left, (refuses, kind), why)
        return why
    plan = plan or _learn(mine, kind, call, grad)
    if plan is not None:
        plan.taken = refuses
    return plan


def _learn(mine: Any, kind: Any, call: tuple[Any, ...], grad: bool) -> Optional[Any]:
    """A plan for calls of this kind, if tensors can be used as they are."""
    asked = _ask(*call)
    given = call[3]
    if asked.q is not call[0] or (given is not None and given is not asked.bias and given is not asked.mask):
        return None
    plan = _engine.forward_plan(asked.problem, asked[1:], grad)
    plan.problem = asked.problem
    plan.layouts = (*(x.stride() for x in call[:3]), plan.strides, *(() if given is None else (given.stride(),)))
    plan.masked = None if given is None else "bias" if given is asked.bias else "mask"
    mine.keep(kind, plan)
    if asked.problem.score == 0:
        mine.note(mine.any_scale, (*kind[:10], *kind[11:]), plan)
    return plan


# ------------------------------------------------------------------------------------------------ the long way


def _ask(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], dropout_p: float, is_causal: bool,
         scale: Optional[float], enable_gqa: bool) -> Asked:
    relations: tuple[int, ...] = CAUSAL if is_causal else ()
    if attn_mask is not None and is_causal_bias(attn_mask):
        if is_causal:
            raise ArgumentError("a CausalBias as attn_mask and is_causal=True cannot be used together: give one of them")
        attn_mask, relations = None, band_of(attn_mask, query.shape[-2], key.shape[-2])
    _check(query, key, value, attn_mask, dropout_p, is_causal)
    form = _form_of(query, key, value, attn_mask, enable_gqa)
    score, scale = _scale_of(scale, query.shape[-1])
    problem = Problem(form, scale, float(dropout_p), relations, score)
    if query.dtype == torch.float16:
        query, key, value = query.float(), key.float(), value.float()
    bias = mask = None
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        mask = attn_mask
    elif attn_mask is not None:
        bias = as_sums(attn_mask, query.dtype)
    return Asked(problem, query, key, value, bias, mask)


def is_causal_bias(x: Tensor) -> bool:
    """Whether x is PyTorch's CausalBias.  Its module is not imported here, which would take seconds."""
    return type(x).__module__ == "torch.nn.attention.bias"


def band_of(bias: Any, queries: int, keys: int) -> tuple[int, ...]:
    """The relation that a CausalBias stands for; the numbers in its memory mean nothing."""
    if (bias.seq_len_q, bias.seq_len_kv) != (queries, keys):
        raise ShapeError(f"the CausalBias is for {bias.seq_len_q} queries and {bias.seq_len_kv} keys, but the call has {queries} "
                         f"queries and {keys} keys")
    return (*CAUSAL[:-1], keys - queries if bias.variant.name == "LOWER_RIGHT" else 0)


def as_sums(bias: Tensor, dtype: torch.dtype) -> Tensor:
    """A bias in the type that scores have; one that was expanded is converted once for all that share it."""
    sums = torch.float64 if dtype == torch.float64 else torch.float32
    if bias.dtype == sums:
        return bias
    if bias.requires_grad:
        return bias.to(sums)
    shape = bias.shape
    for axis, (n, step) in enumerate(zip(bias.shape, bias.stride())):
        if step == 0 and n > 1:
            bias = bias.narrow(axis, 0, 1)
    return bias.to(sums).expand(shape)


def _scale_of(scale: Optional[float], channels: int) -> tuple[int, float]:
    """The engine's score and scale, for which 0 is the default."""
    if scale is None:
        return (0, 0.0) if channels else (0, 1.0)
    if isinstance(scale, Tensor) and scale.requires_grad:
        raise ArgumentError("scale requires a gradient, which attn does not compute; expected a number")
    if not -math.inf < scale < math.inf:
        raise ArgumentError(f"scale is {scale}; expected a finite number")
    return (0, float(scale)) if scale else (_CONSTANT, 1e-30)  # constant scores of next to 0: log-sum-exps and sinks see them


def _is_tensor(x: Any) -> bool:
    return isinstance(x, Tensor)


def _is_bool(x: Any) -> bool:
    return isinstance(x, bool)


def _is_number(x: Any) -> bool:
    """Also a symbolic number, or a scalar of NumPy."""
    return (isinstance(x, (float, int, torch.SymFloat, torch.SymInt, Tensor))
            or (hasattr(x, "__float__") and getattr(x, "ndim", 1) == 0))


def _is_whole(x: Any) -> bool:
    return isinstance(x, (int, torch.SymInt)) or (hasattr(x, "__index__") and not isinstance(x, Tensor))


_TENSOR, _TENSOR_OR_NONE = ("a tensor", _is_tensor, False), ("a tensor or None", _is_tensor, True)
_BOOL, _WHOLE = ("a bool", _is_bool, False), ("a whole number", _is_whole, False)
# Of each argument: the words for what it may be, the check of its type, and whether it may be None.
_ARGUMENTS = {
    **dict.fromkeys(("query", "key", "value", "q", "k", "v", "cu_seqlens_q", "cu_seqlens_k"), _TENSOR),
    **dict.fromkeys(("attn_mask", "bias", "mask", "sinks", "relative_bias", "rpb", "key_mask"), _TENSOR_OR_NONE),
    **dict.fromkeys(("is_causal", "enable_gqa", "return_weights"), _BOOL),
    **dict.fromkeys(("axis", "queries", "keys", "max_seqlen_q", "max_seqlen_k", "num_buckets", "max_distance"), _WHOLE),
    "dropout_p": ("a number", _is_number, False), "scale": ("a number or None", _is_number, True)}


def check_types(**given: Any) -> None:
    """Names the first argument whose type PyTorch's own function refuses."""
    for name, x in given.items():
        wanted, fits, optional = _ARGUMENTS[name]
        if fits(x) or (x is None and optional):
            continue
        if x is None:
            raise TypeError(f"{name} is None; expected {wanted}")
        module, kind = type(x).__module__, type(x).__name__
        raise TypeError(f"{name} is of type {kind if module == 'builtins' else f'{module}.{kind}'}; expected {wanted}")


def _check(query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor], dropout_p: float, causal: bool) -> None:
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.device.type not in ("cpu", "meta"):
            raise ArgumentError(f"{name} is on {x.device}; attn computes on the CPU")
        if x.dim() < 2:
            raise ShapeError(f"{name} has the shape {tuple(x.shape)}; expected at least 2 axes")
        if x.dtype not in _engine.TYPES and x.dtype != torch.float16:
            raise ArgumentError(f"{name} is of {x.dtype}; expected float32, bfloat16, float16 or float64")
        if x.dtype != query.dtype:
            raise ArgumentError(f"{name} is of {x.dtype}, query of {query.dtype}; they must have one type")
    if not 0 <= dropout_p <= 1:
        raise ArgumentError(f"dropout_p is {dropout_p}; expected a probability from 0 to 1")
    if query.shape[-1] != key.shape[-1]:
        raise ShapeError(f"query {tuple(query.shape)}, key {tuple(key.shape)}: query and key must have the same last axis")
    if key.shape[-2] != value.shape[-2]:
        raise ShapeError(f"key {tuple(key.shape)}, value {tuple(value.shape)}: key and value must have the same length, axis -2")
    if mask is None:
        return
    if not mask_fits(query, key, value, mask):
        raise ShapeError(f"attn_mask has the shape {tuple(mask.shape)}, which does not broadcast to the scores of query "
                         f"{tuple(query.shape)} and key {tuple(key.shape)}")
    if causal:
        raise ArgumentError("attn_mask and is_causal=True cannot be used together: put the causal relation into attn_mask")
    if mask.dtype not in (torch.bool, torch.float32, query.dtype):
        raise ArgumentError(f"attn_mask is of {mask.dtype}; expected bool, float32 or query's {query.dtype}")


def mask_fits(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> bool:
    """Whether the mask broadcasts to the scores [..., L, S]; it makes none of their axes longer."""
    leading = [x.shape[:-2] for x in (query, key, value)]
    scores = [query.shape[-2], key.shape[-2]]
    wanted = [max(sizes) for sizes in itertools.zip_longest(*(reversed(x) for x in leading), fillvalue=1)][::-1] + scores
    return mask.dim() <= len(wanted) and all(n in (1, m) for n, m in zip(reversed(mask.shape), reversed(wanted)))


def _form_of(query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor], grouped: bool) -> str:
    n = max(query.dim(), key.dim(), value.dim()) - 2
    if n > len(_LEADING):
        raise ShapeError(f"tensors of {n + 2} axes are not supported; at most {len(_LEADING) + 2} axes are")
    leading = list(_LEADING[:n])
    heads = {"q": leading, "k": leading, "v": leading}
    if grouped:
        heads = _grouped(leading, query, key, value)

    def axes(name: str, x: Tensor, last: str) -> str:
        return "".join(heads[name][n - (x.dim() - 2):]) + last

    memory = "".join(heads["q"][:-1]) + "q" + heads["q"][-1] + "v" if n else "qv"
    text = f"{axes('q', query, 'qc')},{axes('k', key, 'kc')},{axes('v', value, 'kv')}->" \
           f"{''.join(heads['q'])}qv;{memory};"
    if mask is None:
        return text + ";"
    if mask.dim() > n + 2:
        raise ShapeError(f"attn_mask has the shape {tuple(mask.shape)}, but the scores have only {n + 2} axes")
    pairs = ("".join(heads["q"][n - (mask.dim() - 2):]) + "qk") if mask.dim() >= 2 else "qk"[2 - mask.dim():]
    return text + (";" + pairs if mask.dtype == torch.bool else pairs + ";")


def _grouped(leading: list[str], query: Tensor, key: Tensor, value: Tensor) -> dict[str, list[str]]:
    """Heads of k and v that each serve several of q: X of them in both, U more in the one that has more."""
    if min(x.dim() for x in (query, key, value)) < 3:
        raise ShapeError("enable_gqa: query, key and value must have at least 3 axes, with the heads at -3")
    hq, hk, hv = (x.shape[-3] for x in (query, key, value))
    fewer, more = min(hk, hv), max(hk, hv)
    if fewer == 0 or more % fewer or hq % more:
        raise ShapeError(f"enable_gqa: query has {hq} heads, key {hk} and value {hv}; the heads of key and value must "
                         "divide those of query, and one of the two numbers must divide the other")
    first = leading[:-1]
    if hk == hv:
        return {"q": [*first, "(XY)"], "k": [*first, "X"], "v": [*first, "X"]}
    return {"q": [*first, "(XUY)"], "k": [*first, "X" if hk < hv else "(XU)"],
            "v": [*first, "X" if hv < hk else "(XU)"]}
