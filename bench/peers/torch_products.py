# SPDX-License-Identifier: MIT
"""Products of matrices by PyTorch and under attn.torch.enable(), from which `product_wins` of python/attn/torch/_wins.py
comes.  A line has the sizes, PyTorch's time at its default setting and at set_float32_matmul_precision("medium"), each divided
by attn's time, and a star where enable() leaves the product to PyTorch.

    PYTHONPATH=python ATTN_LIBRARY=build/libattn.so build/venv/bin/python bench/peers/torch_products.py [addmm|backward|bmm|half]

addmm: x w^T + b, as a linear layer; backward: its gradients g w and g^T x; bmm: batches; half: addmm in float16.  One thread
and processor time, the least of calls in turns.
"""
import sys
import time

import torch

import attn.torch
import measure
from attn.torch import _wins

ROWS = (1, 2, 3, 4, 6, 8, 16, 32, 64, 128, 394, 1024)
WEIGHTS = ((768, 768), (3072, 768), (768, 3072), (64, 768), (768, 64), (16, 768), (8, 768), (2, 768), (256, 256), (1024, 256), (96, 96),
           (384, 96), (32, 32), (768, 16), (768, 8), (16, 16))
BATCHES = ((12, 128, 128, 64), (96, 128, 128, 64), (8, 512, 512, 64), (12, 16, 16, 64), (12, 1, 64, 64), (64, 8, 8, 8),
           (12, 49, 49, 32), (64, 49, 32, 49), (4, 197, 197, 64), (96, 16, 64, 16), (12, 1, 64, 512), (4, 4, 64, 64))


def operands(kind, m, n, k):
    if kind == "backward":
        g, w, x = torch.randn(m, n), torch.randn(n, k), torch.randn(m, k)
        return [(torch.mm, (g, w), (1, m, k, n)), (torch.mm, (g.t(), x), (1, n, k, m))]
    dtype = torch.float16 if kind == "half" else torch.float32
    x, w, b = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype), torch.randn(n).to(dtype)
    return [(torch.addmm, (b, x, w.t()), (1, m, n, k))]


def problems(kind):
    if kind == "bmm":
        for batch, m, n, k in BATCHES:
            yield torch.bmm, (torch.randn(batch, m, k), torch.randn(batch, k, n)), (batch, m, n, k)
            yield torch.bmm, (torch.randn(batch, m, k), torch.randn(batch, n, k).transpose(1, 2)), (batch, m, n, k)
        return
    for n, k in WEIGHTS:
        for m in ROWS:
            yield from operands(kind, m, n, k)


def ratios(function, given, times):
    def repeated():
        for _ in range(times):
            function(*given)
    default, medium, ours = (lambda: repeated() for _ in range(3))

    def before(call):
        attn.torch.disable()
        torch.set_float32_matmul_precision("medium" if call is medium else "highest")
        if call is ours:
            attn.torch.enable(always=True, attention=False)
    found = measure.best_of_turns([default, medium, ours], 0.25, time.thread_time, before, least=6)
    attn.torch.disable()
    torch.set_float32_matmul_precision("highest")
    return [1e6 * seconds / times for seconds in found]


def main():
    kind = sys.argv[1] if len(sys.argv) > 1 else "addmm"
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"{kind}: batch, m, n, k | PyTorch us | PyTorch / attn | medium / attn")
    with torch.no_grad():
        for function, given, sizes in problems(kind):
            times = max(1, min(200, int(2e7 / (sizes[0] * sizes[1] * sizes[2] * sizes[3] + 1e5))))
            default, medium, ours = ratios(function, given, times)
            taken = _wins.product_wins(*sizes, kind == "half")
            print(f"{str(sizes):28} | {default:9.1f} | {default / ours:5.2f}{'' if taken else '*'} | {medium / ours:5.2f}", flush=True)


if __name__ == "__main__":
    main()
