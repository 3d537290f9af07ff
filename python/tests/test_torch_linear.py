# SPDX-License-Identifier: MIT
"""Products of matrices under attn.torch.enable(): PyTorch's numbers, layouts, errors and transforms, by attn's product."""
import copy
import math
import unittest
from unittest import mock

try:
    import torch
    import torch.nn.functional as F
    from torch.utils.flop_counter import FlopCounterMode
except ImportError:
    raise unittest.SkipTest("no PyTorch here")

import attn.torch
from attn.torch import _enable, _linear, _wins
from together import together

HAS_KERNELS = hasattr(torch.library, "get_kernel")


def taken():
    """How many products attn has computed."""
    for line in attn.torch.calls(verbose=True).splitlines():
        if "products of matrices by attn" in line:
            return int(line.split()[0])
    return 0


def relative(found, wanted):
    """The largest error, relative to the largest number."""
    return ((found.double() - wanted.double()).abs().max() / wanted.double().abs().max().clamp(min=1e-30)).item()


@unittest.skipUnless(HAS_KERNELS, "this PyTorch has no torch.library.get_kernel")
class Products(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        attn.torch.enable(always=True)
        self.addCleanup(attn.torch.disable)

    def by_attn(self, call, products=1):
        before = taken()
        found = call()
        self.assertEqual(taken() - before, products)
        return found

    def check(self, name, *tensors, bound=2e-6, **named):
        """The operator by attn: PyTorch's numbers in float64, its type and its strides."""
        operator = getattr(torch, name)
        with torch.no_grad():
            found = self.by_attn(lambda: operator(*tensors, **named))
            wanted = operator(*(x.double() for x in tensors), **named)
            attn.torch.disable()
            plain = operator(*tensors, **named)
            attn.torch.enable(always=True)
        self.assertLess(relative(found, wanted), bound)
        self.assertEqual((found.dtype, found.shape, found.stride()), (plain.dtype, plain.shape, plain.stride()))

    def test_sizes_and_layouts(self):
        def views(rows, columns, *batch):
            x = torch.randn(*batch, rows, columns)
            yield x
            yield torch.randn(*batch, columns, rows).transpose(-1, -2)
            yield torch.randn(*batch, rows, columns + 3)[..., :columns]
            yield torch.randn(*batch, columns, rows + 5).transpose(-1, -2)[..., :rows, :]
        for m, n, k in ((1, 1, 1), (3, 17, 33), (16, 5, 64), (65, 130, 7), (40, 33, 300)):
            for a in views(m, k):
                for b in views(k, n):
                    self.check("mm", a, b)
                    self.check("addmm", torch.randn(n), a, b)
                    self.check("addmm", torch.randn(m, n), a, b)
            for a in views(m, k, 3):
                for b in views(k, n, 3):
                    self.check("bmm", a, b)
                    self.check("baddbmm", torch.randn(3, m, n), a, b)
            self.check("bmm", torch.randn(1, m, k).expand(4, m, k), torch.randn(4, k, n))
            self.check("baddbmm", torch.randn(1, m, n).expand(4, m, n), torch.randn(4, m, k), torch.randn(4, k, n))

    def test_float16_is_rounded_once(self):
        a, b, bias = torch.randn(9, 70).half(), torch.randn(70, 40).half(), torch.randn(40).half()
        self.check("mm", a, b, bound=2**-10)
        self.check("addmm", bias, a, b, bound=2**-10)
        self.check("bmm", a.expand(2, 9, 70).contiguous(), b.expand(2, 70, 40).contiguous(), bound=2**-10)

    def test_gradients(self):
        x, w, b = torch.randn(2, 20, 64), torch.randn(48, 64), torch.randn(48)
        up = torch.randn(2, 20, 48)

        def gradients(dtype):
            leaves = [t.to(dtype).clone().requires_grad_() for t in (x, w, b)]
            (F.linear(*leaves).sin() * up.to(dtype)).sum().backward()
            return [t.grad for t in leaves]
        found = self.by_attn(lambda: gradients(torch.float32), products=3)
        for one, wanted in zip(found, gradients(torch.float64)):
            self.assertLess(relative(one, wanted), 5e-6)  # the sine's own rounding among it

    def test_out(self):
        a, b, bias = torch.randn(20, 32), torch.randn(32, 24), torch.randn(24)
        out = torch.empty(20, 24)
        self.assertIs(self.by_attn(lambda: torch.mm(a, b, out=out)), out)
        self.assertLess(relative(out, a.double() @ b.double()), 2e-6)
        self.by_attn(lambda: torch.addmm(bias, a, b, out=out))
        self.assertLess(relative(out, a.double() @ b.double() + bias), 2e-6)
        shared = torch.randn(30, 24)
        self.by_attn(lambda: torch.mm(shared[:20], torch.randn(24, 24), out=shared[10:]), products=0)
        spread = torch.empty(24, 20).t()
        self.by_attn(lambda: torch.mm(a, b, out=spread), products=0)
        self.assertLess(relative(spread, a.double() @ b.double()), 2e-6)

    def test_what_is_left_to_pytorch(self):
        a, b = torch.randn(8, 32), torch.randn(32, 24)
        for call in (lambda: torch.mm(a.double(), b.double()), lambda: torch.mm(a.bfloat16(), b.bfloat16()),
                     lambda: torch.mm(a.long(), b.long()), lambda: torch.mm(a[:0], b), lambda: torch.mm(a[:, :0], b[:0]),
                     lambda: torch.addmm(torch.randn(24), a, b, alpha=2), lambda: torch.addmm(torch.randn(24), a, b, beta=0),
                     lambda: torch.addmm(torch.randn(1, 1), a, b), lambda: torch.mm(a.to_sparse(), b),
                     lambda: torch.mm(torch.randn(8, 1).expand(8, 32), b), lambda: torch.mm(a[:, ::2], b[::2]),
                     lambda: torch.mm(a.to(torch.complex64), b.to(torch.complex64))):
            found = self.by_attn(call, products=0)
            attn.torch.disable()
            state = call() if found.layout == torch.strided else found
            attn.torch.enable(always=True)
            self.assertEqual(found.shape, state.shape)

    def test_errors_are_pytorchs(self):
        a, b = torch.randn(8, 32), torch.randn(31, 24)
        for call in (lambda: torch.mm(a, b), lambda: torch.mm(a, b.double()), lambda: F.linear(a, b.t()),
                     lambda: torch.bmm(a[None], b[None]), lambda: torch.mm(a, b[0]), lambda: torch.mm(a, b[0, 0]),
                     lambda: torch.addmm(b, a[0, 0], b)):
            with self.assertRaises(RuntimeError) as ours:
                call()
            attn.torch.disable()
            with self.assertRaises(RuntimeError) as theirs:
                call()
            attn.torch.enable(always=True)
            self.assertEqual(str(ours.exception), str(theirs.exception))

    def test_a_weight_is_read_in_each_call(self):
        x, w = torch.randn(8, 64), torch.randn(48, 64)

        def step():
            parameter = torch.nn.Parameter(w)
            parameter.grad = torch.randn_like(w)
            torch.optim.SGD([parameter], lr=1, fused=True).step()
        for change in (lambda: w.mul_(2), lambda: w.data.add_(1), lambda: w.numpy().fill(3), step):
            change()
            with torch.no_grad():
                self.assertLess(relative(F.linear(x, w), F.linear(x.double(), w.double())), 2e-6)

    def test_transforms_and_modes(self):
        from torch import func
        x, w = torch.randn(5, 20, 32), torch.randn(24, 32)
        wide = x.double(), w.double()

        def loss(x, w):
            return F.linear(x, w).sin().sum()
        for transform in (lambda f: func.grad(f, (0, 1)), lambda f: func.vmap(f, (0, None)),
                          lambda f: func.vmap(func.grad(f, 1), (0, None)),
                          lambda f: lambda x, w: func.jvp(f, (x, w), (x * 2, w * 3))):
            found, wanted = (transform(loss)(*given) for given in ((x, w), wide))
            for one, other in zip(*((t if isinstance(t, tuple) else (t,)) for t in (found, wanted))):
                self.assertLess(relative(one, other), 2e-5)
        with torch.inference_mode():
            self.assertLess(relative(F.linear(x, w), F.linear(*wide)), 2e-6)
        with FlopCounterMode(display=False) as flops:
            F.linear(x, w)
        self.assertEqual(flops.get_total_flops(), 2 * 100 * 32 * 24)
        with torch.autocast("cpu", torch.bfloat16):
            self.assertEqual(F.linear(x, w).dtype, torch.bfloat16)

    def test_compiled_graphs(self):
        layer = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
        x = torch.randn(20, 32)
        wanted = copy.deepcopy(layer).double()(x.double())
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        self.assertLess(relative(self.by_attn(lambda: compiled(x), products=2), wanted), 2e-6)

    def test_threads(self):
        x, w = torch.randn(64, 128), torch.randn(96, 128)
        wanted, found = F.linear(x.double(), w.double()), [None] * 4

        def work(i):
            with torch.no_grad():
                for _ in range(20):
                    found[i] = F.linear(x, w)
        together(work)
        for one in found:
            self.assertLess(relative(one, wanted), 2e-6)
        count = torch.get_num_threads()
        self.addCleanup(torch.set_num_threads, count)
        for threads_now in (1, 3):
            torch.set_num_threads(threads_now)
            self.assertTrue(torch.equal(F.linear(x, w), found[0]))


@unittest.skipUnless(HAS_KERNELS, "this PyTorch has no torch.library.get_kernel")
class Switch(unittest.TestCase):
    def setUp(self):
        attn.torch.disable()
        self.addCleanup(attn.torch.disable)

    def count(self, **how):
        with attn.torch.enable(always=True, **how):
            before = taken(), attn.torch.calls()
            with torch.no_grad():
                F.linear(torch.randn(8, 64), torch.randn(32, 64))
                F.scaled_dot_product_attention(*torch.randn(3, 1, 2, 32, 16))
            return taken() - before[0], attn.torch.calls() - before[1]

    def test_each_part_alone(self):
        self.assertEqual(self.count(), (1, 1))
        self.assertEqual(self.count(linear=False), (0, 1))
        self.assertEqual(self.count(attention=False), (1, 0))

    def test_a_block_ends(self):
        with attn.torch.enable(always=True):
            pass
        before = taken()
        F.linear(torch.randn(8, 64), torch.randn(32, 64))
        self.assertEqual(taken(), before)

    def test_enable_has_kernels_of_products_only_where_attn_takes_some(self):
        with mock.patch.object(_wins, "LEAST_WORK", math.inf), attn.torch.enable():
            self.assertIsNone(_enable._product_hooks)
            self.assertEqual(self.count(), (1, 1))  # always=True
            self.assertIsNotNone(_enable._product_hooks)

    @unittest.skipUnless(_wins.LEAST_WORK < math.inf, "attn takes no products of this processor")
    def test_little_work_is_pytorchs(self):
        with attn.torch.enable():
            before = taken()
            F.linear(torch.randn(1, 64), torch.randn(32, 64))
            self.assertEqual(taken(), before)
            self.assertIn(_linear.FEW, attn.torch.calls(verbose=True))


if __name__ == "__main__":
    unittest.main()
