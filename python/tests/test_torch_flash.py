# SPDX-License-Identifier: MIT
"""attn.torch's functions with flash-attn's names against loops in float64, and the package flash_attn that they make.
Skipped without PyTorch; the models without transformers."""
import importlib.metadata
import importlib.util
import inspect
import math
import sys
import types
import unittest
import unittest.mock

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None
try:
    import transformers
except ImportError:
    transformers = None

import attn
import attn.torch

TYPES = {torch.float64: 1e-6, torch.float32: 5e-5, torch.bfloat16: 1e-1, torch.float16: 2e-2}  # 1e-6: slopes are in float32


def row(q, k, v, at, ahead, left, right, softcap, slope, scale):
    """The output and the log-sum-exp of query `at` [D], of keys and values [S,D]."""
    first = 0 if left < 0 else max(at + ahead - left, 0)
    end = len(k) if right < 0 else min(at + ahead + right + 1, len(k))
    if first >= end:
        return v[:1].sum(0) * 0 if len(v) else v.new_zeros(v.shape[1]), torch.tensor(-math.inf, dtype=v.dtype)
    scores = k[first:end] @ q * scale
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    if slope is not None:
        scores = scores - slope * torch.tensor([abs(at + ahead - j) for j in range(first, end)], dtype=v.dtype)
    return scores.softmax(0) @ v[first:end], scores.logsumexp(0)


def loops(q, k, v, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None):
    """Outputs [L,H,D] and log-sum-exps [H,L] of one sequence, row by row."""
    (queries, heads, channels), (keys, groups, _) = q.shape, k.shape
    left, right = window_size[0], 0 if causal else window_size[1]
    scale = channels**-0.5 if softmax_scale is None else softmax_scale
    found = [row(q[i, h], k[:, h * groups // heads], v[:, h * groups // heads], i, keys - queries, left, right, softcap,
                 None if alibi_slopes is None else alibi_slopes[h], scale) for i in range(queries) for h in range(heads)]
    if not found:
        return q.new_zeros(0, heads, v.shape[2]), q.new_zeros(heads, 0)
    return (torch.stack([o for o, _ in found]).reshape(queries, heads, -1),
            torch.stack([lse for _, lse in found]).reshape(queries, heads).T)


def each(sequences, slopes, **how):
    """`loops` of several sequences (q, k, v)."""
    found = [loops(*one, alibi_slopes=None if slopes is None else slopes if slopes.dim() == 1 else slopes[i], **how)
             for i, one in enumerate(sequences)]
    return [o for o, _ in found], [lse for _, lse in found]


CASES = (dict(), dict(causal=True), dict(window_size=(2, 1)), dict(causal=True, window_size=(3, -1)),
         dict(window_size=(-1, 2)), dict(softcap=2.0, causal=True), dict(slopes=1), dict(slopes=2, causal=True, softcap=3.0),
         dict(softmax_scale=0.7, slopes=1, window_size=(2, 2)))


def random(*shape):
    return torch.randn(shape, dtype=torch.float64)


def slopes_of(case, batch, heads):
    """The case without its kind of slopes, and the slopes."""
    case = dict(case)
    kind = case.pop("slopes", 0)
    return case, None if kind == 0 else torch.rand(heads) if kind == 1 else torch.rand(batch, heads)


class Functions(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)

    def close(self, found, wanted, tolerance):
        self.assertEqual(found.shape, wanted.shape)
        finite = torch.isfinite(wanted)
        self.assertTrue(torch.equal(torch.isfinite(found), finite))
        if finite.any():
            self.assertLessEqual(float((found.double() - wanted)[finite].abs().max().detach()), tolerance)

    def compare(self, function, formula, tensors):
        """Outputs, log-sum-exps and gradients in each type."""
        exact = [x.clone().requires_grad_() for x in tensors]
        wanted, lse = formula(*exact)
        dout = random(*wanted.shape)
        gradients = torch.autograd.grad(wanted, exact, dout)
        for dtype, tolerance in TYPES.items():
            leaves = [x.to(dtype).requires_grad_() for x in tensors]
            o = function(*leaves, return_attn_probs=False)
            self.assertEqual(o.dtype, dtype)
            self.close(o, wanted, tolerance)
            for g, w in zip(torch.autograd.grad(o, leaves, dout.to(dtype)), gradients):
                self.close(g, w, tolerance)
            o, found, weights = function(*leaves, return_attn_probs=True)
            self.close(o, wanted, tolerance)
            self.close(found, lse, tolerance)
            self.assertEqual(weights.numel(), 0)

    def test_batches_equal_loops(self):
        for queries, keys in ((6, 6), (3, 7), (7, 4), (1, 5)):
            for case in CASES:
                with self.subTest(queries=queries, keys=keys, case=case):
                    how, slopes = slopes_of(case, 2, 4)

                    def formula(q, k, v):
                        o, lse = each(zip(q, k, v), None if slopes is None else slopes.double(), **how)
                        return torch.stack(o), torch.stack(lse)

                    self.compare(lambda q, k, v, **more: attn.torch.flash_attn_func(
                        q, k, v, alibi_slopes=slopes, **how, **more), formula, (
                            random(2, queries, 4, 8), random(2, keys, 2, 8), random(2, keys, 2, 8)))

    def test_packed_sequences_equal_loops(self):
        for queries, keys in (((5, 0, 3), (5, 0, 3)), ((2, 3, 1), (6, 2, 4)), ((1, 1, 1), (3, 0, 5))):
            offsets, of_keys = (torch.tensor([0, *x]).cumsum(0).to(torch.int32) for x in (queries, keys))
            for case in CASES:
                with self.subTest(queries=queries, keys=keys, case=case):
                    how, slopes = slopes_of(case, 3, 4)

                    def formula(q, k, v):
                        parts = zip(q.split(queries), k.split(keys), v.split(keys))
                        o, lse = each(parts, None if slopes is None else slopes.double(), **how)
                        return torch.cat(o), torch.cat(lse, 1)

                    self.compare(lambda q, k, v, **more: attn.torch.flash_attn_varlen_func(
                        q, k, v, offsets, of_keys, max(queries), max(keys), alibi_slopes=slopes, **how, **more), formula,
                        (random(sum(queries), 4, 8), random(sum(keys), 2, 8), random(sum(keys), 2, 8)))

    def test_packed_arguments_equal_separate_ones(self):
        q, kv, qkv = random(2, 4, 4, 8), random(2, 6, 2, 2, 8), random(2, 5, 3, 4, 8)
        how = dict(causal=True, window_size=(3, 0), softcap=4.0, alibi_slopes=torch.rand(4), softmax_scale=0.3)
        ends, of_keys = torch.tensor([0, 4, 8], dtype=torch.int32), torch.tensor([0, 6, 12], dtype=torch.int32)
        alike = torch.tensor([0, 5, 10], dtype=torch.int32)
        for found, wanted in (
                (attn.torch.flash_attn_kvpacked_func(q, kv, **how), attn.torch.flash_attn_func(q, *kv.unbind(2), **how)),
                (attn.torch.flash_attn_qkvpacked_func(qkv, **how), attn.torch.flash_attn_func(*qkv.unbind(2), **how)),
                (attn.torch.flash_attn_varlen_kvpacked_func(q.flatten(0, 1), kv.flatten(0, 1), ends, of_keys, 4, 6, **how),
                 attn.torch.flash_attn_kvpacked_func(q, kv, **how).flatten(0, 1)),
                (attn.torch.flash_attn_varlen_qkvpacked_func(qkv.flatten(0, 1), alike, 5, **how),
                 attn.torch.flash_attn_qkvpacked_func(qkv, **how).flatten(0, 1))):
            self.close(found, wanted, 1e-12)
        leaf = qkv.clone().requires_grad_()
        attn.torch.flash_attn_qkvpacked_func(leaf, causal=True).square().sum().backward()
        parts = [x.clone().requires_grad_() for x in qkv.unbind(2)]
        attn.torch.flash_attn_func(*parts, causal=True).square().sum().backward()
        self.close(leaf.grad, torch.stack([x.grad for x in parts], 2), 1e-12)

    def test_signatures_are_those_of_flash_attn(self):
        tail = ["dropout_p", "softmax_scale", "causal", "window_size", "softcap", "alibi_slopes", "deterministic",
                "return_attn_probs"]
        lengths = ["cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"]
        for name, wanted in {
                "flash_attn_func": ["q", "k", "v", *tail], "flash_attn_kvpacked_func": ["q", "kv", *tail],
                "flash_attn_qkvpacked_func": ["qkv", *tail],
                "flash_attn_varlen_func": ["q", "k", "v", *lengths, *tail, "block_table"],
                "flash_attn_varlen_kvpacked_func": ["q", "kv", *lengths, *tail],
                "flash_attn_varlen_qkvpacked_func": ["qkv", "cu_seqlens", "max_seqlen", *tail],
                "flash_attn_with_kvcache": [
                    "q", "k_cache", "v_cache", "k", "v", "rotary_cos", "rotary_sin", "cache_seqlens", "cache_batch_idx",
                    "cache_leftpad", "block_table", "softmax_scale", "causal", "window_size", "softcap", "rotary_interleaved",
                    "alibi_slopes", "num_splits", "return_softmax_lse"]}.items():
            parameters = inspect.signature(getattr(attn.torch, name)).parameters
            self.assertEqual(list(parameters), wanted)
            self.assertEqual(parameters["window_size"].default, (-1, -1))

    def test_dropout_keeps_the_weights_that_the_pattern_shows(self):
        q, k, v = random(2, 6, 4, 8), random(2, 7, 2, 8), random(2, 7, 2, 8)
        ends, of_keys = torch.tensor([0, 6, 12], dtype=torch.int32), torch.tensor([0, 7, 14], dtype=torch.int32)
        for slopes in (None, torch.rand(4)):
            how = dict(causal=True, alibi_slopes=slopes, dropout_p=0.4, return_attn_probs=True)
            whole = attn.torch.flash_attn_func(q, k, v, **how)
            flat = (x.flatten(0, 1) for x in (q, k, v))
            packed = attn.torch.flash_attn_varlen_func(*flat, ends, of_keys, 6, 7, **how)
            for o, _, weights in (whole, (packed[0].unflatten(0, (2, 6)), *packed[1:])):
                self.assertEqual(weights.shape, (2, 4, 6, 7))
                self.assertLess(float((weights.abs().sum(-1) - 1).abs().max()), 1e-6)
                kept = weights.clamp(min=0) / 0.6
                self.close(o, torch.einsum("bhqk,bkhd->bqhd", kept, v.repeat_interleave(2, 2)), 1e-6)
                self.assertTrue((weights < 0).any())
        torch.manual_seed(1)
        o = attn.torch.flash_attn_func(q, k, v, 0.5)
        torch.manual_seed(1)
        self.assertTrue(torch.equal(o, attn.torch.flash_attn_func(q, k, v, 0.5)))
        self.assertEqual(float(attn.torch.flash_attn_func(q, k, v, 1.0).abs().max()), 0)

    def test_log_sum_exps_and_slopes_have_gradients(self):
        q, k, v, slopes = random(1, 4, 2, 8), random(1, 5, 2, 8), random(1, 5, 2, 8), torch.rand(2, dtype=torch.float64)
        found, wanted = [], []
        for gradients, function in ((found, attn.torch.flash_attn_func), (wanted, None)):
            leaves = [x.clone().requires_grad_() for x in (q, k, v, slopes)]
            if function:
                o, lse, _ = function(*leaves[:3], alibi_slopes=leaves[3], return_attn_probs=True)
            else:
                o, lse = loops(*(x[0] for x in leaves[:3]), alibi_slopes=leaves[3])
            gradients += torch.autograd.grad(o.square().sum() + lse.sum(), leaves)
        for g, w in zip(found, wanted):
            self.close(g, w, 1e-10)

    def test_compiled_graphs_have_the_same_results(self):
        q, k, v = (random(2, 6, 2, 8).float() for _ in range(3))
        ends = torch.tensor([0, 5, 12], dtype=torch.int32)

        def both(q, k, v):
            one = attn.torch.flash_attn_func(q, k, v, causal=True, window_size=(2, 0), softcap=3.0)
            flat = (x.flatten(0, 1) for x in (q, k, v))
            return one, attn.torch.flash_attn_varlen_func(*flat, ends, ends, 7, 7, causal=True)

        compiled = torch.compile(both, backend="aot_eager", fullgraph=True)
        results = []
        for function in (both, compiled):
            leaves = [x.clone().requires_grad_() for x in (q, k, v)]
            outputs = function(*leaves)
            results.append([*outputs, *torch.autograd.grad(sum(o.square().sum() for o in outputs), leaves)])
        for x, y in zip(*results):
            self.close(x, y.double(), 1e-6)

    def test_scores_of_a_scale_of_0_are_0(self):
        q, k, v, sinks = random(1, 4, 2, 8), random(1, 5, 2, 8), random(1, 5, 2, 8), torch.tensor([0.5, -1.0])
        o, lse, _ = attn.torch.flash_attn_func(q, k, v, softmax_scale=0.0, return_attn_probs=True)
        self.close(lse, torch.full((1, 2, 4), math.log(5), dtype=torch.float64), 1e-12)
        self.close(o, v.mean(1, keepdim=True).expand(1, 4, 2, 8), 1e-12)
        o = attn.torch.flex_attention(*(x.transpose(1, 2) for x in (q, k, v)), scale=0.0, sinks=sinks)
        wanted = v.sum(1).unsqueeze(2) / (5 + sinks.double().exp()).reshape(1, 2, 1, 1)
        self.close(o, wanted.expand(1, 2, 4, 8), 1e-6)

    def test_slopes_of_sequences_that_begin_behind_the_first_token(self):
        q, k, v, slopes = random(12, 2, 8), random(9, 2, 8), random(9, 2, 8), torch.rand(2, 2)
        of_queries, of_keys = torch.tensor([2, 5, 9], dtype=torch.int32), torch.tensor([1, 4, 7], dtype=torch.int32)
        for given in (slopes[0], slopes):
            o, lse, _ = attn.torch.flash_attn_varlen_func(q, k, v, of_queries, of_keys, 4, 3, alibi_slopes=given,
                                                          return_attn_probs=True)
            outputs, sums = each(((q[2:5], k[1:4], v[1:4]), (q[5:9], k[4:7], v[4:7])), given)
            self.assertEqual((o.shape, lse.shape), ((12, 2, 8), (2, 12)))
            self.close(o[2:9], torch.cat(outputs), 1e-6)
            self.close(lse[:, 2:9], torch.cat(sums, 1), 1e-6)
            self.assertEqual(float(o[:2].abs().sum() + o[9:].abs().sum()), 0)
            self.assertTrue(bool((lse[:, :2] == -math.inf).all() and (lse[:, 9:] == -math.inf).all()))

    def test_offsets_are_checked_with_slopes_of_each_sequence(self):
        q, slopes = random(12, 2, 8), torch.rand(2, 2)
        right = torch.tensor([0, 5, 12], dtype=torch.int32)
        for wrong in ([0, 5, 3], [0, 5, 13], [-2, 5, 12], [0, 3, 12]):
            for name, offsets in (("q", (torch.tensor(wrong, dtype=torch.int32), right)),
                                  ("k", (right, torch.tensor(wrong, dtype=torch.int32)))):
                with self.subTest(wrong=wrong, name=name), self.assertRaisesRegex(attn.ArgumentError, f"cu_seqlens_{name}"):
                    attn.torch.flash_attn_varlen_func(q, q, q, *offsets, 7, 7, alibi_slopes=slopes)

    def test_a_cache_of_keys_and_one_of_values_of_other_shapes(self):
        q, keys, values = random(2, 1, 2, 8), random(2, 6, 2, 8), random(3, 4, 2, 8)
        with self.assertRaisesRegex(attn.ShapeError, "v_cache"):
            attn.torch.flash_attn_with_kvcache(q, keys, values, cache_seqlens=torch.tensor([2, 3], dtype=torch.int32))

    def test_what_is_not_taken_is_named(self):
        q, k = torch.randn(2, 4, 4, 8), torch.randn(2, 4, 3, 8)
        ends = torch.tensor([0, 8], dtype=torch.int32)
        flat = q.flatten(0, 1)
        f, packed = attn.torch.flash_attn_func, attn.torch.flash_attn_varlen_func
        for error, words, call in (
                (attn.ShapeError, "4 heads, k and v 3", lambda: f(q, k, k)),
                (attn.ShapeError, r"\[B,L,H,D\]", lambda: f(q[0], q[0], q[0])),
                (attn.ArgumentError, "k is of torch.float64, q of torch.float32", lambda: f(q, q.double(), q)),
                (attn.ArgumentError, "window_size is 3", lambda: f(q, q, q, window_size=3)),
                (attn.ArgumentError, "dropout_p is 2", lambda: f(q, q, q, 2)),
                (attn.ArgumentError, "softcap is", lambda: f(q, q, q, softcap=math.nan)),
                (attn.ShapeError, r"alibi_slopes is torch.float32 \(3,\)", lambda: f(q, q, q, alibi_slopes=torch.rand(3))),
                (TypeError, "q is of type int", lambda: f(1, q, q)),
                (TypeError, "causal is of type str", lambda: f(q, q, q, causal="yes")),
                (attn.ArgumentError, "cu_seqlens_k is torch.float32", lambda: packed(flat, flat, flat, ends, ends.float(), 8, 8)),
                (attn.ShapeError, "they must be equal", lambda: packed(flat, flat, flat, ends, torch.tensor([0, 4, 8]), 8, 8)),
                (TypeError, "max_seqlen_q is of type NoneType", lambda: packed(flat, flat, flat, ends, ends, None, 8)),
                (attn.ShapeError, r"qkv has the shape \(2, 4, 4, 8\)", lambda: attn.torch.flash_attn_qkvpacked_func(q))):
            with self.subTest(words=words), self.assertRaisesRegex(error, words):
                call()


class Caches(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(6)

    def wanted(self, q, keys, values, **how):
        """By loops, of keys and values [n,Hkv,D] for each of the batch."""
        slopes = how.pop("alibi_slopes", None)
        o, lse = each(zip(q.double(), (x.double() for x in keys), (x.double() for x in values)),
                      None if slopes is None else slopes.double(), **how)
        return torch.stack(o), torch.stack(lse)

    def check(self, found, wanted):
        for x, y in zip(found, wanted):
            self.assertEqual(x.shape, y.shape)
            finite = torch.isfinite(y)
            self.assertTrue(torch.equal(torch.isfinite(x), finite))
            self.assertLess(float((x.double() - y)[finite].abs().max()), 1e-5)

    def test_caches_equal_loops(self):
        for lengths in ([4, 4], [2, 5], [0, 6]):
            for case in (dict(), dict(causal=True), dict(causal=True, window_size=(2, -1)), dict(softcap=2.0),
                         dict(alibi_slopes=torch.rand(4), causal=True), dict(alibi_slopes=torch.rand(2, 4))):
                for queries, fresh in ((1, 1), (3, 2), (2, 0)):
                    with self.subTest(lengths=lengths, case=case, queries=queries, fresh=fresh):
                        q = torch.randn(2, queries, 4, 8)
                        caches = [torch.randn(2, 9, 2, 8) for _ in range(2)]
                        new = [torch.randn(2, fresh, 2, 8) for _ in range(2)] if fresh else [None, None]
                        after = [x.clone() for x in caches]
                        for cache, x in zip(after, new):
                            for b, n in enumerate(lengths if fresh else ()):
                                cache[b, n:n + fresh] = x[b]
                        parts = [[cache[b, :n + fresh] for b, n in enumerate(lengths)] for cache in after]
                        found = attn.torch.flash_attn_with_kvcache(
                            q, *caches, *new, cache_seqlens=torch.tensor(lengths, dtype=torch.int32),
                            return_softmax_lse=True, **case)
                        self.check(found, self.wanted(q, *parts, **case))
                        for cache, x in zip(caches, after):
                            self.assertTrue(torch.equal(cache, x))

    def test_rows_and_padding_of_a_cache(self):
        q, caches = torch.randn(3, 2, 4, 8), [torch.randn(5, 8, 2, 8) for _ in range(2)]
        rows, ends, starts = [4, 0, 2], [7, 3, 8], [2, 0, 5]
        parts = [[cache[row, start:end] for row, start, end in zip(rows, starts, ends)] for cache in caches]
        found = attn.torch.flash_attn_with_kvcache(
            q, *caches, cache_seqlens=torch.tensor(ends), cache_batch_idx=torch.tensor(rows),
            cache_leftpad=torch.tensor(starts), causal=True, return_softmax_lse=True)
        self.check(found, self.wanted(q, *parts, causal=True))
        whole = attn.torch.flash_attn_with_kvcache(q, *(x[:3] for x in caches), causal=True)
        self.check([whole], self.wanted(q, *(list(x[:3]) for x in caches), causal=True)[:1])

    def test_pages_equal_a_cache_in_one_piece(self):
        lengths, page = [5, 9], 4
        table = torch.tensor([[3, 1, 6], [0, 5, 2]], dtype=torch.int32)
        q, new = torch.randn(2, 2, 4, 8), [torch.randn(2, 2, 2, 8) for _ in range(2)]
        pages = [torch.randn(7, page, 2, 8) for _ in range(2)]
        whole = [torch.stack([x[row.long()].flatten(0, 1) for row in table]) for x in pages]
        how = dict(cache_seqlens=torch.tensor(lengths), causal=True, return_softmax_lse=True, alibi_slopes=torch.rand(4))
        found = attn.torch.flash_attn_with_kvcache(q, *pages, *new, block_table=table, **how)
        wanted = attn.torch.flash_attn_with_kvcache(q, *whole, *new, **how)
        self.check(found, [x.double() for x in wanted])
        for x, y in zip(pages, whole):
            self.assertTrue(torch.equal(torch.stack([x[row.long()].flatten(0, 1) for row in table]), y))
        ends = torch.tensor([0, 2, 4], dtype=torch.int32)
        of_keys = torch.tensor([0, 7, 18], dtype=torch.int32)
        packed = attn.torch.flash_attn_varlen_func(q.flatten(0, 1), *pages, ends, of_keys, 2, 11, causal=True,
                                                   block_table=table, alibi_slopes=how["alibi_slopes"])
        self.check([packed.unflatten(0, (2, 2))], [wanted[0].double()])

    def test_rotary_positions(self):
        """As turned by complex numbers, of both layouts, for causal and other queries."""
        q, k, v = torch.randn(2, 3, 2, 16), torch.randn(2, 3, 2, 16), torch.randn(2, 3, 2, 16)
        angles, lengths = torch.rand(12, 4) * 3, [2, 5]
        for interleaved in (True, False):
            for causal in (True, False):
                def turned(x, moves):
                    pairs = x[..., :8].unflatten(-1, (4, 2) if interleaved else (2, 4))
                    pairs = pairs if interleaved else pairs.transpose(-1, -2)
                    z = torch.view_as_complex(pairs.contiguous())
                    at = torch.tensor(lengths)[:, None] + torch.arange(x.shape[1]) * moves
                    z = z * torch.polar(torch.ones(()), angles[at])[:, :, None]
                    pairs = torch.view_as_real(z)
                    pairs = pairs if interleaved else pairs.transpose(-1, -2)
                    return torch.cat((pairs.flatten(-2), x[..., 8:]), -1)

                caches = [torch.randn(2, 9, 2, 16) for _ in range(2)]
                after = [x.clone() for x in caches]
                how = dict(cache_seqlens=torch.tensor(lengths), causal=causal)
                found = attn.torch.flash_attn_with_kvcache(q, *caches, k, v, angles.cos(), angles.sin(),
                                                           rotary_interleaved=interleaved, **how)
                wanted = attn.torch.flash_attn_with_kvcache(turned(q, causal), *after, turned(k, True), v, **how)
                self.check([found, *caches], [wanted.double(), *(x.double() for x in after)])

    def test_what_a_cache_does_not_take_is_named(self):
        q, cache = torch.randn(2, 1, 2, 8), torch.randn(2, 6, 2, 8)
        f, table = attn.torch.flash_attn_with_kvcache, torch.tensor([[0], [1]])
        for error, words, call in (
                (attn.ArgumentError, "cache_seqlens, the number", lambda: f(q, cache, cache, q, q)),
                (attn.ArgumentError, "must be given together", lambda: f(q, cache, cache, q, cache_seqlens=1)),
                (attn.ArgumentError, "cache_seqlens is 6", lambda: f(q, cache, cache, q, q, cache_seqlens=6)),
                (attn.ArgumentError, "cache_batch_idx is", lambda: f(q, cache, cache, cache_batch_idx=torch.tensor([0, 2]))),
                (attn.UnsupportedError, "cache_leftpad", lambda: f(q, cache, cache, block_table=table, cache_leftpad=table[:, 0])),
                (attn.ArgumentError, "has the page 9", lambda: f(q, cache, cache, block_table=table * 9, cache_seqlens=2)),
                (attn.ShapeError, "k_cache has a batch of 2", lambda: f(q[:1], cache, cache)),
                (attn.ShapeError, "k is torch.float64", lambda: f(q, cache, cache, q.double(), q, cache_seqlens=2))):
            with self.subTest(words=words), self.assertRaisesRegex(error, words):
                call()


class Package(unittest.TestCase):
    def setUp(self):
        attn.torch.install_flash_attn()

    def test_imports_find_the_functions(self):
        attn.torch.install_flash_attn()
        import flash_attn
        from flash_attn.bert_padding import index_first_axis, pad_input, unpad_input
        from flash_attn.flash_attn_interface import flash_attn_varlen_func

        self.assertEqual(sum(type(x).__name__ == "_Finder" for x in sys.meta_path), 1)
        self.assertIs(flash_attn.flash_attn_func, attn.torch.flash_attn_func)
        self.assertIs(flash_attn_varlen_func, attn.torch.flash_attn_varlen_func)
        for name in ("flash_attn", "flash-attn"):
            self.assertEqual(importlib.metadata.version(name), flash_attn.__version__)
        self.assertIn("flash-attn", importlib.metadata.packages_distributions()["flash_attn"])
        with self.assertRaises(ModuleNotFoundError):
            import flash_attn.layers  # noqa: F401

        x, mask = torch.randn(2, 4, 3, requires_grad=True), torch.tensor([[1, 1, 0, 0], [0, 1, 1, 1]])
        tokens, indices, offsets, longest, used = unpad_input(x, mask)
        self.assertEqual((indices.tolist(), offsets.tolist(), longest, used.tolist()), ([0, 1, 5, 6, 7], [0, 2, 5], 3, [2, 3]))
        self.assertTrue(torch.equal(tokens, x[mask.bool()]))
        self.assertTrue(torch.equal(index_first_axis(x.flatten(0, 1), indices), tokens))
        again = pad_input(tokens, indices, 2, 4)
        self.assertTrue(torch.equal(again, x * mask[..., None]))
        again.sum().backward()
        self.assertTrue(torch.equal(x.grad, mask[..., None].expand(2, 4, 3).float()))

    def test_another_flash_attn_stays(self):
        other = types.ModuleType("flash_attn")
        other.__spec__ = importlib.util.spec_from_loader("flash_attn", None, origin="/somewhere/flash_attn/__init__.py")
        with unittest.mock.patch.dict(sys.modules, {"flash_attn": other}):
            with self.assertRaisesRegex(attn.UnsupportedError, "another flash_attn is installed, at /somewhere"):
                attn.torch.install_flash_attn()


@unittest.skipIf(transformers is None, "transformers is not installed")
class Models(unittest.TestCase):
    small = dict(vocab_size=31, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                 max_position_embeddings=64)

    def setUp(self):
        attn.torch.install_flash_attn()
        transformers.logging.set_verbosity_error()
        torch.manual_seed(7)

    def models(self):
        pairs = dict(self.small, num_key_value_heads=2)
        yield transformers.LlamaForCausalLM, transformers.LlamaConfig(**pairs)
        yield transformers.MistralForCausalLM, transformers.MistralConfig(**pairs, sliding_window=4)
        yield transformers.Gemma2ForCausalLM, transformers.Gemma2Config(
            **pairs, head_dim=8, sliding_window=4, attn_logit_softcapping=2.0, query_pre_attn_scalar=8)
        yield transformers.GPT2LMHeadModel, transformers.GPT2Config(vocab_size=31, n_embd=32, n_layer=2, n_head=4, n_positions=64)
        yield transformers.BertForMaskedLM, transformers.BertConfig(**self.small)

    def computed(self, model, implementation, ids, mask):
        """Logits and gradients of the tokens that are there."""
        model.set_attn_implementation(implementation)
        model.zero_grad()
        logits = model(ids, attention_mask=mask).logits
        logits = logits if mask is None else logits[mask.bool()]
        logits.square().mean().backward()
        return logits.detach(), [x.grad.clone() for x in model.parameters() if x.grad is not None]

    def test_models_equal_eager_ones(self):
        padded = torch.ones(3, 12, dtype=torch.long)
        padded[1, :5] = padded[2, :2] = 0
        for kind, config in self.models():
            for mask in (None, padded, padded.flip(1)):
                with self.subTest(model=kind.__name__, mask=mask is not None):
                    model, ids = kind._from_config(config, attn_implementation="eager").eval(), torch.randint(31, (3, 12))
                    wanted, gradients = self.computed(model, "eager", ids, mask)
                    before = attn.torch.calls()
                    found, others = self.computed(model, "flash_attention_2", ids, mask)
                    self.assertGreaterEqual(attn.torch.calls() - before, 2)
                    self.assertLess(float((found - wanted).abs().max()), 1e-5)
                    for g, w in zip(others, gradients):
                        self.assertLess(float((g - w).abs().max()), 1e-5)

    def test_generated_tokens_equal_eager_ones(self):
        mask = torch.ones(2, 7, dtype=torch.long)
        mask[1, :3] = 0
        for kind, config in list(self.models())[:4]:
            model, ids, found = kind._from_config(config, attn_implementation="eager").eval(), torch.randint(31, (2, 7)), []
            for implementation in ("eager", "flash_attention_2"):
                model.set_attn_implementation(implementation)
                found.append(model.generate(ids, attention_mask=mask, max_new_tokens=6, do_sample=False, pad_token_id=0))
            self.assertTrue(torch.equal(*found), kind.__name__)

    def test_packed_positions(self):
        config = transformers.LlamaConfig(**self.small, num_key_value_heads=2)
        model = transformers.LlamaForCausalLM._from_config(config, attn_implementation="flash_attention_2").eval()
        ids, lengths = torch.randint(31, (1, 10)), (4, 6)
        positions = torch.cat([torch.arange(n) for n in lengths])[None]
        found = model(ids, position_ids=positions).logits
        wanted = torch.cat([model(part).logits for part in ids.split(lengths, 1)], 1)
        self.assertLess(float((found - wanted).abs().max().detach()), 1e-5)

    def test_models_in_bfloat16(self):
        config = transformers.LlamaConfig(**self.small, num_key_value_heads=2)
        model = transformers.LlamaForCausalLM._from_config(config, attn_implementation="flash_attention_2").eval().bfloat16()
        ids = torch.randint(31, (2, 9))
        found = model(ids).logits
        model.set_attn_implementation("eager")
        self.assertLess(float((found - model(ids).logits).abs().max().detach()), 2e-2)


if __name__ == "__main__":
    unittest.main()
