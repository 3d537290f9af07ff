# SPDX-License-Identifier: MIT
"""Times products of matrices in f32: attn's, PyTorch's MKL and oneDNN, and the system's oneDNN.

    products.py [--threads N] [--seconds X] [--isa avx2|avx512] [--json] [SHAPE...]

SHAPE is m,n,k with an optional letter: t multiplies by B transposed, as a linear layer does, p has attn do the same with B
packed before, a multiplies A transposed, as the gradient of its weights does; without any, the list of `attn bench products`.
The four run in turns, and the shortest time of each counts.  --isa holds all of them to one instruction set (the peers by
ONEDNN_MAX_CPU_ISA and MKL_ENABLE_INSTRUCTIONS).  Needs build/libattn.a.
"""
import argparse
import ctypes
import ctypes.util
import json
import os
import subprocess
import sys
import tempfile

import measure

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("ATTN_BUILD", os.path.join(ROOT, "build"))
SETS = {"avx2": ("AVX2", "AVX2"), "avx512": ("AVX512_CORE", "AVX512")}  # oneDNN's name, MKL's


class Shape(ctypes.Structure):
    """bench_product_shape of bench/attn-bench/product.h."""
    _fields_ = [("m", ctypes.c_int64), ("n", ctypes.c_int64), ("k", ctypes.c_int64), ("transpose_a", ctypes.c_bool),
                ("transpose_b", ctypes.c_bool), ("packed", ctypes.c_bool)]


class Product(ctypes.Structure):
    """bench_product."""
    _fields_ = [("shape", Shape), ("precision", ctypes.c_int), ("tape", ctypes.c_void_p), ("a", ctypes.c_void_p),
                ("b", ctypes.c_void_p), ("result", ctypes.c_void_p)]


class Attn:
    """The products of `attn bench products`: bench/attn-bench/product.c with the library, with ATTN_ISA and ATTN_THREADS."""

    def __init__(self):
        path = os.path.join(tempfile.mkdtemp(), "products.so")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-pthread", f"-I{ROOT}/include", f"-I{ROOT}/src/engine",
                        f"-I{ROOT}/src/networks", f"{ROOT}/bench/attn-bench/product.c",
                        f"{BUILD}/libattn.a", "-lm", "-ldl", "-o", path], check=True)
        self.library, self.context = ctypes.CDLL(path), ctypes.c_void_p()
        self.library.bench_product_at.restype = ctypes.c_char_p
        self.library.attn_tensor_data.restype = ctypes.c_void_p
        if self.library.attn_context_create(ctypes.byref(self.context), None) != 0:
            raise SystemExit("attn: no context; has this machine the instruction set?")

    def shapes(self):
        """(model, shape) of the list."""
        model, i = ctypes.c_char_p(), 0
        while shape := self.library.bench_product_at(i, ctypes.byref(model)):
            yield model.value.decode(), shape.decode()
            i += 1

    def open(self, shape, a, b):
        """The shape, a call that computes the product and the address of what it computed last."""
        p, library = Product(), self.library
        if not library.bench_product_parse(ctypes.byref(p.shape), shape.encode()):
            raise SystemExit(f"{shape} is no product: m,n,k and t, p, a or nothing")
        if library.bench_product_open(ctypes.byref(p), self.context, ctypes.byref(p.shape), pointer(a), pointer(b)) != 0:
            raise SystemExit(f"{shape}: out of memory")
        where = ctypes.byref(p)
        return p, lambda keep=(a, b): library.bench_product_run(where)

    def result(self, p, torch):
        """The last result."""
        data = self.library.attn_tensor_data(ctypes.c_void_p(p.result))
        numbers = (ctypes.c_float * (p.shape.m * p.shape.n)).from_address(data)
        return torch.frombuffer(numbers, dtype=torch.float32).reshape(p.shape.m, p.shape.n)

    def close(self, p):
        self.library.bench_product_close(ctypes.byref(p))


def system_onednn():
    path = ctypes.util.find_library("dnnl")
    return ctypes.CDLL(path).dnnl_sgemm if path else None


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


def calls(torch, attn, sgemm, text):
    """(attn's product, its call and its peers')."""
    m, n, k = map(int, text.rstrip("atp").split(","))
    ta, tb = text[-1] == "a", text[-1] in "tp"
    a, b = torch.randn((k, m) if ta else (m, k)), torch.randn((n, k) if tb else (k, n))
    left, right, out = a.t() if ta else a, b.t() if tb else b, torch.empty(m, n)
    product, own = attn.open(text, a, b)
    if own() != 0:
        raise SystemExit(f"{text}: attn failed")
    torch.mm(left, right, out=out)
    assert torch.allclose(attn.result(product, torch), out, rtol=1e-3, atol=1e-3 * k ** 0.5)
    w = b if tb else b.t().contiguous()
    x = a.t().contiguous() if ta else a
    result = [own, lambda: torch.mm(left, right, out=out), lambda: torch.ops.mkldnn._linear_pointwise(x, w, None, "none", [], "")]
    if sgemm:
        letters, one, zero = (b"T" if ta else b"N", b"T" if tb else b"N"), ctypes.c_float(1), ctypes.c_float(0)
        sizes = [ctypes.c_int64(x) for x in (m, n, k)]
        lda, ldb, ldc = (ctypes.c_int64(t.shape[1]) for t in (a, b, out))
        result.append(lambda: sgemm(ctypes.c_char(letters[0]), ctypes.c_char(letters[1]), *sizes, one, pointer(a), lda, pointer(b), ldb,
                                    zero, pointer(out), ldc))
    return product, result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each shape")
    parser.add_argument("--isa", choices=SETS, default="avx512")
    parser.add_argument("--json", action="store_true", help="an array of objects, in GFLOP/s, instead of the table")
    options = parser.parse_args()
    onednn, mkl = SETS[options.isa]
    held = {"ONEDNN_MAX_CPU_ISA": onednn, "DNNL_MAX_CPU_ISA": onednn, "MKL_ENABLE_INSTRUCTIONS": mkl, "ATTN_ISA": options.isa,
            "OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": str(options.threads), "ATTN_THREADS": str(options.threads)}
    if any(os.environ.get(name) != value for name, value in held.items()):  # the libraries read them when they are loaded
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **held})
    import torch
    torch.set_num_threads(options.threads)
    attn, sgemm = Attn(), system_onednn()
    rows = []
    if not options.json:
        print(f"{'product':24} {'m,n,k':16} {'attn':>7} {'MKL':>7} {'oneDNN':>7} {'sgemm':>7}   ratio to the best, GFLOP/s")
    for what, shape in [("given", shape) for shape in options.shapes] or attn.shapes():
        product, functions = calls(torch, attn, sgemm, shape)
        flops = 2e-9 * product.shape.m * product.shape.n * product.shape.k
        rates = [flops / t for t in measure.best_of_turns(functions, options.seconds)]
        attn.close(product)
        rows.append({"model": what, "product": shape, "threads": options.threads, "isa": options.isa,
                     **{name: round(rate, 2) for name, rate in zip(("attn", "mkl", "onednn", "sgemm"), rates)}})
        if not options.json:
            rest = [f"{rate:7.1f}" for rate in rates] + ["      -"] * (4 - len(rates))
            print(f"{what:24} {shape:16} {' '.join(rest)}   {rates[0] / max(rates[1:]):.2f}", flush=True)
    if options.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
