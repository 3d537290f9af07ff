# SPDX-License-Identifier: MIT
"""Writes the .pt files beside it with PyTorch; the numbers are those that tests/test_arrays.c expects."""
import argparse
import collections
import pathlib

import torch

HERE = pathlib.Path(__file__).parent


def count(*shape, dtype=torch.float32):
    n = 1
    for length in shape:
        n *= length
    return torch.arange(n).to(dtype).reshape(shape)


def main():
    base = count(4, 3)
    nested = {
        "args": argparse.Namespace(embed_dim=768, layers=12, dropout=0.1, arch="msa_transformer", use_bias=False,
                                   max_positions=None, shape=[2, 3]),
        "model": collections.OrderedDict(
            [
                ("weight", base),
                ("transposed", base.t()),
                ("column", base[:, 1]),
                ("rows", base[1:3]),
                ("bias", torch.nn.Parameter(torch.tensor([0.5, -1.5]))),
                ("half", torch.tensor([1.5, -2.0], dtype=torch.float16)),
                ("brain", torch.tensor([1.5, -2.0], dtype=torch.bfloat16)),
                ("double", torch.tensor([0.1], dtype=torch.float64)),
                ("steps", torch.tensor(7)),
                ("mask", torch.tensor([True, False])),
                ("bytes", torch.tensor([1, 255], dtype=torch.uint8)),
                ("empty", torch.zeros(0, 3)),
                ("expanded", torch.tensor([3.0]).expand(2, 2)),
            ]
        ),
        "states": [torch.tensor([1.0]), torch.tensor([2.0])],
        "device": torch.device("cpu"),
    }
    torch.save(nested, HERE / "nested.pt")
    small = torch.nn.Linear(3, 2)
    with torch.no_grad():
        small.weight.copy_(count(2, 3))
        small.bias.copy_(count(2))
    torch.save(small.state_dict(), HERE / "linear.pt")
    # Parameters of self-attention (dim 6, 2 heads): number i of parameter p is sin(i + p), which the Python tests know.
    shapes = {"to_q.weight": (6, 6), "to_kv.weight": (12, 6), "to_out.weight": (6, 6), "to_out.bias": (6,)}
    torch.save(collections.OrderedDict((name, torch.sin(count(*shape) + p))
                                       for p, (name, shape) in enumerate(shapes.items())), HERE / "self_attention.pt")
    torch.save({"weight": base, "transposed": base.t(), "n": 3}, HERE / "legacy.pt",
               _use_new_zipfile_serialization=False)


if __name__ == "__main__":
    main()
