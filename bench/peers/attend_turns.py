# SPDX-License-Identifier: MIT
"""Times attention in PyTorch and in attn call by call in turns, in one process, and prints the ratios.

    PYTHONPATH=python ATTN_LIBRARY=build/libattn.so attend_turns.py [--threads N] [--seconds X] [--json] [PROBLEM...]

PROBLEM is b2h8q512k512d64[:causal][:mask][:f64]; mask: a random one of bool, a tenth of it hidden.  The shortest time of each side
counts: on a machine that others use as well, both then had it for themselves.  GFLOP/s follow `attn bench attend`.
PyTorch's idle threads sleep (OMP_WAIT_POLICY=passive unless it is set): by default they spin for about a millisecond
after each call, on the cores that attn's next call needs.
"""
import argparse
import json
import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import attn  # noqa: E402
import torch  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

import measure  # noqa: E402
import problems  # noqa: E402

DEFAULT = [f"b8h12q197k197d64{mask}" for mask in ("", ":mask")]
DEFAULT += [f"b1h8q{n}k{n}d{d}" for d in (32, 64, 80, 128) for n in (64, 1024, 2048)]
DEFAULT += ["b1h12q1024k1024d64", "b1h8q4096k4096d64", "b1h8q2048k2048d64:causal", "b1h8q2048k2048d128:causal", "b1h8q1024k1024d64:mask"]


def sides(problem, masked, dtype):
    """{direction: (PyTorch's call, attn's call)}; both allocate their results."""
    def make(rows):
        return torch.randn(problem.batch, problem.heads, rows, problem.width, dtype=dtype)

    q, k, v, grad = map(make, (problem.queries, problem.keys, problem.keys, problem.queries))
    mask = torch.rand(problem.batch, 1, problem.queries, problem.keys) < 0.9 if masked else None
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    out = scaled_dot_product_attention(*leaves, attn_mask=mask, is_causal=problem.causal)
    arrays = [x.numpy() for x in (q, k, v)]
    more = {"layout": "bhtd", "causal": problem.causal, "mask": None if mask is None else mask.numpy(),
            "threads": torch.get_num_threads()}
    o, lse = attn.attend(*arrays, return_lse=True, **more)
    dout = grad.numpy()

    def forward():
        with torch.no_grad():
            return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=problem.causal)

    return {"forward": (forward, lambda: attn.attend(*arrays, return_lse=True, **more)),
            "backward": (lambda: torch.autograd.grad(out, leaves, grad, retain_graph=True),
                         lambda: attn.attend_backward(dout, *arrays, o, lse, wrt=("q", "k", "v"), **more))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", default=DEFAULT)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each problem and direction")
    parser.add_argument("--json", action="store_true", help="an array of objects instead of the table")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    if not options.json:
        print(f"{'problem':28} {'pass':9} {'pytorch GFLOP/s':>16} {'attn GFLOP/s':>13} {'ratio':>6}")
    for name in options.problems:
        problem = problems.parse(name.replace(":mask", "").replace(":f64", ""))
        dtype = torch.float64 if ":f64" in name else torch.float32
        for direction, calls in sides(problem, ":mask" in name, dtype).items():
            work = 1e-9 * problem.operations(direction)
            peer, own = measure.best_of_turns(calls, options.seconds)
            rows.append({"problem": name, "direction": direction, "threads": options.threads,
                         "pytorch_gflops": round(work / peer, 2), "attn_gflops": round(work / own, 2)})
            if not options.json:
                print(f"{name:28} {direction:9} {work / peer:16.1f} {work / own:13.1f} {peer / own:6.2f}", flush=True)
    if options.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
