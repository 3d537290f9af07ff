# SPDX-License-Identifier: MIT
"""attn in place of PyTorch's kernels of scaled_dot_product_attention, where attn takes the call.

PyTorch's functions stay what they are: its dispatcher calls attn's kernels of the same operators.  So modes, transforms,
subclasses of tensors, TorchScript and compiled graphs treat a call as they treat any call of the operator.
"""
from __future__ import annotations

import itertools
import math
import threading
from collections import Counter
from typing import Any, Callable, Literal, Optional, Union, overload

import torch
from torch import Tensor

from .._errors import ArgumentError, Error as AttnError
from . import _engine, _ops, _sdpa, _weights, _wins

_TAKEN = frozenset((torch.float32, torch.bfloat16, torch.float16))
_lock = threading.Lock()
# Counts the calls that attn took; next() needs no lock.  calls() reads it by next() too: _looks counts these reads.
_counter, _looks = itertools.count(), 0
_others: Counter[str] = Counter()  # calls that attn did not take, by who computed them and why
_open: list["enable"] = []
_unwatched, _quick, _count_call = _ops.unwatched, _sdpa.quick, next
_flash_allowed = torch._C._get_flash_sdp_enabled  # not under sdpa_kernel(MATH), which requests PyTorch's formula


def _allowed(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], is_causal: bool,
             enable_gqa: bool) -> bool:
    """Whether attn may take a call without dropout, which would draw other numbers than PyTorch's from the same seed; what
    PyTorch would refuse is left to it, words and all, and so are subclasses of tensors."""
    if not all(x is None or type(x) in _ops._PLAIN for x in (query, key, value, attn_mask)):
        return False
    for x in (query, key, value):
        if x.is_nested or x.device.type != "cpu" or x.dtype not in _TAKEN or x.dim() not in (3, 4):
            return False
        if x.layout != torch.strided:
            return False
    if not query.dtype == key.dtype == value.dtype:
        return False
    if is_causal and attn_mask is not None:
        return False
    if not (query.dim() == key.dim() == value.dim() and key.shape[:-1] == value.shape[:-1]
            and query.shape[-1] == key.shape[-1] and query.shape[:-3] == key.shape[:-3]):
        return False
    if query.shape[-3] != key.shape[-3] and not (enable_gqa and query.dim() == 4 and key.shape[1] > 0
                                                 and query.shape[1] % key.shape[1] == 0):
        return False
    return attn_mask is None or (attn_mask.device.type == "cpu" and attn_mask.dtype in (torch.bool, torch.float32, query.dtype)
                                 and _sdpa.mask_fits(query, key, value, attn_mask))


def _faster(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], is_causal: bool,
            enable_gqa: bool) -> bool:
    if not _allowed(query, key, value, attn_mask, is_causal, enable_gqa):
        return False
    return _wins.wins(query, key, attn_mask, is_causal, _ops.records(query, key, value, attn_mask))


_takes: Optional[Callable[..., bool]] = None  # None while nothing is enabled


def _finite(scale: Optional[float]) -> bool:
    return scale is None or -math.inf < scale < math.inf


# ------------------------------------------------------------------------------------------------- the operators

_sdpa_operator = torch.ops.aten.scaled_dot_product_attention.default
_composite = torch._C.DispatchKey.CompositeImplicitAutograd
_fused_operator = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_fused_backward_operator = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
_on_cpu = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


def _attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None, dropout_p: float = 0.0,
               is_causal: bool = False, *, scale: Optional[float] = None, enable_gqa: bool = False) -> Tensor:
    """aten::scaled_dot_product_attention: whatever watches the call is shown PyTorch's parts of it."""
    decided = False
    takes = _takes
    if (takes is not None and query.dtype in _TAKEN and dropout_p == 0 and _flash_allowed()
            and _finite(scale) and _unwatched()):
        found: Any = _quick(query, key, value, attn_mask, is_causal, scale, enable_gqa, takes)
        if found is None and query.dtype is not torch.float32:
            found = _converted(query, key, value, attn_mask, is_causal, scale, enable_gqa, takes)
        decided = found is NotImplemented
        if found is not None and not decided:
            _count_call(_counter)
            return found  # type: ignore[no-any-return]
    def theirs() -> Tensor:
        found: Tensor = _sdpa_operator._op_dk(_composite, query, key, value, attn_mask, dropout_p, is_causal, scale=scale,
                                              enable_gqa=enable_gqa)
        return found

    _call.left = decided
    try:
        if takes is not None and _engine.recorders.open and not _ops.watched():
            return _recorded(theirs, query, key, value, attn_mask, is_causal, scale, enable_gqa)
        return theirs()
    finally:
        _call.left = False


def _recorded(theirs: Callable[[], Tensor], query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor],
              is_causal: bool, scale: Optional[float], enable_gqa: bool) -> Tensor:
    """PyTorch's result of a call; blocks that record weights get those of the engine."""
    with _weights.paused() as blocks:
        found = theirs()
    try:
        if not all(x is None or (_ops.plain(x) and not x.is_nested) for x in (query, key, value, attn_mask)):
            raise ArgumentError("tensors that are not plain ones on the CPU")
        asked = _sdpa._ask(query, key, value, attn_mask, 0.0, is_causal, scale, enable_gqa)
    except (AttnError, TypeError) as error:
        for block in blocks:
            block.given(None, str(error))
    else:
        for block in blocks:
            block.take(asked.problem, asked[1:])
    return found


def _converted(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], is_causal: Any,
               scale: Any, enable_gqa: Any, takes: Callable[..., bool]) -> Any:
    """As `_quick`, for operands that the engine reads in another type: float16, masks of bfloat16."""
    if not isinstance(is_causal, bool) or not isinstance(enable_gqa, bool):
        return None
    if scale is not None and not isinstance(scale, (int, float)):
        return None
    if not all(x is None or _ops.plain(x) for x in (query, key, value, attn_mask)):
        return None
    if not takes(query, key, value, attn_mask, is_causal, enable_gqa):
        return NotImplemented
    return _sdpa.scaled_dot_product_attention(query, key, value, attn_mask, 0.0, is_causal, scale,
                                              enable_gqa)


class _Call(threading.local):
    left = False  # whether it was decided that the call under way is PyTorch's


_call = _Call()


def _takes_fused(query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor], dropout_p: float, is_causal: bool,
                 scale: Optional[float], backward: bool) -> bool:
    """Whether attn takes a call of the fused operator, to which compiled graphs and transforms come."""
    takes = _takes
    if takes is None or _call.left or query.dtype not in _TAKEN or dropout_p != 0 or not _finite(scale):
        return False
    if not _allowed(query, key, value, mask, is_causal, True):
        return False
    return query.shape[-1] == value.shape[-1] and (takes is _allowed or _wins.wins(query, key, mask, is_causal, backward))


def _fused(theirs: Any) -> Callable[..., tuple[Tensor, Tensor]]:
    """aten::_scaled_dot_product_flash_attention_for_cpu; results have the memory layout of PyTorch's."""
    def kernel(query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False, *,
               attn_mask: Optional[Tensor] = None, scale: Optional[float] = None) -> tuple[Tensor, Tensor]:
        if not _takes_fused(query, key, value, attn_mask, dropout_p, is_causal, scale,
                            _ops.records(query, key, value)):
            found: tuple[Tensor, Tensor] = theirs(_on_cpu, query, key, value, dropout_p, is_causal, attn_mask=attn_mask,
                                                  scale=scale)
            return found
        asked = _sdpa._ask(query, key, value, attn_mask, 0.0, is_causal, scale, True)
        batch, heads, queries = query.shape[:3]
        lse = query.new_empty(batch, queries, heads, dtype=torch.float32).transpose(1, 2)
        o = torch.empty_like(query)
        wide = o if asked.q is query else torch.empty_like(asked.q)
        _engine.forward_into(asked.problem, asked[1:], wide, lse)
        if wide is not o:
            o.copy_(wide)
        if attn_mask is not None:
            lse.nan_to_num_(math.nan, math.inf, 0.0)  # of rows without keys; PyTorch's backward pass needs it
        _count_call(_counter)
        return o, lse

    return kernel


def _fused_backward(theirs: Any) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """aten::_scaled_dot_product_flash_attention_for_cpu_backward, of either's forward pass."""
    def kernel(grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
               dropout_p: float, is_causal: bool, *, attn_mask: Optional[Tensor] = None,
               scale: Optional[float] = None) -> tuple[Tensor, Tensor, Tensor]:
        if not _takes_fused(query, key, value, attn_mask, dropout_p, is_causal, scale, True):
            found: tuple[Tensor, Tensor, Tensor] = theirs(_on_cpu, grad_out, query, key, value, out, logsumexp, dropout_p,
                                                          is_causal, attn_mask=attn_mask, scale=scale)
            return found
        asked = _sdpa._ask(query, key, value, attn_mask, 0.0, is_causal, scale, True)
        grads = [x.new_empty(x.shape[0], x.shape[2], x.shape[1], x.shape[3]).transpose(1, 2) for x in asked[1:4]]
        if asked.q is not query:
            grad_out, out = grad_out.float(), out.float()
        _engine.backward_into(asked.problem, grad_out, asked[1:], out, logsumexp, (True, True, True, False), grads)
        dq, dk, dv = (x.to(query.dtype) for x in grads)
        return dq, dk, dv

    return kernel


def _hook_in() -> Any:
    """Registers the kernels; they stay until the library that holds them is destroyed."""
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    for key in ("AutogradCPU", "CPU"):
        library.impl(_sdpa_operator, _attention, key)
    if hasattr(torch.library, "get_kernel"):  # without it nothing leads back to PyTorch's kernels
        for operator, kernel in ((_fused_operator, _fused), (_fused_backward_operator, _fused_backward)):
            library.impl(operator, kernel(torch.library.get_kernel(operator, "CPU").call_boxed), "CPU")
    return library


# ---------------------------------------------------------------------------------------------------- the switch

_hooks: Any = None


class enable:
    """attn computes torch.nn.functional.scaled_dot_product_attention for tensors of float32, bfloat16 and float16 (which is
    converted to float32 and back) on the CPU, without dropout, where attn is faster, also in calls from PyTorch's
    modules, TorchScript, compiled graphs, calls under autocast.  Other calls are PyTorch's as before.

    As a call it holds until `disable()`; `with attn.torch.enable():` holds until the end of the block.  always=True takes
    the slower calls too.
    """

    def __init__(self, always: bool = False) -> None:
        self.always = always
        self._begin()

    def _begin(self) -> None:
        global _hooks
        with _lock:
            if self not in _open:
                _open.append(self)
            if _hooks is None:
                _hooks = _hook_in()
            _choose()

    def __enter__(self) -> "enable":
        self._begin()  # an object may serve several blocks
        return self

    def __exit__(self, *_: Any) -> None:
        with _lock:
            if self in _open:
                _open.remove(self)
            _choose()


def _choose() -> None:
    """The kernels stay registered when a block ends: PyTorch's table of kernels must not change while other threads use it."""
    global _takes
    _takes = None if not _open else _allowed if any(one.always for one in _open) else _faster


def disable() -> None:
    """PyTorch's own kernels again, however often `enable` was called; in no other thread may attention run meanwhile."""
    global _hooks
    with _lock:
        _open.clear()
        _choose()
        _hooks = None


def count() -> None:
    """Counts a call that attn took."""
    _count_call(_counter)


def count_other(way: str) -> None:
    """Counts a call that another function computed, by its name and the reason."""
    with _lock:
        _others[way] += 1


@overload
def calls(verbose: Literal[False] = False) -> int: ...
@overload
def calls(verbose: Literal[True]) -> str: ...
def calls(verbose: bool = False) -> Union[int, str]:
    """How many calls attn has taken since the program began, under `enable` and from transformers (`register`).  Under
    `enable` the forward passes of a compiled graph count.  verbose=True: text, with a line more for each kind of call from
    transformers that a model's eager function computed, the most frequent first."""
    global _looks
    with _lock:
        _looks += 1
        taken = next(_counter) - _looks + 1
        others = _others.most_common()
    return "\n".join([f"{taken} by attn", *(f"{n} by {way}" for way, n in others)]) if verbose else taken
