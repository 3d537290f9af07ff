# SPDX-License-Identifier: MIT
"""Attention weights: return_weights and record_weights, against formulas in float64.  Skipped without PyTorch."""
import concurrent.futures
import math
import unittest

try:
    import torch
    from torch.nn.attention.bias import causal_lower_right
except ImportError:
    raise unittest.SkipTest("no PyTorch here") from None

import attn.torch

sdpa, theirs = attn.torch.scaled_dot_product_attention, torch.nn.functional.scaled_dot_product_attention


def random(*shape):
    return torch.randn(shape, dtype=torch.float64)


def formula(q, k, seen=None, bias=0.0, scale=None):
    k = k.repeat_interleave(q.shape[-3] // k.shape[-3], -3)
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale) + bias
    return (scores if seen is None else scores.masked_fill(~seen, -math.inf)).softmax(-1).nan_to_num()


class Weights(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(6)

    def near(self, found, wanted, tolerance=1e-12):
        self.assertEqual(found.shape, wanted.shape)
        self.assertLessEqual(float((found.double() - wanted).abs().max()), tolerance * max(1.0, float(wanted.abs().max())))


class Returned(Weights):
    def test_values_and_gradients(self):
        q, k, v = random(2, 4, 5, 8), random(2, 2, 7, 8), random(2, 2, 7, 3)
        causal = torch.ones(5, 7, dtype=torch.bool).tril()
        hidden = torch.rand(2, 1, 5, 7) < 0.5
        hidden[0, 0, 2] = False
        bias = random(4, 1, 7)
        corner = causal_lower_right(5, 7)
        for options, seen in (({}, None), ({"is_causal": True}, causal), ({"attn_mask": hidden}, hidden), ({"scale": 0.0}, None),
                              ({"attn_mask": bias, "scale": 0.7}, None),
                              ({"attn_mask": corner}, torch.ones(5, 7, dtype=torch.bool).tril(2))):
            learned = [q, k, v, *([bias] if options.get("attn_mask") is bias else [])]
            with self.subTest(options=options):
                results = []
                for function in (self.ours, self.formula):
                    leaves = [x.detach().requires_grad_() for x in learned]
                    o, weights = function(leaves, options, seen)
                    loss = o.sin().sum() + (weights * torch.linspace(-1, 1, 7, dtype=torch.float64)).sin().sum()
                    results.append([o.detach(), weights.detach(), *torch.autograd.grad(loss, leaves)])
                for found, wanted in zip(*results):
                    self.near(found, wanted)
                o, weights = sdpa(q.float(), k.float(), v.float(), enable_gqa=True, return_weights=True, **{
                    name: x.float() if x is bias else x for name, x in options.items()})
                self.near(o, results[1][0], 1e-5)
                self.near(weights, results[1][1], 1e-5)

    @staticmethod
    def ours(leaves, options, seen):
        given = {**options, "attn_mask": leaves[3]} if len(leaves) > 3 else options
        return sdpa(*leaves[:3], enable_gqa=True, return_weights=True, **given)

    @staticmethod
    def formula(leaves, options, seen):
        weights = formula(*leaves[:2], seen, leaves[3] if len(leaves) > 3 else 0.0, options.get("scale"))
        return weights @ leaves[2].repeat_interleave(2, 1), weights

    def test_types(self):
        q = random(3, 6, 8)
        wanted = formula(q, q)
        for dtype, tolerance in ((torch.bfloat16, 2e-2), (torch.float16, 2e-3)):
            x = q.to(dtype).requires_grad_()
            o, weights = sdpa(x, x, x, return_weights=True)
            self.assertEqual((o.dtype, weights.dtype), (dtype, dtype))
            self.near(weights, wanted, tolerance)
            self.assertEqual(torch.autograd.grad(weights.square().sum() + o.sum(), x)[0].dtype, dtype)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.assertEqual(sdpa(q.float(), q.float(), q.float(), return_weights=True)[1].dtype, torch.bfloat16)

    def test_refusals(self):
        q = random(1, 2, 3, 4)
        with self.assertRaisesRegex(attn.UnsupportedError, "return_weights together with dropout_p"):
            sdpa(q, q, q, dropout_p=0.5, return_weights=True)
        with self.assertRaisesRegex(TypeError, "return_weights is of type int"):
            sdpa(q, q, q, return_weights=1)
        with self.assertRaisesRegex(attn.UnsupportedError, "a graph, a mode or a transform"):
            torch.func.vmap(lambda x: sdpa(x, x, x, return_weights=True)[1])(q)

    def test_compiled(self):
        """The compiled graph breaks at the call."""
        q = torch.randn(1, 2, 3, 4)
        compiled = torch.compile(lambda x: sdpa(x * 2, x, x, return_weights=True)[1] + 1, backend="aot_eager")
        self.near(compiled(q), formula(q.double() * 2, q.double()) + 1, 1e-5)


class Recorded(Weights):
    def test_calls_return_the_same_bits(self):
        q, k = torch.randn(2, 4, 9, 8, requires_grad=True), torch.randn(2, 2, 12, 8)

        def work():
            with attn.torch.enable(always=True):
                found = [sdpa(q, k, k, enable_gqa=True), theirs(q, q, q, is_causal=True),
                         attn.torch.flex_attention(q, q, q, softcap=2.0, sinks=q[0, :, 0, 0])]
                with torch.no_grad():
                    found += [theirs(q.half(), q.half(), q.half()), sdpa(q, k, k, enable_gqa=True)]
            return [*found, *torch.autograd.grad(sum(x.sin().sum() for x in found[:3]), q)]

        wanted = work()
        with attn.torch.record_weights() as weights:
            found = work()
        self.assertTrue(all(map(torch.equal, found, wanted)))
        exact = q.detach().double(), k.double()
        self.assertEqual((len(weights), weights.missed), (5, []))
        self.near(weights[0], formula(*exact), 1e-6)
        self.near(weights[1], formula(exact[0], exact[0], torch.ones(9, 9, dtype=torch.bool).tril()), 1e-6)
        self.assertEqual(tuple(weights[2].shape), (2, 4, 9, 9))
        self.near(weights[3], formula(exact[0], exact[0]), 1e-3)
        self.assertFalse(any(x.requires_grad for x in weights))
        self.assertEqual(weights.arrays(1)[0].shape, (4, 9, 12))
        page = attn.plot.explore(weights.arrays(1)[1:3], [str(i) for i in range(9)])
        self.assertIn(b"<html", page.data[:300])
        self.assertEqual(work()[0].shape, q.shape)
        self.assertEqual(len(weights), 5)  # nothing is recorded after the block

    def test_calls_that_are_pytorchs(self):
        """Under enable, calls that PyTorch computes are recorded too; without enable they are not."""
        q = torch.randn(1, 2, 5, 4)
        with attn.torch.record_weights() as weights:
            theirs(q, q, q)
            with attn.torch.enable():
                theirs(q, q, q, dropout_p=0.5)
                theirs(q.double(), q.double(), q.double())
        self.assertEqual(len(weights), 2)
        for x in weights:
            self.near(x, formula(q.double(), q.double()), 1e-6)

    def test_parts(self):
        q, k = random(2, 6, 7, 4), random(2, 3, 8, 4)
        mask = torch.rand(2, 1, 7, 8) < 0.7
        wanted = formula(q, k, mask)
        for heads, rows in (([4, 0, 1], None), (None, [6, 2]), ([-1], [-1, 0]), ([5, 2], [3])):
            with attn.torch.record_weights(layers=[1, 3], heads=heads, rows=rows) as weights:
                for _ in range(3):
                    sdpa(q, k, k, mask, enable_gqa=True)
            chosen = wanted if heads is None else wanted[:, heads]
            self.assertEqual(len(weights), 1)
            self.near(weights[0], chosen if rows is None else chosen[:, :, rows])

    def test_kinds_of_attention(self):
        """Axes of the batch, then queries, then keys or taps."""
        at, image, x = attn.torch, random(1, 6, 7, 2, 4), random(10, 2, 4)
        ends = torch.tensor([0, 3, 10], dtype=torch.int32)
        with at.record_weights() as weights:
            at.na2d(image, image, image, (3, 5), rpb=random(2, 5, 9))
            at.axial_attention(image, image, image, 1)
            at.tied_row_attention(image, image, image)
            at.varlen_attention(x, x, x, ends, ends, 7, 7, True)
            at.varlen_attention(x, x, x, ends, ends, 7, 7, relative_bias=(random(5, 2), torch.arange(13) % 5))
        self.assertEqual([tuple(x.shape) for x in weights],
                         [(1, 2, 6, 7, 3, 5), (1, 7, 2, 6, 6), (1, 2, 7, 7), (2, 2, 7, 7), (2, 2, 7, 7)])
        self.near(weights[0].sum((-2, -1)), torch.ones(1, 2, 6, 7, dtype=torch.float64))
        second = x[3:].transpose(0, 1)
        self.near(weights[3][1], formula(second, second, torch.ones(7, 7, dtype=torch.bool).tril()))
        self.assertEqual(float(weights[3][0, :, 3:].abs().max() + weights[3][0, :, :, 3:].abs().max()), 0.0)

    def test_threads_and_graphs(self):
        q = torch.randn(1, 2, 5, 4)
        compiled = torch.compile(lambda x: sdpa(x, x, x), backend="aot_eager", fullgraph=True)
        compiled(q)
        with attn.torch.record_weights() as outer, concurrent.futures.ThreadPoolExecutor(1) as pool:
            pool.submit(sdpa, q, q, q).result()  # another thread's
            with torch.inference_mode(), attn.torch.record_weights(layers=[0]) as inner:
                compiled(q)
                sdpa(q, q, q)
        self.assertEqual((len(outer), len(inner)), (2, 1))
        self.assertTrue(torch.equal(outer[0], inner[0]))

    def test_refusals(self):
        q = random(1, 2, 3, 4)
        for options in ({"heads": []}, {"rows": 3}, {"layers": [0.5]}, {"layers": [-1]}):
            with self.assertRaisesRegex(attn.ArgumentError, f"{next(iter(options))} is "):
                attn.torch.record_weights(**options)
        for options, words in (({"heads": [2]}, r"heads=\[2\], but a call has 2 heads"), ({"rows": [-4]}, "3 rows")):
            with self.assertRaisesRegex(attn.ArgumentError, words), attn.torch.record_weights(**options):
                sdpa(q, q, q)
        sdpa(q, q, q)  # the block ended with the error


if __name__ == "__main__":
    unittest.main()
