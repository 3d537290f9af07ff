# SPDX-License-Identifier: MIT
"""Times Vision Transformers in PyTorch and ONNX Runtime, and in attn where build/libattn.a is there (bench/vit_probe.c).

    vit.py [--seconds X] [--json] forward BATCH [THREADS]   ViT-B/16: PyTorch with its fused attention, ONNX Runtime on the
                                                            exported graph, attn with weights packed once
    vit.py [--seconds X] [--json] train BATCH [THREADS]     the ViT of Dive into Deep Learning: forward, cross-entropy, backward

Each in f32 and in bf16; attn's forward pass in int8, too.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

import torch
from torch import nn
from torch.nn import functional

import measure


class Attention(nn.Module):
    """Multi-head self-attention; separate projections as the book has them, or one for all three as timm has it."""

    def __init__(self, dim, heads, packed, bias):
        super().__init__()
        self.heads = heads
        self.parts = nn.ModuleList([nn.Linear(dim, 3 * dim if packed else dim, bias) for _ in range(1 if packed else 3)])
        self.out = nn.Linear(dim, dim, bias)

    def forward(self, x):
        batch, tokens, dim = x.shape
        parts = [part(x) for part in self.parts]
        q, k, v = parts[0].chunk(3, -1) if len(parts) == 1 else parts
        q, k, v = (t.view(batch, tokens, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        if len(parts) == 1:
            o = functional.scaled_dot_product_attention(q, k, v)
        else:
            o = torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v
        return self.out(o.transpose(1, 2).reshape(batch, tokens, dim))


class Block(nn.Module):
    def __init__(self, dim, heads, mlp, packed, bias):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = Attention(dim, heads, packed, bias)
        self.mlp = nn.Sequential(nn.Linear(dim, mlp), nn.GELU(), nn.Linear(mlp, dim))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, img, patch, dim, mlp, heads, blocks, classes, packed, bias):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, dim))
        self.positions = nn.Parameter(torch.randn(1, (img // patch) ** 2 + 1, dim))
        self.blocks = nn.Sequential(*[Block(dim, heads, mlp, packed, bias) for _ in range(blocks)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


def row(peer, precision, times):
    return {"peer": peer, "precision": precision, "ms": round(statistics.median(times), 2), "fastest_ms": round(min(times), 2)}


def forward(batch, threads, seconds):
    model, x = ViT(224, 16, 768, 3072, 12, 12, 1000, True, True).eval(), torch.randn(batch, 3, 224, 224)
    with torch.inference_mode():
        in_f32 = measure.times_ms(lambda: model(x), seconds)
        with torch.autocast("cpu", torch.bfloat16):
            in_bf16 = measure.times_ms(lambda: model(x), seconds)
    yield row("pytorch", "f32", in_f32)
    yield row("pytorch", "bf16", in_bf16)
    try:
        import onnxruntime as ort
    except ImportError:
        print("ONNX Runtime is not installed", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "vit.onnx")
        torch.onnx.export(model, (x,), path, input_names=["x"], dynamo=False)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        feed = {"x": x.numpy()}
        yield row("onnxruntime", "f32", measure.times_ms(lambda: session.run(None, feed), seconds))


def train(batch, threads, seconds):
    labels, x = torch.arange(batch) % 10, torch.randn(batch, 3, 96, 96)
    for name, packed in ("pytorch-book", False), ("pytorch", True):
        model = ViT(96, 16, 512, 2048, 8, 2, 10, packed, False).train()

        def step(bf16=False):
            model.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                loss = functional.cross_entropy(model(x), labels)
            loss.backward()

        yield row(name, "f32", measure.times_ms(step, seconds))
        yield row(name, "bf16", measure.times_ms(lambda: step(True), seconds))


def attn_rows(what, batch, threads, seconds):
    """bench/vit_probe.c, compiled and run."""
    if not os.path.exists(os.path.join(measure.BUILD, "libattn.a")):
        print(f"attn is not built in {measure.BUILD}", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        probe = measure.probe(folder, "vit_probe", "bench/attn-bench/vit.c")
        for precision in ("f32", "bf16", "int8") if what == "forward" else ("f32", "bf16"):
            environment = os.environ | {"ATTN_THREADS": str(threads), "ATTN_PRECISION": precision}
            done = subprocess.run([probe, "infer" if what == "forward" else "train", str(batch), str(seconds)], check=True,
                                  capture_output=True, text=True, env=environment)
            yield row("attn", precision, [float(re.search(r"fastest ([0-9.]+) ms", done.stdout)[1])])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["forward", "train"])
    parser.add_argument("batch", type=int, metavar="BATCH")
    parser.add_argument("threads", type=int, nargs="?", default=2, metavar="THREADS")
    parser.add_argument("--seconds", type=float, default=4, help="for each time")
    parser.add_argument("--json", action="store_true", help="an array of objects instead of the lines")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    rows = []
    for rows_of in ({"forward": forward, "train": train}[options.what], lambda *rest: attn_rows(options.what, *rest)):
        for found in rows_of(options.batch, options.threads, options.seconds):
            rows.append({"what": options.what, "batch": options.batch, "threads": options.threads, **found})
            if not options.json:
                print(f"{options.what}, batch {options.batch}, {found['peer']}, {found['precision']}: {found['ms']:.1f} ms "
                      f"(fastest {found['fastest_ms']:.1f})", flush=True)
    if options.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
