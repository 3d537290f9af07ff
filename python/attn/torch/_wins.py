# SPDX-License-Identifier: MIT
"""Which calls of scaled_dot_product_attention attn is the faster one for.

Where products run on AVX2, PyTorch's fused attention uses MKL, and each side wins somewhere.  With AVX-512 and AMX
PyTorch wins where few queries meet many keys.  The limits below are measured (`bench/peers/torch_calls.py` prints the
tables).  On ARM nobody has timed the two in float32, so
float32 is left to PyTorch there.  In bfloat16 and float16 attn is faster, except
for few queries and many keys in float16, where converting the keys takes longest, and for masks of float16 that need a
gradient.  On AMX PyTorch multiplies bfloat16 and float16 by AMX, too, and wins in short forward passes.
"""
from __future__ import annotations

import math
import platform
import re
from typing import Optional

import torch
from torch import Tensor

from .._library import Context, lib


def _isa() -> str:
    context = Context(1)
    context.hold("isa")
    found = str(lib.context_isa(context.pointer).decode())
    context.drop("isa")
    return found


_ISA = _isa()
UNTIMED = platform.machine().lower() in ("aarch64", "arm64")  # float32 is PyTorch's, unless always=True
_AMX = _ISA == "amx"
_MEASURED, _WIDE = _ISA == "avx2", _ISA.startswith("avx512")


def _few(query: Tensor, key: Tensor, fewest_keys: int = 1024) -> bool:
    """Few queries for the keys, with AVX-512: attn reads keys and values faster, PyTorch multiplies faster.  To pass a small
    call on to PyTorch takes longer than what it gains."""
    queries, keys, heads = query.shape[-2], key.shape[-2], query.shape[-3]
    small = query.numel() * keys < 300_000
    return small or queries == 1 and keys >= fewest_keys and heads >= 4 or heads != key.shape[-3]


def _wins_on_amx(query: Tensor, key: Tensor, mask: Optional[Tensor], causal: bool, records: bool) -> bool:
    """The same as wins on AMX, measured on Emerald Rapids.  Without a causal mask, heads of more than 96 channels lose in
    blocks of up to 256 keys in float32, to which float16 is converted."""
    queries, keys, channels = query.shape[-2], key.shape[-2], query.shape[-1]
    longest = max(queries, keys)
    if queries <= 16 and keys > 4 * queries and not records:
        if query.dtype is torch.float16:
            return False
        return _few(query, key, 1024 if query.dtype is torch.float32 else 4096)
    learned = mask is not None and mask.requires_grad
    loses = channels > 96 and 64 < longest <= 256 and not causal
    if query.dtype is torch.bfloat16:
        return records or learned or longest <= 16 or longest >= 128 and not (mask is not None and mask.is_floating_point())
    if query.dtype is torch.float32 or learned:
        return not loses
    return mask is None or not loses if records else longest >= (256 if causal else 512)


def _fewest_keys(queries: int, channels: int) -> float:
    """On AVX2, for up to 16 queries: the number of keys from which on attn is not the slower one."""
    if 4 < queries <= 8 and channels > 96:
        return math.inf
    return 2048 if 2 < queries <= 4 else 1024


def wins(query: Tensor, key: Tensor, mask: Optional[Tensor], causal: bool, records: bool) -> bool:
    """Whether attn is not the slower one; `records`: a backward pass follows."""
    queries, keys, channels = query.shape[-2], key.shape[-2], query.shape[-1]
    longest = max(queries, keys)
    if UNTIMED and query.dtype is torch.float32:
        return False
    if query.dtype is torch.float16:
        few = 4 < queries <= 16 and keys > 1024 and query.shape[-3] == key.shape[-3]
        learned = mask is not None and mask.requires_grad and (longest > 128 or longest * channels > 8192)
        if learned if records else few:
            return False
    if _AMX:
        return _wins_on_amx(query, key, mask, causal, records)
    if query.dtype is not torch.float32:
        return True
    if not _MEASURED:
        return not _WIDE or records or queries > 16 or keys <= 4 * queries or _few(query, key)
    if mask is not None and mask.requires_grad:
        return not records or longest <= 96  # PyTorch stores the scores, and multiplies larger ones faster
    if records:
        return causal or longest <= 256 or channels <= 96
    if queries <= 16 and keys > 2 * queries:
        return query.shape[-3] != key.shape[-3] or keys >= _fewest_keys(queries, channels)
    return causal or channels <= 96 or longest <= (1024 if channels <= 128 else 256)


# --------------------------------------------------------------------------------------------------- products


def _amd_family() -> int:
    """The family of an AMD processor: 25 has Zen 3 and Zen 4, 26 has Zen 5.  0 for all others."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            text = file.read(4096)
    except OSError:
        return 0
    found = re.search(r"^cpu family\s*: (\d+)", text, re.M)
    return int(found[1]) if found and "AuthenticAMD" in text else 0


_FAMILY = _amd_family()
_HALF_OF_MKL = _FAMILY >= 26 and _WIDE  # MKL's way for AMD uses half of the multipliers of a Zen 5
FEWEST_ROWS = 3  # of a product that attn is faster for: with fewer, packing takes longer than what it gains

# The least number of multiply-adds of a product that attn is faster for: on Intel's processors attn is not (Emerald Rapids).
LEAST_WORK = math.inf if _FAMILY == 0 else 1 << 20


def product_wins(batch: int, m: int, n: int, k: int, half: bool, precision: str = "highest") -> bool:
    """Whether attn is not the slower one for products [m,k] [k,n] on AMD (`bench/peers/torch_products.py`). Where PyTorch
    multiplies float32 by MKL at half of the machine's rate, attn gains from three rows on, unless the product takes less time
    than to call attn from Python. Where MKL reaches the machine's rate, attn gains in large products alone, and with
    set_float32_matmul_precision("medium"), by which PyTorch multiplies by oneDNN, in none. float16 is converted, which
    PyTorch's own product is slower than from 16 rows on."""
    work = batch * m * n * k
    if _FAMILY == 0 or m < FEWEST_ROWS or n < 16:
        return False
    if half:
        return m >= 16 and k >= 64 and work >= 1 << 20
    if _HALF_OF_MKL:
        return work >= 1 << 20 and k >= (64 if batch == 1 else 16) and (batch == 1 or m >= 16)
    if precision != "highest":
        return False
    if batch > 1:
        return min(m, n, k) >= 32 and work >= 8e6
    return m >= 16 and n >= 64 and k >= 64 and work >= 7e7
