# SPDX-License-Identifier: MIT
"""The memory that T5's learned bias takes, forward and backward: the growth of a process's peak, in MiB.

    PYTHONPATH=python ATTN_LIBRARY=build/libattn.so build/venv/bin/python bench/peers/torch_memory.py attn|torch TOKENS
"""
import resource
import sys

import torch

import attn.torch

HEADS, CHANNELS = 8, 64


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def work(side, n):
    q, k, v = (torch.randn(1, HEADS, n, CHANNELS).requires_grad_() for _ in range(3))
    table = torch.randn(32, HEADS).requires_grad_()
    index = attn.torch.t5_buckets(n, n)
    if side == "attn":
        o = attn.torch.flex_attention(q, k, v, relative_bias=(table, index), scale=1.0)
    else:
        pairs = index[torch.arange(n) - torch.arange(n)[:, None] + n - 1].long()
        bias = table[pairs].permute(2, 0, 1)[None]
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v, bias, scale=1.0)
    o.square().mean().backward()


def main():
    side, n = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(2)
    work(side, 64)  # what each side loads once
    before = peak()
    work(side, n)
    print(f"{side}, {n} tokens: {peak() - before:.0f} MiB")


if __name__ == "__main__":
    main()
