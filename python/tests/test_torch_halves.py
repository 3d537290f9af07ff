# SPDX-License-Identifier: MIT
"""attn.torch in bfloat16 and float16, forward and backward, and under autocast.  Skipped without
PyTorch."""
import contextlib
import unittest

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

import attn.torch

# The error of a few roundings of the type, relative to the norm.
TOLERANCES = {torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}


def offsets(*lengths):
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


def functions():
    """Each function of attn.torch, and the shapes of its tensors."""
    heads, image = (2, 4, 19, 8), (2, 6, 8, 2, 8)
    packed, both = (19, 2, 8), offsets(7, 12)
    index = attn.torch.t5_buckets(19, 19)
    seen = torch.rand(19, 19) < 0.7
    yield "scaled_dot_product_attention", attn.torch.scaled_dot_product_attention, [heads] * 3
    yield "with a mask", attn.torch.scaled_dot_product_attention, [heads] * 3 + [(19, 19)]
    yield "with grouped heads", lambda q, k, v: attn.torch.scaled_dot_product_attention(
        q, k, v, seen, enable_gqa=True), [heads, (2, 2, 19, 8), (2, 2, 19, 8)]
    yield "flex_attention", lambda q, k, v, bias, sinks: attn.torch.flex_attention(
        q, k, v, bias=bias, window=(5, 2), softcap=4.0, sinks=sinks), \
        [heads] * 3 + [(4, 1, 19), (4,)]
    yield "relative_bias", lambda q, k, v, table: attn.torch.flex_attention(
        q, k, v, relative_bias=(table, index)), [heads] * 3 + [(32, 4)]
    yield "varlen_attention", lambda q, k, v: attn.torch.varlen_attention(
        q, k, v, both, both, 12, 12, is_causal=True), [packed] * 3
    yield "neighborhood_attention", lambda q, k, v: attn.torch.na2d(q, k, v, 3), [image] * 3
    yield "strided", lambda q, k, v: attn.torch.na2d(q, k, v, 4, stride=2), [image] * 3
    yield "shifted_window_attention", lambda q, k, v, table: attn.torch.shifted_window_attention(
        q, k, v, 2, shift=1, relative_bias=table), [image] * 3 + [(9, 2)]
    yield "axial_attention", lambda q, k, v: attn.torch.axial_attention(q, k, v, 1), [image] * 3
    yield "tied_row_attention", attn.torch.tied_row_attention, [image] * 3


def passed(function, tensors, dout):
    """The result and every gradient."""
    leaves = [x.detach().clone().requires_grad_() for x in tensors]
    o = function(*leaves)
    return [o.detach(), *torch.autograd.grad(o, leaves, dout.to(o.dtype))]


def enabled(on):
    return attn.torch.enable(always=True) if on else contextlib.nullcontext()


class Halves(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(6)

    def near(self, found, wanted, dtype):
        for x, y in zip(found, wanted):
            self.assertTrue(bool(torch.isfinite(x).all()))
            distance = float((x.double() - y.double()).norm() / y.double().norm())
            self.assertLess(distance, TOLERANCES[dtype])

    def test_every_function(self):
        """Calls in the type itself, and by autocast from float32. A gradient has its tensor's type."""
        for name, function, shapes in functions():
            for dtype in TOLERANCES:
                tensors = [torch.randn(shape).to(dtype) for shape in shapes]
                wide = [x.float() for x in tensors]
                dout = torch.randn(function(*wide).shape).to(dtype)
                wanted = passed(function, wide, dout)
                with self.subTest(function=name, dtype=dtype):
                    found = passed(function, tensors, dout)
                    self.assertEqual({x.dtype for x in found}, {dtype})
                    self.near(found, wanted, dtype)
                with self.subTest(function=name, autocast=dtype):
                    with torch.autocast("cpu", dtype=dtype):
                        found = passed(function, wide, dout)
                    self.assertEqual([x.dtype for x in found],
                                     [dtype, *[torch.float32] * len(tensors)])
                    self.near(found, wanted, dtype)

    def calls_of_enable(self):
        for dtype in TOLERANCES:
            for kind in (None, torch.bool, torch.float32, dtype):
                for grouped in (False, True):
                    shape = (2, 2 if grouped else 4, 23, 16)
                    q, k, v = (torch.randn(s).to(dtype) for s in ((2, 4, 17, 16), shape, shape))
                    mask = None if kind is None else torch.randn(17, 23)
                    if mask is not None:
                        mask = mask > 0 if kind == torch.bool else mask.to(kind)
                    yield dtype, (q, k, v), mask, grouped

    def test_enable(self):
        """Results and gradients are as close to float64 as PyTorch's, and have the same types."""
        for dtype, tensors, mask, grouped in self.calls_of_enable():
            learned = mask is not None and mask.dtype != torch.bool
            given = [*tensors, mask] if learned else list(tensors)

            def function(q, k, v, m=mask):
                return F.scaled_dot_product_attention(q, k, v, m, enable_gqa=grouped)

            dout = torch.randn(2, 4, 17, 16).to(dtype)
            wanted = passed(function, [x.double() for x in given], dout)
            theirs, before = passed(function, given, dout), attn.torch.calls()
            with self.subTest(dtype=dtype, mask=None if mask is None else mask.dtype):
                with attn.torch.enable():
                    found = passed(function, given, dout)
                self.assertEqual(attn.torch.calls() - before, 1)
                self.assertEqual([x.dtype for x in found], [x.dtype for x in theirs])
                self.near(found, wanted, dtype)

    def test_enable_under_autocast(self):
        """Types of results and gradients, and the accepted masks, are the same as in PyTorch."""
        for dtype in TOLERANCES:
            for kind in (torch.float32, *TOLERANCES):
                for of_mask in (None, torch.bool, torch.float32, *TOLERANCES):
                    tensors = [torch.randn(2, 4, 17, 16).to(kind) for _ in range(3)]
                    mask = None if of_mask is None else torch.randn(17, 17)
                    if mask is not None:
                        mask = mask > 0 if of_mask == torch.bool else mask.to(of_mask)

                    def function(q, k, v, m=mask):
                        return F.scaled_dot_product_attention(q, k, v, m)

                    def ours(q, k, v, m=mask):
                        return attn.torch.scaled_dot_product_attention(q, k, v, m)

                    dout, before = torch.randn(2, 4, 17, 16), attn.torch.calls()
                    with torch.autocast("cpu", dtype=dtype):
                        wanted = passed(function, tensors, dout)
                        with attn.torch.enable():
                            found = passed(function, tensors, dout)
                        direct = passed(ours, tensors, dout)
                    with self.subTest(autocast=dtype, query=kind, mask=of_mask):
                        self.assertEqual(attn.torch.calls() - before, 1)
                        for results in (found, direct):
                            self.assertEqual([x.dtype for x in results], [x.dtype for x in wanted])
                            self.near(results, wanted, torch.bfloat16)

    def test_types_that_differ(self):
        """PyTorch and attn.torch refuse these calls, each with its own message."""
        q, k = torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8).bfloat16()
        for mask in (None, torch.zeros(5, 5, dtype=torch.float16)):
            with self.assertRaises(RuntimeError), attn.torch.enable(always=True):
                F.scaled_dot_product_attention(*((q, k, k) if mask is None else (k, k, k)), mask)
        with self.assertRaisesRegex(attn.ArgumentError, "key is of torch.bfloat16, query of"):
            attn.torch.scaled_dot_product_attention(q, k, k)

    def test_fused_passes_are_each_others(self):
        """A forward pass of one with a backward pass of the other."""
        name = "_scaled_dot_product_flash_attention_for_cpu"
        fused, back = (getattr(torch.ops.aten, name + end) for end in ("", "_backward"))
        for dtype in TOLERANCES:
            q, k, v = (torch.randn(2, 3, n, 8).to(dtype) for n in (5, 7, 7))
            mask = torch.randn(5, 7).to(dtype)
            for options in ({"attn_mask": mask}, {"is_causal": True, "scale": 0.3}, {}):
                found, causal = [], options.get("is_causal", False)
                rest = {name: x for name, x in options.items() if name != "is_causal"}
                for forward in (True, False):
                    with enabled(forward):
                        o, lse = fused(q, k, v, **options)
                    for backward in (True, False):
                        with enabled(backward):
                            grads = back(torch.ones_like(o), q, k, v, o, lse, 0.0, causal, **rest)
                        found.append((o, lse, *grads))
                for other in found[:-1]:
                    self.assertEqual([(x.stride(), x.dtype) for x in other],
                                     [(x.stride(), x.dtype) for x in found[-1]])
                    self.near(other, found[-1], dtype)


if __name__ == "__main__":
    unittest.main()
