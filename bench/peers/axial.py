# SPDX-License-Identifier: MIT
"""Times the training step of the reversible axial image transformer in PyTorch, and in attn where build/libattn.a is there
(bench/image_probe.c).

    axial.py [--seconds X] [--json] DEPTH DIM SIDE BATCH [THREADS]
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile

import torch

import axial_models
import measure


def pytorch(options):
    model = axial_models.AxialImageTransformer(options.dim, options.depth).train()
    x = torch.randn(options.batch, options.dim, options.side, options.side)
    before = measure.status_mib("VmRSS")

    def step():
        model.zero_grad(set_to_none=True)
        y = model(x)
        (y * y).mean().backward()

    times = measure.times_ms(step, budget_s=options.seconds, warm_up=1)
    return {"peer": "pytorch", "ms": round(statistics.median(times), 2), "fastest_ms": round(min(times), 2),
            "mib": round(measure.status_mib("VmHWM") - before, 1)}


def own(options):
    with tempfile.TemporaryDirectory() as folder:
        sizes = [str(n) for n in (options.side, options.dim, options.batch, options.depth)]
        done = subprocess.run([measure.probe(folder, "image_probe"), "train", *sizes], check=True, capture_output=True, text=True,
                              env=os.environ | {"ATTN_THREADS": str(options.threads)})
    ms, fastest, mib = re.search(r"([0-9.]+) ms \(fastest ([0-9.]+)\) +([0-9.]+) MiB", done.stdout).groups()
    return {"peer": "attn", "ms": float(ms), "fastest_ms": float(fastest), "mib": float(mib)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("depth", "dim", "side", "batch"):
        parser.add_argument(name, type=int, metavar=name.upper())
    parser.add_argument("threads", type=int, nargs="?", default=2, metavar="THREADS")
    parser.add_argument("--seconds", type=float, default=3, help="for PyTorch's times")
    parser.add_argument("--json", action="store_true", help="an array of objects instead of the lines")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    rows = []
    for side in (pytorch, *([own] if os.path.exists(os.path.join(measure.BUILD, "libattn.a")) else [])):
        rows.append({"axial": [options.depth, options.dim, options.side, options.batch], "threads": options.threads, **side(options)})
        if not options.json:
            row = rows[-1]
            print(f"depth {options.depth:3}  {options.batch} x {options.dim} x {options.side} x {options.side}  {row['peer']:7} "
                  f"{row['ms']:8.1f} ms (fastest {row['fastest_ms']:.1f})  {row['mib']:7.1f} MiB", flush=True)
    if options.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
