# SPDX-License-Identifier: MIT
"""attn.torch.scaled_dot_product_attention against PyTorch's unfused path in float64, on random calls; and the operator's
rules.  ATTN_LONG=1 tries many more calls.  Skipped where there is no PyTorch."""
import concurrent.futures
import contextlib
import functools
import itertools
import os
import random
import re
import sys
import unittest

try:
    import numpy as np
    import torch
    from torch.nn.attention import SDPBackend, bias, sdpa_kernel
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.checkpoint import checkpoint
    from torch.utils.flop_counter import FlopCounterMode
except ImportError:
    raise unittest.SkipTest("no PyTorch here") from None

import attn
import attn.torch

LONG = bool(os.environ.get("ATTN_LONG"))
CALLS = 3000 if LONG else 90
sdpa = attn.torch.scaled_dot_product_attention
# Relative to the largest element: rounding of inputs and results, and of sums of a few dozen terms.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 2e-3}


def strided(draw, x):
    """The same numbers with gaps between them, or lazily negated."""
    if not x.dim():
        return x
    way = draw.randrange(5)
    if way == 1 and x.dim() >= 3:
        return x.transpose(-2, -3).contiguous().transpose(-2, -3)
    if way == 2:
        axis = -2 if x.dim() > 1 else -1
        return torch.stack((x, x.flip(-1)), axis).select(axis, 0)
    if way == 3:
        return x.mT.contiguous().mT if x.dim() > 1 else x
    if way == 4 and x.is_floating_point():
        return torch._neg_view(-x)
    return x


def draw_mask(draw, batch, queries, keys, dtype):
    shape = [draw.choice((1, n)) for n in (*batch, queries, keys)][draw.randrange(len(batch) + 1):]
    if draw.random() < 0.5:
        return torch.rand(shape) < 0.6
    mask = torch.randn(shape)
    mask[torch.rand(shape) < 0.2] = -float("inf")
    return mask.to(draw.choice((torch.float32, dtype)))


def draw_call(seed):
    """query, key, value and the other arguments."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    dtype = draw.choice((torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16))
    batch = [draw.choice((1, 2, 3)) for _ in range(draw.randrange(4))]
    queries, keys = draw.choice((1, 2, 5, 17, 33)), draw.choice((1, 2, 7, 16, 40))
    channels, values = draw.choice((1, 3, 8, 16, 32)), draw.choice((1, 4, 8, 16))
    shapes = [(*batch, queries, channels), (*batch, keys, channels), (*batch, keys, values)]
    grouped = bool(batch) and draw.random() < 0.3
    if grouped:
        shapes[0] = (*batch[:-1], batch[-1] * draw.choice((1, 2, 4)), queries, channels)
        batch = list(shapes[0][:-2])
    elif draw.random() < 0.2:
        shapes = [(*(draw.choice((1, n)) for n in batch), *shape[-2:]) for shape in shapes]
    q, k, v = (strided(draw, torch.randn(shape, dtype=torch.float64).to(dtype)) for shape in shapes)
    options = {"scale": draw.choice((None, None, 0.3, -0.5, 0.0)), "enable_gqa": grouped}
    kind = draw.randrange(3)
    if kind == 1:
        options["is_causal"] = True
    elif kind == 2:
        whole = q.shape[:-2] if grouped else torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])
        options["attn_mask"] = strided(draw, draw_mask(draw, whole, queries, keys, dtype))
    return q, k, v, options


def run(function, q, k, v, options, dout_seed):
    """The result and the gradients of q, k, v and a float mask."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    options = dict(options)
    mask = options.get("attn_mask")
    if mask is not None and mask.is_floating_point():
        options["attn_mask"] = mask.detach().requires_grad_()
        leaves.append(options["attn_mask"])
    o = function(*leaves[:3], **options)
    torch.manual_seed(dout_seed)
    dout = torch.randn(o.shape, dtype=torch.float64).to(o.dtype)
    return [o.detach(), *torch.autograd.grad(o, leaves, dout)]


def exact(q, k, v, options, dout_seed):
    options = dict(options)
    mask = options.get("attn_mask")
    if mask is not None and mask.is_floating_point():
        options["attn_mask"] = mask.double()
    with sdpa_kernel(SDPBackend.MATH):
        return run(torch.nn.functional.scaled_dot_product_attention, q.double(), k.double(), v.double(), options,
                   dout_seed)


class Random(unittest.TestCase):
    def test_calls(self):
        for seed in range(CALLS):
            q, k, v, options = draw_call(seed)
            got, wanted = run(sdpa, q, k, v, options, seed), exact(q, k, v, options, seed)
            largest = max(float(w.abs().max()) for w in wanted)  # a gradient may be exactly zero
            for name, g, w in zip(("o", "dq", "dk", "dv", "dmask"), got, wanted):
                with self.subTest(seed=seed, what=name, dtype=q.dtype, q=q.shape, k=k.shape, options=options):
                    self.assertEqual(g.shape, w.shape)
                    self.assertTrue(torch.isfinite(g).all())
                    peak = float(w.abs().max())
                    # Gradients are differences of rounded terms, which may be much larger than the gradients.
                    tolerance = max(TOLERANCE[q.dtype], TOLERANCE[g.dtype])
                    half = q.dtype in (torch.bfloat16, torch.float16)
                    bound = tolerance * (largest if half else peak + largest / 10)
                    self.assertLessEqual(float((g.double() - w).abs().max()), bound)


class Corners(unittest.TestCase):
    def test_rows_without_keys_and_no_keys(self):
        q = torch.randn(2, 3, 4, 8, requires_grad=True)
        mask = torch.ones(4, 4, dtype=torch.bool)
        mask[2] = False
        o = sdpa(q, q, q, mask)
        self.assertEqual(float(o.detach()[:, :, 2].abs().max()), 0)
        self.assertTrue(torch.isfinite(torch.autograd.grad(o.sum(), q)[0]).all())
        none = torch.randn(2, 3, 0, 8)
        self.assertEqual(float(sdpa(q, none, none).detach().abs().max()), 0)
        self.assertEqual(sdpa(none, q, q).shape, (2, 3, 0, 8))

    def test_dropout(self):
        q = torch.randn(2, 4, 64, 16, requires_grad=True)
        torch.manual_seed(3)
        first = sdpa(q, q, q, dropout_p=0.25)
        torch.manual_seed(3)
        self.assertTrue(torch.equal(sdpa(q, q, q, dropout_p=0.25), first))
        self.assertFalse(torch.equal(sdpa(q, q, q, dropout_p=0.25), first))
        for options in ({}, {"is_causal": True}, {"attn_mask": torch.ones(64, 64, dtype=torch.bool).tril()}):
            o = sdpa(q, q, q, dropout_p=1.0, **options)
            self.assertEqual(float(o.detach().abs().max()), 0)
            self.assertEqual(float(torch.autograd.grad(o.sum(), q)[0].abs().max()), 0)
        even = torch.zeros(1, 1, 4096, 8)  # equal weights: the sum of the kept weights is 1 on average
        kept = sdpa(even, even, torch.ones(1, 1, 4096, 1), dropout_p=0.25)
        self.assertLess(abs(float(kept.mean()) - 1), 2e-3)
        self.assertGreater(float(kept.std()), 0)

    def test_refusals(self):
        q = torch.randn(2, 3, 4, 8)
        mask = torch.ones(4, 4, dtype=torch.bool)
        for wrong, words in (((q, q.double(), q), "one type"), ((q, q[..., :4], q), "8"), ((q, q[:, :, :3], q), "3"),
                             ((q.int(), q.int(), q.int()), "int32"), ((q, q, q, mask[:3]), "mask"),
                             ((q[0, 0, 0], q, q), "at least 2"), ((q, q, q, mask, 0.0, True), "is_causal"),
                             ((q, q, q, mask, 1.5), "dropout_p"), ((q, q, q, None, 0.0, False, float("nan")), "scale"),
                             ((q, q, q, None, 0.0, False, torch.tensor(0.5, requires_grad=True)), "scale"),
                             ((q, q, q, mask.int()), "attn_mask")):
            with self.subTest(words=words), self.assertRaisesRegex(attn.Error, words):
                sdpa(*wrong)

    def test_scale_as_tensor(self):
        """The present value of a scale counts, not that of an earlier call; also under enable(), which leaves a scale
        that is not finite to PyTorch."""
        q, scale = torch.randn(2, 3, 20, 16), torch.tensor(0.5)
        for number in (0.5, 3.0):
            self.assertTrue(torch.equal(sdpa(q, q, q, scale=scale.fill_(number)), sdpa(q, q, q, scale=number)))
        with attn.torch.enable(always=True):
            for number in (2.0, -1.0):
                self.assertTrue(torch.equal(torch.nn.functional.scaled_dot_product_attention(q, q, q, scale=scale.fill_(number)),
                                            sdpa(q, q, q, scale=number)))
            before = attn.torch.calls()
            self.assertTrue(torch.nn.functional.scaled_dot_product_attention(q, q, q, scale=float("nan")).isnan().all())
        self.assertEqual(attn.torch.calls(), before)

    def test_new_scales_for_known_shapes(self):
        """A plan for another scale is made from an existing plan, forward and backward; also for the default and 0."""
        q = torch.randn(1, 2, 6, 8, requires_grad=True)
        for scale in (0.3, None, 0.5, 0.0, 0.3, -0.25):
            got = torch.autograd.grad(sdpa(q, q, q, is_causal=True, scale=scale).sin().sum(), q)[0]
            with sdpa_kernel(SDPBackend.MATH):
                formula = torch.nn.functional.scaled_dot_product_attention(q, q, q, torch.ones(6, 6, dtype=torch.bool).tril(), scale=scale)
            wanted = torch.autograd.grad(formula.sin().sum(), q)[0]
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
        with self.assertRaisesRegex(attn.ArgumentError, "scale is nan"):
            sdpa(q, q, q, is_causal=True, scale=float("nan"))

    def test_causal_bias(self):
        """A causal bias is used as its relation, not as its memory; other subclasses with their own rules are
        refused."""
        class Own(torch.Tensor):
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                return super().__torch_function__(function, types, args, kwargs or {})

        for queries, keys in ((5, 3), (3, 5), (5, 5)):
            q, k, v = (torch.randn(2, 2, n, 8) for n in (queries, keys, keys))
            for make, diagonal in ((bias.causal_upper_left, 0), (bias.causal_lower_right, keys - queries)):
                mask, given = torch.ones(queries, keys, dtype=torch.bool).tril(diagonal), make(queries, keys)
                wanted = sdpa(q, k, v, mask)
                calls = [lambda b: sdpa(q, k, v, b), lambda b: attn.torch.flex_attention(q, k, v, bias=b),  # noqa: B023
                         lambda b: attn.torch.flex_attention(q, k, v, mask=b),  # noqa: B023
                         lambda b: torch.nn.functional.scaled_dot_product_attention(q, k, v, b)]  # noqa: B023
                for call in calls:
                    torch._dynamo.reset()
                    with attn.torch.enable(always=True):
                        for found in (call(given), torch.compile(call, backend="aot_eager", fullgraph=True)(given)):
                            torch.testing.assert_close(found, wanted)
            window = attn.torch.flex_attention(q, k, v, bias=bias.causal_lower_right(queries, keys), window=(1, None))
            near = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries).triu(-1)
            torch.testing.assert_close(window, sdpa(q, k, v, near))
        with self.assertRaisesRegex(attn.ShapeError, "for 3 queries and 5 keys"):
            sdpa(q, k, v, bias.causal_lower_right(3, 5))
        with self.assertRaisesRegex(attn.ArgumentError, "CausalBias"):
            sdpa(q, k, v, bias.causal_upper_left(5, 5), is_causal=True)
        own = torch.zeros(5, 5).as_subclass(Own)
        for call in (lambda: sdpa(q, k, v, own), lambda: sdpa(q.as_subclass(Own), k, v),
                     lambda: attn.torch.flex_attention(q, k, v, bias=own),
                     lambda: attn.torch.axial_attention(q, k.as_subclass(Own), v, 1)):
            with self.assertRaisesRegex(attn.UnsupportedError, "Own, whose rules"):
                call()

    def test_interrupted_calls(self):
        """A signal handler attends with the same shapes, or makes so many plans that the plans of the call are
        evicted."""
        from attn.torch import _engine, _sdpa

        def interrupted(call, handler, code, at):
            """The result, and whether the handler ran at that instruction of the code."""
            instructions = itertools.count()

            def trace(frame, event, argument):
                if frame.f_code is not code:
                    return None
                frame.f_trace_opcodes = True
                if event == "opcode" and next(instructions) == at:
                    handler()
                return trace

            before = sys.gettrace()
            sys.settrace(trace)
            try:
                return call(), next(instructions) > at
            finally:
                sys.settrace(before)

        q, other, row = torch.randn(1, 2, 5, 8, requires_grad=True), torch.randn(1, 2, 5, 8, requires_grad=True), torch.randn(1, 1, 1, 1)

        @torch.enable_grad()
        def step(x):
            return torch.autograd.grad(sdpa(x, x, x).sin().sum(), x)[0]

        def evict():
            step(other)
            for n in range(_engine._KEPT + 1):
                sdpa(row, row, row.expand(1, 1, 1, n + 1))

        wanted = step(q)
        for handler, every in ((lambda: step(other), 1), (evict, 9)):
            for code in (_sdpa.quick.__code__, _engine.run.__code__, _engine.backward_again.__code__):
                for at in itertools.count(0, every):
                    found, ran = interrupted(lambda: step(q), handler, code, at)
                    self.assertTrue(torch.equal(found, wanted), (code.co_name, at))
                    if not ran:
                        break
                self.assertGreater(at, 20)

    def test_gradients_at_once(self):
        x = torch.randn(1, 2, 4, 3)
        wanted = torch.autograd.functional.jacobian(lambda a: torch.nn.functional.scaled_dot_product_attention(a, x, x), x)
        for found in (torch.autograd.functional.jacobian(lambda a: sdpa(a, x, x), x), torch.func.jacrev(lambda a: sdpa(a, x, x))(x)):
            torch.testing.assert_close(found, wanted)
        with self.assertRaisesRegex(attn.UnsupportedError, "is_grads_batched"):
            torch.autograd.functional.jacobian(lambda a: sdpa(a, x, x), x, vectorize=True)
        packed, ends = torch.randn(6, 2, 8, requires_grad=True), torch.tensor([0, 6], dtype=torch.int32)
        lse = attn.torch.varlen_attention(packed, packed, packed, ends, ends, 6, 6, return_lse=True)[1]
        with self.assertRaisesRegex(attn.UnsupportedError, "is_grads_batched"):
            torch.autograd.grad(lse, packed, torch.ones(3, *lse.shape), is_grads_batched=True)

    def test_compiled_scale(self):
        """A scale that changes, in one graph, also under enable()."""
        q = torch.randn(1, 2, 6, 8)
        with attn.torch.enable(always=True):
            for call in (sdpa, lambda *x, scale: torch.nn.functional.scaled_dot_product_attention(*x, scale=scale)):
                compiled = torch.compile(lambda a, s: call(a, a, a, scale=s), fullgraph=True, dynamic=True)  # noqa: B023
                for scale in (0.3, 0.7):
                    torch.testing.assert_close(compiled(q, scale), sdpa(q, q, q, scale=scale))

    def test_kept_log_sum_exps(self):
        """Gradients of calls with a cached plan: through the operator (create_graph), twice, with a bias, a mask or
        neither, without queries, and after the plan is destroyed."""
        from attn.torch import _engine
        for queries, kind in ((5, None), (5, torch.float64), (5, torch.bool), (0, None)):
            q, k, v = (torch.randn(2, 3, n, 8, dtype=torch.float64, requires_grad=True) for n in (queries, 6, 6))
            mask = None if kind is None else torch.randn(queries, 6, dtype=torch.float64)
            mask = mask > 0 if kind == torch.bool else mask
            wanted = torch.autograd.grad(torch.nn.functional.scaled_dot_product_attention(q, k, v, mask).sin().sum(), (q, k, v))
            o = sdpa(q, k, v, mask)
            self.assertIn("_Direct", type(o.grad_fn).__name__)
            for again in range(4):
                if again == 3:
                    _engine._engines.by_threads.clear()
                got = torch.autograd.grad(o.sin().sum(), (q, k, v), create_graph=again == 1, retain_graph=True)
                for g, w in zip(got, wanted):
                    self.assertLess(float((g.detach() - w).abs().max()) if g.numel() else 0.0, 1e-12)

    def test_saved_tensors_with_other_strides(self):
        """Hooks may return the same numbers in other memory."""
        for mask in ((), (torch.randn(6, 6),)):
            x = torch.randn(2, 3, 6, 8, requires_grad=True)
            for changed in (torch.clone, lambda t: t.mT.contiguous().mT):
                with torch.autograd.graph.saved_tensors_hooks(lambda t: t, changed):
                    found = sdpa(x, x, x, *mask)
                torch.testing.assert_close(torch.autograd.grad(found.sin().sum(), x),
                                           torch.autograd.grad(sdpa(x, x, x, *mask).sin().sum(), x))

    def test_types_are_those_of_pytorch(self):
        """A call that PyTorch refuses because of a type is also refused here; under enable() with PyTorch's message."""
        q = torch.randn(1, 2, 8, 16)
        sdpa(q, q, q, is_causal=True), sdpa(q, q, q, enable_gqa=True)  # ints must not match plans for bools
        for args, more in (((q, q, None), {}), ((q, q, q, 3), {}), (([1], q, q), {}), ((q, q, q), {"is_causal": 1}),
                           ((q, q, q), {"enable_gqa": 1}), ((q, q, q), {"scale": "x"}), ((q, q, q), {"dropout_p": "x"}),
                           ((q, q, q), {"dropout_p": None}), ((q, q, q), {"scale": 1j})):
            with self.subTest(types=[type(x).__name__ for x in args], more=more):
                with self.assertRaisesRegex(TypeError, "expected"):
                    sdpa(*args, **more)
                with self.assertRaises(TypeError) as theirs:
                    torch.nn.functional.scaled_dot_product_attention(*args, **more)
                with attn.torch.enable(), self.assertRaises(TypeError) as enabled:
                    torch.nn.functional.scaled_dot_product_attention(*args, **more)
                place = r" \(position \d\)"  # the message for an argument that was not given by name
                self.assertEqual(*(re.sub(place, "", str(x.exception)) for x in (enabled, theirs)))

    def test_numbers_of_numpy(self):
        q = torch.randn(1, 2, 8, 16)
        self.assertTrue(torch.equal(sdpa(q, q, q, scale=np.float32(0.5)), sdpa(q, q, q, scale=0.5)))
        self.assertTrue(torch.equal(sdpa(q, q, q, dropout_p=np.float64(0), scale=np.int64(2)), sdpa(q, q, q, scale=2)))
        with torch.autocast("cpu"), self.assertRaisesRegex(TypeError, "value is None"):
            sdpa(q, q, None)

    def test_second_derivative_is_refused(self):
        q = torch.randn(1, 2, 5, 4, dtype=torch.float64, requires_grad=True)
        (first,) = torch.autograd.grad(sdpa(q, q, q).pow(2).sum(), q, create_graph=True)
        with self.assertRaisesRegex(attn.UnsupportedError, "second derivative"):
            first.sum().backward()

    def test_threads_follow(self):
        q, before = torch.randn(2, 8, 256, 32), torch.get_num_threads()
        results = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(sdpa(q, q, q))
        torch.set_num_threads(before)
        self.assertTrue(torch.equal(*results))


class Operator(unittest.TestCase):
    """The rules of torch.library."""

    def inputs(self, dtype=torch.float64, grad=True):
        torch.manual_seed(1)
        make = [torch.randn(2, 2, n, 4, dtype=dtype) for n in (5, 6, 6)] + [torch.randn(5, 6, dtype=dtype)]
        return [x.requires_grad_(grad) for x in make]

    def test_gradcheck(self):
        self.assertTrue(torch.autograd.gradcheck(sdpa, self.inputs()))
        self.assertTrue(torch.autograd.gradcheck(lambda q, k, v: sdpa(q, k, v, is_causal=True), self.inputs()[:3]))

    def test_opcheck(self):
        q, k, v, bias = self.inputs(torch.float32)
        form = "ABqc,ABkc,ABkv->ABqv;AqBv;qk;"
        for sinks, softcap in ((None, 0.0), (torch.randn(2, requires_grad=True), 1.5)):
            torch.library.opcheck(torch.ops.attn.attend.default,
                                  (q, k, v, bias, None, None, None, None, sinks, None, None, form, 0.0, 0.0, [], 0, softcap, 0, None))
        table, index = torch.randn(7, 2, requires_grad=True), torch.arange(10, dtype=torch.int32) % 7
        by_distance = [attn.torch._ops._engine._form.INDEX, ord("q"), ord("k"), -1, 1, 4, 10]
        torch.library.opcheck(torch.ops.attn.attend.default, (q, k, v, table, None, None, None, None, None, index, None,
                                                              "ABqc,ABkc,ABkv->ABqv;AqBv;1B;", 0.0, 0.0, by_distance, 0, 0.0, 0, None))

    @unittest.skipUnless(LONG, "slow: ATTN_LONG=1")
    def test_compile_with_inductor(self):
        self.compiled("inductor")

    def test_compile(self):
        self.compiled("aot_eager")

    def compiled(self, backend):
        found = []

        def look(graph, example):
            found.extend(str(node.target) for node in graph.graph.nodes)
            return torch._dynamo.lookup_backend(backend)(graph, example)

        def work(q, k, v, mask):
            return (sdpa(q * 2, k, v, mask) * 3).sum() + sdpa(q, k, v, is_causal=True).sum()

        inputs = self.inputs(torch.float32)
        wanted = torch.autograd.grad(work(*inputs), inputs)
        got = torch.autograd.grad(torch.compile(work, fullgraph=True, backend=look)(*inputs), inputs)
        self.assertEqual(sum("attend" in name for name in found), 2, found)
        for g, w in zip(got, wanted):
            self.assertLess(float((g - w).abs().max()), 1e-4)

    def test_func(self):
        q, k, v, bias = (x.detach() for x in self.inputs())
        wanted = torch.autograd.grad(sdpa(q.requires_grad_(), k, v, bias).sin().sum(), q)[0]
        got = torch.func.grad(lambda q: sdpa(q, k, v, bias).sin().sum())(q.detach())
        self.assertLess(float((got - wanted).abs().max()), 1e-12)
        mapped = torch.func.vmap(lambda q, v: sdpa(q, k[0], v, bias), in_dims=(0, 1))(q.detach(), v.transpose(0, 1))
        self.assertLess(float((mapped - sdpa(q, k[:1], v, bias)).abs().max()), 1e-12)
        each = torch.func.vmap(torch.func.grad(lambda q: sdpa(q, k[0], v[0], bias).sin().sum()))(q.detach())
        whole = torch.func.grad(lambda q: sdpa(q, k[:1], v[:1], bias).sin().sum())(q.detach())
        self.assertLess(float((each - whole).abs().max()), 1e-12)

    def test_autocast(self):
        q = torch.randn(2, 3, 9, 8, requires_grad=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            o, wanted = sdpa(q, q, q), torch.nn.functional.scaled_dot_product_attention(q, q, q)
        self.assertEqual(o.dtype, wanted.dtype)
        self.assertLess(float((o.float() - wanted.float()).abs().max()), 3e-2)
        self.assertEqual(torch.autograd.grad(o.sum(), q)[0].dtype, torch.float32)

    def test_trace(self):
        q = torch.randn(1, 2, 5, 4)
        traced = torch.jit.trace(lambda q: sdpa(q, q, q), (q,), check_trace=False)
        other = torch.randn(1, 2, 5, 4)
        self.assertLess(float((traced(other) - sdpa(other, other, other)).abs().max()), 1e-6)


class Enable(unittest.TestCase):
    def test_leaves_what_attn_does_not_have(self):
        """Forward mode, nested tensors, and shapes that PyTorch refuses with its own message."""
        q, k, v = torch.randn(1, 1, 2, 4), torch.randn(1, 1, 3, 4), torch.randn(1, 1, 3, 2)
        F = torch.nn.functional
        nested = [torch.nested.nested_tensor([torch.randn(4, 5, 16), torch.randn(4, 6, 16)]) for _ in range(3)]

        def tangents():
            with torch.autograd.forward_ad.dual_level():
                dual = torch.autograd.forward_ad.make_dual(q, torch.ones_like(q))
                first = torch.autograd.forward_ad.unpack_dual(F.scaled_dot_product_attention(dual, k, v)).tangent
            return first, torch.func.jvp(lambda x: F.scaled_dot_product_attention(x, k, v), (q,), (q,))[1]

        wanted, size = tangents(), F.scaled_dot_product_attention(*nested).size(0)
        with attn.torch.enable():
            for a, b in zip(tangents(), wanted):
                self.assertTrue(torch.equal(a, b))
            self.assertEqual(F.scaled_dot_product_attention(*nested).size(0), size)
            for bad in (torch.zeros(7, 3), torch.zeros(5, 1, 2, 3)):
                with self.assertRaises(RuntimeError):
                    F.scaled_dot_product_attention(q, k, v, bad)
        with self.assertRaisesRegex(attn.UnsupportedError, "forward-mode"):
            torch.func.jvp(lambda x: attn.torch.scaled_dot_product_attention(x, k, v), (q,), (q,))
        with self.assertRaisesRegex(attn.ShapeError, "does not broadcast"):
            attn.torch.scaled_dot_product_attention(q[:, :, :1], k, v, torch.zeros(7, 3))
        with self.assertRaisesRegex(attn.ShapeError, "same last axis"):
            attn.torch.scaled_dot_product_attention(q[..., :1], k, v)

    def test_one_object_for_several_blocks(self):
        q, enabled = torch.randn(1, 2, 5, 8), attn.torch.enable()
        for _ in range(2):
            before = attn.torch.calls()
            with enabled:
                torch.nn.functional.scaled_dot_product_attention(q, q, q)
            torch.nn.functional.scaled_dot_product_attention(q, q, q)
            self.assertEqual(attn.torch.calls() - before, 1)

    def test_one_object_for_a_block_within_another(self):
        q, enabled = torch.randn(1, 2, 5, 8), attn.torch.enable()
        before = attn.torch.calls()
        with enabled:
            with enabled:
                pass
            torch.nn.functional.scaled_dot_product_attention(q, q, q)
        torch.nn.functional.scaled_dot_product_attention(q, q, q)
        self.assertEqual(attn.torch.calls() - before, 1)

    def test_graphs_after_disable(self):
        """What PyTorch's compiler learned of the operator's kernels under enable() ends with disable()."""
        def work(q):
            return torch.nn.functional.scaled_dot_product_attention(q, q, q) * 1

        class Work(torch.nn.Module):
            forward = staticmethod(work)

        def gradient(function, q):
            return torch.autograd.grad(function(q).square().sum(), q)[0]

        def compiled():
            torch._dynamo.reset()
            return torch.compile(work, backend="aot_eager")

        def exported():
            return torch.export.export(Work(), (torch.randn(2, 2, 12, 8),))

        def in_thread(function):
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                return pool.submit(function).result()

        q = torch.randn(2, 2, 12, 8, requires_grad=True)
        wanted = gradient(work, q)
        before = compiled()
        gradient(before, q)
        artifacts = {"compiled before": before}
        for _ in range(2):  # once more after disable()
            with attn.torch.enable(always=True), attn.torch.enable(), torch.no_grad():
                compiled()(q.detach())
                in_thread(lambda: compiled()(q.detach()))
                artifacts["exported"] = exported().module()
                artifacts["decomposed"] = exported().run_decompositions().module()
                with torch.enable_grad():
                    artifacts["compiled"] = compiled()
                    gradient(artifacts["compiled"], q)
            attn.torch.disable()
            artifacts["compiled after"] = compiled()
            artifacts["exported after"] = exported().module()
            count = attn.torch.calls()
            for name, artifact in artifacts.items():
                with self.subTest(name):
                    self.assertLess(float((gradient(artifact, q) - wanted).abs().max()), 1e-5)
            self.assertEqual(attn.torch.calls(), count)

    def test_kernels_of_other_packages(self):
        """A kernel that another package registered before computes what attn leaves, and everything after the block."""
        operator, ran = torch.ops.aten.scaled_dot_product_attention.default, []

        def theirs(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
            ran.append(1)
            return q * 3

        def computed():
            """By whom float32 and float64 are computed."""
            found = []
            for dtype in (torch.float32, torch.float64):
                ran.clear()
                count, q = attn.torch.calls(), torch.randn(1, 1, 4, 4, dtype=dtype)
                torch.nn.functional.scaled_dot_product_attention(q, q, q)
                found.append("attn" if attn.torch.calls() > count else "theirs" if ran else "PyTorch")
            return found

        attn.torch.disable()
        for key in ("AutogradCPU", "CPU", "CompositeImplicitAutograd"):
            with self.subTest(key), torch.library._scoped_library("aten", "IMPL") as library:
                library.impl(operator, theirs, key)
                self.assertEqual(computed(), ["theirs", "theirs"])
                with attn.torch.enable():
                    self.assertEqual(computed(), ["attn", "theirs"])
                self.assertEqual(computed(), ["theirs", "theirs"])
                attn.torch.disable()
                self.assertEqual(computed(), ["theirs", "theirs"])
                attn.torch.enable()
            with self.subTest(key, removed=True):
                self.assertEqual(computed(), ["attn", "PyTorch"])
                attn.torch.disable()
                self.assertEqual(computed(), ["PyTorch", "PyTorch"])
        with torch.library._scoped_library("aten", "IMPL") as library, attn.torch.enable():
            library.impl(operator, theirs, "AutogradCPU")  # after attn's: it is the first
            self.assertEqual(computed(), ["theirs", "theirs"])
            attn.torch.disable()
            self.assertEqual(computed(), ["theirs", "theirs"])
        self.assertEqual(computed(), ["PyTorch", "PyTorch"])

    def test_dropout(self):
        """attn takes calls with dropout: a seed repeats them, and both passes drop the same weights."""
        F, mask = torch.nn.functional, torch.ones(24, 24, dtype=torch.bool).tril()

        def step(q, k, v, **options):
            torch.manual_seed(4)
            o = F.scaled_dot_product_attention(q, k, v, dropout_p=0.4, **options)
            return o.detach(), *torch.autograd.grad(o.sin().sum(), (q, k, v))

        for dtype, options in itertools.product(TOLERANCE, ({}, {"is_causal": True}, {"attn_mask": mask}, {"scale": 0.0},
                                                           {"attn_mask": torch.randn(24, 24)})):
            if dtype == torch.float64:
                continue
            q, k, v = (torch.randn(2, 2, 24, 8).to(dtype).requires_grad_() for _ in range(3))
            with self.subTest(dtype=dtype, **options), attn.torch.enable():
                before = attn.torch.calls()
                first, again = step(q, k, v, **options), step(q, k, v, **options)
                self.assertEqual(attn.torch.calls() - before, 2)
                for x, y in zip(first, again):
                    self.assertTrue(torch.equal(x, y))
                self.assertFalse(torch.equal(first[0], F.scaled_dot_product_attention(q, k, v, dropout_p=0.4, **options)))
                # The output is linear in the values, so that its product with its gradient is theirs.
                torch.manual_seed(4)
                o, dout = F.scaled_dot_product_attention(q, k, v, dropout_p=0.4, **options), torch.randn(2, 2, 24, 8).to(dtype)
                dv, = torch.autograd.grad(o, v, dout)
                pairs = (o.detach().double() * dout.double()).sum(), (v.detach().double() * dv.double()).sum()
                size = float((o.detach().double() * dout.double()).abs().sum())
                self.assertLess(float((pairs[0] - pairs[1]).abs()), TOLERANCE[dtype] * size)
                everything = F.scaled_dot_product_attention(q, k, v, dropout_p=1.0, **options)
                self.assertEqual(float(everything.detach().abs().max()), 0)
        q, k, v = (torch.randn(2, 2, 24, 8, requires_grad=True) for _ in range(3))
        with attn.torch.enable():
            def work(q, k, v):
                return F.scaled_dot_product_attention(q, k, v, dropout_p=0.4)

            def gradients(reentrant):
                torch.manual_seed(6)
                o = work(q, k, v) if reentrant is None else checkpoint(work, q, k, v, use_reentrant=reentrant)
                for x in (q, k, v):
                    x.grad = None
                o.sin().sum().backward()
                return [x.grad.clone() for x in (q, k, v)]

            for reentrant in (False, True):
                for x, y in zip(gradients(reentrant), gradients(None)):
                    self.assertTrue(torch.equal(x, y))
            before = attn.torch.calls()
            with torch.autocast("cpu", torch.bfloat16):
                o = F.scaled_dot_product_attention(q, k, v, dropout_p=0.4)
            self.assertEqual(o.dtype, torch.bfloat16)
            with torch.inference_mode():
                F.scaled_dot_product_attention(q, k, v, dropout_p=0.4)
            torch.nn.MultiheadAttention(8, 2, dropout=0.3)(q[0], q[0], q[0], need_weights=False)
            with attn.torch.record_weights() as weights:
                F.scaled_dot_product_attention(q, k, v, dropout_p=0.4)
            self.assertEqual(attn.torch.calls() - before, 4)
            self.assertLess(float((weights[0].sum(-1) - 1).abs().max()), 1e-5)  # before dropout
            with self.assertRaisesRegex(RuntimeError, "dropout"):  # PyTorch's own message
                F.scaled_dot_product_attention(q, k, v, dropout_p=1.5)

    def test_lists_the_calls_that_it_leaves(self):
        q, F = torch.randn(1, 2, 6, 8), torch.nn.functional

        def said(call, mode=contextlib.nullcontext):
            """The lines that change with a call, and the number of calls that attn took."""
            before = set(attn.torch.calls(verbose=True).splitlines()[1:]), attn.torch.calls()
            with attn.torch.enable(always=True, linear=False), mode():
                call()
            lines = set(attn.torch.calls(verbose=True).splitlines()[1:]) - before[0]
            return [re.sub("^[0-9]+ by ", "", line) for line in lines], attn.torch.calls() - before[1]

        def attend(*tensors, **options):
            return lambda: F.scaled_dot_product_attention(*tensors, **options)

        five, mode = q[None], functools.partial(FlopCounterMode, display=False)
        for call, around, wanted in (
                (attend(*[q.double()] * 3), contextlib.nullcontext, "query is of torch.float64"),
                (attend(five, five, five), contextlib.nullcontext, "query has 5 axes"),
                (attend(q, q[:, :1], q[:, :1]), contextlib.nullcontext, "query, key and value differ in their heads"),
                (attend(q, q, q), lambda: sdpa_kernel(SDPBackend.MATH), "sdpa_kernel() excludes fused kernels"),
                (attend(*[q.requires_grad_()] * 3, torch.zeros(6, 6, requires_grad=True)), mode,
                 "the call runs under a mode, a transform, a tracer or forward mode")):
            with self.subTest(wanted):
                self.assertEqual(said(call, around), ([f"PyTorch: {wanted}"], 0))
        self.assertEqual(said(attend(*[q.detach()] * 3), mode), ([], 1))
        self.assertEqual(said(attend(q, q, q)), ([], 1))

    def test_leaves_the_formula_where_it_is_asked_for(self):
        """Second derivatives are refused, as attn's error says."""
        q = torch.randn(1, 2, 5, 8, requires_grad=True)
        with attn.torch.enable(always=True), sdpa_kernel(SDPBackend.MATH):
            o = torch.nn.functional.scaled_dot_product_attention(q, q, q)
            grad, = torch.autograd.grad(o.square().sum(), q, create_graph=True)
            second, = torch.autograd.grad(grad.square().sum(), q)
        self.assertTrue(bool(second.any()))

    def test_leaves_subclasses_of_tensors(self):
        """Such as DTensor, which has a rule for PyTorch's function, and none for attn's."""
        class Own(torch.Tensor):
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                if function is theirs:
                    return "its own rule"
                return super().__torch_function__(function, types, args, kwargs or {})

        theirs, q = torch.nn.functional.scaled_dot_product_attention, torch.randn(1, 2, 5, 8)
        with attn.torch.enable(always=True):
            for call in ((q.as_subclass(Own), q, q), (q, q, q.as_subclass(Own)), (q, q, q, torch.zeros(5, 5).as_subclass(Own))):
                self.assertEqual(torch.nn.functional.scaled_dot_product_attention(*call), "its own rule")

    def test_replaces_and_gives_back(self):
        theirs, before = torch.nn.functional.scaled_dot_product_attention, attn.torch.calls()
        q = torch.randn(1, 2, 5, 8)
        wanted = theirs(q, q, q)
        with attn.torch.enable():
            o = torch.nn.functional.scaled_dot_product_attention(q, q, q)
            torch.nn.functional.scaled_dot_product_attention(q.double(), q.double(), q.double())
            torch.nn.MultiheadAttention(8, 2)(q[0], q[0], q[0], need_weights=False)
        self.assertEqual(attn.torch.calls() - before, 2)
        self.assertIs(torch.nn.functional.scaled_dot_product_attention, theirs)
        self.assertLess(float((o - wanted).abs().max()), 1e-6)
        attn.torch.enable()
        attn.torch.enable()
        attn.torch.disable()
        self.assertIs(torch.nn.functional.scaled_dot_product_attention, theirs)
        with attn.torch.enable(always=True), attn.torch.enable():  # the wider limit applies
            attn.torch.disable()
        self.assertIs(torch.nn.functional.scaled_dot_product_attention, theirs)
        with self.assertRaises(RuntimeError), attn.torch.enable():  # PyTorch's own message
            torch.nn.functional.scaled_dot_product_attention(q, q[..., :4], q)

    def test_leaves_what_pytorch_computes_faster(self):
        """A plan made with always=True does not change which calls enable() accepts, and vice versa."""
        from attn.torch import _wins
        q, before = torch.randn(1, 2, 300, 128), (_wins._MEASURED, _wins._AMX)
        leaf, mask = q.clone().requires_grad_(), torch.randn(300, 300)
        F = torch.nn.functional
        try:
            for measured, wanted in ((True, [1, 0, 1, 0]), (False, [1, 1, 1, 1])):
                _wins._MEASURED, _wins._AMX = measured, False
                for always in (False, True, False):
                    found = []
                    # A different length for each instruction set, because decisions are cached.
                    for x, options in ((q, {}), (leaf, {}), (leaf, {"is_causal": True}), (leaf, {"attn_mask": mask})):
                        x = x if measured else x[:, :, :299]
                        options = {name: given if measured or given is True else given[:299, :299]
                                   for name, given in options.items()}
                        count = attn.torch.calls()
                        with attn.torch.enable(always=always):
                            F.scaled_dot_product_attention(x, x, x, **options)
                        found.append(attn.torch.calls() - count)
                    self.assertEqual(found, [1, 1, 1, 1] if always else wanted)
        finally:
            _wins._MEASURED, _wins._AMX = before

    def test_compiled(self):
        q = torch.randn(1, 2, 20, 8, requires_grad=True)

        def work(q):
            return torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).sin().sum()

        wanted = torch.autograd.grad(work(q), q)[0]
        found = []

        def look(graph, example):
            found.extend(str(node.target) for node in graph.graph.nodes)
            return torch._dynamo.lookup_backend("aot_eager")(graph, example)

        compiled, counts = torch.compile(work, fullgraph=True, backend=look), []
        for enabled in (True, False, True):  # the graph holds PyTorch's operator, and attn takes it while it is enabled
            before = attn.torch.calls()
            with attn.torch.enable() if enabled else contextlib.nullcontext():
                got = torch.autograd.grad(compiled(q), q)[0]
            counts.append(attn.torch.calls() - before)
            self.assertLess(float((got - wanted).abs().max()), 1e-5)
        self.assertFalse(any("attend" in name for name in found), found)
        self.assertEqual(counts, [1, 0, 1])

    def test_fused_passes_are_each_others(self):
        """A forward pass of one with a backward pass of the other, with rows without keys; the lengths of o and lse."""
        fused, back = (getattr(torch.ops.aten, f"_scaled_dot_product_flash_attention_for_cpu{name}") for name in ("", "_backward"))
        q, k, v = (torch.randn(2, 3, n, 8) for n in (5, 7, 7))
        mask = torch.randn(5, 7).masked_fill(torch.rand(5, 7) < 0.3, -float("inf"))
        mask[2] = -float("inf")
        for options in ({"attn_mask": mask}, {"is_causal": True, "scale": 0.3}, {}):
            found = []
            for forward in (True, False):
                with attn.torch.enable(always=True) if forward else contextlib.nullcontext():
                    o, lse = fused(q, k, v, **options)
                for backward in (True, False):
                    with attn.torch.enable(always=True) if backward else contextlib.nullcontext():
                        grads = back(torch.ones_like(o), q, k, v, o, lse, 0.0, options.get("is_causal", False),
                                     attn_mask=options.get("attn_mask"), scale=options.get("scale"))
                    found.append((o, lse, *grads))
            for other in found[:-1]:
                self.assertEqual([x.stride() for x in other], [x.stride() for x in found[-1]])
                torch.testing.assert_close(other, found[-1], rtol=1e-4, atol=1e-5)

    def test_watched_calls_look_like_pytorchs(self):
        """Modes, the profiler, transforms of torch.func, traces and exports."""
        class Functions(TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                seen.append(function)
                return function(*args, **(kwargs or {}))

        class Operators(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                seen.append(function)
                return function(*args, **(kwargs or {}))

        F, q, kernels = torch.nn.functional, torch.randn(1, 2, 5, 8), "aten::scaled_dot_product_attention"

        def attend(x=q):
            return F.scaled_dot_product_attention(x, x, x)

        def in_mode(mode):
            seen.clear()
            with mode:
                attend()
            return list(seen)

        def flops():
            with FlopCounterMode(display=False) as counter:
                attend()
            return counter.get_total_flops()

        def profiled():
            with torch.profiler.profile() as profile:
                attend()
            return kernels in {event.key for event in profile.key_averages()}

        def nodes():
            traced = torch.jit.trace(attend, q, check_trace=False).graph
            return [node.kind() for node in traced.nodes() if "attention" in node.kind()]

        def exported():
            class Module(torch.nn.Module):
                def forward(self, x):
                    return attend(x)

            return [str(node.target) for node in torch.export.export(Module(), (q,)).graph.nodes]

        seen = []
        looks = (lambda: in_mode(Functions()), lambda: in_mode(Operators()), flops, profiled, nodes, exported,
                 lambda: torch.func.vmap(attend)(q[None]).shape, lambda: torch.func.functionalize(attend)(q).shape,
                 lambda: torch.func.vmap(torch.func.grad(lambda x: attend(x).sum()))(q[None]).shape)
        for number, look in enumerate(looks):
            wanted = look()
            with self.subTest(number), attn.torch.enable(always=True):
                self.assertEqual(look(), wanted)
        self.assertTrue(profiled())
        with attn.torch.enable(always=True), torch.inference_mode():
            before = attn.torch.calls()
            torch.testing.assert_close(attend(), sdpa(q, q, q))
            self.assertEqual(attn.torch.calls() - before, 1)

    def test_scripted_modules(self):
        """TorchScript calls PyTorch's operator, which attn replaces."""
        x, modules = torch.randn(2, 6, 16), [torch.nn.Transformer(16, 2, 1, 1, 32, 0.0, batch_first=True)]
        with contextlib.suppress(ImportError):
            import torchvision
            modules.append(torchvision.models.VisionTransformer(8, 4, 1, 2, 16, 32))
        with contextlib.suppress(ImportError):
            import timm
            modules.append(timm.models.VisionTransformer(8, 4, embed_dim=16, depth=1, num_heads=2))
        picture = torch.randn(2, 3, 8, 8)
        given = [((x, x, x), torch.nn.MultiheadAttention(16, 2, batch_first=True)), ((x, x), modules[0])]
        for inputs, module in given + [((picture,), module) for module in modules[1:]]:
            module.train()
            wanted, options = module(*inputs), {"need_weights": False} if len(inputs) == 3 else {}
            with self.subTest(type(module).__module__), attn.torch.enable(always=True):
                scripted, before = torch.jit.script(module), attn.torch.calls()
                torch.testing.assert_close(scripted(*inputs, **options)[0], wanted[0], rtol=1e-4, atol=1e-5)
                self.assertGreater(attn.torch.calls(), before)

    def test_leaves_functions_alone(self):
        """The function keeps its identity and name. A replacement by another package stays, whenever it was made."""
        F = torch.nn.functional
        theirs, found = F.scaled_dot_product_attention, []

        def other(*args, **options):
            found.append(len(args))
            return theirs(*args, **options)

        q = torch.randn(1, 2, 5, 8)
        try:
            with attn.torch.enable():
                self.assertIs(F.scaled_dot_product_attention, theirs)
                self.assertEqual(F.scaled_dot_product_attention.__name__, "scaled_dot_product_attention")
                F.scaled_dot_product_attention = other
                with attn.torch.enable(always=True):
                    before = attn.torch.calls()
                    F.scaled_dot_product_attention(q, q, q)
                    self.assertEqual((found, attn.torch.calls() - before), ([3], 1))
                self.assertIs(F.scaled_dot_product_attention, other)
            with attn.torch.enable():
                pass
            attn.torch.disable()
            self.assertIs(F.scaled_dot_product_attention, other)
        finally:
            F.scaled_dot_product_attention = theirs

    def test_few_queries_for_many_keys(self):
        """With AVX-512 PyTorch is faster for these products."""
        from attn.torch import _wins
        before_test = _wins._MEASURED, _wins._WIDE, _wins._AMX
        try:
            _wins._MEASURED, _wins._WIDE, _wins._AMX = False, True, False
            for queries, keys, heads, shared, wanted in ((1, 913, 8, 8, False), (1, 1025, 8, 8, True), (8, 513, 8, 8, False), (8, 65, 8, 8, True),
                                                         (8, 513, 8, 2, True), (17, 513, 8, 8, True), (8, 31, 8, 8, True)):
                q, k = torch.randn(1, heads, queries, 64), torch.randn(1, shared, keys, 64)
                before = attn.torch.calls()
                with attn.torch.enable():
                    torch.nn.functional.scaled_dot_product_attention(q, k, k, enable_gqa=heads != shared)
                self.assertEqual(attn.torch.calls() - before, int(wanted), (queries, keys, heads, shared))
            _wins._MEASURED, _wins._WIDE = True, False  # AVX2
            for queries, keys, channels, wanted in ((2, 1024, 64, True), (4, 1024, 64, False), (4, 2048, 128, True),
                                                    (8, 1024, 64, True), (8, 2048, 128, False), (16, 1000, 64, False)):
                q, k = torch.randn(1, 8, queries, channels), torch.randn(1, 8, keys, channels)
                self.assertEqual(_wins.wins(q, k, None, False, False), wanted, (queries, keys, channels))
            half, mask = torch.randn(1, 1, 200, 8).half(), torch.randn(200, 200).half().requires_grad_()
            self.assertEqual([_wins.wins(half, half, mask, False, records) for records in (False, True)], [True, False])
        finally:
            _wins._MEASURED, _wins._WIDE, _wins._AMX = before_test

    def test_on_amx_short_forward_passes_of_half_precision_are_pytorchs(self):
        from attn.torch import _wins
        before, f32, bf16, f16 = _wins._AMX, torch.float32, torch.bfloat16, torch.float16
        try:
            _wins._AMX = True
            for dtype, queries, keys, channels, kind, wanted in (
                    (f32, 64, 64, 128, "none", (1, 1)), (f32, 128, 128, 128, "none", (0, 0)), (f32, 256, 256, 128, "bool", (0, 0)),
                    (f32, 256, 256, 128, "causal", (1, 1)), (f32, 512, 512, 128, "bool", (1, 1)), (f32, 128, 128, 64, "float", (1, 1)),
                    (f32, 1, 4096, 64, "none", (1, 1)), (f32, 4, 4096, 64, "none", (0, 1)), (bf16, 1, 1024, 64, "none", (0, 1)),
                    (bf16, 1, 4096, 64, "none", (1, 1)), (bf16, 64, 64, 64, "none", (0, 1)), (bf16, 128, 128, 128, "bool", (1, 1)),
                    (bf16, 1024, 1024, 64, "float", (0, 1)), (bf16, 128, 128, 128, "learned", (1, 1)), (f16, 1, 4096, 128, "none", (0, 1)),
                    (f16, 256, 256, 64, "none", (0, 1)), (f16, 256, 256, 64, "causal", (1, 1)), (f16, 512, 512, 64, "bool", (1, 1)),
                    (f16, 256, 256, 128, "bool", (0, 0)), (f16, 256, 256, 128, "none", (0, 1)), (f16, 256, 256, 64, "learned", (1, 0))):
                q, k = torch.randn(1, 8, queries, channels, dtype=dtype), torch.randn(1, 8, keys, channels, dtype=dtype)
                mask = {"bool": torch.ones(queries, keys, dtype=torch.bool), "float": torch.zeros(queries, keys, dtype=dtype),
                        "learned": torch.zeros(queries, keys, dtype=dtype).requires_grad_()}.get(kind)
                found = tuple(int(_wins.wins(q, k, mask, kind == "causal", records)) for records in (False, True))
                self.assertEqual(found, wanted, (dtype, queries, keys, channels, kind))
        finally:
            _wins._AMX = before

    def test_backward_in_another_thread(self):
        q = torch.randn(1, 2, 20, 8, requires_grad=True)
        loss = sdpa(q, q, q).sin().sum()
        wanted = torch.autograd.grad(loss, q, retain_graph=True)[0]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            got = pool.submit(lambda: torch.autograd.grad(loss, q)[0]).result()
        self.assertTrue(torch.equal(got, wanted))


if __name__ == "__main__":
    unittest.main()
