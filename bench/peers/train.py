# SPDX-License-Identifier: MIT
"""Times PyTorch's training step of two Transformers: forward, masked cross-entropy, backward, clipping, Adam.

    train.py [--shape d2l|large]... [--variants LIST] [--threads LIST] [--json]

Each variant runs in a process of its own, so that its memory is its own.  Tokens are counted as target positions,
b * t, padding included; `tokens_per_s_both` counts b * s more.  `peak_mib` excludes the import of torch.
A variant is MODEL[+fused][+compile][+keep][+onednn][+autocast]; MODEL is book, sdpa or packed (train_models.py).  `fused` is
PyTorch's fused Adam, `compile` torch.compile of model and loss, `keep` glibc told to keep freed memory, `onednn` the
linear layers' products by oneDNN through an operator that PyTorch does not document: faster than what its users get,
`autocast` bf16 by torch.autocast.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys

import measure

SHAPES = {
    "d2l": {"batch": 128, "steps": 10, "num_hiddens": 256, "ffn_num_hiddens": 64, "num_heads": 4, "num_blks": 2,
            "dropout": 0.2, "src_vocab_size": 194, "tgt_vocab_size": 212},
    "large": {"batch": 64, "steps": 32, "num_hiddens": 512, "ffn_num_hiddens": 2048, "num_heads": 8, "num_blks": 6,
              "dropout": 0.1, "src_vocab_size": 5000, "tgt_vocab_size": 8000},
}
VARIANTS = "book,sdpa+fused,packed+fused,packed+fused+keep,packed+fused+compile,packed+fused+onednn"
PAD = 0


def random_batch(torch, shape):
    """Sentences of random lengths of half the steps and more, as padded data has them."""
    generator = torch.Generator().manual_seed(1)
    size = shape["batch"], shape["steps"]

    def tokens(vocab):
        return torch.randint(1, vocab, size, generator=generator)

    src, tgt_in, labels = (tokens(shape[key]) for key in ("src_vocab_size", "tgt_vocab_size", "tgt_vocab_size"))
    lengths = torch.randint(size[1] // 2, size[1] + 1, (2, size[0]), generator=generator)
    for row in range(size[0]):
        src[row, lengths[0, row]:] = PAD
        labels[row, lengths[1, row]:] = PAD
    return src, lengths[0], tgt_in, labels


def make_step(torch, train_models, shape, variant):
    """A function that trains one step on one batch and gives the loss."""
    kind, *options = variant.split("+")
    config = {key: value for key, value in shape.items() if key not in ("batch", "steps")}
    torch.manual_seed(0)
    model = train_models.build(kind, {"architecture": "transformer", **config}).train()
    if "onednn" in options:
        model = train_models.through_onednn(model)
    adam = torch.optim.Adam(model.parameters(), lr=1e-3, fused="fused" in options or None)
    batch = random_batch(torch, shape)

    def forward(src, src_valid_len, tgt_in, labels):
        with torch.autocast("cpu", torch.bfloat16, enabled="autocast" in options):
            return train_models.models.masked_loss(model(src, src_valid_len, tgt_in), labels, PAD)

    run = torch.compile(forward) if "compile" in options else forward

    def step():
        loss = run(*batch)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        return loss.item()

    return step


def child(name, variant, threads, budget_s):
    """Measures one variant in this process and prints its JSON object."""
    import torch
    import train_models
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    shape = {**SHAPES[name], **json.loads(os.environ.get("TRAIN_SHAPE", "{}"))}
    # Compiling takes more memory than the step; its first call is outside of the measurement.
    imported = measure.status_mib("VmRSS")
    step = make_step(torch, train_models, shape, variant)
    if "compile" in variant:
        step()
        measure.reset_high_water()
    losses = []
    times = measure.times_ms(lambda: losses.append(step()), budget_s, warm_up=1)
    ms = statistics.median(times)
    tokens = shape["batch"] * shape["steps"]
    print(json.dumps({
        "shape": name, "variant": variant, "threads": threads, "ms": round(ms, 3),
        "fastest_ms": round(min(times), 3), "steps": len(losses),
        "tokens_per_s": round(1e3 * tokens / ms), "tokens_per_s_both": round(2e3 * tokens / ms),
        "peak_mib": round(measure.status_mib("VmHWM") - imported, 1),
        "max_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "first_loss": round(losses[0], 4), "last_loss": round(losses[-1], 4), "torch": torch.__version__}))


def measured(name, variant, threads, budget_s, shape):
    """The object of one variant, measured by a child."""
    environment = {**measure.environment(threads, "+keep" in variant), "TRAIN_SHAPE": json.dumps(shape)}
    command = [sys.executable, os.path.abspath(__file__), "--child", name, variant, str(threads), str(budget_s)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["nothing said"]
        return {"shape": name, "variant": variant, "threads": threads, "error": lines[-1]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def print_row(row):
    if "error" in row:
        print(f"{row['shape']:6} {row['variant']:28} {row['threads']}  failed: {row['error']}", flush=True)
        return
    print(f"{row['shape']:6} {row['variant']:28} {row['threads']}  {row['ms']:9.2f} ms (fastest "
          f"{row['fastest_ms']:.2f})  {row['tokens_per_s']:8} tokens/s"
          f"  {row['peak_mib']:8.1f} MiB  (max RSS {row['max_rss_mib']:.0f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", action="append", choices=SHAPES)
    parser.add_argument("--variants", default=VARIANTS)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--budget", type=float, default=3.0, help="seconds of steps for one figure (at least 3 steps)")
    parser.add_argument("--src-vocab", type=int, help="instead of the shape's own")
    parser.add_argument("--tgt-vocab", type=int)
    parser.add_argument("--json", action="store_true", help="an array of objects instead of the table")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, variant, threads, budget_s = options.child
        return child(name, variant, int(threads), float(budget_s))
    given = {"src_vocab_size": options.src_vocab, "tgt_vocab_size": options.tgt_vocab}
    shape = {key: value for key, value in given.items() if value}
    rows = []
    for name in options.shape or SHAPES:
        for threads in map(int, options.threads.split(",")):
            for variant in options.variants.split(","):
                rows.append(measured(name, variant, threads, options.budget, shape))
                if not options.json:
                    print_row(rows[-1])
    if options.json:
        print(json.dumps(rows, indent=2))
    return None


if __name__ == "__main__":
    main()
