# SPDX-License-Identifier: MIT
"""attn.neighborhood_attention against an einsum in float64 over NATTEN's definition, pair by pair, with gradients."""
import itertools
import unittest

import numpy as np

import attn


def along(n, taps, stride, dilation, causal):
    """bool [n,n]: which positions of an axis attend to which others."""
    mask = np.zeros((n, n), bool)
    for i in range(n):
        length = -(-(n - i % dilation) // dilation)  # of the axis of i's residue
        at = i // dilation
        leader = min(at // stride * stride + (stride - 1 if causal else stride // 2), length - 1)
        begin = leader - taps + 1 if causal else min(max(leader - taps // 2, 0), length - taps)
        for j in range(max(begin, 0), at + 1 if causal else begin + taps):
            mask[i, i % dilation + j * dilation] = True
    return mask


def exact(dout, q, k, v, axes, scale):
    """o, lse and the gradients, in float64."""
    mask = np.ones((1, 1), bool)
    for one in axes:
        mask = np.kron(mask, along(*one))
    flat = [x.astype(np.float64).reshape(x.shape[0], -1, *x.shape[-2:]) for x in (dout, q, k, v)]
    dout, q, k, v = flat
    scores = np.where(mask, np.einsum("bihd,bjhd->bhij", q, k) * scale, -np.inf)
    peak = scores.max(-1, keepdims=True)
    sums = np.exp(scores - peak).sum(-1, keepdims=True)
    p = np.exp(scores - peak) / sums
    o = np.einsum("bhij,bjhd->bihd", p, v)
    dp = np.einsum("bihd,bjhd->bhij", dout, v)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * scale
    return {"o": o, "lse": (peak + np.log(sums))[..., 0].transpose(0, 2, 1), "q": np.einsum("bhij,bjhd->bihd", ds, k),
            "k": np.einsum("bhij,bihd->bjhd", ds, q), "v": np.einsum("bhij,bihd->bjhd", p, dout)}


class Neighborhoods(unittest.TestCase):
    def check(self, sizes, taps, stride, dilation, causal, dtype=np.float64, tolerance=1e-11, scale=None, turned=False):
        rng = np.random.default_rng(1)
        q, k, v, dout = (rng.standard_normal((2, *sizes, 3, d)).astype(dtype) for d in (4, 4, 5, 5))
        if turned:  # heads precede positions in memory, and one axis is reversed
            q, k, v, dout = (np.ascontiguousarray(x[:, ::-1].swapaxes(1, -2)).swapaxes(1, -2)[:, ::-1] for x in (q, k, v, dout))
        options = {"stride": stride, "dilation": dilation, "is_causal": causal, "scale": scale}
        o, lse = attn.neighborhood_attention(q, k, v, taps, return_lse=True, **options)
        found = {"o": o, "lse": lse, **attn.neighborhood_attention_backward(dout, q, k, v, o, lse, taps, **options)}
        each = [n if isinstance(n, tuple) else (n,) * len(sizes) for n in (taps, stride, dilation, causal)]
        wanted = exact(dout, q, k, v, list(zip(sizes, *each)), 0.5 if scale is None else scale)
        for name, w in wanted.items():
            with self.subTest(sizes=sizes, taps=taps, stride=stride, dilation=dilation, causal=causal, what=name):
                self.assertEqual(found[name].dtype, lse.dtype if name == "lse" else q.dtype)
                self.assertLess(np.abs(found[name].reshape(w.shape).astype(np.float64) - w).max() / np.abs(w).max(), tolerance)

    def test_one_axis(self):
        for n, taps, stride, dilation, causal in itertools.product((12, 13), (2, 3, 4), (1, 2, 3), (1, 2, 3), (False, True)):
            if stride <= taps:
                self.check((n,), taps, stride, dilation, causal)

    def test_axes_of_their_own(self):
        for sizes, taps, stride, dilation, causal in (
                ((6, 8), (3, 5), (3, 4), (1, 1), (False, False)), ((7, 9), (3, 4), (2, 4), (1, 2), (False, True)),
                ((6, 8), 3, (3, 2), (1, 2), True), ((4, 6, 5), (2, 3, 5), (2, 3, 1), 1, (False, True, False)),
                ((5, 6, 7), (3, 2, 3), (3, 1, 2), (1, 2, 1), (False, True, True)), ((8, 8, 8), 2, 2, 2, True)):
            self.check(sizes, taps, stride, dilation, causal)
            self.check(sizes, taps, stride, dilation, causal, np.float32, 1e-5, 0.7, True)

    def test_refusals(self):
        q = np.ones((1, 6, 6, 2, 4), np.float32)
        for call, words in ((lambda: attn.neighborhood_attention(q, q, q, 7), "positions"),
                            (lambda: attn.neighborhood_attention(q, q, q, 3, stride=4), "at most the kernel_size, 3"),
                            (lambda: attn.neighborhood_attention(q, q, q, 3, is_causal=(True,)), "causal"),
                            (lambda: attn.neighborhood_attention(q, q, q, (3, 3, 3)), "kernel_size"),
                            (lambda: attn.neighborhood_attention(q, q, q, 3, dilation=0), "dilation"),
                            (lambda: attn.neighborhood_attention(q, q, q, 3, scale=0.0), "scale"),
                            (lambda: attn.neighborhood_attention(q, q[:, :5], q, 3), "must have the same shape"),
                            (lambda: attn.neighborhood_attention(q, q, q.astype(np.float64), 3), "one type"),
                            (lambda: attn.neighborhood_attention(q[0, 0], q[0, 0], q[0, 0], 3), "axes"),
                            (lambda: attn.neighborhood_attention_backward(q, q, q, q, q, q, 3), "lse")):
            with self.subTest(words=words), self.assertRaisesRegex(attn.Error, words):
                call()


if __name__ == "__main__":
    unittest.main()
