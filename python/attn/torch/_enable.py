# SPDX-License-Identifier: MIT
"""attn in place of torch.nn.functional.scaled_dot_product_attention, where attn takes the call."""
from __future__ import annotations

import itertools
import math
import threading
from typing import Any, Callable, Optional

import torch
from torch import Tensor

from . import _ops, _sdpa, _wins

_TAKEN = (torch.float32,)
_lock = threading.Lock()
_theirs = torch.nn.functional.scaled_dot_product_attention
# Counts the calls that attn took; next() needs no lock.  calls() reads it by next() too: _looks says how often.
_counter, _looks = itertools.count(), 0
_open: list["enable"] = []
_unwatched, _quick, _count_call = _ops.unwatched, _sdpa.quick, next
_fused = torch._C._get_flash_sdp_enabled  # not under sdpa_kernel(MATH), which asks for PyTorch's formula


def _allowed(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], is_causal: bool,
             enable_gqa: bool) -> bool:
    """Whether attn may take a call without dropout, which would draw other numbers than PyTorch's from the same seed; what
    PyTorch would refuse is left to it, words and all, and so are subclasses of tensors, which know its function only."""
    if _ops.in_forward_mode() or _sdpa.wrong_type(query, key, value, attn_mask, 0.0, is_causal, None, enable_gqa):
        return False
    if not all(x is None or type(x) in _ops._PLAIN for x in (query, key, value, attn_mask)):
        return False
    for x in (query, key, value):
        if x.is_nested or x.device.type != "cpu" or x.dtype not in _TAKEN or x.dim() not in (3, 4) or x.layout != torch.strided:
            return False
    if torch.is_autocast_enabled("cpu") or (is_causal and attn_mask is not None):
        return False
    if not (query.dim() == key.dim() == value.dim() and key.shape[:-1] == value.shape[:-1]
            and query.shape[-1] == key.shape[-1] and query.shape[:-3] == key.shape[:-3]):
        return False
    if query.shape[-3] != key.shape[-3] and not (enable_gqa and query.dim() == 4 and key.shape[1] > 0
                                                 and query.shape[1] % key.shape[1] == 0):
        return False
    return attn_mask is None or (attn_mask.device.type == "cpu" and attn_mask.dtype in (torch.bool, torch.float32)
                                 and _sdpa.mask_fits(query, key, value, attn_mask))


def _faster(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], is_causal: bool,
            enable_gqa: bool) -> bool:
    if not _allowed(query, key, value, attn_mask, is_causal, enable_gqa):
        return False
    return _wins.wins(query, key, attn_mask, is_causal, _ops.records(query, key, value, attn_mask))


_takes: Callable[..., bool] = _faster


def _replacement(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
                 is_causal: bool = False, scale: Optional[float] = None, enable_gqa: bool = False) -> Any:
    if dropout_p == 0 and _fused() and (scale is None or (isinstance(scale, (float, int)) and -math.inf < scale < math.inf)):
        if _unwatched():
            found = _quick(query, key, value, attn_mask, is_causal, scale, enable_gqa, _takes)
            if found is NotImplemented:
                return _theirs(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
            if found is not None:
                _count_call(_counter)
                return found
        if _takes(query, key, value, attn_mask, is_causal, enable_gqa):
            if not torch.compiler.is_compiling():
                _count_call(_counter)
            return _sdpa.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    return _theirs(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


class enable:
    """Replaces torch.nn.functional.scaled_dot_product_attention by attn's for tensors of float32 on the CPU, without
    dropout and autocast, where attn is the faster one.  Other calls go to PyTorch as before.

    As a call it holds until `disable()`; `with attn.torch.enable():` holds until the end of the block.  always=True takes
    the slower calls too.  What a program imported by name before (`from torch.nn.functional import
    scaled_dot_product_attention`) stays as it was.
    """

    def __init__(self, always: bool = False) -> None:
        self.always = always
        self._begin()

    def _begin(self) -> None:
        with _lock:
            if self not in _open:
                _open.append(self)
            _replace()

    def __enter__(self) -> "enable":
        self._begin()  # an object may serve several blocks
        return self

    def __exit__(self, *_: Any) -> None:
        with _lock:
            if self in _open:
                _open.remove(self)
            _replace()


def _replace() -> None:
    global _takes
    _takes = _allowed if any(one.always for one in _open) else _faster
    torch.nn.functional.scaled_dot_product_attention = _replacement if _open else _theirs


def disable() -> None:
    """PyTorch's own function again, however often `enable` was called."""
    with _lock:
        _open.clear()
        _replace()


def calls() -> int:
    """How many calls attn has taken since the program began.  A compiled graph counts none."""
    global _looks
    with _lock:
        _looks += 1
        return next(_counter) - _looks + 1
