# SPDX-License-Identifier: MIT
"""PyTorch's flex_attention under attn.torch.enable(): score_mods, mask_mods and gradients against formulas in float64, in
compiled graphs, and what is left to PyTorch.  Skipped without PyTorch or its flex_attention."""
import itertools
import math
import os
import subprocess
import sys
import unittest
import warnings

try:
    import torch
    from torch.nn.attention import flex_attention as flex
    from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
except ImportError as error:
    raise unittest.SkipTest(f"{error.name} is not installed") from None

import attn
import attn.torch

BATCH, HEADS, QUERIES, KEYS, CHANNELS = 2, 4, 18, 26, 8
TOLERANCES = {torch.float64: 1e-10, torch.float32: 3e-5, torch.bfloat16: 1e-1, torch.float16: 2e-2}


def positions():
    return [torch.arange(n).reshape([-1 if i == j else 1 for j in range(4)])
            for i, n in enumerate((BATCH, HEADS, QUERIES, KEYS))]


def formula(q, k, v, score_mod, mask_mod):
    """Output and log-sum-exp [B,H,L] of all pairs."""
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    scores = q @ k.mT * CHANNELS**-0.5
    scores = scores if score_mod is None else score_mod(scores, *positions())
    if mask_mod is not None:
        scores = scores.masked_fill(~mask_mod(*positions()), -math.inf)
    return scores.softmax(-1).nan_to_num(0).to(v.dtype) @ v, scores.logsumexp(-1)


def mods():
    slopes, table, dense = torch.rand(HEADS), torch.randn(QUERIES + KEYS, HEADS), torch.randn(BATCH, HEADS, QUERIES, KEYS)
    per_batch, ahead = torch.rand(BATCH, HEADS), torch.tensor(KEYS - QUERIES)
    return {
        "nothing": None,
        "alibi": lambda s, b, h, m, n: s + slopes[h] * (n - m),
        "alibi from the last key": lambda s, b, h, m, n: s - per_batch[b, h] * (m + ahead - n).abs(),
        "a table by distance": lambda s, b, h, m, n: s + table[n - m + QUERIES, h],
        "a bias of pairs": lambda s, b, h, m, n: dense[b, h, m, n] + s,
        "a bias of keys": lambda s, b, h, m, n: s - n / 7,
        "softcap": lambda s, b, h, m, n: 5 * torch.tanh(s / 5),
        "softcap, then alibi": lambda s, b, h, m, n: -3.0 * torch.tanh(s * 0.7) + slopes[h] * (n - m),
        "a number": lambda s, b, h, m, n: -(s * 0.25) * 2 - 1,
        "causal": lambda s, b, h, m, n: torch.where(m >= n, s, -math.inf),
        "one of two biases": lambda s, b, h, m, n: torch.where(n < 5, s, s + slopes[h] * (m - n)),
        "masked from the other side": lambda s, b, h, m, n: torch.where((m - n).abs() > 6, -math.inf, s)}


def masks():
    documents, ahead = torch.randint(0, 3, (BATCH, KEYS)).sort(1)[0], torch.tensor(KEYS - QUERIES)
    return {
        "nothing": None,
        "causal": lambda b, h, m, n: m >= n,
        "a window that ends at the last key": lambda b, h, m, n: (m + ahead >= n) & (m + ahead - n <= 5),
        "a window by numbers": lambda b, h, m, n: (n - m <= KEYS - QUERIES) & (m + 8 - n < 6),
        "a distance": lambda b, h, m, n: (m - n).abs() < 5,
        "two distances": lambda b, h, m, n: ((m - n).abs() < 2) | ((m - n).abs() > 9),
        "documents": lambda b, h, m, n: documents[b, m] == documents[b, n],
        "a prefix": lambda b, h, m, n: (n < 3) | (m >= n),
        "no keys for some": lambda b, h, m, n: (m > 4) & (n <= m)}


def tensors(heads=HEADS, dtype=torch.float32):
    shapes = (BATCH, HEADS, QUERIES, CHANNELS), (BATCH, heads, KEYS, CHANNELS), (BATCH, heads, KEYS, CHANNELS)
    return [torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


def block_mask(mask_mod, size=8):
    return None if mask_mod is None else create_block_mask(mask_mod, BATCH, HEADS, QUERIES, KEYS, device="cpu", BLOCK_SIZE=size)


class Flex(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(8)
        torch._dynamo.reset()
        warnings.simplefilter("ignore")  # PyTorch's, that it is not compiled
        attn.torch.enable()
        self.addCleanup(attn.torch.disable)

    def compare(self, function, score_mod, mask_mod, leaves, calls=1):
        """Outputs and gradients; the number of calls that attn took."""
        exact = [x.detach().double().requires_grad_() for x in leaves]
        wanted, _ = formula(*exact, score_mod, mask_mod)
        dout = torch.randn(wanted.shape, dtype=torch.float64)
        before = attn.torch.calls()
        o = function(*leaves)
        self.assertEqual(attn.torch.calls() - before, calls)
        self.assertEqual((o.dtype, o.shape), (leaves[0].dtype, wanted.shape))
        found = [o, *torch.autograd.grad(o, leaves, dout.to(o.dtype))]
        for x, y in zip(found, [wanted, *torch.autograd.grad(wanted, exact, dout)]):
            self.assertLessEqual(float((x.double() - y).abs().max().detach()), TOLERANCES[o.dtype])

    def test_score_mods_and_mask_mods_equal_formulas(self):
        seen = itertools.cycle(masks().items())
        for (name, mod), (mask, mask_mod) in zip(mods().items(), seen):
            with self.subTest(score_mod=name, mask_mod=mask):
                blocks = block_mask(mask_mod)
                self.compare(lambda q, k, v: flex_attention(q, k, v, mod, blocks), mod, mask_mod, tensors())

    def test_score_mods_without_masks_equal_formulas(self):
        for name in ("softcap", "a number", "causal", "masked from the other side"):
            with self.subTest(score_mod=name):
                mod = mods()[name]
                self.compare(lambda q, k, v: flex_attention(q, k, v, mod), mod, None, tensors())

    def test_types_shared_heads_and_other_layouts(self):
        mod, mask_mod = mods()["softcap, then alibi"], masks()["a window by numbers"]
        blocks = block_mask(mask_mod)
        for dtype in TOLERANCES:
            with self.subTest(dtype=dtype):
                self.compare(lambda q, k, v: flex_attention(q, k, v, mod, blocks, enable_gqa=True), mod, mask_mod,
                             tensors(2, dtype))
        q, k, v = (x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in tensors())
        self.compare(lambda q, k, v: flex_attention(q, k, v, mod, blocks), mod, mask_mod, (q, k, v))
        self.assertEqual(flex_attention(q, k, v).stride(), q.stride())
        with torch.autocast("cpu", torch.bfloat16):
            self.assertEqual(flex_attention(q, k, v, mod).dtype, torch.bfloat16)
        one = [x.detach()[:1].requires_grad_() for x in (k, v)]
        o = flex_attention(q, *one, mod, blocks)
        wanted = formula(q.detach(), *(x.detach().expand_as(k) for x in one), mod, mask_mod)[0]
        self.assertTrue(torch.allclose(o.detach(), wanted, atol=1e-5))

    def test_learned_biases_and_log_sum_exps_have_gradients(self):
        table, q, k, v = torch.randn(QUERIES + KEYS, HEADS).requires_grad_(), *tensors()
        found = []
        for of in (flex_attention, None):
            def mod(s, b, h, m, n):
                return s + table[n - m + QUERIES, h]

            if of is not None:
                o, aux = of(q, k, v, mod, return_aux=flex.AuxRequest(lse=True))
                lse = aux.lse
            else:
                o, lse = formula(q, k, v, mod, None)
            found.append([o, lse, *torch.autograd.grad(o.square().sum() + lse.sin().sum(), (q, k, v, table))])
        for x, y in zip(*found):
            self.assertLess(float((x - y).abs().max().detach()), 1e-4)

    def test_without_gradients_and_in_inference_mode(self):
        q, k, v = tensors()
        mod = mods()["alibi"]
        wanted = formula(q, k, v, mod, None)[0].detach()
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                before = attn.torch.calls()
                inner = [x.detach().clone() for x in (q, k, v)]
                o = flex_attention(*inner, mod)
                self.assertEqual(attn.torch.calls() - before, 1)
                self.assertLess(float((o - wanted).abs().max()), 1e-5)

    def test_blocks_without_a_mask_mod(self):
        blocks = BlockMask.from_kv_blocks(torch.tensor([[[1, 2, 1]]]), torch.tensor([[[[3, 0, 0, 0], [0, 2, 0, 0], [1, 0, 0, 0]]]]),
                                          BLOCK_SIZE=8, seq_lengths=(QUERIES, KEYS))
        seen = torch.tensor([[0, 0, 0, 1], [1, 0, 1, 0], [0, 1, 0, 0]]).bool()
        self.compare(lambda q, k, v: flex_attention(q, k, v, None, blocks), None,
                     lambda b, h, m, n: seen[m // 8, n // 8], tensors())

    def test_compiled_graphs_have_the_same_results(self):
        table = torch.randn(QUERIES + KEYS, HEADS).requires_grad_()
        cases = mods()
        cases["a learned table"] = lambda s, b, h, m, n: s + table[n - m + QUERIES, h]
        for name, mask in (("nothing", "causal"), ("a learned table", "documents"), ("softcap, then alibi", "a distance"),
                           ("one of two biases", "nothing")):
            with self.subTest(score_mod=name, mask_mod=mask):
                torch._dynamo.reset()
                mod, blocks = cases[name], block_mask(masks()[mask])
                leaves = [*tensors(), *([table] if "learned" in name else [])]
                graphs = []

                def backend(graph, inputs):
                    from torch._dynamo.backends.common import aot_autograd
                    from torch._functorch.compilers import nop

                    def kept(inner, given):
                        graphs.append(inner.code)
                        return nop(inner, given)

                    return aot_autograd(fw_compiler=kept)(graph, inputs)

                compiled = torch.compile(flex_attention, backend=backend, fullgraph=True)
                dout, found = torch.randn(BATCH, HEADS, QUERIES, CHANNELS), []
                for function in (flex_attention, compiled):
                    o = function(*leaves[:3], mod, blocks)
                    found.append([o, *torch.autograd.grad(o, leaves, dout)])
                for x, y in zip(*found):
                    self.assertLess(float((x - y).abs().max().detach()), 1e-5)
                self.assertIn("attn.attend", graphs[0])

    def test_disable_gives_pytorch_its_function_back(self):
        """Also to compiled graphs, and to functions that were imported before."""
        q, k, v = (x.detach() for x in tensors())
        mod = mods()["alibi"]
        compiled = torch.compile(flex_attention, backend="aot_eager", fullgraph=True)
        enabled = compiled(q, k, v, mod)
        attn.torch.disable()
        self.assertEqual(flex._validate_device.__module__, flex.__name__)
        self.assertEqual(flex._apply_kernel_options.__module__, flex.__name__)
        operator = torch._higher_order_ops.flex_attention
        self.assertFalse({torch._C.DispatchKey.CPU, torch._C.DispatchKey.AutogradCPU} & set(operator.py_kernels))
        before = attn.torch.calls()
        for function in (flex_attention, compiled):
            self.assertTrue(torch.allclose(function(q, k, v, mod), enabled, atol=1e-5))
        self.assertEqual(attn.torch.calls(), before)
        with self.assertRaisesRegex(NotImplementedError, "does not support backward on CPU. Please"):
            flex_attention(*tensors(), mod)
        with attn.torch.enable():
            flex_attention(*tensors(), mod).sum().backward()
        with self.assertRaisesRegex(NotImplementedError, "does not support backward on CPU. Please"):
            flex_attention(*tensors(), mod)

    def test_other_score_mods_are_pytorchs_and_counted(self):
        factors = torch.rand(HEADS)
        for mod, words in ((lambda s, b, h, m, n: s * s, "computes mul of the score"),
                           (lambda s, b, h, m, n: s * factors[h], "something that is not a number"),
                           (lambda s, b, h, m, n: torch.tanh(s + n), "tanh of something other than a multiple"),
                           (lambda s, b, h, m, n: torch.sigmoid(s), "computes sigmoid"),
                           (lambda s, b, h, m, n: torch.where(m >= n, s, -5.0), "numbers other than -inf"),
                           (lambda s, b, h, m, n: torch.where(s > 0, s, -math.inf), "of the score|on the score"),
                           (lambda s, b, h, m, n: (m + n) * 0.5, "does not use the score")):
            with self.subTest(words=words):
                torch._dynamo.reset()
                leaves = tensors()
                before = attn.torch.calls()
                o = flex_attention(*(x.detach() for x in leaves), mod)
                wanted = formula(*(x.detach().double() for x in leaves), mod, None)[0]
                self.assertLess(float((o - wanted).abs().max()), 1e-4)
                self.assertEqual(attn.torch.calls(), before)
                self.assertRegex(attn.torch.calls(verbose=True), f"by PyTorch: flex_attention: score_mod.*({words})")
                if "not use" not in words:
                    with self.assertRaisesRegex(NotImplementedError, f"attn does not compute it: .*({words})"):
                        flex_attention(*leaves, mod)

    def test_fake_tensors_and_modes(self):
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.utils.flop_counter import FlopCounterMode

        mod = mods()["alibi"]
        with FakeTensorMode(allow_non_fake_inputs=True):
            o = flex_attention(*(torch.empty(2, 4, n, 8) for n in (18, 26, 26)), mod)
        self.assertEqual(o.shape, (2, 4, 18, 8))
        q, k, v = (x.detach() for x in tensors())
        wanted = flex_attention(q, k, v, mod)
        try:
            with FlopCounterMode(display=False):
                found = flex_attention(q, k, v, mod)
        except Exception as error:  # PyTorch's own function fails in the same way
            attn.torch.disable()
            with self.assertRaises(type(error)), FlopCounterMode(display=False):
                flex_attention(q, k, v, mod)
        else:
            self.assertTrue(torch.allclose(found, wanted, atol=1e-5))

    def test_enabled_before_the_module_is_imported(self):
        program = ("import sys, torch, attn.torch; attn.torch.enable()\n"
                   "assert 'torch.nn.attention.flex_attention' not in sys.modules\n"
                   "from torch.nn.attention.flex_attention import flex_attention\n"
                   "import torch.nn.attention.flex_attention as module\n"
                   "assert type(module.__spec__.loader).__module__ != 'attn.torch._flex'\n"
                   "x = torch.randn(1, 1, 4, 8, requires_grad=True); flex_attention(x, x, x).sum().backward()\n"
                   "attn.torch.disable(); print(attn.torch.calls(), module._validate_device.__module__)\n")
        run = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False,
                             env=dict(os.environ))
        self.assertEqual(run.stdout, "1 torch.nn.attention.flex_attention\n", run.stderr)

    def test_weights_are_recorded(self):
        q, k, v = (x.detach() for x in tensors())
        with attn.torch.record_weights() as weights:
            flex_attention(q, k, v, mods()["softcap"])
        scores = 5 * torch.tanh(q @ k.mT * CHANNELS**-0.5 / 5)
        self.assertTrue(torch.allclose(weights[0].reshape(scores.shape), scores.softmax(-1), atol=1e-5))


if __name__ == "__main__":
    unittest.main()
