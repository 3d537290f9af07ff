# SPDX-License-Identifier: MIT
"""attn in place of PyTorch's kernels of scaled_dot_product_attention, where attn takes the call.

PyTorch's functions stay what they are: its dispatcher calls attn's kernels of the same operators.  So modes, transforms,
subclasses of tensors, TorchScript and compiled graphs treat a call as they treat any call of the operator.
"""
from __future__ import annotations

import contextlib
import itertools
import math
import threading
from collections import Counter
from typing import Any, Callable, Iterator, Literal, Optional, Union, overload

import torch
from torch import Tensor

from .._errors import ArgumentError, Error as AttnError, UnsupportedError
from . import _engine, _flex, _linear, _ops, _sdpa, _weights, _wins

_TAKEN = frozenset((torch.float32, torch.bfloat16, torch.float16))
_lock = threading.Lock()
# Counts the calls that attn took; next() needs no lock.  calls() reads it by next() too: _looks counts these reads.
_counter, _looks = itertools.count(), 0
_products = itertools.count()  # as _counter, of products of matrices
_others: Counter[tuple[str, str]] = Counter()  # calls that attn did not take, by who computed them and why
_open: list["enable"] = []
_eager, _quick, _count_call = _ops.eager, _sdpa.quick, next
_BY_PYTORCH, _WATCHED = "PyTorch", "the call runs under a mode, a transform, a tracer or forward mode"
_flash_allowed = torch._C._get_flash_sdp_enabled  # not under sdpa_kernel(MATH), which requests PyTorch's formula


def _refusal(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], is_causal: bool,
             enable_gqa: bool) -> Optional[str]:
    """Why attn leaves a call to PyTorch, None where it may take it; what PyTorch would refuse is left to it, words and
    all, and so are subclasses of tensors."""
    for name, x in (("query", query), ("key", key), ("value", value), ("attn_mask", attn_mask)):
        if x is not None and type(x) not in _ops._PLAIN:
            return f"{name} is a {type(x).__name__}"
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.is_nested or x.layout != torch.strided:
            return f"{name} is nested or sparse"
        if x.device.type != "cpu":
            return f"{name} is on {x.device}"
        if x.dtype not in _TAKEN:
            return f"{name} is of {x.dtype}"
        if x.dim() not in (3, 4):
            return f"{name} has {x.dim()} axes"
    if not query.dtype == key.dtype == value.dtype:
        return "the types of query, key and value differ"
    if is_causal and attn_mask is not None:
        return "attn_mask and is_causal at once"
    if not (query.dim() == key.dim() == value.dim() and key.shape[:-1] == value.shape[:-1]
            and query.shape[-1] == key.shape[-1] and query.shape[:-3] == key.shape[:-3]):
        return "query, key and value differ in a batch, a length or channels"
    if query.shape[-3] != key.shape[-3] and not (enable_gqa and query.dim() == 4 and key.shape[1] > 0
                                                 and query.shape[1] % key.shape[1] == 0):
        return "query, key and value differ in their heads"
    if attn_mask is None:
        return None
    if attn_mask.device.type != "cpu" or attn_mask.dtype not in (torch.bool, torch.float32, query.dtype):
        return f"attn_mask is of {attn_mask.dtype} on {attn_mask.device}"
    return None if _sdpa.mask_fits(query, key, value, attn_mask) else "attn_mask has a shape that does not broadcast to the scores"


_SLOWER = "PyTorch is faster for calls of this kind"
UNTIMED = "float32 is not timed on ARM (always=True takes it)"


def _untimed(query: Tensor) -> bool:
    """Whether the call is left to PyTorch because attn was never timed on this processor in its type."""
    return _wins.UNTIMED and query.dtype is torch.float32 and _refuses is not _refusal


def _slower(query: Tensor) -> str:
    return UNTIMED if _untimed(query) else _SLOWER


def _refusal_or_slower(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], is_causal: bool,
                       enable_gqa: bool) -> Optional[str]:
    why = _refusal(query, key, value, attn_mask, is_causal, enable_gqa)
    if why is not None:
        return why
    return None if _wins.wins(query, key, attn_mask, is_causal, _ops.records(query, key, value, attn_mask)) else _slower(query)


_refuses: Optional[Callable[..., Optional[str]]] = None  # None while nothing is enabled


def _finite(scale: Optional[float]) -> bool:
    return scale is None or -math.inf < scale < math.inf


# ------------------------------------------------------------------------------------------------- the operators

_sdpa_operator = torch.ops.aten.scaled_dot_product_attention.default
_composite = torch._C.DispatchKey.CompositeImplicitAutograd
_fused_operator = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_fused_backward_operator = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
_HAS_KERNELS = hasattr(torch.library, "get_kernel")


class _Beneath:
    """The kernel that an operator had before attn's: PyTorch's, or another package's."""

    def __init__(self, operator: Any, key: str) -> None:
        self.operator = operator
        self.kernel: Any = torch.library.get_kernel(operator, key).call_boxed if _HAS_KERNELS else None

    def __call__(self, keys: Any, *inputs: Any, **named: Any) -> Any:
        if self.kernel is not None:
            try:
                return self.kernel(keys, *inputs, **named)
            except RuntimeError as error:
                if "SafeKernelFunction has been invalidated" not in str(error):
                    raise
            if self.operator is not _sdpa_operator:
                raise UnsupportedError(f"attn: the kernel of {self.operator} that attn calls was removed by the package that made "
                                       "it; call attn.torch.disable() and then enable(), which find PyTorch's kernel")
            self.kernel = None
        return self.operator._op_dk(_composite, *inputs, **named)


class _Call(threading.local):
    left = False  # whether it was decided that the call under way is not attn's
    met = False  # whether a kernel of the fused operator has counted the call under way


_call = _Call()


def _attention(beneath: _Beneath) -> Callable[..., Tensor]:
    """aten::scaled_dot_product_attention: whatever watches the call is shown PyTorch's parts of it."""
    def kernel(keys: Any, query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None,
               dropout_p: float = 0.0, is_causal: bool = False, *, scale: Optional[float] = None,
               enable_gqa: bool = False) -> Tensor:
        why, refuses = None, _refuses
        if refuses is not None and _eager():
            found: Any = None
            if query.dtype in _TAKEN and dropout_p == 0 and _flash_allowed() and _finite(scale):
                found = _quick(query, key, value, attn_mask, is_causal, scale, enable_gqa, refuses)
            if found is None:
                found = _slowly(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, refuses)
            if isinstance(found, Tensor):
                _count_call(_counter)
                return found
            why = found

        call = _call
        before = call.left, call.met
        call.left, call.met = why is not None, False
        try:
            with _recorded(query, key, value, attn_mask, is_causal, scale, enable_gqa) \
                    if refuses is not None and _engine.recorders.open and not _ops.watched() else _nothing:
                o: Tensor = beneath(keys, query, key, value, attn_mask, dropout_p, is_causal, scale=scale,
                                    enable_gqa=enable_gqa)
            if refuses is not None and not call.met and type(query) in _ops._PLAIN:
                count_other(_BY_PYTORCH, why or _WATCHED)
            return o
        finally:
            call.left, call.met = before

    return kernel


_nothing = contextlib.nullcontext()


@contextlib.contextmanager
def _recorded(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], is_causal: bool,
              scale: Optional[float], enable_gqa: bool) -> Iterator[None]:
    """Around a call that PyTorch computes: blocks that record weights get those of the engine."""
    with _weights.paused() as blocks:
        yield
    try:
        if not all(x is None or (_ops.plain(x) and not x.is_nested) for x in (query, key, value, attn_mask)):
            raise ArgumentError("query, key, value and attn_mask must be plain tensors on the CPU")
        asked = _sdpa._ask(query, key, value, attn_mask, 0.0, is_causal, scale, enable_gqa)
    except (AttnError, TypeError) as error:
        for block in blocks:
            block.given(None, str(error))
    else:
        for block in blocks:
            block.take(asked.problem, asked[1:])


def _slowly(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], dropout_p: float, is_causal: bool,
            scale: Optional[float], enable_gqa: bool, refuses: Callable[..., Optional[str]]) -> Any:
    """As `_quick`, for operands that the engine reads in another type, and for dropout, with which PyTorch has no fused
    kernel that could be faster."""
    if query.dtype not in _TAKEN:
        return f"query is of {query.dtype}"
    if not _flash_allowed():
        return "sdpa_kernel() excludes fused kernels"
    if not _finite(scale):
        return f"scale is {scale}"
    if not 0 <= dropout_p <= 1:
        return f"dropout_p is {dropout_p}"
    decides: Callable[..., Optional[str]] = _refusal if dropout_p and not _untimed(query) else refuses
    why = decides(query, key, value, attn_mask, is_causal, enable_gqa)
    if why is not None:
        return why
    if not all(x is None or _ops.plain(x) for x in (query, key, value, attn_mask)):
        return None
    return _sdpa.computed(query, _sdpa._ask(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa))


def _refusal_of_fused(query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor], dropout_p: float, is_causal: bool,
                      scale: Optional[float], backward: bool) -> Optional[str]:
    """Why attn leaves a call of the fused operator, to which compiled graphs and transforms come."""
    if dropout_p != 0 or not _finite(scale):
        return f"scale is {scale} and dropout_p {dropout_p}"
    why = _refusal(query, key, value, mask, is_causal, True)
    if why is not None:
        return why
    if query.shape[-1] != value.shape[-1]:
        return "query and value differ in their channels"
    return None if _refuses is _refusal or _wins.wins(query, key, mask, is_causal, backward) else _slower(query)


def _fused(beneath: _Beneath) -> Callable[..., tuple[Tensor, Tensor]]:
    """aten::_scaled_dot_product_flash_attention_for_cpu; results have the memory layout of PyTorch's."""
    def kernel(keys: Any, query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False, *,
               attn_mask: Optional[Tensor] = None, scale: Optional[float] = None) -> tuple[Tensor, Tensor]:
        counts = _refuses is not None and not _call.left
        why = None if not counts else _refusal_of_fused(query, key, value, attn_mask, dropout_p, is_causal, scale,
                                                        _ops.records(query, key, value))
        _call.met = _call.met or counts
        if not counts or why is not None:
            if why is not None:
                count_other(_BY_PYTORCH, why)
            found: tuple[Tensor, Tensor] = beneath(keys, query, key, value, dropout_p, is_causal, attn_mask=attn_mask,
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


def _fused_backward(beneath: _Beneath) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """aten::_scaled_dot_product_flash_attention_for_cpu_backward, of either's forward pass."""
    def kernel(keys: Any, grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
               dropout_p: float, is_causal: bool, *, attn_mask: Optional[Tensor] = None,
               scale: Optional[float] = None) -> tuple[Tensor, Tensor, Tensor]:
        if _refuses is None or _refusal_of_fused(query, key, value, attn_mask, dropout_p, is_causal, scale, True) is not None:
            found: tuple[Tensor, Tensor, Tensor] = beneath(keys, grad_out, query, key, value, out, logsumexp, dropout_p,
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


_KERNELS = ((_sdpa_operator, "AutogradCPU", _attention), (_sdpa_operator, "CPU", _attention),
            (_fused_operator, "CPU", _fused), (_fused_backward_operator, "CPU", _fused_backward))


def _forget_dispatch() -> None:
    """PyTorch keeps, for its dispatcher in Python, which kernel an operator has, also when kernels come and go."""
    for operator, *_ in (*_KERNELS, *_linear.KERNELS):
        operator._dispatch_cache.clear()


def _hook_in() -> Any:
    """Registers the kernels, which stay until `_hook_out`."""
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    beneath = [_Beneath(operator, key) for operator, key, _ in _KERNELS]
    for (operator, key, kernel), one in zip(_KERNELS, beneath):
        if _HAS_KERNELS or operator is _sdpa_operator:  # nothing else leads back to PyTorch's kernels
            library.impl(operator, kernel(one), key, with_keyset=True)
    _forget_dispatch()
    return library


def _hook_products_in() -> Any:
    """Registers the kernels of products, as `_hook_in`."""
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    beneath = [_Beneath(operator, "CPU") for operator, _ in _linear.KERNELS]
    for (operator, kernel), one in zip(_linear.KERNELS, beneath):
        if _HAS_KERNELS:
            library.impl(operator, kernel(one.kernel), "CPU", with_keyset=True)
    _forget_dispatch()
    return library


def _hook_flex_in() -> Any:
    """Registers the kernels of flex_attention's operator."""
    hooks = _flex.Hooks(lambda: _refuses is not None, lambda query: UNTIMED if _untimed(query) else None, count, count_other)
    hooks.register()
    return hooks


def _hook_out(library: Any) -> None:
    """Removes the kernels."""
    library._destroy()
    _forget_dispatch()


# ---------------------------------------------------------------------------------------------------- the switch

_hooks: Any = None
_flex_hooks: Any = None
_product_hooks: Any = None


class enable:
    """attn computes attention and linear layers on the CPU in place of PyTorch, in calls for which it is the faster one.

    attention: attn computes torch.nn.functional.scaled_dot_product_attention for tensors of float32, bfloat16 and float16 (which is
    converted to float32 and back) on the CPU, where attn is faster, also in calls from PyTorch's modules, TorchScript,
    compiled graphs, calls under autocast.  Dropout's random numbers are attn's, seeded by PyTorch's generator.

    linear: attn computes the products of matrices to which linear layers come in the forward and the backward pass (addmm,
    mm, bmm, baddbmm), for tensors of float32, and of float16, which is converted to float32 and back.  Nothing of a weight is
    kept between calls.

    Other calls are PyTorch's as before; `calls(verbose=True)` lists them.

    As a call it holds until `disable()`; `with attn.torch.enable():` holds until the end of the block.  always=True takes
    the slower calls too.  On ARM, where float32 was never timed, it takes no float32 unless always=True, except what PyTorch
    cannot compute: the backward pass of flex_attention.
    """

    def __init__(self, always: bool = False, attention: bool = True, linear: bool = True) -> None:
        self.always, self.attention, self.linear, self.blocks = always, attention, linear, 0
        self._begin()

    def _begin(self) -> None:
        global _hooks, _flex_hooks, _product_hooks
        with _lock:
            if self not in _open:
                _open.append(self)
            if _hooks is None and self.attention:
                _hooks, _flex_hooks = _hook_in(), _hook_flex_in()
            # kernels that would take nothing, as on Intel's processors, are not worth their time in each product
            if _product_hooks is None and self.linear and (self.always or _wins.LEAST_WORK < math.inf):
                _product_hooks = _hook_products_in()
            _choose()

    def __enter__(self) -> "enable":
        self._begin()  # an object may serve several blocks, one within another or in several threads
        with _lock:
            self.blocks += 1
        return self

    def __exit__(self, *_: Any) -> None:
        with _lock:
            self.blocks -= 1
            if self in _open and self.blocks == 0:
                _open.remove(self)
            _choose()


def _choose() -> None:
    """The kernels stay registered when a block ends: PyTorch's table of kernels must not change while other threads use it."""
    global _refuses
    attention = [one.always for one in _open if one.attention]
    linear = [one.always for one in _open if one.linear]
    _refuses = None if not attention else _refusal if any(attention) else _refusal_or_slower
    _linear.choose(bool(linear), any(linear))
    if _flex_hooks is not None:
        _flex_hooks.switch()


def disable() -> None:
    """PyTorch's own kernels again, and those of other packages, however often `enable` was called; in no other thread may
    attention run or a graph be compiled meanwhile."""
    global _hooks, _flex_hooks, _product_hooks
    with _lock:
        _open.clear()
        _choose()
        for library in (_hooks, _product_hooks):
            if library is not None:
                _hook_out(library)
        if _flex_hooks is not None:
            _flex_hooks.remove()
        _hooks = _flex_hooks = _product_hooks = None


def count() -> None:
    """Counts a call that attn took."""
    _count_call(_counter)


def _count_product() -> None:
    _count_call(_products)


def count_other(way: str, why: str) -> None:
    """Counts a call that another function computed, by its name and the reason."""
    with _lock:
        _others[way, why] += 1


@overload
def calls(verbose: Literal[False] = False) -> int: ...
@overload
def calls(verbose: Literal[True]) -> str: ...
def calls(verbose: bool = False) -> Union[int, str]:
    """How many calls of attention attn has taken since the program began, under `enable` and from transformers (`register`).
    Under `enable` the forward passes of a compiled graph count.  verbose=True: text, with a line for the products of matrices
    that attn has taken, and a line for each kind of call that PyTorch or a model's eager function computed, and why, the most
    frequent first."""
    global _looks
    with _lock:
        _looks += 1
        taken = next(_counter) - _looks + 1
        products = next(_products) - _looks + 1
        left = Counter({(_BY_PYTORCH, one.why): one.count() for one in list(_linear.Left.all.values())})
        others = (_others + left).most_common()
    by_attn = [f"{taken} by attn", *([f"{products} products of matrices by attn"] if products else [])]
    return "\n".join([*by_attn, *(f"{n} by {way}: {why}" for (way, why), n in others)]) if verbose else taken


_linear.count, _linear.count_other = _count_product, count_other
