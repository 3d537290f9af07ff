# SPDX-License-Identifier: MIT
"""Times products of matrices in f32: src/gemm beside PyTorch's MKL and oneDNN, and beside the system's oneDNN.

    products.py [--threads N] [--seconds X] [--isa avx2|avx512] [SHAPE...]

SHAPE is m,n,k with an optional letter: t multiplies by B transposed, as a linear layer does, a multiplies A transposed, as the
gradient of its weights does.  The four run in turns, and the shortest time of each counts.  --isa holds all of
them to one instruction set (the peers by ONEDNN_MAX_CPU_ISA and MKL_ENABLE_INSTRUCTIONS).  Needs build/libattn.a.
"""
import argparse
import ctypes
import ctypes.util
import os
import subprocess
import sys
import tempfile

import measure

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("ATTN_BUILD", os.path.join(ROOT, "build"))
SETS = {"avx2": (2, "AVX2", "AVX2"), "avx512": (3, "AVX512_CORE", "AVX512")}  # attn__isa, oneDNN's name, MKL's
SHAPES = [  # (what, shapes)
    ("ViT-B/16, 8 pictures", ["1576,2304,768t", "1576,768,768t", "1576,3072,768t", "1576,768,3072t"]),
    ("ViT-B/16, one picture", ["197,2304,768t", "197,768,768t", "197,3072,768t", "197,768,3072t"]),
    ("ViT-B/16, gradients", ["768,3072,1576a", "3072,768,1576a", "1576,3072,768", "1576,768,3072"]),
    ("MSA-1b, 64 x 128", ["8192,768,768t", "8192,3072,768t", "8192,768,3072t"]),
    ("Transformer of 512", ["1024,512,512t", "1024,2048,512t", "1024,512,2048t", "1024,10000,512t", "512,2048,1024a"]),
    ("d2l's Transformer", ["1280,256,256t", "1280,64,256t", "256,256,1280a"]),
    ("64 channels of an image", ["64,1024,576", "20000,64,64t", "64,576,1024t"]),
    ("tall, wide, small, odd", ["16,4096,4096t", "4096,16,4096", "64,64,64", "100,100,100t", "333,777,555"]),
]


def library():
    """product() of bench/products.c."""
    path = os.path.join(tempfile.mkdtemp(), "products.so")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-pthread", f"-I{ROOT}/include", f"-I{ROOT}/src", f"{ROOT}/bench/products.c",
                    f"{BUILD}/libattn.a", "-lm", "-o", path], check=True)
    return ctypes.CDLL(path).product


def system_onednn():
    path = ctypes.util.find_library("dnnl")
    return ctypes.CDLL(path).dnnl_sgemm if path else None


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


def calls(torch, product, sgemm, isa, threads, shape):
    """(m, n, k, [attn's call and its peers'])."""
    m, n, k = map(int, shape.rstrip("at").split(","))
    ta, tb = shape[-1] == "a", shape[-1] == "t"
    a, b = torch.randn((k, m) if ta else (m, k)), torch.randn((n, k) if tb else (k, n))
    left, right = a.t() if ta else a, b.t() if tb else b
    own, out = torch.empty(m, n), torch.empty(m, n)
    pointers = pointer(a), pointer(b), pointer(own)
    sizes = [ctypes.c_int64(x) for x in (m, n, k)]
    product(isa, threads, ta, tb, *sizes, *pointers)
    torch.mm(left, right, out=out)
    assert torch.allclose(own, out, rtol=1e-3, atol=1e-3 * k ** 0.5)
    w = b if tb else b.t().contiguous()
    x = a.t().contiguous() if ta else a
    result = [lambda keep=(a, b, own): product(isa, threads, ta, tb, *sizes, *pointers), lambda: torch.mm(left, right, out=out),
              lambda: torch.ops.mkldnn._linear_pointwise(x, w, None, "none", [], "")]
    if sgemm:
        letters, one, zero = (b"T" if ta else b"N", b"T" if tb else b"N"), ctypes.c_float(1), ctypes.c_float(0)
        lda, ldb, ldc = (ctypes.c_int64(t.shape[1]) for t in (a, b, own))
        result.append(lambda: sgemm(ctypes.c_char(letters[0]), ctypes.c_char(letters[1]), *sizes, one, pointer(a), lda, pointer(b), ldb,
                                    zero, pointer(own), ldc))
    return m, n, k, result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each shape")
    parser.add_argument("--isa", choices=SETS, default="avx512")
    options = parser.parse_args()
    isa, onednn, mkl = SETS[options.isa]
    held = {"ONEDNN_MAX_CPU_ISA": onednn, "DNNL_MAX_CPU_ISA": onednn, "MKL_ENABLE_INSTRUCTIONS": mkl,
            "OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": str(options.threads)}
    if any(os.environ.get(name) != value for name, value in held.items()):  # the libraries read them when they are loaded
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **held})
    import torch
    torch.set_num_threads(options.threads)
    product, sgemm = library(), system_onednn()
    print(f"{'product':24} {'m,n,k':16} {'attn':>7} {'MKL':>7} {'oneDNN':>7} {'sgemm':>7}   ratio to the best, GFLOP/s")
    for what, shapes in [("given", options.shapes)] if options.shapes else SHAPES:
        for shape in shapes:
            m, n, k, functions = calls(torch, product, sgemm, isa, options.threads, shape)
            rates = [2e-9 * m * n * k / t for t in measure.best_of_turns(functions, options.seconds)]
            rest = [f"{rate:7.1f}" for rate in rates] + ["      -"] * (4 - len(rates))
            print(f"{what:24} {shape:16} {' '.join(rest)}   {rates[0] / max(rates[1:]):.2f}", flush=True)


if __name__ == "__main__":
    main()
