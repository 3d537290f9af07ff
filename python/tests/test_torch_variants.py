# SPDX-License-Identifier: MIT
"""attn.torch's other attentions and Layer against formulas of PyTorch in float64.  Skipped where there is no PyTorch."""
import concurrent.futures
import itertools
import math
import multiprocessing
import unittest

try:
    import numpy as np
    import torch
except ImportError:
    raise unittest.SkipTest("no PyTorch here") from None

import attn
import attn.torch


def random(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=torch.float64).to(dtype)


class Formula(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(4)

    def compare(self, function, formula, *tensors):
        """Results and gradients: `function` in float32 and float64, `formula` in float64."""
        exact = [x.double().requires_grad_() for x in tensors]
        wanted = formula(*exact)
        dout = random(*wanted.shape, dtype=torch.float64)
        wanted = [wanted.detach(), *torch.autograd.grad(wanted, exact, dout)]
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
            leaves = [x.detach().to(dtype).requires_grad_() for x in tensors]
            o = function(*leaves)
            for g, w in zip([o.detach(), *torch.autograd.grad(o, leaves, dout.to(dtype))], wanted):
                self.assertEqual(g.shape, w.shape)
                self.assertLessEqual(float((g - w).abs().max()), tolerance * float(w.abs().max()) + tolerance / 10)

    def test_neighborhood(self):
        for sizes, taps, dilation in (((9,), 3, 2), ((7, 6), (3, 5), 1), ((6, 8), (3, 3), (2, 1)), ((4, 3, 5), 3, 1)):
            shape = (2, *sizes, 2, 4)
            taps_of = (taps,) * len(sizes) if isinstance(taps, int) else taps
            steps = (dilation,) * len(sizes) if isinstance(dilation, int) else dilation
            mask = neighbours(sizes, taps_of, steps)

            def formula(q, k, v):
                flat = [x.flatten(1, -3).transpose(1, 2) for x in (q, k, v)]
                scores = (flat[0] @ flat[1].mT / 2).masked_fill(~mask, -float("inf"))
                return (scores.softmax(-1) @ flat[2]).transpose(1, 2).reshape(q.shape)

            with self.subTest(sizes=sizes, taps=taps, dilation=dilation):
                self.compare(lambda q, k, v: attn.torch.neighborhood_attention(q, k, v, taps, dilation=dilation), formula,
                             *(random(*shape) for _ in range(3)))

    def test_default_device_and_mixed_devices(self):
        """Tensors that attn makes are on query's device; tensors on several devices are refused."""
        x = torch.randn(1, 8, 1, 4, dtype=torch.float64)
        wanted = attn.torch.na1d(x, x, x, 4, stride=2, is_causal=True)
        with torch.device("meta"):
            found = attn.torch.na1d(x, x, x, 4, stride=2, is_causal=True)
        self.assertTrue(torch.equal(wanted, found))
        heads = x.permute(0, 2, 1, 3)
        with self.assertRaisesRegex(Exception, "meta"):
            attn.torch.scaled_dot_product_attention(heads, heads, heads, torch.zeros(8, 8, dtype=torch.float64, device="meta"))

    def test_strided_neighborhood(self):
        """Compared with an explicit mask of pairs, with and without dilation and causality."""
        def rows(size, taps, stride, step, causal):
            mask = torch.zeros(size, size)
            for i in range(size):
                same = list(range(i % step, size, step))  # the axis of this residue
                at = same.index(i)
                leader = min(at // stride * stride + (stride - 1 if causal else stride // 2), len(same) - 1)
                first = leader - (taps - 1 if causal else taps // 2)
                first = max(first, 0) if causal else min(max(first, 0), len(same) - taps)
                mask[i, same[first:at + 1 if causal else first + taps]] = 1
            return mask

        no, yes = False, True
        for sizes, taps, stride, step, causal in (
                ((12,), (5,), (3,), (1,), (no,)), ((12,), (4,), (4,), (1,), (no,)), ((6, 8), (3, 4), (1, 2), (1, 1), (no, no)),
                ((6, 8), (3, 5), (3, 4), (1, 1), (no, no)), ((4, 6, 5), (2, 3, 5), (2, 3, 1), (1, 1, 1), (no, no, no)),
                ((12,), (3,), (2,), (2,), (no,)), ((12,), (5,), (3,), (1,), (yes,)), ((16,), (4,), (2,), (4,), (yes,)),
                ((12, 8), (3, 4), (3, 2), (2, 1), (no, yes)), ((6, 8), (3, 3), (3, 2), (1, 2), (yes, yes)),
                ((4, 7, 8), (2, 3, 2), (2, 1, 2), (2, 2, 2), (yes, no, no)),
                # stride * dilation does not divide the axis
                ((11,), (5,), (3,), (1,), (no,)), ((11,), (4,), (4,), (1,), (yes,)), ((13,), (3,), (2,), (3,), (no,)),
                ((7, 9), (3, 4), (2, 4), (1, 2), (no, yes)), ((5, 6, 7), (3, 2, 3), (3, 1, 2), (1, 2, 1), (no, yes, yes))):
            mask = torch.ones(1, 1)
            for one in zip(sizes, taps, stride, step, causal):
                mask = torch.kron(mask, rows(*one))

            def formula(q, k, v):
                flat = [x.flatten(1, -3).transpose(1, 2) for x in (q, k, v)]
                scores = (flat[0] @ flat[1].mT / 2).masked_fill(mask == 0, -float("inf"))
                return (scores.softmax(-1) @ flat[2]).transpose(1, 2).reshape(q.shape)

            with self.subTest(sizes=sizes, taps=taps, stride=stride, dilation=step, causal=causal):
                self.compare(lambda q, k, v: attn.torch.neighborhood_attention(q, k, v, taps, stride, step, causal), formula,
                             *(random(2, *sizes, 2, 4) for _ in range(3)))

    def test_map_over_the_keys_of_a_neighborhood_in_parts(self):
        q, keys = torch.randn(1, 7, 2, 4), torch.randn(3, 1, 7, 2, 4)  # a stride of 2 does not divide 7: several parts
        mapped = torch.func.vmap(lambda k: attn.torch.na1d(q, k, q, 3, stride=2))(keys)
        for x, k in zip(mapped, keys):
            self.assertTrue(torch.allclose(x, attn.torch.na1d(q, k, q, 3, stride=2), atol=1e-5))

    def test_shifted_windows_after_inference(self):
        """A call in inference mode stores nothing that a later gradient would use."""
        x, table = torch.randn(1, 8, 8, 2, 4), torch.randn(49, 2, requires_grad=True)
        with torch.inference_mode():
            attn.torch.shifted_window_attention(x, x, x, 4, 2, table)
        attn.torch.shifted_window_attention(x, x, x, 4, 2, table).sum().backward()
        self.assertTrue(torch.isfinite(table.grad).all())

    def test_shifted_windows_backward_watched(self):
        """Gradients that are lazily negated, traced alone, or batched; a vmap over only the keys; a picture without
        rows."""
        from torch.fx.experimental.proxy_tensor import make_fx
        q, k, v = (random(1, 4, 6, 2, 4).requires_grad_() for _ in range(3))
        table = random(9, 2).requires_grad_()
        o = attn.torch.shifted_window_attention(q, k, v, 2, 1, table)
        dout, other = torch.randn(2, *o.shape)
        negated = torch.complex(other, -dout).conj().imag
        self.assertTrue(negated.is_neg())

        def grads(given):
            return torch.autograd.grad(o, (q, k, v, table), given, retain_graph=True)

        expected = grads(dout)
        for found in (grads(negated), make_fx(grads)(other)(dout)):
            for x, y in zip(found, expected):
                self.assertTrue(torch.allclose(x, y, atol=1e-5))
        with self.assertRaisesRegex(attn.UnsupportedError, "several outputs at once"):
            torch.autograd.grad(o, q, torch.stack((dout, other)), is_grads_batched=True, retain_graph=True)
        keys = torch.randn(3, *k.shape)
        mapped = torch.func.vmap(lambda x: attn.torch.shifted_window_attention(q, x, v, 2, 1, table))(keys)
        for x, y in zip(mapped, keys):
            self.assertTrue(torch.allclose(x, attn.torch.shifted_window_attention(q, y, v, 2, 1, table), atol=1e-5))
        empty = torch.randn(2, 0, 2, 4)
        for x in (empty, empty.half(), empty.to("meta")):
            self.assertEqual(attn.torch.shifted_window_attention(x, x, x, 3, 1).shape, x.shape)

    def test_shifted_windows(self):
        """Compared with Swin's own method: the picture is rolled and cut into windows, and the table and the mask of
        the seam are added."""
        for sizes, windows, shift in (((6,), 3, 1), ((6, 8), (3, 4), (1, 3)), ((6, 8), (3, 4), 0), ((4, 4), 4, 2),
                                      ((4, 6, 2), 2, (1, 0, 1))):
            windows_of = (windows,) * len(sizes) if isinstance(windows, int) else windows
            shifts = (shift,) * len(sizes) if isinstance(shift, int) else shift
            places = torch.cartesian_prod(*(torch.arange(n) for n in sizes)).reshape(-1, len(sizes))  # of the rolled picture
            same, row = torch.ones(len(places), len(places), dtype=torch.bool), 0
            for i, (n, w, s) in enumerate(zip(sizes, windows_of, shifts)):
                at = places[:, i]
                side = (at >= n - s) if s else torch.zeros_like(at).bool()  # what came round
                same &= (at[:, None] // w == at // w) & (side[:, None] == side)
                row = row * (2 * w - 1) + (at[:, None] - at).clamp(1 - w, w - 1) + w - 1
            axes = tuple(range(1, len(sizes) + 1))

            def formula(q, k, v, table):
                shape = v.shape
                q, k, v = (x.roll([-s for s in shifts], axes).flatten(1, -3).transpose(1, 2) for x in (q, k, v))
                scores = (q @ k.mT / 2 + table[row].permute(2, 0, 1)).masked_fill(~same, -math.inf)
                return (scores.softmax(-1) @ v).transpose(1, 2).reshape(shape).roll(shifts, axes)

            def ours(q, k, v, table):
                return attn.torch.shifted_window_attention(q, k, v, windows, shift, table)

            with self.subTest(sizes=sizes, windows=windows, shift=shift):
                inputs = [*(random(2, *sizes, 2, 4) for _ in range(3)), random(math.prod(2 * w - 1 for w in windows_of), 2)]
                self.compare(ours, formula, *inputs)
                plain = attn.torch.shifted_window_attention(*inputs[:3], windows, shift)
                self.assertTrue(torch.allclose(plain, ours(*inputs[:3], torch.zeros_like(inputs[3])), atol=1e-6))
                if shift == (1, 3):
                    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
                    self.assertTrue(torch.equal(compiled(*inputs), ours(*inputs)))

    def test_axial(self):
        def formula(q, k, v):
            q, k, v = (x.movedim(1, -2) for x in (q, k, v))  # [B,X,H,Y,D]
            scores = q @ k.mT / 2
            scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -float("inf"))
            return (scores.softmax(-1) @ v).movedim(-2, 1)

        self.compare(lambda q, k, v: attn.torch.axial_attention(q, k, v, 1, is_causal=True), formula,
                     *(random(2, 5, 6, 3, 4) for _ in range(3)))

    def test_tied_rows(self):
        def formula(q, k, v):
            scores = torch.einsum("brihd,brjhd->bhij", q, k) / (q.shape[-1] * q.shape[1]) ** 0.5
            return torch.einsum("bhij,brjhd->brihd", scores.softmax(-1), v)

        self.compare(attn.torch.tied_row_attention, formula, *(random(2, 3, 7, 2, 4) for _ in range(3)))

    def test_flex(self):
        mask = torch.rand(7, 9) < 0.7

        def formula(q, k, v, bias):
            k, v = (x.repeat_interleave(2, 1) for x in (k, v))
            far = torch.arange(9) - torch.arange(7)[:, None]
            allowed = mask & (far >= -2) & (far <= 4)
            scores = (q @ k.mT * 0.3 + bias).masked_fill(~allowed, -float("inf"))
            return scores.softmax(-1).nan_to_num() @ v

        self.compare(lambda q, k, v, bias: attn.torch.flex_attention(q, k, v, bias=bias, mask=mask, window=(2, 4), scale=0.3,
                                                                     enable_gqa=True),
                     formula, random(2, 4, 7, 8), random(2, 2, 9, 8), random(2, 2, 9, 8), random(4, 1, 9))
        q = random(1, 2, 5, 8)
        lse = attn.torch.flex_attention(q, q, q, return_lse=True)[1]
        self.assertLess(float((lse - (q @ q.mT / 8**0.5).logsumexp(-1)).abs().max()), 1e-5)

    def test_softcap_and_sinks(self):
        def formula(q, k, v, bias, sinks):
            k, v = (x.repeat_interleave(2, 1) for x in (k, v))
            scores = 1.5 * torch.tanh(q @ k.mT / 8**0.5 / 1.5) + bias
            scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -float("inf"))
            return torch.cat([scores, sinks[:, None, None].expand(*scores.shape[:3], 1)], -1).softmax(-1)[..., :-1] @ v

        self.compare(lambda q, k, v, bias, sinks: attn.torch.flex_attention(q, k, v, bias=bias, is_causal=True, softcap=1.5,
                                                                            sinks=sinks, enable_gqa=True),
                     formula, random(2, 4, 7, 8), random(2, 2, 9, 8), random(2, 2, 9, 8), random(4, 1, 9), random(4))
        q = random(1, 4, 5, 8, dtype=torch.float64).requires_grad_()
        sinks = random(4, dtype=torch.float64).requires_grad_()
        self.assertTrue(torch.autograd.gradcheck(
            lambda q, sinks: attn.torch.flex_attention(q, q, q, softcap=2.0, sinks=sinks, return_lse=True), (q, sinks)))
        compiled = torch.compile(lambda q, sinks: attn.torch.flex_attention(q, q, q, sinks=sinks, softcap=2.0),
                                 fullgraph=True, backend="aot_eager")
        for way in (compiled, lambda q, sinks: attn.torch.flex_attention(q, q, q, sinks=sinks, softcap=2.0)):
            way(q, sinks).square().sum().backward()
        self.assertTrue(torch.isfinite(sinks.grad).all())

    def test_sigmoid(self):
        mask = torch.rand(7, 9) < 0.7

        def formula(q, k, v, bias, b):
            k, v = (x.repeat_interleave(2, 1) for x in (k, v))
            scores = 1.5 * torch.tanh(q @ k.mT / 8**0.5 / 1.5) + bias + b[:, None, None]
            return (scores.sigmoid() * mask) @ v

        self.compare(lambda q, k, v, bias, b: attn.torch.flex_attention(
            q, k, v, bias=bias, mask=mask, softcap=1.5, enable_gqa=True, normalization="sigmoid", sigmoid_bias=b),
            formula, random(2, 4, 7, 8), random(2, 2, 9, 8), random(2, 2, 9, 8), random(4, 1, 9), random(4))
        for b in (None, -0.5, random(4)):
            self.compare(lambda q, k, v, b=b: attn.torch.flex_attention(
                q, k, v, is_causal=True, normalization="sigmoid", sigmoid_bias=b),
                lambda q, k, v, b=b: (q @ k.mT / 8**0.5 + (-math.log(9) if b is None else b if isinstance(b, float) else
                                      b[:, None, None])).sigmoid().tril() @ v,
                random(2, 4, 9, 8), random(2, 4, 9, 8), random(2, 4, 9, 8))
        q, b = (random(*shape, dtype=torch.float64).requires_grad_() for shape in ((1, 4, 5, 8), (4,)))

        def call(q, b):
            return attn.torch.flex_attention(q, q, q, normalization="sigmoid", sigmoid_bias=b)

        self.assertTrue(torch.autograd.gradcheck(call, (q, b)))
        compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
        compiled(q, b).square().sum().backward()
        self.assertTrue(torch.isfinite(b.grad).all())
        for name, weights in (("none", lambda x: x), ("hardmax", lambda x: torch.nn.functional.one_hot(x.argmax(-1), 5).double())):
            o = attn.torch.flex_attention(q, q, q, normalization=name)
            self.assertLess(float((o - weights(q @ q.mT / 8**0.5) @ q).abs().max()), 1e-12)
        for words, options in (("expected one of softmax", {"normalization": "sparsemax"}), ("sigmoid_bias needs", {"sigmoid_bias": -1.0}),
                               ("log-sum-exp", {"normalization": "sigmoid", "return_lse": True}),
                               (r"\[H\]", {"normalization": "sigmoid", "sigmoid_bias": random(3)}),
                               ("finite", {"normalization": "sigmoid", "sigmoid_bias": math.inf}),
                               ("need the softmax normalization", {"normalization": "sigmoid", "sinks": random(4)})):
            with self.subTest(words=words), self.assertRaisesRegex(attn.Error, words):
                attn.torch.flex_attention(q, q, q, **options)

    def test_block_mask(self):
        from torch.nn.attention import flex_attention as flex

        def near(b, h, i, j):
            return (i - j).abs() <= 20 + 10 * h

        def formula(mask):
            def attend(q, k, v):
                k, v = (x.repeat_interleave(2, 1) for x in (k, v))
                return (q @ k.mT / 8**0.5).masked_fill(~mask, -float("inf")).softmax(-1).nan_to_num() @ v
            return attend

        tensors = random(2, 4, 90, 8), random(2, 2, 130, 8), random(2, 2, 130, 8)
        given = flex.create_block_mask(near, None, 4, 90, 130, device="cpu", BLOCK_SIZE=(32, 16))
        self.compare(lambda q, k, v: attn.torch.flex_attention(q, k, v, block_mask=given, enable_gqa=True),
                     formula(flex.create_mask(near, 1, 4, 90, 130, device="cpu")), *tensors)
        listed = torch.rand(2, 1, 3, 5) < 0.5  # without a function: whole blocks
        whole = flex.BlockMask.from_kv_blocks(listed.sum(-1).int(), listed.int().argsort(-1, descending=True).int(),
                                              BLOCK_SIZE=(32, 32), seq_lengths=(90, 130))
        mask = listed.repeat_interleave(32, 2).repeat_interleave(32, 3)[:, :, :90, :130]
        causal = torch.ones(90, 130).tril().bool()
        self.compare(lambda q, k, v: attn.torch.flex_attention(q, k, v, block_mask=whole, is_causal=True, enable_gqa=True),
                     formula(mask & causal), *tensors)
        q = random(2, 4, 90, 8)
        for wrong, words in ((mask, "BlockMask"), (given, "does not broadcast")):
            with self.subTest(words=words), self.assertRaisesRegex(attn.Error, words):
                attn.torch.flex_attention(q, q, q, block_mask=wrong)

    def test_log_sum_exp(self):
        """Two halves of the keys, merged by the log-sum-exp, have the result and the gradients of the whole."""
        def merged(q, k, v):
            (a, x), (b, y) = (attn.torch.flex_attention(q, k[:, :, part], v[:, :, part], return_lse=True)
                              for part in (slice(0, 4), slice(4, None)))
            lse = torch.logaddexp(x, y)
            return a * (x - lse).exp()[..., None] + b * (y - lse).exp()[..., None]

        self.compare(merged, lambda q, k, v: (q @ k.mT / 8**0.5).softmax(-1) @ v, random(2, 2, 7, 8), random(2, 2, 9, 8),
                     random(2, 2, 9, 8))

    def test_causal_neighborhood(self):
        def formula(q, k, v):  # [B,Y,X,H,D]: Y causal with dilation 2, X moved inwards
            far = torch.arange(7)[:, None] - torch.arange(7)
            rows = (far >= 0) & (far % 2 == 0) & (far <= 4)
            mask = torch.kron(rows.to(torch.uint8), neighbours((6,), (3,), (1,)).to(torch.uint8)).bool()
            flat = [x.flatten(1, 2).transpose(1, 2) for x in (q, k, v)]
            scores = (flat[0] @ flat[1].mT / 2).masked_fill(~mask, -float("inf"))
            return (scores.softmax(-1) @ flat[2]).transpose(1, 2).reshape(q.shape)

        self.compare(lambda q, k, v: attn.torch.na2d(q, k, v, 3, dilation=(2, 1), is_causal=(True, False)), formula,
                     *(random(2, 7, 6, 2, 4) for _ in range(3)))

    def test_neighborhood_with_bias_and_mask(self):
        """NATTEN's rpb, with its gradient, and a mask of keys, position by position."""
        for sizes, taps, steps, causal in (((9,), (4,), (2,), (False,)), ((9,), (3,), (2,), (True,)),
                                           ((5, 7), (3, 5), (1, 1), (False, False)), ((6, 7), (3, 2), (2, 3), (True, False)),
                                           ((3, 4, 5), (3, 2, 3), (1, 2, 1), (False, False, False))):
            rpb = random(2, *(2 * n - 1 for n in taps))
            mask = torch.rand(2, *sizes) < 0.6
            mask[0, :3] = False  # some queries have no visible keys
            tensors = [random(2, *sizes, 2, 3) for _ in range(3)]
            for given, seen in ((rpb, None), (None, mask), (rpb, mask), (rpb, mask[:1])):
                def function(q, k, v, rpb=None):
                    return attn.torch.neighborhood_attention(q, k, v, taps, 1, steps, causal, rpb=rpb, key_mask=seen)

                def formula(q, k, v, rpb=None):
                    every = None if seen is None else seen.expand(2, *sizes)
                    return by_position(q, k, v, taps, steps, causal, rpb, every)

                with self.subTest(sizes=sizes, rpb=given is not None, mask=seen is not None):
                    self.compare(function, formula, *tensors, *([] if given is None else [given]))
        q, mask = random(1, 7, 2, 3), torch.rand(1, 7) < 0.5  # a stride in several parts
        found = attn.torch.na1d(q, q, q, 3, stride=2, key_mask=mask)
        hidden = torch.where(mask[..., None, None], q, 1e3)  # masked keys may hold any value
        self.assertTrue(torch.equal(found, attn.torch.na1d(q, hidden, hidden, 3, stride=2, key_mask=mask)))

    def test_neighborhood_with_bias_after_inference(self):
        """The cached index serves gradients, graphs and other devices."""
        q, rpb = torch.randn(1, 8, 5, 2, 4), torch.randn(2, 5, 5, requires_grad=True)

        def work(q, rpb):
            return attn.torch.na2d(q, q, q, 3, rpb=rpb)

        compiled = torch.compile(work, backend="aot_eager", fullgraph=True)(q, rpb)
        with torch.inference_mode():
            wanted = work(q, rpb)
        found = work(q, rpb)
        found.sum().backward()
        self.assertTrue(torch.equal(found, wanted) and torch.allclose(found, compiled, atol=1e-6))
        self.assertGreater(float(rpb.grad.abs().max()), 0)
        self.assertEqual(work(q.to("meta"), rpb.to("meta")).shape, q.shape)

    def test_packed_scores(self):
        """Windows, softcap, sinks and biases by distance, with grouped heads, sequence by sequence."""
        queries, keys = [3, 0, 9, 5], [4, 2, 6, 1]
        index = attn.torch.t5_buckets(9, 9, num_buckets=12, max_distance=20)
        for other, options in ((queries, {"window": (2, 1)}), (queries, {"softcap": 1.5, "is_causal": True}),
                               (queries, {"window": (3, None), "is_causal": True, "sinks": True}),
                               (keys, {"relative": True}), (keys, {"is_causal": "top-left", "window": (2, 0)}),
                               (keys, {"is_causal": "bottom-right", "window": (2, None), "sinks": True, "softcap": 2.0}),
                               (queries, {"relative": True, "sinks": True, "is_causal": "bottom-right"})):
            ends = [torch.tensor([0, *n]).cumsum(0).to(torch.int32) for n in (queries, other)]
            said = {name: x for name, x in options.items() if name not in ("sinks", "relative")}
            more = [name for name in ("sinks", "relative") if name in options]

            def function(q, k, v, *rest):
                rest = dict(zip(more, rest))
                relative = (rest["relative"], index) if "relative" in rest else None
                return attn.torch.varlen_attention(q, k, v, *ends, 9, 9, enable_gqa=True, sinks=rest.get("sinks"),
                                                   relative_bias=relative, **said)

            def formula(q, k, v, *rest):
                cut = [[x[e[i]:e[i + 1]] for i in range(4)] for x, e in ((q, ends[0]), (k, ends[1]), (v, ends[1]))]
                return torch.cat([one_sequence(*x, index, 9, **said, **dict(zip(more, rest))) for x in zip(*cut)])

            learned = [{"sinks": random(4), "relative": random(12, 4)}[name] for name in more]
            with self.subTest(options=options):
                self.compare(function, formula, random(17, 4, 6), random(sum(other), 2, 6), random(sum(other), 2, 5), *learned)

    def test_nested(self):
        """Jagged sequences, by the function for tensors of one length."""
        for lengths, keys, causal, heads in (((3, 5, 2), (4, 1, 6), False, (2,)), ((3, 5, 2), (3, 5, 2), True, (2,)),
                                             ((3, 0, 2), (3, 1, 2), False, ())):
            parts = [[random(n, *heads, 4).requires_grad_() for n in given] for given in (lengths, keys, keys)]
            q, k = (torch.nested.as_nested_tensor(x, layout=torch.jagged) for x in parts[:2])
            v = torch.nested.nested_tensor_from_jagged(torch.cat(parts[2]), k.offsets())
            if heads:
                q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            o = attn.torch.scaled_dot_product_attention(q, k, v, is_causal=causal)
            self.assertEqual(o.shape, q.shape)
            wanted = [attn.torch.scaled_dot_product_attention(*(x.movedim(0, -2) for x in one), is_causal=causal).movedim(-2, 0)
                      for one in zip(*parts)]
            found = (o.transpose(1, 2) if heads else o).values()
            self.assertLess(float((found - torch.cat(wanted)).abs().max()), 1e-12)
            leaves = [x for group in parts for x in group]
            for x, y in zip(torch.autograd.grad(found.sin().sum(), leaves),
                            torch.autograd.grad(torch.cat(wanted).sin().sum(), leaves)):
                self.assertTrue(torch.allclose(x, y, rtol=0, atol=1e-12))
        for call, words in ((lambda: attn.torch.scaled_dot_product_attention(q, k, random(3, 4)), "value is a tensor"),
                            (lambda: attn.torch.scaled_dot_product_attention(q, k, v, dropout_p=0.5), "nested tensors together"),
                            (lambda: attn.torch.scaled_dot_product_attention(q, k, q), "different lengths")):
            with self.assertRaisesRegex(attn.Error, words):
                call()

    def test_packed(self):
        offsets = [torch.tensor(ends, dtype=torch.int32) for ends in ([0, 3, 3, 10, 11], [0, 5, 7, 11, 12])]

        def formula(q, k, v, corner):
            parts = []
            for i in range(4):
                one, of_k, of_v = (x[o[i]:o[i + 1]].transpose(0, 1)
                                   for x, o in zip((q, k, v), (offsets[0], offsets[1], offsets[1])))
                scores = one @ of_k.mT / 2
                scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1 + corner(*scores.shape[-2:])).bool(), -float("inf"))
                parts.append((scores.softmax(-1).nan_to_num() @ of_v).transpose(0, 1))
            return torch.cat(parts)

        for name, corner in (("top-left", lambda n, m: 0), ("bottom-right", lambda n, m: m - n)):
            self.compare(lambda q, k, v: attn.torch.varlen_attention(q, k, v, *offsets, 7, 5, is_causal=name),
                         lambda q, k, v: formula(q, k, v, corner), random(11, 2, 4), random(12, 2, 4), random(12, 2, 4))
        q, k = random(11, 2, 4), random(12, 2, 4)
        with self.assertRaisesRegex(attn.ArgumentError, "bottom-right"):
            attn.torch.varlen_attention(q, k, k, *offsets, 7, 5, is_causal=True)
        with self.assertRaisesRegex(attn.ArgumentError, "'left'"):
            attn.torch.varlen_attention(q, k, k, *offsets, 7, 5, is_causal="left")
        same = [attn.torch.varlen_attention(q, q, q, offsets[0], offsets[0].clone(), 7, 7, is_causal=causal)
                for causal in (True, "top-left", "bottom-right")]
        self.assertTrue(torch.equal(same[0], same[1]) and torch.equal(same[0], same[2]))

    def test_packed_expanded(self):
        """Tensors with broadcast memory: operands, and the gradient that sum() returns."""
        ends = torch.tensor([0, 4, 10], dtype=torch.int32)
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            one = torch.randn(1, 2, 8).to(dtype)
            tensors = [x.to(dtype).requires_grad_() for x in (torch.randn(10, 2, 8), torch.randn(10, 2, 8), one)]
            found = attn.torch.varlen_attention(*tensors[:2], tensors[2].expand(10, 2, 8), ends, ends, 6, 6)
            torch.testing.assert_close(found, one.expand(10, 2, 8), rtol=1e-2, atol=1e-2)  # a mean of equal values
            grads = torch.autograd.grad(found.sum(), tensors)
            torch.testing.assert_close(grads[2], torch.full_like(one, 10), rtol=1e-2, atol=1e-2)
            self.assertLess(max(x.abs().max().item() for x in grads[:2]), 1e-2)

    def test_packed_log_sum_exp(self):
        """[H, tokens], with a gradient; positions outside all sequences are minus infinity."""
        ends = torch.tensor([0, 3, 7], dtype=torch.int32)

        def formula(q, k):
            parts = [torch.logsumexp(q[a:b].transpose(0, 1) @ k[a:b].permute(1, 2, 0) / 2, -1) for a, b in ((0, 3), (3, 7))]
            return torch.cat(parts, 1)

        def packed(q, k):
            found = attn.torch.varlen_attention(q, k, k, ends, ends, 4, 4, return_lse=True)
            self.assertEqual(found[0].shape, q.shape)
            return found[1]

        self.compare(packed, formula, random(7, 2, 4), random(7, 2, 4))
        more = packed(random(9, 2, 4), random(9, 2, 4))
        self.assertTrue((more[:, 7:] == -math.inf).all() and torch.isfinite(more[:, :7]).all())

    def test_relative_bias(self):
        """T5's buckets and an index of pairs, with grouped heads, masks and causal."""
        for queries, keys, both_ways in ((7, 7, True), (40, 61, False), (70, 150, True)):
            index = attn.torch.t5_buckets(queries, keys, both_ways, 12, 20)
            self.assertEqual(tuple(index.shape), (queries + keys - 1,))
            pairs = index[torch.arange(keys) - torch.arange(queries)[:, None] + queries - 1].long()
            for given in (index, pairs, pairs.to(torch.int32).t().contiguous().t()):
                self.compare(lambda q, k, v, table: attn.torch.flex_attention(
                    q, k, v, relative_bias=(table, given), is_causal=not both_ways, scale=1.0, enable_gqa=True),
                    lambda q, k, v, table: torch.nn.functional.scaled_dot_product_attention(
                        q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), table[pairs].permute(2, 0, 1).masked_fill(
                            torch.ones(queries, keys, dtype=torch.bool).triu(1) & (not both_ways), float("-inf"))[None],
                        scale=1.0), random(2, 4, queries, 8), random(2, 2, keys, 8), random(2, 2, keys, 8), random(12, 4))

    def test_t5_buckets(self):
        """Compared with the bucket of each distance by the formula of the paper's code, in exact arithmetic."""
        found = attn.torch.t5_buckets(300, 300).tolist()
        for distance in (*range(8), 8, 15, 16, 40, 90, 127, 128, 299):
            bucket = distance if distance < 8 else min(15, 8 + int(8 * math.log(distance / 8) / math.log(16) + 1e-6))
            self.assertEqual(found[299 - distance], bucket)
            self.assertEqual(found[299 + distance], bucket + 16 * (distance > 0))

    def test_relative_bias_compiled(self):
        q, table, index = random(1, 2, 9, 8), random(32, 2), attn.torch.t5_buckets(9, 9)
        compiled = torch.compile(lambda q, table: attn.torch.flex_attention(q, q, q, relative_bias=(table, index)),
                                 fullgraph=True, backend="aot_eager")
        gradients = []
        for way in (compiled, lambda q, table: attn.torch.flex_attention(q, q, q, relative_bias=(table, index))):
            leaves = [q.clone().requires_grad_(), table.clone().requires_grad_()]
            gradients.append(torch.autograd.grad(way(*leaves).square().sum(), leaves))
        for a, b in zip(*gradients):
            self.assertTrue(torch.equal(a, b))
        self.assertTrue(torch.autograd.gradcheck(lambda q, table: attn.torch.flex_attention(
            q, q, q, relative_bias=(table, index)), (q.double().requires_grad_(), table.double().requires_grad_())))

    def test_long_relative_bias(self):
        """At T5's lengths results differ from the formula only by the order of sums, and workspaces stay small."""
        n, table = 2048, random(32, 1)
        index = attn.torch.t5_buckets(n, n)
        pairs = index[torch.arange(n) - torch.arange(n)[:, None] + n - 1].long()
        self.compare(lambda q, table: attn.torch.flex_attention(q, q, q, relative_bias=(table, index), scale=1.0),
                     lambda q, table: torch.nn.functional.scaled_dot_product_attention(
                         q, q, q, table[pairs].permute(2, 0, 1)[None], scale=1.0), random(1, 1, n, 4) / 2, table)
        from attn.torch import _engine
        plans = [plan for plan in _engine.engine().plans.values() if any(given.bias_index for given in plan.made)]
        # A tile fills the second cache, and the rest is linear in n: 7.5 MB with caches of 1 MB, where all pairs take 34.
        self.assertLess(max(plan.bytes for plan in plans), 8 * n * n // 4)

    def test_refusals(self):
        q, image = random(1, 2, 5, 8), random(1, 6, 6, 2, 4)
        for call, words in ((lambda: attn.torch.flex_attention(q, q, q, softcap=0.0), "softcap"),
                            (lambda: attn.torch.flex_attention(q, q, q, sinks=q), "sinks"),
                            (lambda: attn.torch.flex_attention(q, q, q, score_mod=max), "score_mod"),
                            (lambda: attn.torch.flex_attention(q, q, q, bias=q, relative_bias=(q, q)), "cannot be used together"),
                            (lambda: attn.torch.flex_attention(q, q, q, relative_bias=(q, q)), "a column"),
                            (lambda: attn.torch.flex_attention(q, q, q, relative_bias=(torch.ones(3, q.shape[1]), q)),
                             "by distance or"),
                            (lambda: attn.torch.flex_attention(q, q, q, relative_bias=(
                                torch.ones(3, q.shape[1]), torch.full((q.shape[2], q.shape[2]), 2**32))), "the rows 0 to 2"),
                            (lambda: attn.torch.t5_buckets(3, 3, True, 2), "at least 4, two for each direction"),
                            (lambda: attn.torch.flex_attention(q, q, q, mask=q), "bool"),
                            (lambda: attn.torch.flex_attention(q, q, q, bias=q), "broadcast"),
                            (lambda: attn.torch.na2d(image, image, image, 7), "7"),
                            (lambda: attn.torch.na2d(image, image, image, 3, stride=4), "at most the kernel_size, 3"),
                            (lambda: attn.torch.na2d(image, image, image, 3, is_causal=(True,)), "causal"),
                            (lambda: attn.torch.na2d(image, image, image, 3, rpb=image), r"numbers \(2, 5, 5\)"),
                            (lambda: attn.torch.na2d(image, image, image, 3, stride=2, rpb=random(2, 5, 5)), "stride=2"),
                            (lambda: attn.torch.na2d(image, image, image, 3, key_mask=image), r"bool \(1, 6, 6\)"),
                            (lambda: attn.torch.na2d(image, image, image, 3, key_mask=image[..., 0, 0] > 0, rpb=random(2, 5, 5).int()),
                             "int32"),
                            (lambda: attn.torch.varlen_attention(q[0].mT, q[0, :, :1], q[0, :, :1], *2 * [torch.zeros(
                                1, dtype=torch.int32)], 1, 1), "1 and value 1; all must have the same number of heads"),
                            (lambda: attn.torch.varlen_attention(q[0], q[0], q[0], *(torch.tensor([0, n], dtype=torch.int32) for n in (
                                1, 2)), 2, 2, window=(1, 1)), "or a window"),
                            (lambda: attn.torch.shifted_window_attention(image, image, image, 4), "the window of . must divide them"),
                            (lambda: attn.torch.shifted_window_attention(image, image, image, 3, 3), "it must be less than the window"),
                            (lambda: attn.torch.shifted_window_attention(image, image, image, 3, 1, image[0, 0, 0]), "25,2"),
                            (lambda: attn.torch.na1d(image, image, image, 3), "axes"),
                            (lambda: attn.torch.axial_attention(image, image, image, 4), "axis"),
                            (lambda: attn.torch.tied_row_attention(q, q, q), "R,C"),
                            (lambda: attn.torch.varlen_attention(q[0], q[0], q[0], torch.zeros(3), torch.zeros(3), 1, 1),
                             "int32"),
                            (lambda: attn.torch.varlen_attention(q[0], q[0], q[0], *2 * [torch.tensor(
                                [0, 9], dtype=torch.int32)], 9, 9), "offset")):
            with self.subTest(words=words), self.assertRaisesRegex(attn.Error, words):
                call()


def by_position(q, k, v, taps, steps, causal, rpb, mask):
    """Neighbourhood attention in a loop over the positions."""
    found = []
    for at in itertools.product(*map(range, q.shape[1:-2])):
        along = []
        for i, n, t, step, cut in zip(at, q.shape[1:], taps, steps, causal):
            place, same = i // step, len(range(i % step, n, step))
            first = place - t + 1 if cut else min(max(place - t // 2, 0), same - t)
            along.append([(j * step + i % step, j - place + t - 1) for j in range(max(first, 0), first + t)])
        seen = list(itertools.product(*along))
        keys, values = (torch.stack([x[(slice(None), *(j for j, _ in one))] for one in seen], 2) for x in (k, v))
        scores = (q[(slice(None), *at)][:, :, None] * keys).sum(-1) / q.shape[-1] ** 0.5
        if rpb is not None:
            scores = scores + torch.stack([rpb[(slice(None), *(entry for _, entry in one))] for one in seen], -1)
        if mask is not None:
            shown = torch.stack([mask[(slice(None), *(j for j, _ in one))] for one in seen], -1)[:, None]
            scores = torch.where(shown.any(-1, True), scores.masked_fill(~shown, -math.inf), 0.0)
            found.append(((scores.softmax(-1) * shown)[..., None] * values).sum(2))
        else:
            found.append((scores.softmax(-1)[..., None] * values).sum(2))
    return torch.stack(found, 1).reshape(q.shape)


def one_sequence(q, k, v, index, longest, is_causal=False, window=(None, None), softcap=None, sinks=None, relative=None):
    """Attention of [n,H,D] by the formula; query i is at key i, or its last one at the last key."""
    (n, heads), m = q.shape[:2], k.shape[0]
    k, v = (x.transpose(0, 1).repeat_interleave(heads // x.shape[1], 0) for x in (k, v))
    scores = q.transpose(0, 1) @ k.mT / q.shape[-1] ** 0.5
    scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
    ahead = torch.arange(m) - torch.arange(n)[:, None]
    if relative is not None:
        scores = scores + relative[index.long()[ahead + longest - 1]].permute(2, 0, 1)
    ahead = ahead - (m - n) * (is_causal == "bottom-right")
    left, right = window[0], 0 if is_causal else window[1]
    seen = torch.ones(n, m, dtype=torch.bool)
    seen &= (ahead >= -left) if left is not None else seen
    seen &= (ahead <= right) if right is not None else seen
    scores = scores.masked_fill(~seen, -math.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks[:, None, None].expand(heads, n, 1)], -1)
    weights = torch.where(torch.isfinite(scores).any(-1, True), scores, 0.0).softmax(-1)[..., :m] * seen
    return (weights @ v).transpose(0, 1)


def neighbours(sizes, taps, steps):
    """bool [N,N]: a window moved inwards, on the residue of its position modulo the dilation."""
    def along(n, taps, step):
        mask = torch.zeros(n, n, dtype=torch.bool)
        for i in range(n):
            same = list(range(i % step, n, step))
            start = min(max(same.index(i) - taps // 2, 0), len(same) - taps)
            mask[i, same[start:start + taps]] = True
        return mask

    whole = torch.ones(1, 1, dtype=torch.bool)
    for n, t, s in zip(sizes, taps, steps):
        whole = torch.kron(whole.to(torch.uint8), along(n, t, s).to(torch.uint8)).bool()
    return whole


class Layers(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)

    def make(self, **options):
        return attn.torch.Layer("multi-head-attention", {"num_hiddens": 16, "num_heads": 4}, seed=2, **options)

    def test_gradients(self):
        layer = self.make(dtype=torch.float64).eval()
        x = random(2, 5, 16, dtype=torch.float64).requires_grad_()
        parameters = dict(layer.named_parameters())
        self.assertEqual(set(parameters), set(layer.attn_model.parameters()))
        self.assertTrue(torch.autograd.gradcheck(lambda x, *_: layer(x, x, x), (x, *parameters.values())))

    def test_trains_and_saves(self):
        layer, x, wanted = self.make().train(), random(4, 5, 16), random(4, 5, 16)
        optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
        losses = []
        for _ in range(30):
            optimizer.zero_grad()
            loss = (layer(x, x, x) - wanted).pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], 0.7 * losses[0])
        other = self.make()
        other.load_state_dict(layer.state_dict())
        layer.eval()
        other.eval()
        with torch.no_grad():
            self.assertTrue(torch.equal(layer(x, x, x), other(x, x, x)))
            self.assertTrue(torch.equal(layer(x, x, x), torch.from_numpy(layer.attn_model(x, x, x))))

    def test_two_calls_and_one_backward(self):
        layer, x = self.make().eval(), random(2, 5, 16).requires_grad_()
        y = random(2, 3, 16)
        whole = torch.autograd.grad((layer(x, x, x).sum() + layer(y, y, y).pow(2).sum()), [x, *layer.parameters()])
        first = torch.autograd.grad(layer(x, x, x).sum(), [x, *layer.parameters()])
        second = torch.autograd.grad(layer(y, y, y).pow(2).sum(), list(layer.parameters()))
        self.assertLess(float((whole[0] - first[0]).abs().max()), 1e-5)
        for w, a, b in zip(whole[1:], first[1:], second):
            self.assertLess(float((w - a - b).abs().max()), 1e-4)

    def test_replaced_parameters(self):
        """Tensors that replace the parameters are used, and afterwards the module's own are restored."""
        layer, x = self.make().eval(), random(2, 5, 16)
        before = layer(x, x, x).detach()
        other = {name: torch.randn_like(value).requires_grad_() for name, value in layer.state_dict().items()}
        wanted = self.make().eval()
        wanted.load_state_dict(other)
        result, loss = wanted(x, x, x).detach(), wanted(x, x, x).pow(2).sum()
        grads = torch.autograd.grad(loss, list(wanted.parameters()))
        called = torch.func.functional_call(layer, other, (x, x, x))
        self.assertTrue(torch.equal(called, result))
        found = torch.autograd.grad(called.pow(2).sum(), [other[name] for name, _ in layer.named_parameters()])
        for a, b in zip(found, grads):
            self.assertTrue(torch.equal(a, b))
        self.assertTrue(torch.equal(layer(x, x, x), before))
        for name, p in layer.named_parameters():
            p.data = other[name].detach()
        self.assertTrue(torch.equal(layer(x, x, x), result))
        with self.assertRaisesRegex(attn.ArgumentError, "float64"):
            torch.func.functional_call(layer, {name: value.double() for name, value in other.items()}, (x, x, x))

    def test_other_views_of_the_own_memory(self):
        """A parameter that became its own transpose starts where it did, and has other numbers."""
        layer, wanted, x = self.make().eval(), self.make().eval(), random(2, 5, 16)
        names = [name for name, p in layer.named_parameters() if p.shape == (16, 16)]
        wanted.load_state_dict({name: value.t().contiguous() if name in names else value
                                for name, value in layer.state_dict().items()})
        for name in names:
            parameter = layer.get_parameter(name)
            parameter.data = parameter.data.t()
        self.assertTrue(names)
        self.assertTrue(torch.equal(layer(x, x, x), wanted(x, x, x)))
        self.assertTrue(torch.equal(layer(x, x, x), wanted(x, x, x)))

    def test_nothing_is_kept_without_recording(self):
        layer, x = self.make().train(), random(2, 5, 16)
        with torch.no_grad():
            layer(x, x, x)
        self.assertFalse(layer.attn_model._outputs)

    def test_threads_take_turns(self):
        layer, inputs = self.make().eval(), [random(2, 5, 16).requires_grad_() for _ in range(4)]
        wanted = [torch.autograd.grad(layer(x, x, x).sum(), x)[0] for x in inputs]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for _ in range(5):
                found = list(pool.map(lambda x: torch.autograd.grad(layer(x, x, x).sum(), x)[0], inputs))
                for a, b in zip(found, wanted):
                    self.assertTrue(torch.equal(a, b))

    def test_refusals(self):
        with self.assertRaises(attn.UnsupportedError):
            self.make().double()
        layer, x = attn.torch.Layer("multi-head-attention", {"num_hiddens": 16, "num_heads": 4, "dropout": 0.5}).train(), \
            random(2, 5, 16)
        first = layer(x, x, x)
        layer.eval()(x, x, x)
        with self.assertRaisesRegex(attn.UnsupportedError, "called again"):
            first.sum().backward()  # dropped weights of a call before eval()
        layer, x = self.make().train(), random(2, 5, 16)
        first, _ = layer(x, x, x), layer(x, x, x)
        with self.assertRaisesRegex(attn.UnsupportedError, "called again"):
            first.sum().backward()


def functions(draw=random):
    """All functions of attn.torch as functions of one tensor [1,8,2,4]."""
    at = attn.torch
    ends, table = torch.tensor([0, 3, 8], dtype=torch.int32), draw(15, 2, dtype=torch.float64)
    sinks, index = draw(2, dtype=torch.float64), torch.arange(15, dtype=torch.int32)

    def flex(x, **options):
        return at.flex_attention(*[x.transpose(1, 2)] * 3, **options)

    return {"sdpa": lambda x: at.scaled_dot_product_attention(x, x, x), "sinks": lambda x: flex(x, sinks=sinks.to(x.dtype)),
            "lse": lambda x: flex(x, is_causal=True, return_lse=True)[1],
            "relative_bias": lambda x: flex(x, relative_bias=(table.to(x.dtype), index)),
            "na1d": lambda x: at.na1d(x, x, x, 3), "na1d in parts": lambda x: at.na1d(x, x, x, 3, stride=3),
            "na2d": lambda x: at.na2d(*[x[:, :, None]] * 3, (3, 1)), "axial": lambda x: at.axial_attention(x, x, x, 1),
            "tied": lambda x: at.tied_row_attention(*[x[:, None]] * 3),
            "windows": lambda x: at.shifted_window_attention(x, x, x, 4, shift=1),
            "varlen": lambda x: at.varlen_attention(x[0], x[0], x[0], ends, ends, 5, 5)}


class Functions(unittest.TestCase):
    def test_transforms(self):
        """vmap, grad and functionalize of torch.func, nested."""
        vmap, grad, functionalize = torch.func.vmap, torch.func.grad, torch.func.functionalize
        batch = random(3, 1, 8, 2, 4, dtype=torch.float64)
        for name, call in functions().items():
            def loss(x):
                return call(x).sin().sum()  # noqa: B023

            def mapped_loss(x):
                return vmap(call)(x).sin().sum()  # noqa: B023

            results = torch.stack([call(x) for x in batch])
            leaf = batch.clone().requires_grad_()
            grads = torch.autograd.grad(sum(map(loss, leaf)), leaf)[0]
            whole = {"vmap": (vmap(call), results), "vmap vmap": (lambda x: vmap(vmap(call))(x[None])[0], results),  # noqa: B023
                     "vmap grad": (vmap(grad(loss)), grads), "grad vmap": (grad(mapped_loss), grads),
                     "grad vmap vmap": (grad(lambda x: vmap(vmap(call))(x[None]).sin().sum()), grads),  # noqa: B023
                     "vmap grad vmap": (vmap(grad(lambda x: mapped_loss(x[None]))), grads),  # noqa: B023
                     "functionalize vmap": (functionalize(vmap(call)), results), "vmap functionalize": (vmap(functionalize(call)), results),
                     "each functionalize": (lambda x: torch.stack([functionalize(call)(one) for one in x]), results)}  # noqa: B023
            if name != "na1d in parts":  # PyTorch's functionalize has no derivative of its assignments
                whole["grad functionalize vmap"] = grad(functionalize(mapped_loss)), grads
                whole["vmap grad functionalize"] = vmap(grad(functionalize(loss))), grads
            for kind, (transformed, wanted) in whole.items():
                with self.subTest(name, kind=kind):
                    torch.testing.assert_close(transformed(batch), wanted)
            with self.subTest(name), self.assertRaisesRegex(attn.UnsupportedError, "functionalize around grad"):
                functionalize(grad(loss))(batch[0])

    def test_randomness_of_vmap(self):
        """Dropout: the same weights dropped for each entry, or others, forward and backward."""
        x, values = torch.ones(3, 1, 2, 64, 8).requires_grad_(), torch.randn(64, 8)
        for randomness in ("same", "different"):
            o = torch.func.vmap(lambda q: attn.torch.scaled_dot_product_attention(q, q, values, dropout_p=0.5),
                                randomness=randomness)(x)
            grad = torch.autograd.grad((o * values).sum(), x)[0]
            for found in (o.detach(), grad):
                self.assertEqual(torch.equal(found[0], found[1]), randomness == "same")

    def test_autocast(self):
        """Operands have the output types of earlier layers, like operands of scaled_dot_product_attention."""
        x = random(1, 8, 2, 4)
        for name, call in functions().items():
            with self.subTest(name), torch.autocast("cpu", dtype=torch.bfloat16):
                found = call(x)
            self.assertEqual(found.dtype, torch.float32 if name == "lse" else torch.bfloat16)
            self.assertLess(float((found.float() - call(x)).abs().max()), 5e-2)
        half, at = x.bfloat16(), attn.torch
        for call in (lambda: at.na1d(x, half, x, 3), lambda: at.axial_attention(half, x, x, 1), lambda: at.flex_attention(x, x, half)):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                self.assertEqual(call().dtype, torch.bfloat16)

    def test_wrong_types(self):
        """Errors name the arguments and the expected values."""
        at, q, p, ends = attn.torch, random(1, 8, 2, 4), random(6, 2, 4), torch.tensor([0, 6], dtype=torch.int32)
        for window in ((3.0, 0), 3, ("a", 0), (1, 2, 3), (float("nan"), 0)):
            with self.assertRaisesRegex(attn.ArgumentError, "two whole numbers"):
                at.flex_attention(q, q, q, window=window)
        self.assertTrue(torch.equal(at.flex_attention(q, q, q, window=(np.int64(3), 0)), at.flex_attention(q, q, q, window=(3, 0))))
        with self.assertRaisesRegex(attn.ArgumentError, r"two tensors, \(table, index\)"):
            at.flex_attention(q, q, q, relative_bias=3)
        for call, words in (
                (lambda: at.flex_attention(q, q, q, scale="x"), "scale is of type str"),
                (lambda: at.na1d(q, q, q, 3, scale="x"), "scale"), (lambda: at.axial_attention(q, q, q, 1, scale="x"), "scale"),
                (lambda: at.tied_row_attention(*[q[None]] * 3, scale="x"), "scale"),
                (lambda: at.shifted_window_attention(q, q, q, 4, scale="x"), "scale"),
                (lambda: at.varlen_attention(p, p, p, ends, ends, 6, 6, scale="x"), "scale"),
                (lambda: at.varlen_attention(p, p, p, ends, ends, 6.5, 6), "max_seqlen_q is of type float"),
                (lambda: at.varlen_attention(p, p, p, [0, 6], ends, 6, 6), "cu_seqlens_q is of type list"),
                (lambda: at.axial_attention(q, q, q, 1.0), "axis is of type float"), (lambda: at.na1d(q, None, q, 3), "key is None"),
                (lambda: at.flex_attention(q, q, q, bias=[1.0]), "bias"), (lambda: at.flex_attention(q, q, q, mask="x"), "mask"),
                (lambda: at.flex_attention(q, q, q, sinks=[1.0, 2.0]), "sinks"),
                (lambda: at.flex_attention(q, q, q, is_causal="x"), "is_causal"),
                (lambda: at.tied_row_attention(*[q[None]] * 3, mask=[1]), "mask"),
                (lambda: at.t5_buckets(3.5, 4), "queries is of type float"),
                (lambda: at.shifted_window_attention(q, q, q, 4, relative_bias=[1]), "relative_bias is of type list")):
            with self.assertRaisesRegex(TypeError, words + ".* expected"):
                call()


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        q = torch.full((1, 2, 40, 8), float(i))
        return attn.torch.scaled_dot_product_attention(q, q, q)


class Workers(unittest.TestCase):
    def test_loader(self):
        q = torch.randn(2, 8, 128, 32)
        before = attn.torch.scaled_dot_product_attention(q, q, q)
        loader = torch.utils.data.DataLoader(Data(), num_workers=2, timeout=60,
                                             multiprocessing_context=multiprocessing.get_context("fork"))
        for i, o in enumerate(loader):
            self.assertLess(float((o - i).abs().max()), 1e-5)
        self.assertTrue(torch.equal(attn.torch.scaled_dot_product_attention(q, q, q), before))


if __name__ == "__main__":
    unittest.main()
