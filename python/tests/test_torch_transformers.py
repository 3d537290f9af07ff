# SPDX-License-Identifier: MIT
"""attn.torch.register: masks, calls and refusals; whole models are in
tests/parity/transformers_models.py.  Skipped without PyTorch or transformers."""
import concurrent.futures
import copy
import itertools
import pickle
import types
import unittest

try:
    import torch
    import transformers
    from torch.nn.attention.flex_attention import create_block_mask
    from transformers import masking_utils
except ImportError as error:
    raise unittest.SkipTest(f"{error.name} is not installed") from None

import attn.torch

TOLERANCE = 1e-5


def llama(**options):
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=31, hidden_size=32, intermediate_size=40, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        attn_implementation="attn", **options)
    return transformers.LlamaForCausalLM(config).eval()


def functions():
    """The attention and mask functions that transformers calls."""
    return transformers.AttentionInterface()["attn"], transformers.AttentionMaskInterface()["attn"]


class Registered(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        attn.torch.register()

    def setUp(self):
        torch.manual_seed(5)
        self.attention, self.mask = functions()

    def near(self, found, wanted, tolerance=TOLERANCE):
        self.assertEqual(found.shape, wanted.shape)
        most = float(wanted.abs().max())
        self.assertLessEqual(float((found - wanted).abs().max()), tolerance * max(most, 1e-3))


class Models(Registered):
    def test_forward_and_backward(self):
        model, ids = llama(), torch.randint(0, 31, (2, 19))
        results = []
        for implementation in ("eager", "attn"):
            model.set_attn_implementation(implementation)
            model.zero_grad()
            before = attn.torch.calls()
            found = model(ids, labels=ids)
            found.loss.backward()
            results.append([found.logits.detach(), *(p.grad.clone() for p in model.parameters())])
            self.assertEqual(attn.torch.calls() - before, 2 if implementation == "attn" else 0)
        for found, wanted in zip(results[1], results[0]):
            self.near(found, wanted)


    def test_models_without_the_interface(self):
        """The models' own attention gets the masks of eager attention."""
        padding = torch.ones(2, 9, dtype=torch.long)
        padding[1, :3] = 0
        results = []
        for implementation in ("eager", "attn"):
            torch.manual_seed(3)
            config = transformers.BloomConfig(vocab_size=31, hidden_size=32, n_head=4, n_layer=2)
            config._attn_implementation = implementation
            model, ids = transformers.BloomModel(config).eval(), torch.arange(18).reshape(2, 9)
            results.append(model(ids, attention_mask=padding).last_hidden_state)
        self.assertTrue(torch.equal(*results))

    def test_chosen_keys(self):
        """The argument `indices` of sparse attention is a mask."""
        attention, mask = functions()
        q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 8)
        indices = torch.rand(2, 5, 9).argsort(-1)[..., :3]
        chosen = torch.zeros(2, 5, 9, dtype=torch.bool).scatter(-1, indices, True)[:, None]
        for given in (None, mask(2, 5, 9, q_offset=4), torch.randn(2, 1, 5, 9)):
            module = torch.nn.Identity()
            module.is_causal = False
            found = attention(module, q, k, v, given, indices=indices)[0]
            seen = chosen if given is None or given.is_floating_point() else chosen & given
            added = given if given is not None and given.is_floating_point() else 0.0
            added = torch.where(seen, torch.zeros(seen.shape) + added, -torch.inf)
            sdpa = torch.nn.functional.scaled_dot_product_attention
            wanted = sdpa(q, k, v, added, enable_gqa=True).transpose(1, 2)
            self.near(found, wanted.nan_to_num())
        with self.assertRaisesRegex(attn.UnsupportedError, "block_indices"):
            attention(module, q, k, v, None, block_indices=indices)


class Masks(Registered):
    """Compares the engine's forms of masks with masks of all pairs."""

    def patterns(self):
        theirs, zeros = masking_utils, torch.zeros(2, dtype=torch.int64)
        padding = torch.ones(2, 12, dtype=torch.bool)
        padding[1, :3] = False
        later = torch.ones(2, 12, dtype=torch.bool)
        later[1, 7:] = False
        positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 4], [*range(9), 0, 1, 2]])
        sequences = masking_utils.find_packed_sequence_indices(positions)

        def packed(function):
            remapped = theirs.remap_positions_for_packed_sequence(function, positions)
            return theirs.and_masks(remapped, theirs.packed_sequence_mask_function(sequences))

        sliding = theirs.sliding_window_causal_mask_function
        both = theirs.sliding_window_bidirectional_mask_function
        for queries, keys, q_offset, kv_offset in ((12, 12, 0, 0), (1, 12, 11, 0), (3, 12, 9, 0),
                                                   (4, 12, 2, 0), (2, 6, 10, 6), (1, 5, 11, 7)):
            sizes = {"q_length": queries, "kv_length": keys, "q_offset": q_offset,
                     "kv_offset": kv_offset}
            for function in (theirs.causal_mask_function, sliding(4), sliding(1), sliding(40),
                             theirs.chunked_causal_mask_function(5, zeros)):
                for attention_mask in (None, padding, later):
                    yield function, attention_mask, sizes
        sizes = {"q_length": 12, "kv_length": 12}
        for function in (theirs.bidirectional_mask_function, both(3), both(0)):
            for attention_mask in (None, padding):
                yield function, attention_mask, sizes
        yield theirs.bidirectional_mask_function, padding, {"q_length": 5, "kv_length": 12}
        yield packed(theirs.causal_mask_function), None, sizes
        yield packed(sliding(3)), None, sizes
        left = torch.tensor([0, 3])
        yield theirs.chunked_causal_mask_function(5, left), padding, sizes
        yield theirs.or_masks(theirs.causal_mask_function, both(2)), None, sizes

    def test_masks_are_those_of_all_pairs(self):
        module, forms = types.SimpleNamespace(), set()
        for function, attention_mask, sizes in self.patterns():
            given = self.mask(2, mask_function=function, attention_mask=attention_mask, **sizes)
            dense = masking_utils.sdpa_mask(
                2, mask_function=function, attention_mask=attention_mask,
                allow_is_causal_skip=False, **sizes)
            with self.subTest(mask=repr(given), **sizes):
                self.assertTrue(torch.equal(given & True, dense))
                forms.add(given.pattern is None)
                q = torch.randn(2, 4, sizes["q_length"], 8)
                k, v = (torch.randn(2, 2, sizes["kv_length"], 8) for _ in range(2))
                dout = torch.randn(2, sizes["q_length"], 4, 8)
                results = []
                for mask in (given, dense.clone()):
                    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
                    o = self.attention(module, *leaves, mask)[0]
                    results.append([o.detach(), *torch.autograd.grad(o, leaves, dout)])
                for found, wanted in zip(*results):
                    self.near(found, wanted)
        self.assertEqual(forms, {False, True})

    def test_mask_is_a_tensor(self):
        """Operations, copies and pickles have the numbers of an ordinary mask."""
        given = self.mask(2, 6, 6)
        dense = masking_utils.sdpa_mask(2, 6, 6, allow_is_causal_skip=False)
        self.assertEqual((given.shape, given.dtype), (dense.shape, dense.dtype))
        self.assertEqual(given.device, dense.device)
        self.assertTrue(torch.equal(given[:, :, 2:], dense[:, :, 2:]))
        self.assertTrue(torch.equal(given.logical_not(), ~dense))
        self.assertTrue(torch.equal(copy.deepcopy(given), dense))
        self.assertTrue(torch.equal(pickle.loads(pickle.dumps(given)), dense))
        self.assertEqual(given.sum().item(), dense.sum().item())
        self.assertIn("hi=0", repr(given))
        scores = torch.randn(2, 4, 6, 6)
        eager = masking_utils.eager_mask(2, 6, 6)
        for found in (scores + given, given + scores, scores.clone().add_(given)):
            self.assertTrue(torch.equal(found, scores + eager))
        part = given.transpose(2, 3)[:, :, :5].contiguous()
        wanted = scores[:, :, :5] + eager.transpose(2, 3)[:, :, :5]
        self.assertTrue(torch.equal(scores[:, :, :5] + part, wanted))


class Combinations(Registered):
    """Masks with softcap, sinks and biases against the formula in float64, gradients included."""

    def masks(self):
        theirs, zeros = masking_utils, torch.zeros(2, dtype=torch.int64)
        positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 4], [*range(9), 0, 1, 2]])
        sequences = masking_utils.find_packed_sequence_indices(positions)
        sliding = theirs.sliding_window_causal_mask_function(3)
        packed = theirs.and_masks(theirs.remap_positions_for_packed_sequence(sliding, positions),
                                  theirs.packed_sequence_mask_function(sequences))
        padding = torch.ones(2, 12, dtype=torch.bool)
        padding[1, :3] = False
        causal = torch.ones(12, 12, dtype=torch.bool).tril()
        yield None, causal
        for function in (theirs.causal_mask_function, sliding, packed,
                         theirs.chunked_causal_mask_function(5, zeros)):
            given = self.mask(2, 12, 12, mask_function=function)
            yield given, given.dense()
        given = self.mask(2, 12, 12, attention_mask=padding)
        yield given, given.dense()
        random = torch.rand(2, 1, 12, 12) < 0.7
        yield random, random
        yield torch.randn(2, 1, 12, 12, dtype=torch.float64), None
        yield create_block_mask(lambda b, h, i, j: i >= j, 2, None, 12, 12, device="cpu",
                                BLOCK_SIZE=4), causal

    def formula(self, q, k, v, seen, added, softcap, sinks):
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        scores = q @ k.transpose(2, 3) * 0.3
        scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
        scores = scores if added is None else scores + added
        scores = scores if seen is None else scores.masked_fill(~seen, -1e30)
        if sinks is not None:
            column = sinks.reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)
            scores = torch.cat([scores, column], -1)
        weights = scores.softmax(-1)[..., :12]
        return ((weights if seen is None else weights * seen) @ v).transpose(1, 2)

    def test_combinations(self):
        module = torch.nn.Identity()
        module.is_causal = True
        before = attn.torch.calls(verbose=True).count("\n")
        for mask, seen in self.masks():
            for softcap, sinks, shape in itertools.product(
                    (None, 2.0), (False, True), (None, (1, 4, 12, 12), (12, 12, 4), (1, 4, 1, 12))):
                tensors = [torch.randn(s, dtype=torch.float64) for s in (
                    (2, 4, 12, 8), (2, 2, 12, 8), (2, 2, 12, 10), (4,), shape or (1,))]
                q, k, v, sink, bias = (x.requires_grad_() for x in tensors)
                sink = sink if sinks else None
                bias = None if shape is None else bias
                if shape == (12, 12, 4):  # in memory as T5's
                    bias = bias.permute(2, 0, 1)[None]
                added, floats = bias, mask is not None and seen is None
                if floats:
                    added = mask if bias is None else mask + bias
                found = self.attention(module, q, k, v, mask, scaling=0.3, softcap=softcap,
                                       s_aux=sink, position_bias=bias)[0]
                wanted = self.formula(q, k, v, seen, added, softcap, sink)
                learned = [x for x in (q, k, v, sink, bias) if x is not None]
                dout = torch.randn_like(wanted)
                with self.subTest(mask=type(mask), softcap=softcap, sinks=sinks, bias=shape):
                    for x, y in zip([found, *torch.autograd.grad(found, learned, dout)],
                                    [wanted, *torch.autograd.grad(wanted, learned, dout)]):
                        self.assertLess(float((x - y).detach().abs().max()),
                                        1e-13 * float(y.detach().abs().max()))
        self.assertEqual(attn.torch.calls(verbose=True).count("\n"), before)

    def test_one_bias_for_several_layers(self):
        """The copy that layers share follows changes of the tensor, and gets the sum of the layers' gradients."""
        leaf = torch.randn(1, 6, 7, 4, dtype=torch.bfloat16, requires_grad=True)
        q, k = torch.randn(2, 4, 6, 8).bfloat16(), torch.randn(2, 2, 7, 8).bfloat16()

        def twice(bias, change=None):
            found = self.attention(self.module(), q, k, k, None, is_causal=False, position_bias=bias())[0]
            if change is not None:
                change()
            return found.float().sin().sum() + self.attention(
                self.module(), q, k, k, None, is_causal=False, position_bias=bias())[0].float().cos().sum()

        shared = leaf.permute(0, 3, 1, 2)
        found = torch.autograd.grad(twice(lambda: shared), leaf)[0]
        self.near(found.float(), torch.autograd.grad(twice(lambda: leaf.permute(0, 3, 1, 2).contiguous()), leaf)[0].float(), 1e-2)
        with torch.no_grad():
            one = leaf.detach().clone().permute(0, 3, 1, 2)
            before = twice(lambda: one)
            after = twice(lambda: one, lambda: one.mul_(3))
            self.assertTrue(torch.equal(twice(lambda: one), twice(lambda: one.contiguous())))
            self.assertFalse(torch.equal(before, after))

    def test_dropout(self):
        """The mean over many dropout draws equals the result without dropout; the seed is PyTorch's."""
        q, k, v = (torch.randn(1, 2, 6, 8) for _ in range(3))
        function = masking_utils.sliding_window_causal_mask_function(3)
        given = self.mask(1, 6, 6, mask_function=function)
        draws = [self.attention(self.module(), q, k, v, given, dropout=0.3)[0] for _ in range(1500)]
        wanted = self.attention(self.module(), q, k, v, given)[0]
        self.assertLess(float((torch.stack(draws).mean(0) - wanted).abs().max()), 0.1)
        again = []
        for _ in range(2):
            torch.manual_seed(9)
            again.append(self.attention(self.module(), q, k, v, given, dropout=0.3)[0])
        self.assertTrue(torch.equal(*again))

    def module(self):
        return torch.nn.Identity()


class Uses(Registered):
    """Ways to use a model that must not change results."""

    def setUp(self):
        super().setUp()
        self.model, self.ids = llama(), torch.randint(0, 31, (2, 13))
        self.padding = torch.ones_like(self.ids)
        self.padding[1, :4] = 0

    def logits(self, model=None):
        model = self.model if model is None else model
        found = model(self.ids, attention_mask=self.padding, use_cache=False).logits
        return found * self.padding[..., None]

    def eager(self):
        self.model.set_attn_implementation("eager")
        found = self.logits()
        self.model.set_attn_implementation("attn")
        return found

    def gradients(self, model=None):
        self.model.zero_grad()
        self.logits(model).square().sum().backward()
        return [p.grad.clone() for p in self.model.parameters() if p.grad is not None]

    def test_inference_mode(self):
        with torch.inference_mode():
            self.near(self.logits(), self.eager())

    def test_copies_and_pickles(self):
        wanted = self.logits()
        self.assertTrue(torch.equal(self.logits(copy.deepcopy(self.model)), wanted))
        self.assertTrue(torch.equal(self.logits(pickle.loads(pickle.dumps(self.model))), wanted))

    def test_some_gradients(self):
        """With frozen parameters and with checkpointing the gradients are the same."""
        wanted = self.gradients()
        names = [name for name, _ in self.model.named_parameters()]
        for reentrant in (False, True):
            self.model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            for found, x in zip(self.gradients(self.model.train()), wanted):
                self.near(found, x)
        self.model.gradient_checkpointing_disable()
        for name, parameter in self.model.eval().named_parameters():
            parameter.requires_grad_("k_proj" in name)
        chosen = [x for name, x in zip(names, wanted) if "k_proj" in name]
        found = self.gradients()
        self.assertEqual(len(found), len(chosen))
        for x, y in zip(found, chosen):
            self.near(x, y)

    def test_two_threads(self):
        wanted = self.logits().detach()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for found in pool.map(lambda _: self.logits().detach(), range(6)):
                self.assertTrue(torch.equal(found, wanted))

    def test_compile(self):
        """One graph, forward and backward, and the eager function where weights are requested."""
        wanted, gradients = self.logits().detach(), self.gradients()
        compiled = torch.compile(self.model, backend="aot_eager", fullgraph=True)
        self.near(self.logits(compiled).detach(), wanted)
        for found, x in zip(self.gradients(compiled), gradients):
            self.near(found, x)
        compiled = torch.compile(self.model, backend="aot_eager")
        found = compiled(self.ids, output_attentions=True, use_cache=False).attentions
        self.assertEqual([tuple(x.shape) for x in found], [(2, 4, 13, 13)] * 2)

    def test_export(self):
        """torch.export has one graph of attn's operator, with lengths that may change."""
        class Logits(torch.nn.Module):
            def __init__(self, model):
                super().__init__()
                self.model = model

            def forward(self, x):
                return self.model(inputs_embeds=x, use_cache=False).logits

        x, longer = torch.randn(2, 7, 32), torch.randn(2, 11, 32)
        exported = torch.export.export(Logits(self.model), (x,), dynamic_shapes=({1: torch.export.Dim("n", min=2, max=64)},))
        self.assertEqual(sum("attn.attend" in str(node.target) for node in exported.graph.nodes), 2)
        with torch.no_grad():
            for given in (x, longer):
                self.near(exported.module()(given), self.model(inputs_embeds=given, use_cache=False).logits)

    def test_recorded_weights(self):
        """Weights equal those of the eager function, of all pairs, for every form of mask."""
        padding = torch.ones_like(self.ids)
        padding[1, :4] = 0
        kinds = ({}, {"attention_mask": padding},
                 {"position_ids": torch.tensor([[*range(5), *range(8)], [*range(13)]])})
        for options in kinds:
            with torch.no_grad():
                wanted = self.model(self.ids, use_cache=False, **options).logits
                with attn.torch.record_weights() as weights:
                    found = self.model(self.ids, use_cache=False, **options).logits
                self.model.set_attn_implementation("eager")
                eager = self.model(self.ids, use_cache=False, output_attentions=True, **options).attentions
                self.model.set_attn_implementation("attn")
            self.assertTrue(torch.equal(found, wanted))
            self.assertEqual(len(weights), 2)
            for x, y in zip(weights, eager):
                seen = options.get("attention_mask", torch.ones_like(self.ids)).bool()
                self.near(x.transpose(1, 2)[seen], y.transpose(1, 2)[seen])
        with torch.no_grad(), attn.torch.record_weights(heads=[1], rows=[-1]) as weights:
            self.model.generate(self.ids, max_new_tokens=3, min_new_tokens=3, do_sample=False, pad_token_id=0)
        self.assertEqual([tuple(x.shape) for x in weights], [(2, 1, 1, n) for n in (13, 13, 14, 14, 15, 15)])

    def test_transforms(self):
        """attn has a rule for vmap; the eager function computes forward-mode derivatives."""
        x = torch.randn(3, 5, 32)

        def function(y):
            return self.model(inputs_embeds=y[None], use_cache=False).logits[0]

        with torch.no_grad():
            self.near(torch.func.vmap(function)(x), torch.stack([function(y) for y in x]))
        self.assertEqual(torch.func.jvp(function, (x[0],), (x[1],))[1].shape, (5, 31))
        self.assertIn("forward-mode derivatives", attn.torch.calls(verbose=True))

    def test_second_derivatives_are_refused(self):
        x = torch.randn(1, 4, 32, requires_grad=True)
        o = self.model(inputs_embeds=x, use_cache=False).logits
        grad, = torch.autograd.grad(o.square().sum(), x, create_graph=True)
        with self.assertRaisesRegex(attn.UnsupportedError, "second derivative"):
            grad.sum().backward()


class Refusals(Registered):
    def test_names(self):
        for name in ("sdpa", "flash_attention_2", "", None, 3, "a/b", "eager"):
            with self.subTest(name=name), self.assertRaisesRegex(attn.ArgumentError, "name is"):
                attn.torch.register(name)
        attn.torch.register()  # once more

    def test_eager_function_and_reasons(self):
        model, ids = llama(), torch.randint(0, 31, (1, 9))
        model.config.attention_dropout = 0.5
        for layer in model.model.layers:
            layer.self_attn.attention_dropout = 0.5
        model.train()
        before = attn.torch.calls()
        model(ids, output_attentions=True)
        self.assertEqual(attn.torch.calls(), before)
        said = attn.torch.calls(verbose=True).splitlines()
        self.assertEqual(said[0], f"{before} by attn")
        self.assertTrue(any("eager function: weights are requested together with dropout" in line
                            for line in said[1:]), said)

    def test_without_eager_function(self):
        x = torch.randn(1, 2, 3, 4, dtype=torch.complex64)
        with self.assertRaisesRegex(attn.UnsupportedError, "query is of torch.complex64"):
            self.attention(types.SimpleNamespace(), x, x, x)


if __name__ == "__main__":
    unittest.main()
