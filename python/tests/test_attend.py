# SPDX-License-Identifier: MIT
"""attn.attend and attn.attend_backward against NumPy formulas; strides that are used without a copy."""
import tracemalloc
import unittest

import attn
import numpy as np
from attn import _attend
from formulas import attention, differences, distance, within


def arrays(rng, b=2, t=5, s=7, h=4, g=2, d=8, dv=3, dtype=np.float32):
    return (rng.standard_normal((b, t, h, d)).astype(dtype), rng.standard_normal((b, s, g, d)).astype(dtype),
            rng.standard_normal((b, s, g, dv)).astype(dtype))


def cases(rng, t, s):
    """Options of attend with their equivalents in the formula: (options, keep [..,T,S] or None, bias, scale)."""
    i, j = np.arange(t)[:, None], np.arange(s)
    mask = rng.integers(0, 2, (2, 1, t, s)).astype(bool)
    mask[0, 0, 1] = False  # a query without keys
    lens, lens_q = np.array([0, s - 1]), rng.integers(0, s + 1, (2, t))
    bias = rng.standard_normal((4, 1, s)).astype(np.float32)
    return {
        "plain": ({}, None, 0, None),
        "scale": ({"scale": 0.3}, None, 0, 0.3),
        "causal": ({"causal": True}, j <= i, 0, None),
        "bottom-right": ({"causal": "bottom-right"}, j <= i + s - t, 0, None),
        "mask": ({"mask": mask}, mask, 0, None),
        "bias": ({"bias": bias}, None, bias, None),
        "lens": ({"key_lengths": lens}, within(lens, t, s), 0, None),
        "lens of queries": ({"key_lengths": lens_q}, within(lens_q, t, s), 0, None),
        "window": ({"window": 2}, abs(j - i) <= 2, 0, None),
        "window left": ({"window": (1, None)}, j >= i - 1, 0, None),
        "causal window": ({"window": (1, 3), "causal": "bottom-right"}, (j <= i + s - t) & (j >= i + s - t - 1), 0,
                          None),
        "all": ({"mask": mask, "bias": bias, "causal": True, "key_lengths": lens_q, "scale": 0.5},
                mask & (j <= i) & within(lens_q, t, s), bias, 0.5),
    }


class Forward(unittest.TestCase):
    def test_every_option(self):
        rng = np.random.default_rng(0)
        for t, s in ((5, 7), (1, 1), (33, 17)):
            q, k, v = arrays(rng, t=t, s=s)
            for name, (options, keep, bias, scale) in cases(rng, max(t, 2), s).items():
                if t == 1 and name != "plain" and name != "scale":
                    continue
                wanted = attention(q, k, v, keep, bias, scale)
                got = attn.attend(q, k, v, return_lse=True, return_weights=True, **options)
                with self.subTest(case=name, t=t):
                    self.assertLess(distance(got[0], wanted[0]), 2e-6)
                    self.assertLess(distance(got[2], wanted[1]), 2e-6)
                    finite = np.isfinite(wanted[2])
                    np.testing.assert_array_equal(np.isfinite(got[1]), finite)
                    np.testing.assert_allclose(got[1][finite], wanted[2][finite], atol=1e-5)

    def test_what_is_hidden_may_be_anything(self):
        rng = np.random.default_rng(2)
        for t in (1, 3, 40):
            q, k, v = arrays(rng, t=t, s=200, d=32, dv=32)
            dout, shown = rng.standard_normal(q.shape).astype(np.float32), rng.random((2, 4, t, 200)) < 0.7
            shown[..., 50:130] = shown[..., 7] = False
            hidden = ~shown.any(axis=(1, 2))
            for options in ({"mask": shown}, {"bias": np.where(shown, 0.5, -np.inf).astype(np.float32)}):
                got = []
                for number in (0, np.nan, np.inf):
                    v[hidden] = number
                    if "mask" in options:  # NaN minus infinity is NaN
                        k[hidden] = number
                    o, lse = attn.attend(q, k, v, return_lse=True, **options)
                    got.append((o, lse, *attn.attend_backward(dout, q, k, v, o, lse, wrt="qkv", **options).values()))
                for others in got[1:]:
                    for first, other in zip(got[0], others):
                        with self.subTest(t=t, option=list(options)):
                            np.testing.assert_allclose(other, first, rtol=0, atol=4e-6)

    def test_layouts_and_ranks_are_one_computation(self):
        q, k, v = arrays(np.random.default_rng(1), h=1, g=1)
        o, lse = attn.attend(q, k, v, return_lse=True)
        swapped = attn.attend(*(x.transpose(0, 2, 1, 3) for x in (q, k, v)), layout="bhtd")
        np.testing.assert_array_equal(swapped.transpose(0, 2, 1, 3), o)
        self.assertTrue(swapped.flags.c_contiguous)
        three, lse3 = attn.attend(q[:, :, 0], k[:, :, 0], v[:, :, 0], return_lse=True)
        np.testing.assert_array_equal(three, o[:, :, 0])
        np.testing.assert_array_equal(lse3, lse[:, 0])
        two = attn.attend(q[0, :, 0], k[0, :, 0], v[0, :, 0])
        np.testing.assert_array_equal(two, o[0, :, 0])

    def test_mask_fill_gives_the_mean(self):
        q, k, v = arrays(np.random.default_rng(2))
        o = attn.attend(q, k, v, key_lengths=[0, 7], mask_fill=-1e6)
        wanted = np.repeat(v[0].mean(0, keepdims=True), 5, 0).repeat(2, 1)
        self.assertLess(distance(o[0], wanted), 1e-5)

    def test_float64(self):
        q, k, v = arrays(np.random.default_rng(3), dtype=np.float64)
        o = attn.attend(q, k, v, causal=True)
        self.assertEqual(o.dtype, np.float64)
        keep = np.tril(np.ones((5, 7), bool))
        self.assertLess(distance(o, attention(q, k, v, keep)[0]), 1e-13)

    def test_dropout_keeps_the_mean_and_repeats(self):
        q = np.zeros((1, 1, 1, 2), np.float32)
        k = v = np.ones((1, 4000, 1, 2), np.float32)
        o = attn.attend(q, k, v, dropout=0.25, seed=5)
        self.assertAlmostEqual(float(o[0, 0, 0, 0]), 1, delta=0.04)
        self.assertNotEqual(float(o[0, 0, 0, 0]), 1)
        np.testing.assert_array_equal(o, attn.attend(q, k, v, dropout=0.25, seed=5))

    def test_empty(self):
        q, k, v = arrays(np.random.default_rng(4))
        self.assertEqual(attn.attend(q[:0], k[:0], v[:0]).shape, (0, 5, 4, 3))
        self.assertEqual(attn.attend(q[:, :0], k, v).shape, (2, 0, 4, 3))
        np.testing.assert_array_equal(attn.attend(q, k[:, :0], v[:, :0]), np.zeros((2, 5, 4, 3)))

    def test_what_is_wrong_is_said(self):
        q, k, v = arrays(np.random.default_rng(5))
        for error, text, call in (
                (attn.ShapeError, "channels of q and k", lambda: attn.attend(q[..., :5], k, v)),
                (attn.ShapeError, r"k \(2, 6, 2, 8\), v \(2, 7", lambda: attn.attend(q, k[:, :6], v)),
                (attn.ShapeError, "k and v have 2 heads, which must divide the 3 heads of q", lambda: attn.attend(q[:, :, :3], k, v)),
                (attn.ShapeError, "the same number of axes", lambda: attn.attend(q, k[0], v)),
                (attn.ShapeError, "expected", lambda: attn.attend(q[None], k[None], v[None])),
                (attn.ShapeError, r"does not broadcast to \[B,H,Tq,Tk\] = \[2, 4, 5, 7\]",
                 lambda: attn.attend(q, k, v, mask=np.ones((5, 6), bool))),
                (attn.ArgumentError, "True where", lambda: attn.attend(q, k, v, mask=np.ones((5, 7)))),
                (attn.ArgumentError, "int64", lambda: attn.attend(q.astype(int), k, v)),
                (attn.ArgumentError, "one type", lambda: attn.attend(q.astype(np.float64), k, v)),
                (attn.ArgumentError, "layout", lambda: attn.attend(q, k, v, layout="tbhd")),
                (attn.ArgumentError, "causal", lambda: attn.attend(q, k, v, causal="left")),
                (attn.ArgumentError, "window", lambda: attn.attend(q, k, v, window=(-1, 2))),
                (attn.ShapeError, "key_lengths", lambda: attn.attend(q, k, v, key_lengths=[1, 2, 3])),
                (attn.ShapeError, "integers", lambda: attn.attend(q, k, v, key_lengths=[1.5, 2])),
                (attn.ArgumentError, "dropout", lambda: attn.attend(q, k, v, dropout=1.5)),
                (attn.ArgumentError, "threads=-1", lambda: attn.attend(q, k, v, threads=-1))):
            with self.subTest(text=text), self.assertRaisesRegex(error, text):
                call()


class Again(unittest.TestCase):
    """A repeated call uses a cache, which must detect every difference from the first call."""

    def test_new_numbers_and_equal_options(self):
        rng = np.random.default_rng(11)
        for options in ({}, {"causal": True}, {"window": (1, 2)}, {"window": [1, 2]}, {"dropout": 0.5, "seed": 3},
                        {"layout": "bhtd"}, {"scale": np.float32(0.3)}):
            for rank in (2, 3, 4):
                first, second = (arrays(rng, t=4, s=4, g=4, dv=8) for _ in range(2))
                first, second = ([x[(0, slice(None), 0) if rank == 2 else (slice(None), slice(None), 0) if rank == 3
                                    else ...].copy() for x in each] for each in (first, second))
                with self.subTest(options=options, rank=rank):
                    attn.attend(*first, **options)
                    again = attn.attend(*second, **options)
                    apart, _ = attn.attend(*second, return_lse=True, **options)
                    np.testing.assert_array_equal(again, apart)
                    self.assertEqual(again.strides, apart.strides)

    def test_other_options_strides_and_types(self):
        rng = np.random.default_rng(12)
        q, k, v = arrays(rng, t=4, s=4, g=4, dv=8)
        plain = attn.attend(q, k, v)
        self.assertTrue((attn.attend(q, k, v, causal=True) != plain).any())
        self.assertTrue((attn.attend(q, k, v, scale=2.0) != plain).any())
        self.assertTrue((attn.attend(q, k, v, dropout=0.5, seed=1) != attn.attend(q, k, v, dropout=0.5, seed=2)).any())
        np.testing.assert_allclose(attn.attend(q, k[:, ::-1], v[:, ::-1]), plain, rtol=0, atol=1e-6)
        self.assertTrue((attn.attend(q, k[:, ::-1], v) != plain).any())
        self.assertEqual(attn.attend(*(x.astype(np.float64) for x in (q, k, v))).dtype, np.float64)
        for wrong in ({"causal": "left"}, {"threads": -1}, {"dropout": 1.5}):
            with self.assertRaises(attn.ArgumentError):
                attn.attend(q, k, v, **wrong)

    def test_options_that_change_between_calls(self):
        class Number:
            """Like a tensor without axes: equal to itself whatever its value."""
            shape = ()

            def __init__(self, value):
                self.value = value

            def __float__(self):
                return self.value

            __bool__, __abs__ = (lambda self: self.value != 0), __float__

        q, k, v = arrays(np.random.default_rng(15), t=4, s=4, g=4, dv=8)
        scale = Number(0.5)
        np.testing.assert_array_equal(attn.attend(q, k, v, scale=scale), attn.attend(q, k, v, scale=0.5))
        scale.value = 2.0
        np.testing.assert_array_equal(attn.attend(q, k, v, scale=scale), attn.attend(q, k, v, scale=2.0))

    def test_log_sum_exp_and_gradients(self):
        rng = np.random.default_rng(12)
        for layout in ("bthd", "bhtd"):
            for wrt in (("q", "k", "v"), ["v", "q"], ("k",)):
                for _ in range(3):  # only the first call is planned
                    q, k, v = arrays(rng, t=4, s=4, h=4, g=4)
                    o, lse = attn.attend(q, k, v, layout=layout, return_lse=True)
                    dout = rng.standard_normal(o.shape).astype(np.float32)
                    grads = attn.attend_backward(dout, q, k, v, o, lse, layout=layout, wrt=wrt)
                    # Calls with weights or a zero dlse are never cached.
                    want, want_lse, _ = attn.attend(q, k, v, layout=layout, return_lse=True, return_weights=True)
                    every = attn.attend_backward(dout, q, k, v, o, lse, layout=layout, dlse=np.zeros_like(lse))
                    np.testing.assert_array_equal(o, want)
                    np.testing.assert_array_equal(lse, want_lse)
                    self.assertEqual(list(grads), list(wrt))
                    again = attn.attend_backward(dout, q, k, v, o, lse, layout=layout, wrt=iter((wrt[0], *wrt)))
                    self.assertEqual(list(again), list(wrt))
                    for name, grad in (*grads.items(), *again.items()):
                        np.testing.assert_array_equal(grad, every[name])

    def test_addresses_that_are_not_aligned(self):
        rng = np.random.default_rng(13)
        q, k, v = arrays(rng, t=4, s=4, g=4, dv=8)
        wanted = attn.attend(q, k, v)
        for shift in (1, 2, 4):
            memory = np.zeros(q.nbytes + 16, np.uint8)
            moved = memory[shift:shift + q.nbytes].view(q.dtype).reshape(q.shape)
            moved[...] = q
            np.testing.assert_array_equal(attn.attend(moved, k, v), wanted)

    def test_more_kinds_than_are_kept(self):
        rng = np.random.default_rng(14)
        for _ in range(2):
            for n in range(1, 40):
                x = rng.standard_normal((1, n, 1, 4)).astype(np.float32)
                self.assertLess(distance(attn.attend(x, x, x), attention(x, x, x)[0]), 1e-5)


class Backward(unittest.TestCase):
    def test_against_differences_of_the_formula(self):
        rng = np.random.default_rng(6)
        q, k, v = arrays(rng, dtype=np.float64)
        dout = rng.standard_normal((2, 5, 4, 3))
        for name, (options, keep, bias, scale) in cases(rng, 5, 7).items():
            o, lse = attn.attend(q, k, v, return_lse=True, **options)
            got = attn.attend_backward(dout, q, k, v, o, lse, **options)
            at = {"q": q, "k": k, "v": v, "bias": bias}
            self.assertEqual(set(got), {"q", "k", "v"} | ({"bias"} if "bias" in options else set()))
            for key in got:
                def loss(x, key=key):
                    a = {**at, key: x}
                    return (attention(a["q"], a["k"], a["v"], keep, a["bias"], scale)[0] * dout).sum()
                with self.subTest(case=name, gradient=key):
                    wanted = differences(loss, at[key])
                    self.assertLess(np.abs(got[key] - wanted).max(), 1e-7 * max(1, np.abs(wanted).max()))

    def test_a_loss_of_the_log_sum_exp(self):
        rng = np.random.default_rng(9)
        q, k, v = arrays(rng, t=4, s=6, dtype=np.float64)
        keep = np.arange(6) <= np.arange(4)[:, None]
        o, lse = attn.attend(q, k, v, causal=True, return_lse=True)
        dout, dlse = rng.standard_normal(o.shape), rng.standard_normal(lse.shape)
        at = {"q": q, "k": k, "v": v}
        got = attn.attend_backward(dout, q, k, v, o, lse, causal=True, dlse=dlse)
        for key in at:
            def loss(x, key=key):
                a = {**at, key: x}
                found, _, log_sums = attention(a["q"], a["k"], a["v"], keep)
                return (found * dout).sum() + (log_sums * dlse).sum()
            with self.subTest(gradient=key):
                wanted = differences(loss, at[key])
                self.assertLess(np.abs(got[key] - wanted).max(), 1e-7 * max(1, np.abs(wanted).max()))
        strided = np.empty((*lse.shape, 2))[..., 0]
        strided[...] = lse
        backwards = np.ascontiguousarray(dlse[..., ::-1])[..., ::-1]
        for log_sums, gradient in ((strided, dlse), (lse, backwards), (strided, backwards)):
            again = attn.attend_backward(dout, q, k, v, o, log_sums, causal=True, dlse=gradient)
            for key, grad in got.items():
                np.testing.assert_array_equal(again[key], grad)

    def test_single_precision_and_layouts_agree(self):
        rng = np.random.default_rng(7)
        q, k, v = arrays(rng, t=40, s=50, d=16, dv=16)
        o, lse = attn.attend(q, k, v, causal=True, return_lse=True)
        dout = rng.standard_normal(o.shape).astype(np.float32)
        got = attn.attend_backward(dout, q, k, v, o, lse, causal=True)
        exact = [x.astype(np.float64) for x in (q, k, v)]
        o64, lse64 = attn.attend(*exact, causal=True, return_lse=True)
        wanted = attn.attend_backward(dout.astype(np.float64), *exact, o64, lse64, causal=True)
        turned = [x.transpose(0, 2, 1, 3).copy() for x in (dout, q, k, v, o)]
        bhtd = attn.attend_backward(*turned, lse, causal=True, layout="bhtd", wrt=("k", "q"))
        self.assertEqual(list(bhtd), ["k", "q"])
        for name, grad in got.items():
            self.assertLess(distance(grad, wanted[name]), 1e-5)
            if name in bhtd:
                self.assertLess(distance(bhtd[name].transpose(0, 2, 1, 3), wanted[name]), 1e-5)

    def test_what_is_wrong_is_said(self):
        q, k, v = arrays(np.random.default_rng(8))
        o, lse = attn.attend(q, k, v, return_lse=True)
        for error, text, call in (
                (attn.ShapeError, "dout has the shape", lambda: attn.attend_backward(o[:1], q, k, v, o, lse)),
                (attn.ShapeError, "lse has the shape", lambda: attn.attend_backward(o, q, k, v, o, lse[:1])),
                (attn.ShapeError, "lse has the shape", lambda: attn.attend_backward(o, q, k, v, o, lse.swapaxes(1, 2))),
                (attn.ShapeError, "dlse has the shape",
                 lambda: attn.attend_backward(o, q, k, v, o, lse, dlse=lse[:, :1])),
                (attn.ArgumentError, "no gradient of 'mask'",
                 lambda: attn.attend_backward(o, q, k, v, o, lse, wrt=["mask"]))):
            with self.assertRaisesRegex(error, text):
                call()


class NoCopies(unittest.TestCase):
    """NumPy counts every array that it makes: no array except the result may be as large as an operand."""

    def peak(self, call):
        call()  # plans, and memory of Python
        tracemalloc.start()
        try:
            result = call()
            return tracemalloc.get_traced_memory()[1], result
        finally:
            tracemalloc.stop()

    def test_views_are_read_where_they_lie(self):
        rng = np.random.default_rng(9)
        t, h, d = 300, 4, 32
        packed = rng.standard_normal((2, t, 3, h, d)).astype(np.float32)  # q, k and v are parts of one matrix
        image = rng.standard_normal((h, d, 2, t)).astype(np.float32)  # channels first
        views = {
            "packed": [packed[:, :, i] for i in range(3)],
            "backwards": [packed[:, ::-1, i] for i in range(3)],
            "every other token": [packed[:, ::2, i] for i in range(3)],
            "channels first": [image.transpose(2, 3, 0, 1)] * 3,
            "broadcast heads": [packed[:, :, 0], *(np.broadcast_to(packed[:, :, i, :1], (2, t, h, d)) for i in (1, 2))],
        }
        for name, (q, k, v) in views.items():
            with self.subTest(view=name):
                wanted = attention(q, k, v)[0]
                peak, o = self.peak(lambda: attn.attend(q, k, v))
                self.assertLess(distance(o, wanted), 3e-6)
                self.assertLess(peak, o.nbytes + 20000)
        mask = np.tri(t, dtype=bool)  # broadcast over batch and heads
        bias = rng.standard_normal((h, 1, t)).astype(np.float32)
        q, k, v = views["packed"]
        peak, o = self.peak(lambda: attn.attend(q, k, v, mask=mask, bias=bias))
        self.assertLess(distance(o, attention(q, k, v, mask, bias)[0]), 3e-6)
        self.assertLess(peak, o.nbytes + 20000)

    def test_gradients_too(self):
        packed = np.random.default_rng(10).standard_normal((2, 200, 3, 4, 32)).astype(np.float32)
        q, k, v = (packed[:, ::-1, i] for i in range(3))
        o, lse = attn.attend(q, k, v, return_lse=True)
        peak, grads = self.peak(lambda: attn.attend_backward(o, q, k, v, o, lse))
        self.assertLess(peak, 3 * o.nbytes + 30000)
        straight = [np.ascontiguousarray(x) for x in (q, k, v)]
        for name, grad in attn.attend_backward(o, *straight, o, lse).items():
            self.assertLess(distance(grads[name], grad), 1e-5)

    def test_addresses_are_those_that_numpy_says(self):
        x = np.zeros((4, 6, 3))
        fixed = x[1:]
        fixed.flags.writeable = False
        for array in (x, x[2], x[:, ::-2], x.T, x[:0], np.empty(0, np.float32), fixed, np.frombuffer(b"12345678", np.uint8)[3:]):
            self.assertEqual(_attend._address(array), array.__array_interface__["data"][0])

    def test_operands_hold_the_callers_pointers(self):
        from attn import _attend
        x = np.zeros((2, 6, 3, 4), np.float32)
        q, k, v = x[:, ::-2], x[..., ::-1], x[:, 1:]
        call = _attend._Call(q, k, x[:, :, :, :2], "bthd", 0)
        self.assertEqual(call.arrays.q, q.__array_interface__["data"][0])
        self.assertEqual(call.arrays.k, k.__array_interface__["data"][0])
        dims = call.problem.dims
        # batch, head of k, head of q for it (one), query, key, channel, channel of v: in elements
        self.assertEqual([dims[i].q for i in range(7)], [72, 4, 4, -24, 0, 1, 0])
        self.assertEqual([dims[i].k for i in range(7)], [72, 4, 0, 0, 12, -1, 0])
        self.assertEqual(attn.attend(q, k[:, :5], v).shape, q.shape)

    def test_what_no_stride_describes_is_copied_right(self):
        raw = np.zeros(2 * 3 * 4 * 5 + 1, np.uint8)
        odd = np.frombuffer(raw.data, np.uint8)[1:1 + 4 * 24].view(np.float32).reshape(1, 3, 2, 4)
        odd[...] = np.arange(24).reshape(odd.shape) / 24
        swapped = odd.astype(">f4")
        wanted = attention(odd, odd, odd)[0]
        self.assertLess(distance(attn.attend(odd, odd, odd), wanted), 2e-6)
        record = np.zeros((1, 3, 2, 4), [("x", "f4"), ("pad", "u1")])
        record["x"] = odd
        self.assertLess(distance(attn.attend(record["x"], odd, odd), wanted), 2e-6)
        self.assertLess(distance(attn.attend(swapped.astype("f4"), odd, odd), wanted), 2e-6)

    def test_dlpack(self):
        class Other:
            """A foreign array whose only interface is DLPack."""

            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **options):
                return self.array.__dlpack__(**options)

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()
        q, k, v = arrays(np.random.default_rng(11))
        o = attn.attend(Other(q), Other(k.transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3)), Other(v))
        np.testing.assert_array_equal(o, attn.attend(q, k, v))
        np.testing.assert_array_equal(np.from_dlpack(o), o)
        layer = attn.build("detr-ffn", {"d": 8})
        y = layer(Other(q[:, :, 0].copy()))
        self.assertEqual(np.from_dlpack(y).ctypes.data, y.ctypes.data)


class Newer(unittest.TestCase):
    """Softcap, sinks, a bias by an index and blocks, against plain NumPy; gradients against differences."""

    def formula(self, q, k, v, softcap=None, sinks=None, relative_bias=None, block_mask=None, causal=False,
                normalization="softmax", top_k=0, sigmoid_bias=None, bias=None):
        q, k, v = (np.asarray(x, float) for x in (q, k, v))
        (t, h), s, group = q.shape[1:3], k.shape[1], q.shape[2] // k.shape[2]
        scores = np.einsum("bihd,bjhd->bhij", q, k.repeat(group, 2)) * q.shape[3] ** -0.5
        i, j = np.arange(t)[:, None], np.arange(s)
        if softcap:
            scores = softcap * np.tanh(scores / softcap)
        scores = scores if bias is None else scores + bias
        if relative_bias is not None:
            table, index = relative_bias
            rows = index[j - i + t - 1] if index.ndim == 1 else index
            scores = scores + np.asarray(table, float)[rows].transpose(2, 0, 1)
        if block_mask is not None:
            blocks, (bq, bk) = block_mask
            whole = np.broadcast_to(blocks, (len(q), h, -(-t // bq), -(-s // bk)))
            scores = np.where(whole.repeat(bq, 2).repeat(bk, 3)[:, :, :t, :s], scores, -np.inf)
        scores = np.where(j <= i, scores, -np.inf) if causal else scores
        if top_k or normalization == "hardmax":
            order = np.argsort(np.argsort(-scores, -1, "stable"), -1, "stable")  # number of keys before each sequence
            scores = np.where(order < (top_k or 1), scores, -np.inf)
        if normalization == "sigmoid":
            b = -np.log(s) if sigmoid_bias is None else np.asarray(sigmoid_bias, float)
            weights = 1 / (1 + np.exp(-(scores + (b[:, None, None] if b.ndim else b))))
            return np.einsum("bhij,bjhd->bihd", weights, v.repeat(group, 2))
        if normalization == "none":
            return np.einsum("bhij,bjhd->bihd", np.where(np.isfinite(scores), scores, 0), v.repeat(group, 2))
        peak = np.maximum(scores.max(-1, keepdims=True), -1e30)
        weights = np.exp(scores - peak)
        total = weights.sum(-1, keepdims=True)
        if sinks is not None:
            total = total + np.exp(np.asarray(sinks, float)[:, None, None] - peak)
        return np.einsum("bhij,bjhd->bihd", weights / np.where(total == 0, 1, total), v.repeat(group, 2))

    def cases(self, rng, t, s, h):
        blocks = rng.random((1, h, -(-t // 4), -(-s // 3))) < 0.6
        return ({"softcap": 0.7}, {"sinks": rng.standard_normal(h)}, {"block_mask": (blocks, (4, 3)), "causal": True},
                {"relative_bias": (rng.standard_normal((6, h)), rng.integers(0, 6, t + s - 1))},
                {"normalization": "hardmax", "softcap": 2.0}, {"normalization": "none", "causal": True},
                {"top_k": 3, "sinks": rng.standard_normal(h), "causal": True}, {"top_k": 2, "block_mask": (blocks, (4, 3))},
                {"normalization": "hardmax", "block_mask": (blocks, (4, 3))}, {"normalization": "none", "softcap": 0.7},
                {"normalization": "sigmoid"}, {"normalization": "sigmoid", "causal": True, "sigmoid_bias": -0.5},
                {"normalization": "sigmoid", "sigmoid_bias": rng.standard_normal(h), "softcap": 2.0},
                {"normalization": "sigmoid", "sigmoid_bias": rng.standard_normal(h), "bias": rng.standard_normal((t, s))},
                {"normalization": "sigmoid", "block_mask": (blocks, (4, 3)), "bias": rng.standard_normal((h, 1, s))},
                {"relative_bias": (rng.standard_normal((6, h)), rng.integers(0, 6, (t, s))), "softcap": 2.0,
                 "sinks": rng.standard_normal(h), "block_mask": (blocks, (4, 3))})

    def test_results_and_gradients(self):
        rng = np.random.default_rng(7)
        q, k, v = arrays(rng, dtype=np.float64)
        for options in self.cases(rng, q.shape[1], k.shape[1], q.shape[2]):
            for dtype, bound in ((np.float32, 3e-6), (np.float64, 1e-12)):
                got = attn.attend(*(x.astype(dtype) for x in (q, k, v)), **options)
                self.assertLess(distance(got, self.formula(q, k, v, **options)), bound, list(options))
            if options.get("normalization") == "sigmoid":
                o, lse = attn.attend(q, k, v, **options), None
            else:
                o, lse = attn.attend(q, k, v, return_lse=True, **options)
            dout = rng.standard_normal(o.shape)
            found = attn.attend_backward(dout, q, k, v, o, lse, **options)
            given = {"q": q, "k": k, "v": v}
            if "sinks" in options:
                given["sinks"] = options["sinks"]
            if np.ndim(options.get("sigmoid_bias")):
                given["sigmoid_bias"] = options["sigmoid_bias"]
            if "bias" in options:
                given["bias"] = options["bias"]
            if "relative_bias" in options:
                given["bias"] = options["relative_bias"][0]
            self.assertEqual(set(found), set(given))

            def loss(name, x):
                changed, more = {**given, name: x}, dict(options)
                more.update({name: changed[name] for name in ("bias", "sigmoid_bias") if name in options and name in given})
                if "sinks" in options:
                    more["sinks"] = changed["sinks"]
                if "relative_bias" in options:
                    more["relative_bias"] = changed["bias"], options["relative_bias"][1]
                return (self.formula(changed["q"], changed["k"], changed["v"], **more) * dout).sum()

            for name, value in given.items():
                wanted = differences(lambda x, name=name: loss(name, x), value)
                self.assertLess(np.abs(found[name] - wanted).max(), 1e-7 * max(1, np.abs(wanted).max()), (name, list(options)))

    def test_weights_of_the_largest_scores(self):
        rng = np.random.default_rng(8)
        q, k, v = arrays(rng, b=2, t=9, s=300, dtype=np.float64)
        for name, x in (("many keys", k), ("equal keys", np.ones_like(k)), ("one NaN", np.where(np.arange(300)[:, None, None] == 7, np.nan, k))):
            for options in ({"normalization": "hardmax"}, {"top_k": 5}, {"top_k": 200}):
                o, lse, weights = attn.attend(q, x, v, return_lse=True, return_weights=True, **options)
                if name == "one NaN":
                    self.assertTrue(np.isnan(o).all() and np.isnan(weights).all())
                    continue
                self.assertLess(distance(o, self.formula(q, x, v, **options)), 1e-12, (name, options))
                self.assertTrue(((weights > 0).sum(-1) == options.get("top_k", 1)).all(), (name, options))
                if name == "equal keys":
                    self.assertTrue((weights[..., :options.get("top_k", 1)] > 0).all())
                if "normalization" in options:
                    largest = np.einsum("bihd,bjhd->bhij", q, x.repeat(q.shape[2] // x.shape[2], 2)).max(-1) * q.shape[3] ** -0.5
                    self.assertLess(distance(lse, largest), 1e-12)
                    found = attn.attend_backward(np.ones_like(o), q, x, v, o, lse, **options)
                    self.assertFalse(found["q"].any() or found["k"].any())
        np.testing.assert_array_equal(attn.attend(q, k, v, top_k=300), attn.attend(q, k, v))

    def test_packed_sequences_are_each_as_alone(self):
        rng = np.random.default_rng(31)
        at_q, at_k = np.array([0, 3, 3, 8, 10]), np.array([0, 4, 7, 14, 14])  # one has no queries, one no keys
        q, k, v = arrays(rng, b=1, t=10, s=14)
        dlse = rng.standard_normal((1, 4, 10)).astype(np.float32)
        for options in ({}, {"causal": True}, {"causal": "bottom-right"}, {"window": (2, 1)},
                        {"causal": "bottom-right", "window": (2, None), "softcap": 3.0}, {"causal": True, "top_k": 2}):
            o, lse = attn.attend(q, k, v, offsets=(at_q, at_k), return_lse=True, **options)
            dout = rng.standard_normal(o.shape).astype(np.float32)
            got = attn.attend_backward(dout, q, k, v, o, lse, offsets=(at_q, at_k), dlse=dlse, **options)
            for i in range(4):
                mine, keys = slice(at_q[i], at_q[i + 1]), slice(at_k[i], at_k[i + 1])
                one = q[:, mine], k[:, keys], v[:, keys]
                o1, lse1 = attn.attend(*one, return_lse=True, **options)
                grads = attn.attend_backward(dout[:, mine], *one, o1, lse1, dlse=dlse[..., mine], **options)
                some = np.isfinite(lse1)
                with self.subTest(options=options, sequence=i):
                    self.assertLess(distance(o[:, mine], o1), 1e-5)
                    np.testing.assert_array_equal(np.isfinite(lse[..., mine]), some)
                    self.assertLess(distance(lse[..., mine][some], lse1[some]), 1e-5)
                    for name, at in (("q", mine), ("k", keys), ("v", keys)):
                        self.assertLess(distance(got[name][:, at], grads[name]), 1e-5)
                    alone = ([0, one[0].shape[1]], [0, one[1].shape[1]])
                    np.testing.assert_array_equal(o[:, mine], attn.attend(*one, offsets=alone, **options))

    def test_packed_refusals(self):
        q, k, v = arrays(np.random.default_rng(32), b=1, t=5, s=7)
        for text, offsets, options in (
                ("offsets of q", ([0, 4], [0, 7]), {}), ("offsets of k", ([0, 5], [0.0, 7.0]), {}),
                ("offsets of k", ([0, 2, 5], [0, 8, 7]), {}), ("3 offsets of queries and 2 of keys", ([0, 2, 5], [0, 7]), {}),
                ("offsets is of int", 3, {}), ("offsets and mask", ([0, 5], [0, 7]), {"mask": np.ones((5, 7), bool)}),
                ("offsets and return_weights", ([0, 5], [0, 7]), {"return_weights": True})):
            with self.subTest(text), self.assertRaisesRegex((attn.ArgumentError, attn.ShapeError), text):
                attn.attend(q, k, v, offsets=offsets, **options)
        with self.assertRaisesRegex(attn.ShapeError, "a batch of 1"):
            attn.attend(*arrays(np.random.default_rng(32)), offsets=([0, 5], [0, 7]))

    def test_refusals(self):
        q = np.ones((1, 4, 2, 3), np.float32)
        for words, options in (("softcap is 0", {"softcap": 0}), (r"\[H\] = \[2\]", {"sinks": np.ones(3)}),
                               ("expected", {"relative_bias": 3}), ("rows,2", {"relative_bias": (np.ones(3), np.ones(7, int))}),
                               ("by distance", {"relative_bias": (np.ones((3, 2)), np.ones(6, int))}),
                               ("cannot be used together", {"relative_bias": (np.ones((3, 2)), np.ones(7, int)), "bias": np.ones(4)}),
                               ("the rows 0 to 2", {"relative_bias": (np.ones((3, 2)), np.full(7, 3))}),
                               ("expected one of softmax, hardmax, none, sigmoid", {"normalization": "sparsemax"}),
                               ("top_k is .* not a whole number", {"top_k": 2.5}), ("top_k -1 is negative", {"top_k": -1}),
                               ("needs the softmax normalization", {"normalization": "hardmax", "top_k": 2}),
                               ("need the softmax normalization", {"normalization": "sigmoid", "sinks": np.ones(2)}),
                               ("weights of a sigmoid have no sum", {"normalization": "sigmoid", "return_lse": True}),
                               ("sigmoid_bias needs", {"sigmoid_bias": -1}),
                               (r"\[H\] = \[2\]", {"normalization": "sigmoid", "sigmoid_bias": np.ones(3)}),
                               ("not a finite", {"normalization": "sigmoid", "sigmoid_bias": float("nan")}),
                               ("need the softmax normalization", {"normalization": "none", "sinks": np.ones(2)}),
                               ("the sizes of a block", {"block_mask": (np.ones((1, 1), bool), (0, 4))}),
                               ("does not broadcast", {"block_mask": (np.ones((3, 1), bool), (2, 2))})):
            with self.subTest(words=words), self.assertRaisesRegex(attn.Error, words):
                attn.attend(q, q, q, **options)


if __name__ == "__main__":
    unittest.main()
