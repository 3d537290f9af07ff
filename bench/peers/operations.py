# SPDX-License-Identifier: MIT
"""Times single operations of tensors, forward and backward, and PyTorch's, in f32.

    operations.py [--threads N] [--seconds X] [--json] [NAME:N,N...]

Without any problem, a list.  bench/operations.c, which this compiles, has the meaning of the numbers.  PyTorch and attn run in
processes of their own, one problem after the other, and the shortest time of each counts.  Needs build/libattn.a.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import measure

PROBLEMS = ["add:1576,768", "multiply:1576,768", "add_vector:1576,768", "sum_rows:1576,768", "mean:1576,768",
            "relu:1576,3072", "gelu:1576,3072", "gelu_tanh:1576,3072", "silu:1576,3072", "tanh:1576,768",
            "sigmoid:1576,768", "softmax:1576,197", "softmax:512,10000", "dropout:1576,768", "layer_norm:1576,768",
            "layer_norm:20000,64", "add_norm:1024,512", "channel_norm:8,64,32,32", "batch_norm:8,64,56,56",
            "batch_norm:8,512,7,7", "cross_entropy:1024,10000", "cross_entropy:128,10", "embedding:10000,512,1024",
            "linear:1576,768,3072", "linear:64,64,64", "linear:128,256,10", "linear_gelu:1576,768,3072",
            "matmul:96,197,197,64", "matmul:32,64,64,64", "gru:10,128,256,256", "gru:50,32,128,512",
            "convolution:8,3,224,224,64,7,2,1", "convolution:8,64,56,56,64,3,1,1", "convolution:8,64,56,56,256,1,1,1",
            "convolution:8,256,14,14,256,3,1,1", "convolution:8,128,28,28,128,3,2,1",
            "convolution:8,64,56,56,64,3,1,64", "convolution:8,96,56,56,96,7,1,96", "convolution:8,64,28,28,128,3,1,4",
            "convolution:1,64,32,32,64,3,1,1",
            "convolution:128,1,28,28,6,5,1,1", "max_pool:8,64,112,112", "avg_pool:8,64,56,56", "double_size:8,64,28,28",
            "permute:8,64,56,56", "concat:1576,768"]


def pytorch(name, n):
    """(a function without arguments that runs the operation, the tensors that get gradients)."""
    import torch
    from torch.nn import functional as F
    made = []

    def new(*shape, grad=True):
        made.append((torch.rand(shape) * 2 - 1).requires_grad_(grad))
        return made[-1]

    def integers(count, below):
        return torch.arange(count) * 7919 % below

    if name in ("add", "multiply", "concat"):
        a, b = new(*n), new(*n)
        run = {"add": lambda: a + b, "multiply": lambda: a * b, "concat": lambda: torch.cat((a, b), 1)}[name]
    elif name == "add_vector":
        a, b = new(*n), new(n[1])
        run = lambda: a + b
    elif name in ("layer_norm", "add_norm"):
        x, g, b = new(*n), new(n[1]), new(n[1])
        run = lambda: F.layer_norm(x, (n[1],), g, b)
        if name == "add_norm":
            y = new(*n)
            run = lambda: F.layer_norm(x + F.dropout(y, 0.1), (n[1],), g, b)
    elif name in ("channel_norm", "batch_norm"):
        x, g, b, mean, var = new(*n), new(n[1]), new(n[1]), new(n[1], grad=False), new(n[1], grad=False)
        run = lambda: F.batch_norm(x, mean, var, g, b, True)
        if name == "channel_norm":
            run = lambda: F.layer_norm(x.permute(0, 2, 3, 1), (n[1],), g, b).permute(0, 3, 1, 2)
    elif name == "cross_entropy":
        x, labels = new(*n), integers(n[0], n[1])
        run = lambda: F.cross_entropy(x, labels)
    elif name == "embedding":
        table, words = new(n[0], n[1]), integers(n[2], n[0])
        run = lambda: F.embedding(words, table)
    elif name in ("linear", "linear_gelu"):
        x, w, b = new(n[0], n[1]), new(n[2], n[1]), new(n[2])
        run = {"linear": lambda: F.linear(x, w, b), "linear_gelu": lambda: F.gelu(F.linear(x, w, b))}[name]
    elif name == "matmul":
        a, b = new(n[0], n[1], n[3]), new(n[0], n[3], n[2])
        run = lambda: a @ b
    elif name == "gru":
        gru, x, h = torch.nn.GRU(n[2], n[3]), new(n[0], n[1], n[2]), new(1, n[1], n[3])
        made.extend(gru.parameters())
        run = lambda: gru(x, h)[0]
    elif name == "convolution":
        batch, channels, height, width, outputs, kernel, stride, groups = n
        x, w, b = new(batch, channels, height, width), new(outputs, channels // groups, kernel, kernel), new(outputs)
        run = lambda: F.conv2d(x, w, b, stride, (kernel - 1) // 2, 1, groups)
    else:
        x = new(*n)
        run = {"sum_rows": lambda: x.sum(0), "mean": lambda: x.mean(1), "relu": lambda: F.relu(x), "gelu": lambda: F.gelu(x),
               "gelu_tanh": lambda: F.gelu(x, approximate="tanh"), "silu": lambda: F.silu(x), "tanh": x.tanh,
               "sigmoid": x.sigmoid, "softmax": lambda: x.softmax(-1), "dropout": lambda: F.dropout(x, 0.1),
               "max_pool": lambda: F.max_pool2d(x, 3, 2, 1), "avg_pool": lambda: F.avg_pool2d(x, 2),
               "double_size": lambda: F.interpolate(x, scale_factor=2, mode="bilinear"),
               "permute": lambda: x.permute(0, 2, 3, 1).contiguous()}[name]
    return run, made


def child(problems, threads, seconds):
    """Measures PyTorch in this process; a line for each problem, as bench/operations.c prints."""
    import torch
    torch.set_num_threads(threads)
    for problem in problems:
        name, _, sizes = problem.partition(":")
        run, made = pytorch(name, [int(size) for size in sizes.split(",")])
        best, end, turns = [float("inf")] * 2, time.perf_counter() + seconds, 0
        while turns < 5 or time.perf_counter() < end:
            for tensor in made:
                tensor.grad = None
            begin = time.perf_counter()
            y = run()
            middle = time.perf_counter()
            grad = y.detach().clone()
            again = time.perf_counter()
            y.backward(grad)
            best = [min(best[0], middle - begin), min(best[1], time.perf_counter() - again)]
            turns += 1
        print(problem, 1e3 * best[0], 1e3 * best[1], flush=True)


def times(command, environment):
    line = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.split()
    return [float(ms) for ms in line[1:]]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--json", action="store_true", help="an array of objects instead of the table")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("problems", nargs="*", metavar="PROBLEM")
    options = parser.parse_args()
    problems = options.problems or PROBLEMS
    if options.child:
        return child(problems, options.threads, options.seconds)
    environment = os.environ | {"ATTN_THREADS": str(options.threads), "OMP_NUM_THREADS": str(options.threads),
                                "OMP_WAIT_POLICY": "passive"}
    with tempfile.TemporaryDirectory() as directory:
        own, rows = measure.probe(directory, "operations"), []
        if not options.json:
            print(f"{'operation, ms':36} {'forward: attn':>13} {'PyTorch':>9} {'ratio':>6} {'backward: attn':>14} {'PyTorch':>9} {'ratio':>6}")
        for problem in problems:
            peer = times([sys.executable, os.path.abspath(__file__), "--child", "--threads", str(options.threads), "--seconds",
                          str(options.seconds), problem], environment)
            ours = times([own, str(options.seconds), problem], environment)
            rows += [{"operation": problem, "direction": direction, "threads": options.threads, "attn_ms": own_ms,
                      "pytorch_ms": round(peer_ms, 5)} for direction, own_ms, peer_ms in zip(("forward", "backward"), ours, peer)]
            if not options.json:
                print(f"{problem:36} {ours[0]:13.4f} {peer[0]:9.4f} {peer[0] / ours[0]:6.2f} {ours[1]:14.4f} {peer[1]:9.4f} "
                      f"{peer[1] / ours[1]:6.2f}", flush=True)
    if options.json:
        print(json.dumps(rows, indent=2))
    return None


if __name__ == "__main__":
    main()
