# SPDX-License-Identifier: MIT
"""Calls of F.scaled_dot_product_attention, PyTorch's own and attn's, from which the limits of
python/attn/torch/_wins.py come.  A line says how much faster attn is forward and in a training step, and whether
enable() takes such calls.

    PYTHONPATH=python ATTN_LIBRARY=build/libattn.so build/venv/bin/python bench/peers/torch_calls.py CHANNELS|small|few|losses [MASK]

MASK: none, causal, keys (bool: the last fifth of the keys is hidden), bool (causal, as a mask), random (bool, half of the
pairs), float (one for all heads), or learned (with a gradient).
`small` in place of CHANNELS: the overhead of a call, in microseconds.  `few`: few queries for many keys, as
a table whose cells are PyTorch's time divided by attn's and whether enable() takes the call; and what calls of a new
length and of a new scale cost.  `losses`: all of these calls in float32, bfloat16 and float16; it prints those that enable()
takes though attn is slower by more than LOSS, and how many there are.  One thread and processor time, the least of
calls in turns.
"""
import functools
import itertools
import sys
import time

import torch
import torch.nn.functional as F

import attn.torch
import measure

LENGTHS = (16, 32, 64, 96, 128, 197, 256, 384, 512, 1024, 2048)
WORK = 2e8  # operations of a call; batch follows
LOSS = 0.03


def mask_of(kind, batch, heads, n):
    if kind == "keys":
        mask = torch.ones(batch, 1, 1, n, dtype=torch.bool)
        mask[..., n * 4 // 5:] = False
        return mask.expand(batch, 1, n, n)
    if kind == "bool":
        return torch.ones(n, n, dtype=torch.bool).tril().expand(batch, 1, n, n)
    if kind == "random":
        return (torch.rand(batch, 1, n, n) < 0.5).logical_or_(torch.eye(n, dtype=torch.bool))
    if kind == "float":
        return torch.randn(batch, 1, n, n)
    return torch.randn(batch, heads, n, n, requires_grad=True) if kind == "learned" else None


def forward(q, k, v, dout, times=1, **options):
    with torch.no_grad():
        for _ in range(times):
            F.scaled_dot_product_attention(q, k, v, **options)


def step(q, k, v, dout, **options):
    F.scaled_dot_product_attention(q, k, v, **options).backward(dout)


def ratio(work, *tensors, seconds=0.4, **options):
    theirs, ours = (functools.partial(work, *tensors, **options) for _ in range(2))

    def before(call):
        if call is ours:
            attn.torch.enable(always=True)
        else:
            attn.torch.disable()

    peer, own = measure.best_of_turns([theirs, ours], seconds, time.process_time, before)
    attn.torch.disable()
    return peer / own


def small(heads, n, channels, calls=200, turns=40):
    """Microseconds of a call: PyTorch's, attn.torch's function, enable()."""
    q, k, v, dout = [torch.randn(1, n, heads, channels).transpose(1, 2).requires_grad_() for _ in range(4)]
    def recorded(function):
        function(q, k, v)

    def unrecorded(function):
        with torch.no_grad():
            function(q, k, v)

    def step(function):
        torch.autograd.grad(function(q, k, v), (q, k, v), dout)

    for work in (unrecorded, recorded, step):
        def many(function):
            for _ in range(calls):
                work(function)

        theirs, own, enabled = (functools.partial(many, function) for function in (
            F.scaled_dot_product_attention, attn.torch.scaled_dot_product_attention, F.scaled_dot_product_attention))

        def before(call):
            if call is enabled:  # noqa: B023
                attn.torch.enable(always=True)
            else:
                attn.torch.disable()

        runs = theirs, own, enabled
        best = [1e6 / calls * seconds for seconds in measure.best_of_turns(runs, 0, time.process_time, before, turns)]
        print(f"{heads} heads, {n} tokens, {channels} channels, {work.__name__}: PyTorch {best[0]:.1f}, attn.torch {best[1]:.1f} "
              f"({best[1] / best[0]:.2f} times), enable() {best[2]:.1f} ({best[2] / best[0]:.2f})", flush=True)


def taken(work, *tensors, **options):
    before = attn.torch.calls()
    with attn.torch.enable():
        work(*tensors, **options)
    return "taken" if attn.torch.calls() > before else "left"


def few():
    """Self-attention's kind of call where a cache of keys is read."""
    keys = (64, 256, 512, 1024, 4096)
    print("| channels; heads of queries, of keys | queries | " + " | ".join(f"{n} keys" for n in keys) + " |")
    print("|---" * (2 + len(keys)) + "|")
    for channels, heads, shared in ((64, 1, 1), (64, 8, 8), (128, 8, 8), (64, 8, 2)):
        for queries in (1, 2, 4, 8, 16):
            cells = []
            for n in keys:
                q = torch.randn(1, queries, heads, channels).transpose(1, 2)
                k, v = (torch.randn(1, n, shared, channels).transpose(1, 2) for _ in range(2))
                options = {"enable_gqa": heads != shared, "times": 10}
                cells.append(f"{ratio(forward, q, k, v, None, seconds=0.05, **options):.2f} "
                             f"{taken(forward, q, k, v, None, **options)}")
            print(f"| {channels}; {heads}, {shared} | {queries} | " + " | ".join(cells) + " |", flush=True)


def first_calls(calls=200, turns=10):
    """Microseconds of calls whose kind is known, whose length is new, and whose scale is new."""
    q, cache, number = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 500, 8), itertools.cycle(range(16, 500))  # more than are kept
    scales = iter(range(1, 10**6))

    def run(length, scale):
        for _ in range(calls):
            n = next(number) if length else 16
            F.scaled_dot_product_attention(q, cache[:, :, :n], cache[:, :, :n], scale=1 / next(scales) if scale else None)

    kinds = ((False, False), (True, False), (False, True))
    with attn.torch.enable(always=True):
        best = [1e6 / calls * measure.best_of_turns([functools.partial(run, *kind)], 0, time.process_time, least=turns)[0]
                for kind in kinds]
    print("a call like an earlier one {:.1f}, of a new length {:.1f}, of a new scale {:.1f} microseconds".format(*best))


def whole(channels, kind, n, dtype, work=WORK):
    """The tensors and options of a call with as many keys as queries."""
    heads = 8 if n < 2048 else 2
    batch = max(1, min(32, int(work / (4 * n * n * channels * heads))))
    q, k, v, dout = [torch.randn(batch, n, heads, channels, dtype=dtype).transpose(1, 2).requires_grad_() for _ in range(4)]
    mask = mask_of(kind, batch, heads, n)
    if mask is not None and mask.is_floating_point():
        mask = mask.detach().to(dtype).requires_grad_(mask.requires_grad)
    return (q, k, v, dout.detach()), {"attn_mask": mask, "is_causal": kind == "causal"}


def losses():
    """Taken calls that are slower.  A ratio below the limit is measured again for longer."""
    counts = {"taken": 0, "slower": 0}
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for channels, kind in itertools.product((64, 128), ("none", "causal", "keys", "float", "learned")):
            for n in (16, 64, 128, 256, 512, 1024):
                tensors, options = whole(channels, kind, n, dtype, WORK / 2)
                for work in (forward, step):
                    report(counts, f"{dtype}, {channels} channels, mask {kind}, {n} tokens", work, *tensors, **options)
        for channels, queries, keys in itertools.product((64, 128), (1, 4, 16), (256, 1024, 4096)):
            q = torch.randn(1, queries, 8, channels, dtype=dtype).transpose(1, 2)
            k, v = (torch.randn(1, keys, 8, channels, dtype=dtype).transpose(1, 2) for _ in range(2))
            report(counts, f"{dtype}, {channels} channels, {queries} queries, {keys} keys", forward, q, k, v, None, times=10)
    print(f"{counts['taken']} calls are taken, {counts['slower']} of them are slower by more than {LOSS}", flush=True)


def report(counts, name, work, *tensors, **options):
    if taken(work, *tensors, **options) != "taken":
        return
    found = ratio(work, *tensors, seconds=0.05, **options)
    for seconds in (0.3, 1.0):
        if found < 1 - LOSS:
            found = max(found, ratio(work, *tensors, seconds=seconds, **options))
    counts["taken"] += 1
    if found < 1 - LOSS:
        counts["slower"] += 1
        print(f"{name}, {work.__name__}: {found:.2f}", flush=True)


def main():
    torch.set_num_threads(1)
    if sys.argv[1] == "losses":
        losses()
        return
    if sys.argv[1] == "small":
        for shape in ((1, 4, 4), (2, 16, 16), (4, 32, 16)):
            small(*shape)
        return
    if sys.argv[1] == "few":
        few()
        first_calls()
        return
    channels, kind = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "none"
    for n in LENGTHS:
        tensors, options = whole(channels, kind, n, torch.float32)
        print(f"{channels} channels, mask {kind}, {n} tokens: " + ", ".join(
            f"{work.__name__} {ratio(work, *tensors, **options):.2f} ({taken(work, *tensors, **options)})"
            for work in (forward, step)), flush=True)


if __name__ == "__main__":
    main()
