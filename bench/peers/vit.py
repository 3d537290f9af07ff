# SPDX-License-Identifier: MIT
"""Times Vision Transformers in PyTorch and ONNX Runtime, to compare with bench/vit_probe.c.

    vit.py forward BATCH [THREADS]   ViT-B/16: PyTorch with its fused attention, and ONNX Runtime on the exported graph
    vit.py train BATCH [THREADS]     the ViT of Dive into Deep Learning: forward, cross-entropy and backward
"""
import os
import statistics
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


def report(name, times):
    print(f"{name}: {statistics.median(times):.1f} ms (fastest {min(times):.1f})", flush=True)


def forward(batch, threads):
    model, x = ViT(224, 16, 768, 3072, 12, 12, 1000, True, True).eval(), torch.randn(batch, 3, 224, 224)
    with torch.inference_mode():
        report(f"PyTorch forward, batch {batch}", measure.times_ms(lambda: model(x), 5))
        with torch.autocast("cpu", torch.bfloat16):
            report(f"PyTorch forward in bf16, batch {batch}", measure.times_ms(lambda: model(x), 3))
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
        report(f"ONNX Runtime forward, batch {batch}", measure.times_ms(lambda: session.run(None, feed), 5))


def train(batch):
    labels, x = torch.arange(batch) % 10, torch.randn(batch, 3, 96, 96)
    for name, packed in ("the book's attention", False), ("packed and fused", True):
        model = ViT(96, 16, 512, 2048, 8, 2, 10, packed, False).train()

        def step(bf16=False):
            model.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                loss = functional.cross_entropy(model(x), labels)
            loss.backward()

        report(f"PyTorch training step, batch {batch}, {name}", measure.times_ms(step, 5))
        report(f"PyTorch training step in bf16, batch {batch}, {name}", measure.times_ms(lambda: step(True), 3))


def main():
    batch, threads = int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 2
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    if sys.argv[1] == "forward":
        forward(batch, threads)
    else:
        train(batch)


if __name__ == "__main__":
    main()
