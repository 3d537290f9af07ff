# SPDX-License-Identifier: MIT
"""attn_implementation="attn" for the models of Hugging Face's transformers."""
from __future__ import annotations

import functools
import inspect
import math
import sys
import threading
from typing import Any, Callable, NamedTuple, Optional, TypeVar, cast

import torch
from torch import Tensor

from .. import _form
from .._errors import ArgumentError, UnsupportedError
from .._form import Problem
from . import _distance, _enable, _engine, _masks, _ops, _sdpa, _variants, _weights, _wins
from ._masks import Mask, Pattern

_RESERVED = ("flash", "sdpa", "flex_attention", "eager", "/", "|")
_lock = threading.Lock()
_registered: set[str] = set()
_always = False  # of the last register(): whether attn takes float32 where nobody has timed it


def register(name: str = "attn", always: bool = False) -> None:
    """Adds attn to the attention implementations of transformers: a model that is made or loaded
    with attn_implementation=name, or is given it by model.set_attn_implementation(name), attends by
    attn on the CPU.

    Masks that are lengths, windows, chunks or packed sequences are computed as such, without a mask
    of all pairs.  The model's own eager function computes the calls that attn does not take;
    attn.torch.calls(verbose=True) lists them.  On ARM, where float32 was never timed, float32 is
    left to PyTorch's scaled_dot_product_attention, or to the model's own function where that cannot
    compute a call; always=True takes it too.  Raises ImportError without transformers.
    """
    if not isinstance(name, str) or not name or any(word in name for word in _RESERVED):
        raise ArgumentError(f"name is {name!r}; expected text without {', '.join(_RESERVED)}, "
                            "which have a meaning for transformers")
    transformers = _import()
    with _lock:
        known = transformers.AttentionInterface().keys()
        if name in known and name not in _registered:
            raise ArgumentError(f"name is {name!r}, which another implementation has already")
        transformers.AttentionInterface.register(name, attention)
        transformers.AttentionMaskInterface.register(name, _masks.mask)
        _registered.add(name)
        global _always
        _always = always


def _import() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ImportError("attn.torch.register needs Hugging Face's transformers, which cannot be "
                          f"imported: {error}") from error
    if not hasattr(transformers, "AttentionMaskInterface"):
        raise UnsupportedError(f"transformers {transformers.__version__} has no "
                               "AttentionMaskInterface; install a later version")
    return transformers


_F = TypeVar("_F", bound=Callable[..., Any])


def _kept(function: _F) -> _F:
    """lru_cache, for functions of a class: in PyTorch's stubs type[Module] is not hashable."""
    return cast(_F, functools.lru_cache(maxsize=1024)(function))


class _Call(NamedTuple):
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Any  # a tensor, a BlockMask or None
    causal: bool
    dropout: float
    scaling: Optional[float]
    bias: Optional[Tensor]
    softcap: Optional[float]
    sinks: Optional[Tensor]
    weights: bool


def attention(module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor,
              attention_mask: Any = None, dropout: float = 0.0, scaling: Optional[float] = None,
              is_causal: Optional[bool] = None, position_bias: Optional[Tensor] = None,
              softcap: Optional[float] = None, s_aux: Optional[Tensor] = None,
              **options: Any) -> tuple[Tensor, Optional[Tensor]]:
    """The function that transformers calls: query [B,H,q,c], key [B,Hkv,k,c], value [B,Hkv,k,v];
    the result is [B,q,H,v], and the weights [B,H,q,k] where they are requested."""
    untimed = _wins.UNTIMED and not _always and query.dtype is torch.float32
    if not untimed and not dropout and softcap is None and s_aux is None:
        found = _shortly(module, query, key, value, attention_mask, scaling, is_causal, position_bias, options)
        if found is not None:
            _enable.count()
            return found.transpose(1, 2), None
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = bool(causal) and attention_mask is None and query.shape[2] > 1
    weights = bool(options.get("output_attentions")) or _recorded()
    chosen = options.pop("indices", None), options.pop("block_indices", None)
    if any(x is not None for x in chosen):
        attention_mask = _chosen(module, *chosen, attention_mask, causal, query, key)
        causal = False
    call = _Call(query, key, value, attention_mask, causal, dropout, scaling, position_bias,
                 softcap, s_aux, weights)
    why = _refusal(module, call, options)
    if why is None and untimed:
        if not weights and position_bias is None and softcap is None and s_aux is None:
            return _by_pytorch(call)
        why = _enable.UNTIMED if _eager_of(type(module)) is not None else None
    if why is not None:
        return _eagerly(module, call, options, why)
    if torch.compiler.is_compiling():
        return _attend(call)
    _enable.count()
    return _recorded_call(call) if _engine.recorders.open and not _ops.watched() else _attend(call)


def _chosen(module: torch.nn.Module, indices: Optional[Tensor], blocks: Optional[Tensor], given: Any,
            causal: bool, query: Tensor, key: Tensor) -> Tensor:
    """The mask with no keys but those whose indices [B,q,n] are chosen, and those of the chosen blocks
    [B,h,q,n], of as many keys as the module's indexer has in a block; h divides the heads of the
    query, and -1 is no block."""
    (batch, heads, queries, _), keys = query.shape, key.shape[2]
    mask = torch.ones((), dtype=torch.bool, device=query.device)
    if indices is not None:
        mask = torch.zeros(batch, queries, keys, dtype=torch.bool, device=query.device)
        mask = mask.scatter(-1, indices.long(), True).unsqueeze(1)
    if blocks is not None:
        size = getattr(getattr(module, "indexer", None), "block_size", None)
        if not isinstance(size, int) or size < 1:
            raise UnsupportedError(f"attn: {type(module).__name__}.indexer.block_size is {size}; expected the number of keys "
                                   "in a block")
        if heads % blocks.shape[1]:
            raise UnsupportedError(f"attn: block_indices has the shape {tuple(blocks.shape)}; its axis 1 must divide the {heads} "
                                   "heads")
        count = -(-keys // size)
        of_blocks = torch.zeros(*blocks.shape[:3], count + 1, dtype=torch.bool, device=query.device)
        of_blocks.scatter_(-1, blocks.long().masked_fill(blocks < 0, count), True)
        of_keys = of_blocks[..., :count].repeat_interleave(size, -1)[..., :keys]
        mask = mask & of_keys.repeat_interleave(heads // blocks.shape[1], 1)
    if causal:
        return mask.tril()
    if given is None or given.dtype == torch.bool:
        return mask if given is None else mask & given
    return torch.where(mask, given, torch.finfo(given.dtype).min)


@functools.lru_cache(maxsize=1)
def _collector() -> Any:
    try:
        from transformers.utils.output_capturing import _active_collector
    except ImportError:
        return None
    return _active_collector


def _recorded() -> bool:
    """Whether transformers records weights, as it does under output_attentions=True."""
    collector = _collector()
    found = None if collector is None else collector.get()
    return bool(found and any("attentions" in name for name in found))


def _shortly(module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, given: Any, scaling: Optional[float],
             is_causal: Optional[bool], bias: Optional[Tensor], options: dict[str, Any]) -> Optional[Tensor]:
    """The result for a call like an earlier one; None where the long way has to look."""
    if _engine.recorders.open or not _ops.unwatched() or _recorded():
        return None
    if options and not (_LONG.isdisjoint(options) and _others_of(type(module)).isdisjoint(options)):
        return None
    shape, of_keys = query.shape, key.shape
    if _may_have_sinks(module) or len(shape) != 4 or len(of_keys) != 4:
        return None
    queries, keys = shape[2], of_keys[2]
    mask, causal = None, False
    if given is None:
        causal = queries > 1 and bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    else:
        pattern = given.known() if type(given) is Mask else None
        if pattern is None or pattern.chunk or pattern.offsets is not None or given.sizes != (of_keys[0], 1, queries, keys):
            return None
        first, end = _masks.seen(pattern, queries, keys)
        relations = _masks.band(pattern, queries, first, end - first)
        causal = relations == _sdpa.CAUSAL
        if first == end or relations and not causal or causal and pattern.keys is not None:
            return None
        if end - first < keys:
            key, value = key[:, :, first:end], value[:, :, first:end]
        if pattern.keys is not None:
            mask = pattern.keys[:, None, None, first:end]
    if bias is not None:
        if causal or not _small(bias, queries, keys) or key.shape[2] != keys:
            return None
        bias = bias if bias.dtype is torch.float32 else bias.float()
        bias = bias if mask is None else bias.where(mask, -math.inf)
        mask = bias if queries == 1 or bias.numel() <= 2048 else bias.contiguous()  # as T5 has it, with heads adjacent
    found = _sdpa.quick(query, key, value, mask, causal, scaling, True, _refuses)
    return None if isinstance(found, str) else cast(Optional[Tensor], found)


_SMALL = 2**16  # numbers of a bias that are copied in less time than it takes to look for a table behind them


def _small(bias: Tensor, queries: int, keys: int) -> bool:
    """Whether each call copies a bias of T5's shape, which is small and gets no gradient."""
    return (_ops.plain(bias) and bias.dim() == 4 and bias.shape[2:] == (queries, keys) and bias.numel() <= _SMALL
            and bias.dtype in _BIASES and not (bias.requires_grad and torch.is_grad_enabled()))


_BIASES = frozenset((torch.float32, torch.bfloat16, torch.float16))


def _may_have_sinks(module: torch.nn.Module) -> bool:
    """As hasattr, which takes longest where there are none."""
    held = vars(module)
    return ("sinks" in held or "sinks" in held.get("_parameters", ()) or "sinks" in held.get("_buffers", ())
            or _declares_sinks(type(module)))


@_kept
def _declares_sinks(kind: type) -> bool:
    return hasattr(kind, "sinks")


_LONG = frozenset(("indices", "block_indices", "output_attentions"))  # options of which each needs the long way


def _refuses(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> Optional[str]:
    """Why the tensors of a first call of its kind are not those of attention; None: they are."""
    return _of_tensors(_Call(query, key, value, None, False, 0.0, None, None, None, None, False))


# ------------------------------------------------------------------------------ the eager function


@_kept
def _eager_of(kind: type) -> Optional[Callable[..., Any]]:
    """The eager function of a class of modules: the one that its forward, or that of a class which it
    is derived from, refers to; or else the one in their files that has the usual name."""
    for base in kind.__mro__:
        forward: Any = inspect.unwrap(base.__dict__["forward"]) if callable(base.__dict__.get("forward")) else None
        for name in forward.__code__.co_names if inspect.isfunction(forward) else ():
            found = forward.__globals__.get(name)
            if inspect.isfunction(found) and _is_eager(found):
                return cast(Callable[..., Any], found)
    for base in kind.__mro__:
        found = getattr(sys.modules.get(base.__module__), "eager_attention_forward", None)
        if found is not None:
            return cast(Callable[..., Any], found)
    return None


def _is_eager(function: Callable[..., Any]) -> bool:
    names = list(inspect.signature(function).parameters)
    wanted = "module", "query", "key", "value", "attention_mask"
    return len(names) >= len(wanted) and all(map(str.startswith, names, wanted))


# Arguments of eager functions, after their first five, that attn takes or that the mask contains.
_TAKEN = frozenset(("scaling", "dropout", "is_causal", "position_bias", "softcap", "s_aux", "sliding_window",
                    "output_attentions", "kwargs"))


@_kept
def _others_of(kind: type) -> frozenset[str]:
    """The other arguments of the eager function: attn has nothing that would compute them."""
    found = _eager_of(kind)
    return frozenset() if found is None else frozenset(list(inspect.signature(found).parameters)[5:]) - _TAKEN


def _eagerly(module: torch.nn.Module, call: _Call, options: dict[str, Any],
             why: str) -> tuple[Tensor, Optional[Tensor]]:
    """The result of the model's own function."""
    eager = _eager_of(type(module))
    if eager is None:
        raise UnsupportedError(f"attn does not support this call of {type(module).__name__} ({why}), and its source file has no "
                               "eager_attention_forward that could compute the call")
    if call.mask is not None and not isinstance(call.mask, Tensor):
        raise UnsupportedError(f"attn: {why}, and the model's eager function takes no "
                               f"{type(call.mask).__name__}")
    if not torch.compiler.is_compiling():
        _enable.count_other("the model's eager function", why)
    given = {"position_bias": call.bias, "softcap": call.softcap, "s_aux": call.sinks}
    options = {**options, **{name: x for name, x in given.items() if x is not None}}
    scaling = call.query.shape[-1] ** -0.5 if call.scaling is None else call.scaling
    found: tuple[Tensor, Optional[Tensor]] = eager(
        module, call.query, call.key, call.value, _to_add(_dense(call), call.query.dtype),
        dropout=call.dropout, scaling=scaling, **options)
    if not torch.compiler.is_compiling():
        for block in _engine.recorders.open:
            block.given(found[1], why)
    return found


def _by_pytorch(call: _Call) -> tuple[Tensor, None]:
    """The result of PyTorch's scaled_dot_product_attention."""
    if not torch.compiler.is_compiling():
        _enable.count_other("PyTorch", _enable.UNTIMED)
    groups = call.query.shape[1] // call.key.shape[1]
    key, value = (x if groups == 1 else x.repeat_interleave(groups, dim=1) for x in (call.key, call.value))
    mask = None if call.causal else _dense(call)
    o = torch.nn.functional.scaled_dot_product_attention(call.query, key, value, attn_mask=mask, dropout_p=call.dropout,
                                                         is_causal=call.causal, scale=call.scaling)
    return o.transpose(1, 2), None


def _dense(call: _Call) -> Any:
    """The call's mask as an ordinary tensor, or None."""
    if call.causal:
        shape = call.query.shape[2], call.key.shape[2]
        return torch.ones(shape, dtype=torch.bool, device=call.query.device).tril()
    return call.mask.dense() if isinstance(call.mask, Mask) else call.mask


def _to_add(given: Optional[Tensor], dtype: torch.dtype) -> Optional[Tensor]:
    """The mask as eager functions take it."""
    if given is None or given.dtype != torch.bool:
        return given
    return _masks.to_add(given, dtype)


# --------------------------------------------------------------------------------- what attn takes


def _refusal(module: torch.nn.Module, call: _Call, options: dict[str, Any]) -> Optional[str]:
    """Why attn does not take a call; None where it does."""
    if options and not torch.compiler.is_compiling():
        for name in _others_of(type(module)) & options.keys():
            if options[name] is not None:
                return f"the argument {name} has no counterpart in attn"
    if call.sinks is None and getattr(module, "sinks", None) is not None:
        return "the module has sinks that are not passed as s_aux"
    return _of_tensors(call) or _of_mask(call) or _of_numbers(call)


def _of_tensors(call: _Call) -> Optional[str]:
    for name, x in zip(("query", "key", "value", "position_bias", "s_aux"),
                       (call.query, call.key, call.value, call.bias, call.sinks)):
        if x is None:
            continue
        if not x.is_cpu and not x.is_meta:
            return f"{name} is on {x.device}"
        if x.is_nested or x.layout != torch.strided or _ops._has_own_rules(x):
            return f"{name} is not a plain tensor"
    q, k, v = _sdpa.autocast(call.query, call.key, call.value)
    if q.dtype not in _engine.TYPES and q.dtype != torch.float16:
        return f"query is of {q.dtype}"
    if k.dtype != q.dtype or v.dtype != q.dtype:
        return f"query is of {q.dtype}, key of {k.dtype}, value of {v.dtype}"
    if not q.dim() == k.dim() == v.dim() == 4:
        return f"query, key and value have {q.dim()}, {k.dim()} and {v.dim()} axes"
    heads, groups = q.shape[1], k.shape[1]
    if v.shape[1] != groups or groups == 0 or heads % groups:
        return f"query has {heads} heads, key {groups} and value {v.shape[1]}"
    if q.shape[3] != k.shape[3] or k.shape[2] != v.shape[2]:
        return "the lengths or channels of query, key and value differ"
    return None


def _of_mask(call: _Call) -> Optional[str]:
    batch, heads, queries, _ = call.query.shape
    shape = max(batch, call.key.shape[0]), heads, queries, call.key.shape[2]
    if call.bias is None and isinstance(call.mask, Mask) and call.mask.sizes == (shape[0], 1, *shape[2:]):
        return None
    for name, x in (("the mask", call.mask), ("position_bias", call.bias)):
        if not isinstance(x, Tensor):
            continue
        if x.device != call.query.device:
            return f"{name} is on {x.device}, query on {call.query.device}"
        if x.dim() > 4 or any(n not in (1, m) for n, m in zip(reversed(x.shape), reversed(shape))):
            return f"{name} has a shape that does not broadcast to the scores"
        if x.dtype != torch.bool and not x.is_floating_point():
            return f"{name} is of {x.dtype}"
    kind = type(call.mask).__name__
    if call.mask is not None and not isinstance(call.mask, Tensor) and kind != "BlockMask":
        return f"the mask is of type {kind}"
    return None


def _of_numbers(call: _Call) -> Optional[str]:
    if call.softcap is not None and not 1e-30 <= call.softcap <= 1e30:
        return f"softcap is {call.softcap}"
    if call.sinks is not None and tuple(call.sinks.shape) != (call.query.shape[1],):
        return "s_aux is not one number for each head"
    scaling = call.scaling
    if isinstance(scaling, Tensor) and (scaling.requires_grad or scaling.numel() != 1):
        return "scaling is a tensor that needs a gradient or has several numbers"
    if _ops.in_forward_mode():
        return "forward-mode derivatives are requested"
    return _of_weights(call) if call.weights else None


def _of_weights(call: _Call) -> Optional[str]:
    if call.dropout:
        return "weights are requested together with dropout"
    if call.sinks is not None:
        return "weights are requested together with sinks"
    if call.mask is not None and not isinstance(call.mask, Tensor):
        return "weights are requested together with a BlockMask"
    if _weights.watched() or not all(map(_ops.plain, (call.query, call.key, call.value))):
        return "weights are requested in a graph, a mode or a transform"
    return None


# -------------------------------------------------------------------------------------- the engine


class _Read(NamedTuple):
    """A call as the engine takes it."""

    query: Tensor
    key: Tensor
    value: Tensor
    bias: Optional[Tensor]
    mask: Optional[Tensor]
    relations: tuple[int, ...]
    blocks: Optional[Tensor]
    offsets: Optional[Tensor]
    indices: Optional[Tensor]  # if the bias is a table [rows,H]: the row for each distance


def _attend(call: _Call) -> tuple[Tensor, Optional[Tensor]]:
    query, key, value = _sdpa.autocast(call.query, call.key, call.value)
    call = call._replace(query=query, key=key, value=value)
    read = _read(call)
    if _usual(call, read):
        o: Tensor = _sdpa.scaled_dot_product_attention(
            read.query, read.key, read.value, read.mask if read.bias is None else read.bias,
            call.dropout, bool(read.relations), call.scaling, True)
        return o.transpose(1, 2), None
    problem, tensors, sinks = _asked(call, read)
    if call.weights:
        seen = _dense(call)
        seen = None if seen is None or seen.dtype != torch.bool else seen
        o, weights = _weights.weighted(problem, tensors, seen, call.scaling)
        return o.to(query.dtype).transpose(1, 2), weights.to(query.dtype)
    q, k, v, bias, mask = tensors
    o = _ops.attend(problem, q, k, v, bias, mask, (read.offsets, read.offsets), sinks,
                    read.indices, read.blocks)[0].transpose(1, 2)
    if read.offsets is not None:
        o = o.reshape(query.shape[0], query.shape[2], *o.shape[2:])
    return (o if o.dtype == query.dtype else o.to(query.dtype)), None


def _recorded_call(call: _Call) -> tuple[Tensor, Optional[Tensor]]:
    """The result; blocks that record weights get those of all pairs [B,H,q,k]."""
    with _weights.paused() as blocks:
        found = _attend(call)
    if call.weights:
        for block in blocks:
            block.given(found[1], "")
        return found
    query, key, value = _sdpa.autocast(call.query, call.key, call.value)
    call = call._replace(query=query, key=key, value=value, weights=True)
    read = _read(call)
    problem, tensors, sinks = _asked(call, read)
    for block in blocks:
        block.take(problem, tensors, sinks=sinks, blocks=read.blocks)
    return found


def _asked(call: _Call, read: _Read) -> tuple[Problem, tuple[Any, ...], Optional[Tensor]]:
    """The problem, its tensors (q, k, v, bias, mask), and the sinks."""
    half = read.query.dtype == torch.float16
    qkv = tuple(x.float() if half else x for x in read[:3])
    return (_problem(call, read), (*qkv, read.bias, read.mask),
            _variants._sinks(call.sinks, call.query))


def _usual(call: _Call, read: _Read) -> bool:
    """Whether a call is one of scaled_dot_product_attention, which has a shorter way."""
    given = (read.mask is not None) + (read.bias is not None) + bool(read.relations)
    return (given < 2 and read.relations in ((), _sdpa.CAUSAL) and not call.weights
            and not call.softcap and call.sinks is None and read.indices is None)


def _read(call: _Call) -> _Read:
    query, key, value, given, bias = call.query, call.key, call.value, call.mask, call.bias
    queries, keys = query.shape[2], key.shape[2]
    pattern = Pattern(hi=0) if call.causal else Pattern()
    mask: Optional[Tensor] = None
    blocks: Optional[Tensor] = None
    index: Optional[Tensor] = None
    relations: tuple[int, ...] = ()
    tables = bias is not None and bias.shape[2:] == (queries, keys) and queries > 1 and not call.weights
    known = given.known() if isinstance(given, Mask) else None
    if isinstance(given, Mask) and known is None:
        mask = given.dense()
    elif isinstance(given, Mask) and known is not None:
        pattern = known
        if (pattern.offsets is not None and (bias is not None or call.weights)) \
                or (pattern.chunk and call.weights):
            pattern, mask = Pattern(), given.dense()
        elif pattern.keys is not None:
            mask = pattern.keys[:, None, None, :]
    elif isinstance(given, Tensor) and given.dtype == torch.bool:
        mask = given
    elif isinstance(given, Tensor):
        bias, tables = given if bias is None else bias + given, False
    elif given is not None:
        sizes, blocks, mask = _variants._blocks(given, (*query.shape[:3], keys))
        relations = (_form.BLOCKS, ord("q"), ord("k"), *sizes)
    if bias is not None:
        bias, index = _prepared(bias, query.dtype, tables)
    mask = None if mask is None else _four(mask)
    if pattern.chunk:
        shape = -(-queries // pattern.chunk), -(-keys // pattern.chunk)
        blocks = torch.eye(*shape, dtype=torch.bool, device=query.device)[None, None]
        relations = (_form.BLOCKS, ord("q"), ord("k"), pattern.chunk, pattern.chunk)
    first, end = _masks.seen(pattern, queries, keys)
    if end - first < keys and blocks is None and pattern.offsets is None and not call.weights:
        key, value = key[:, :, first:end], value[:, :, first:end]
        bias, mask = (x if x is None or x.dim() < 4 or x.shape[3] == 1 else x[..., first:end]
                      for x in (bias, mask))
        index = None if index is None else index[first:end + queries - 1]
    else:
        first, end = 0, keys
    relations = (*_masks.band(pattern, queries, first, end - first), *relations)
    if pattern.offsets is not None:
        lengths = pattern.longest, pattern.longest, pattern.offsets.shape[0] - 1
        relations += (_form.PACKED, ord("q"), ord("k"), *lengths, 0)
        query, key, value = map(_end_to_end, (query, key, value))
    if index is not None:
        relations += _variants._index_relation(index, queries, end - first)
    return _Read(query, key, value, bias, mask, relations, blocks, pattern.offsets, index)


def _four(x: Tensor) -> Tensor:
    return x if x.dim() == 4 else x.reshape((1,) * (4 - x.dim()) + tuple(x.shape))


def _prepared(bias: Tensor, dtype: torch.dtype, tables: bool) -> tuple[Tensor, Optional[Tensor]]:
    """A bias in the type of scores with keys next to each other in memory, and None; with heads
    there, as T5's has them, attention takes twice as long.  If the bias depends only on the
    distance of key and query, and if `tables` allows it: a table and its index.  Nothing is kept for
    the next layer: a program may write into the bias without a trace, through .data or NumPy."""
    sums = _engine.sums_of(dtype)
    expanded = any(step == 0 and n > 1 for n, step in zip(bias.shape, bias.stride()))
    adjacent = expanded or bias.dim() == 0 or bias.stride(-1) <= 1 or bias.shape[-1] == 1
    if adjacent and bias.dtype == sums:
        return _four(bias), None
    tables = tables and type(bias) is Tensor and not _ops.watched() and not _distance.has_hooks(bias)
    found = _distance.distances(bias) if tables else None
    if found is not None:  # a copy of the table, which does not change with the parameter, as the bias does not
        return found.table.to(sums, copy=True, memory_format=torch.contiguous_format), found.indices
    if adjacent:
        return _four(_sdpa.as_sums(bias, dtype)), None
    return _four(bias.to(sums, memory_format=torch.contiguous_format).contiguous()), None


def _end_to_end(x: Tensor) -> Tensor:
    """[B,H,T,D] as [1,H,B*T,D]."""
    if x.shape[0] != 1:
        x = x.transpose(1, 2).reshape(1, -1, x.shape[1], x.shape[3]).transpose(1, 2)
    return _engine.own_positions(x)


def _problem(call: _Call, read: _Read) -> Problem:
    batch = "A" if read.offsets is None else "S"
    pairs = batch + "(XY)qk"
    added = "1(XY)" if read.indices is not None else pairs if read.bias is not None else ""
    form = (f"{batch}(XY)qc,{batch}Xkc,{batch}Xkv->{batch}(XY)qv;{batch}q(XY)v;{added};"
            f"{pairs if read.mask is not None else ''}")
    score, scale = _sdpa._scale_of(call.scaling, read.query.shape[3])
    softcap = _variants._softcap(call.softcap)
    return Problem(form, scale, float(call.dropout), read.relations, score, softcap)
