# SPDX-License-Identifier: MIT
"""The Python package against PyTorch: every layer's cases of layers.py through attn.build, with tensors given through
DLPack; and models saved by torch.save.

    package.py [--cases N]        ATTN_LIBRARY and PYTHONPATH are the paths of library and package; build and python if
    not
"""
import argparse
import os
import sys
import tempfile

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
os.environ.setdefault("ATTN_LIBRARY", os.path.join(os.environ.get("ATTN_BUILD", os.path.join(ROOT, "build")),
                                                   "libattn.so"))
sys.path.append(os.path.join(ROOT, "python"))

import attn  # noqa: E402 - after its place is known

from compare import TOLERANCE, compare_grads, distance, peak  # noqa: E402
from layers import LAYERS, draw_case  # noqa: E402


def check_layer(architecture, seed, folder):
    """The largest error of outputs and gradients; the weights come from a file of torch.save."""
    config, weights, inputs, dout, (outputs, grads, input_grads) = draw_case(architecture, np.random.default_rng(seed))
    double = "dtype" in config
    path = os.path.join(folder, f"{architecture}.pt")
    torch.save({name: torch.from_numpy(np.asarray(array)) for name, array in weights.items()}, path)
    known = [key.name for key in attn.architectures()[architecture].keys]  # a case may have keys of its own
    model = attn.build(architecture, {key: value for key, value in config.items() if key in known},
                       weights=path if weights else None, dtype=np.float64 if double else np.float32)
    model.train(config.get("train", False))
    tensors = {name: torch.from_numpy(np.asarray(array, np.float64 if double else np.float32))
               for name, array in inputs.items()}
    got = model(**tensors, outputs=list(outputs))
    got = got if isinstance(got, tuple) else (got,)
    errors = [distance(g, w, max(peak(w), 1e-30)) for g, w in zip(got, outputs.values())]
    zero_inputs = {name: np.zeros_like(array) for name, array in input_grads.items()}
    back = {}
    if grads or any(np.any(array) for array in input_grads.values()):  # a table of sines hangs on nothing
        back = model.backward(torch.from_numpy(dout.astype(np.float64 if double else np.float32)))
    got_inputs = {name: back.get(name, zero) for name, zero in zero_inputs.items()}
    zeros = {name: np.zeros_like(array) for name, array in grads.items()}
    errors.append(compare_grads({**zeros, **model.grads(), **got_inputs}, {**grads, **input_grads})[1])
    return max(errors)


def check_attend():
    """The engine on views of PyTorch's tensors, and its gradients, against PyTorch's own attention in float64."""
    torch.manual_seed(0)
    packed = torch.randn(2, 37, 3, 4, 16)
    q, k, v = packed.unbind(2)
    o, lse = attn.attend(q, k, v, causal=True, return_lse=True)
    dout = torch.randn(2, 37, 4, 16)
    grads = attn.attend_backward(dout, q, k, v, o, lse, causal=True)
    exact = [x.double().transpose(1, 2).detach().requires_grad_() for x in (q, k, v)]
    wanted = torch.nn.functional.scaled_dot_product_attention(*exact, is_causal=True)
    wanted.backward(dout.double().transpose(1, 2))
    pairs = [(o, wanted.detach())] + [(grads[name], x.grad) for name, x in zip("qkv", exact)]
    assert np.from_dlpack(torch.from_dlpack(o)).ctypes.data == o.ctypes.data
    return max(distance(got, w.transpose(1, 2).numpy(), peak(w.numpy())) for got, w in pairs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=3, help="of each layer")
    cases = parser.parse_args().cases
    torch.set_num_threads(1)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        results = [("attend", check_attend())]
        results += [(f"{name} {seed}", check_layer(name, seed, folder)) for name in LAYERS for seed in range(cases)]
    for name, error in results:
        failed += error > TOLERANCE
        print(f"{'ok  ' if error <= TOLERANCE else 'FAIL'} {name}: {error:.1e}")
    print(f"{len(results) - failed} passed, {failed} failed")
    return bool(failed > 0)  # a NumPy bool would be printed, and fail


if __name__ == "__main__":
    sys.exit(main())
