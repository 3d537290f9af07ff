# SPDX-License-Identifier: MIT
"""A block of Swin with shifted windows, 56 x 56, 96 channels in 3 heads, batch 4: what part of its time the attention between its
projections takes, how fast the block would be without it, and how fast attn makes both.

    PYTHONPATH=python ATTN_LIBRARY=build/libattn.so build/venv/bin/python bench/peers/torch_swin.py [--json]

One thread and processor time, the least of calls in turns.
"""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch_layers import swin_block

TURNS = 25


def block(attention, heads, channels):
    """x to x, with the attention given and with none (values pass through)."""
    def run(x, table, norm1, qkv, out, norm2, up, down):
        q, k, v = F.linear(F.layer_norm(x, x.shape[-1:], norm1), qkv).unflatten(-1, (3, heads, channels)).unbind(-3)
        x = x + F.linear((attention(q, k, v, table) if attention else v + q + k).flatten(-2), out)
        return x + F.linear(F.gelu(F.linear(F.layer_norm(x, x.shape[-1:], norm2), up)), down)

    return run


def forward(function, inputs):
    with torch.no_grad():
        function(*inputs)


def step(function, inputs):
    o = function(*inputs)
    torch.autograd.grad(o, inputs, o.detach(), allow_unused=True)


def times(work, functions, inputs):
    best = [1e9] * len(functions)
    for _ in range(TURNS):
        for i, function in enumerate(functions):
            begin = time.process_time()
            work(function, inputs)
            best[i] = min(best[i], time.process_time() - begin)
    return [1e3 * x for x in best]


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    theirs, ours, inputs = swin_block()
    batch, size, _, heads, channels = inputs[0].shape
    wide = heads * channels
    weights = [torch.randn(shape) / wide**0.5 for shape in ((wide,), (3 * wide, wide), (wide, wide), (wide,), (4 * wide, wide),
                                                            (wide, 4 * wide))]
    whole = [x.requires_grad_() for x in (torch.randn(batch, size, size, wide), inputs[3].detach(), *weights)]
    step(block(theirs, heads, channels), whole)  # so that the allocator keeps memory of this size from here on
    rows = []
    for work in (forward, step):
        a, b = times(work, (theirs, ours), inputs)
        c, d, e = times(work, [block(x, heads, channels) for x in (theirs, ours, None)], whole)
        rows.append({"pass": work.__name__, "attention_ms": [a, b], "block_ms": [c, d], "without_attention_ms": e})
        if "--json" not in sys.argv:
            print(f"{work.__name__}: attention {a:.1f} and {b:.1f} ms, {a / b:.2f} times as fast; "
                  f"block {c:.1f} and {d:.1f} ms, {c / d:.2f} times; without attention {e:.1f} ms, {c / e:.2f} times; "
                  f"share {1 - e / c:.2f}", flush=True)
    if "--json" in sys.argv:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
