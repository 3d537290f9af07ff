# SPDX-License-Identifier: MIT
"""attn.torch.register: masks, calls and refusals; whole models are in
tests/parity/transformers_models.py.  Skipped without PyTorch or transformers."""
import concurrent.futures
import copy
import itertools
import pickle
import types
import unittest
import unittest.mock

try:
    import torch
    import transformers
    from torch.nn.attention.flex_attention import create_block_mask
    from torch.nn.functional import dropout, embedding, pad
    from transformers import masking_utils
except ImportError as error:
    raise unittest.SkipTest(f"{error.name} is not installed") from None

import numpy

import attn.torch
from attn.torch import _distance

TOLERANCE = 1e-5


def llama(**options):
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=31, hidden_size=32, intermediate_size=40, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        attn_implementation="attn", **options)
    return transformers.LlamaForCausalLM(config).eval()


def formula(q, k, v, seen, added, softcap=None, sinks=None):
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) * 0.3
    scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
    scores = scores if added is None else scores + added
    scores = scores if seen is None else scores.masked_fill(~seen, -1e30)
    if sinks is not None:
        column = sinks.reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, column], -1)
    weights = scores.softmax(-1)[..., :k.shape[2]]
    return ((weights if seen is None else weights * seen) @ v).transpose(1, 2)


def distances(queries, keys):
    """The distance j - i of key j and query i, counted from 0."""
    return torch.arange(keys) - torch.arange(queries)[:, None] + queries - 1


def drawn(queries, keys, rows):
    """A random row of a table for each distance, as an index of pairs."""
    return torch.randint(rows, (queries + keys - 1,))[distances(queries, keys)]


def arranged(e):
    """[q,k,H] as [1,H,q,k], with the operations of T5."""
    return e.permute(2, 0, 1).unsqueeze(0)


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

    def near(self, found, expected, tolerance=TOLERANCE):
        self.assertEqual(found.shape, expected.shape)
        most = float(expected.abs().max())
        self.assertLessEqual(float((found - expected).abs().max()), tolerance * max(most, 1e-3))


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
        for found, expected in zip(results[1], results[0]):
            self.near(found, expected)


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

    def test_the_eager_function_is_the_one_that_forward_refers_to(self):
        from transformers.models.bert import modeling_bert as bert
        from transformers.models.llama4 import modeling_llama4 as llama4
        from transformers.models.phi4_multimodal import modeling_phi4_multimodal as phi4
        from transformers.models.timesfm import modeling_timesfm as timesfm

        class Derived(timesfm.TimesFmAttention):
            pass

        class Own(bert.BertSelfAttention):
            def forward(self, *inputs):
                return super().forward(*inputs)

        q, k, v = (torch.randn(2, 4, 5, 8) for _ in range(3))
        for kind, file, name in (
                (phi4.Phi4MultimodalVisionAttention, phi4, "simple_eager_attention_forward"),
                (phi4.Phi4MultimodalAudioAttention, phi4, "simple_eager_attention_forward"),
                (phi4.Phi4MultimodalAttention, phi4, "eager_attention_forward"),
                (timesfm.TimesFmAttention, timesfm, "simple_eager_attention_forward"),
                (Derived, timesfm, "simple_eager_attention_forward"),
                (llama4.Llama4VisionAttention, llama4, "vision_eager_attention_forward"),
                (llama4.Llama4TextAttention, llama4, "eager_attention_forward"),
                (Own, bert, "eager_attention_forward")):
            module = kind.__new__(kind)
            torch.nn.Module.__init__(module)
            module.head_dim, module.num_key_value_groups, module.is_causal = 8, 1, False
            results = []
            for function in (getattr(file, name), self.attention):  # weights together with dropout are the eager function's
                torch.manual_seed(3)
                results.append(function(module, q, k, v, None, scaling=8 ** -0.5, dropout=0.4, output_attentions=True))
            with self.subTest(kind=kind.__name__):
                self.assertTrue(all(map(torch.equal, *results)))

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
            expected = sdpa(q, k, v, added, enable_gqa=True).transpose(1, 2)
            self.near(found, expected.nan_to_num())

    def test_chosen_blocks(self):
        """The argument `block_indices`: blocks of keys for each query and each group of heads, -1 for none."""
        q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 11, 8), torch.randn(2, 2, 11, 8)
        module = torch.nn.Identity()
        module.is_causal, module.indexer = False, types.SimpleNamespace(block_size=3)
        for groups, given in itertools.product((1, 2, 4), (None, self.mask(2, 5, 11, q_offset=6), torch.randn(2, 1, 5, 11))):
            blocks = torch.rand(2, groups, 5, 4).argsort(-1)[..., :3]
            blocks[..., 1][torch.rand(2, groups, 5) < 0.5] = -1
            chosen = (blocks[..., None] == torch.arange(11) // 3).any(-2).repeat_interleave(4 // groups, 1)
            added = torch.zeros(chosen.shape).masked_fill(~chosen, -torch.inf)
            if given is not None:
                added = added + (given if given.is_floating_point() else torch.zeros(given.shape).masked_fill(~given, -torch.inf))
            found = self.attention(module, q, k, v, given, block_indices=blocks)[0]
            sdpa = torch.nn.functional.scaled_dot_product_attention
            self.near(found, sdpa(q, k, v, added, enable_gqa=True).transpose(1, 2).nan_to_num())
            weights = self.attention(module, q, k, v, given, block_indices=blocks, output_attentions=True)[1]
            self.assertFalse(bool((weights.masked_fill(chosen, 0) != 0).any()))
        with self.assertRaisesRegex(attn.UnsupportedError, "block_indices has the shape .* must divide the 4 heads"):
            self.attention(module, q, k, v, None, block_indices=blocks[:, :1].expand(2, 3, 5, 3))
        module.indexer = None
        with self.assertRaisesRegex(attn.UnsupportedError, "indexer.block_size is None"):
            self.attention(module, q, k, v, None, block_indices=blocks)

    def test_models_that_choose_blocks(self):
        name = "MiniMaxM3VLTextConfig"
        if not hasattr(transformers, name):
            self.skipTest(f"no {name} in this version of transformers")
        from transformers.models.minimax_m3_vl.modeling_minimax_m3_vl import MiniMaxM3VLTextModel

        torch.manual_seed(3)
        config = getattr(transformers, name)(
            vocab_size=31, hidden_size=32, intermediate_size=16, dense_intermediate_size=40, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=8, num_local_experts=2, num_experts_per_tok=1,
            mlp_layer_types=["dense", "dense"], layer_types=["full_attention", "minimax_m3_sparse"], index_n_heads=2,
            index_head_dim=8, index_block_size=4, index_topk_blocks=2, index_local_blocks=1, pad_token_id=0)
        model, ids, results = MiniMaxM3VLTextModel(config).double().eval(), torch.randint(1, 31, (2, 21)), []
        padding = torch.ones(2, 21, dtype=torch.long)
        padding[1, :5] = 0
        for implementation in ("sdpa", "attn"):
            model.set_attn_implementation(implementation)
            before = attn.torch.calls()
            found = model(ids, attention_mask=padding).last_hidden_state
            self.assertEqual(attn.torch.calls() - before, 2 if implementation == "attn" else 0)
            results.append(torch.autograd.grad(found[padding.bool()].square().sum(), list(model.layers.parameters()), allow_unused=True)
                           + (found[padding.bool()],))
        for found, expected in zip(results[1], results[0]):
            self.assertEqual(found is None, expected is None)
            if found is not None:
                self.near(found.detach(), expected.detach())

    def test_training_with_dropout_under_enable(self):
        """Models of PyTorch's function train by attn, too."""
        torch.manual_seed(3)
        config = transformers.BertConfig(vocab_size=31, hidden_size=32, intermediate_size=40, num_hidden_layers=2,
                                         num_attention_heads=4, attn_implementation="sdpa")
        model, ids, losses = transformers.BertForMaskedLM(config).train(), torch.randint(1, 31, (2, 19)), []
        padding = torch.ones(2, 19, dtype=torch.long)
        padding[1, 12:] = 0
        with attn.torch.enable():
            for _ in range(2):
                torch.manual_seed(8)
                before = attn.torch.calls()
                losses.append(model(ids, attention_mask=padding, labels=ids).loss)
                self.assertEqual(attn.torch.calls() - before, 2)
        losses[0].backward()
        self.assertEqual(float(losses[0].detach()), float(losses[1].detach()))


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
                given = self.mask(2, mask_function=function, attention_mask=attention_mask, **sizes)
                q = torch.randn(2, 4, sizes["q_length"], 8)
                k, v = (torch.randn(2, 2, sizes["kv_length"], 8) for _ in range(2))
                dout = torch.randn(2, sizes["q_length"], 4, 8)
                results = []
                for mask in (given, dense.clone()):
                    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
                    o = self.attention(module, *leaves, mask)[0]
                    results.append([o.detach(), *torch.autograd.grad(o, leaves, dout)])
                for found, expected in zip(*results):
                    self.near(found, expected)
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
        expected = scores[:, :, :5] + eager.transpose(2, 3)[:, :, :5]
        self.assertTrue(torch.equal(scores[:, :, :5] + part, expected))


    def ordinary(self):
        return masking_utils.sdpa_mask(2, 6, 6, allow_is_causal_skip=False).contiguous()

    def same(self, found, wanted):
        if isinstance(wanted, torch.Tensor):
            self.assertIsInstance(found, torch.Tensor)
            self.assertEqual((found.dtype, found.shape, found.layout), (wanted.dtype, wanted.shape, wanted.layout))
            if wanted.layout == torch.strided and not wanted.is_neg() and wanted.dtype != torch.complex32:
                self.assertTrue(torch.equal(*(x.nan_to_num() if x.is_floating_point() else x for x in (found, wanted))))
        elif isinstance(wanted, numpy.ndarray):
            numpy.testing.assert_array_equal(found, wanted)
        elif isinstance(wanted, (tuple, list)):
            self.assertEqual(len(found), len(wanted))
            for x, y in zip(found, wanted):
                self.same(x, y)
        elif isinstance(wanted, (bool, int, float, str)):
            self.assertEqual(found, wanted)

    def test_every_method_does_what_it_does_for_an_ordinary_mask(self):
        """The result, the error's type, and the numbers of the mask after it."""
        row = torch.tensor([True, False] * 3)
        arguments = ((), (row,), (1, 2), ((2, 36),), (True,), (torch.float32,), (-1,), (self.ordinary(), row), (2, 1, 0),
                     (0, torch.tensor([0, 1])))
        # of the object, of the place in memory, of memory without numbers, and of other devices
        others = ("_cdata", "_python_dispatch", "_reduce_ex_internal", "const_data_ptr", "cuda", "data_ptr", "empty_like", "is_pinned",
                  "module_load", "new", "new_empty", "new_empty_strided", "pin_memory", "resize", "resize_", "resize_as_", "set_",
                  "storage", "to_mkldnn", "untyped_storage")
        names = [x for x in dir(torch.Tensor) if x not in others and not (x.startswith("__") and x in dir(object))]
        for name in (x for x in names if x not in ("__annotations__", "__deepcopy__", "__dict__", "__module__", "__weakref__",
                                                   "__torch_function__", "__torch_dispatch__")):
            for given in arguments:
                results = []
                for mask in (self.ordinary(), self.mask(2, 6, 6)):
                    torch.manual_seed(1)
                    try:
                        found = getattr(mask, name)
                        results.append((found(*given) if callable(found) else found, mask))
                    except Exception as error:
                        results.append((type(error).__name__, mask))
                with self.subTest(name=name, given=given):
                    self.same(*reversed(results))

    def test_functions_and_other_packages_read_an_ordinary_mask(self):
        scores = torch.randn(2, 4, 6, 6)
        for function in (numpy.asarray, torch.from_dlpack, torch.as_tensor, list, lambda x: x.share_memory_(),
                         lambda x: torch.vmap(torch.logical_not)(x), lambda x: torch.func.functionalize(torch.logical_not)(x),
                         lambda x: torch.cat([x, x]), lambda x: pad(x, (0, 2)), lambda x: torch.where(x, scores, 0.0),
                         lambda x: scores[x.expand(2, 4, 6, 6)], lambda x: torch.zeros(2, 1, 6, 6).copy_(x),
                         lambda x: torch.compile(lambda y: scores.masked_fill(~y, -1.0), backend="eager")(x),
                         lambda x: torch.nn.functional.scaled_dot_product_attention(scores, scores, scores, x)):
            self.same(function(self.mask(2, 6, 6)), function(self.ordinary()))

    def test_memory_that_a_mask_does_not_have_is_not_read(self):
        if attn.torch._masks._no_memory is None:
            self.skipTest("this PyTorch cannot refuse it")
        with self.assertRaises(RuntimeError):
            torch.utils.dlpack.to_dlpack(self.mask(2, 6, 6))

    def test_attention_sees_what_is_written_into_a_mask(self):
        q, k = torch.randn(2, 4, 6, 8), torch.randn(2, 2, 6, 8)

        def prefix(mask):
            mask[:, :, :4, :4] = True

        def through_a_view(mask):
            view = mask[:, :, :4]
            self.attention(types.SimpleNamespace(), q, k, k, mask)
            view |= True

        def through_numpy(mask):
            mask.numpy()[:, :, :4, :4] = True

        def through_a_dlpack(mask):
            torch.from_dlpack(mask).fill_(True)

        def augmented(mask):
            mask |= torch.ones(6, 6, dtype=torch.bool).triu(2)

        for write in (prefix, through_a_view, through_numpy, through_a_dlpack, augmented,
                      lambda x: x.masked_fill_(torch.eye(6, dtype=torch.bool).roll(2, 1), True),
                      lambda x: x.data.fill_(True), lambda x: x.detach().transpose(2, 3).fill_(True),
                      lambda x: torch.logical_or(x, torch.tensor(True), out=x), lambda x: x.copy_(torch.ones(()))):
            mask, wanted = self.mask(2, 6, 6), self.ordinary()
            write(mask)
            write(wanted)
            self.assertFalse(torch.equal(wanted, self.ordinary()))
            found, expected = (self.attention(types.SimpleNamespace(), q, k, k, x)[0] for x in (mask, wanted))
            self.near(found, expected)

    def test_masks_do_not_change_with_what_they_were_made_from(self):
        """A cache's counter, a padding mask, and what mask functions refer to."""
        theirs = masking_utils
        q, k = torch.randn(2, 4, 3, 8), torch.randn(2, 2, 12, 8)
        sliding, both = theirs.sliding_window_causal_mask_function(4), theirs.bidirectional_mask_function

        def functions(state):
            yield theirs.causal_mask_function
            yield sliding
            yield theirs.or_masks(theirs.causal_mask_function, lambda b, h, i, j: state["whole"][b, j])
            yield theirs.and_masks(both, lambda b, h, i, j: state["whole"][b, j])
            yield theirs.or_masks(sliding, theirs.blockwise_overlay(state["groups"]))
            yield theirs.chunked_causal_mask_function(5, state["left"])
        for i, padded in itertools.product(range(6), (False, True)):
            def made(function):
                state = {"whole": torch.arange(24).reshape(2, 12) % 3 == 0, "groups": torch.arange(24).reshape(2, 12) // 4,
                         "left": torch.tensor([0, 3]), "counter": torch.tensor(5),
                         "padding": torch.arange(24).reshape(2, 12) % 13 > 1 if padded else None}
                mask = function(2, 3, 12, q_offset=state["counter"], mask_function=list(functions(state))[i],
                                attention_mask=state["padding"], allow_is_causal_skip=False)
                return mask, state
            wanted, _ = made(theirs.sdpa_mask)
            for read in (lambda x: x & True, lambda x: self.attention(types.SimpleNamespace(), q, k, k, x)[0]):
                mask, state = made(self.mask)
                for x in state.values():
                    if x is not None:
                        x.zero_()
                with self.subTest(function=i, padded=padded):
                    found, expected = read(mask), read(wanted.clone())
                    self.near(found.float(), expected.float())

    def test_a_single_query_that_sees_all_keys_needs_no_mask(self):
        sliding = masking_utils.sliding_window_causal_mask_function(4)
        whole, short = torch.ones(2, 9, dtype=torch.bool), torch.ones(2, 9, dtype=torch.bool)
        short[1, 0] = False
        for function, queries, keys, offset, start, padded, skip, none in (
                (None, 1, 9, 8, 0, None, True, True), (None, 1, 9, 8, 0, whole, True, True), (sliding, 1, 4, 8, 5, whole, True, True),
                (None, 1, 9, 8, 0, None, False, False), (None, 1, 9, 7, 0, None, True, False), (None, 1, 9, 8, 0, short, True, False),
                (sliding, 1, 9, 8, 0, None, True, False), (None, 2, 9, 7, 0, None, True, False)):
            found = self.mask(2, queries, keys, q_offset=offset, kv_offset=start, mask_function=function, attention_mask=padded,
                              allow_is_causal_skip=skip)
            self.assertEqual(found is None, none)

    def test_calls_like_earlier_ones_keep_to_what_attention_takes(self):
        """The shorter way, second call included, and calls that have to take the long way."""
        q, k, v = torch.randn(2, 4, 1, 8), torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 10)
        seen = torch.ones(2, 9, dtype=torch.bool)
        seen[1, :3] = False
        module = torch.nn.Identity()
        for padded, offset in itertools.product((None, seen), (8, 5)):
            mask = self.mask(2, 1, 9, q_offset=offset, attention_mask=padded)
            wanted = formula(q, k, v, mask.dense(), None)
            for _ in range(2):
                with unittest.mock.patch.object(attn.torch._transformers, "_refusal", side_effect=AssertionError):
                    self.near(self.attention(module, q, k, v, mask, scaling=0.3)[0], wanted)
        self.assertIsNotNone(self.attention(module, q, k, v, None, output_attentions=True)[1])
        before = attn.torch.calls()
        other = torch.nn.Identity()
        other.num_key_value_groups, other.sinks = 1, torch.nn.Parameter(torch.zeros(4))
        for refused, keys in ((other, k), (module, k[..., :7]), (module, k.double())):
            with self.assertRaises(attn.UnsupportedError):  # the file of Identity has no eager function
                self.attention(refused, q, keys, v, None, scaling=0.3)
        self.assertEqual(attn.torch.calls(), before)

    def test_static_caches(self):
        """Weights, whose masks are made after the cache has changed."""
        for kind, options in (("GptOss", {"sliding_window": 8, "num_local_experts": 2, "num_experts_per_tok": 1}), ("Llama", {}),
                              ("Gemma3Text", {"sliding_window": 8})):
            torch.manual_seed(3)
            config = getattr(transformers, kind + "Config")(
                vocab_size=97, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, head_dim=8, pad_token_id=0, initializer_range=0.2, **options)
            model = transformers.AutoModelForCausalLM.from_config(config).eval()
            ids, found = torch.randint(5, 97, (2, 9)), []
            for name in ("eager", "attn"):
                model.set_attn_implementation(name)
                result = model.generate(ids, max_new_tokens=6, do_sample=False, cache_implementation="static", output_attentions=True,
                                        disable_compile=True, output_logits=True, return_dict_in_generate=True)
                found.append(torch.stack(result.logits))
            self.near(found[1], found[0])


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

    def test_combinations(self):
        module = torch.nn.Identity()
        module.is_causal = True
        before = attn.torch.calls(verbose=True).count("\n")
        for mask, seen in self.masks():
            for softcap, sinks, shape in itertools.product(
                    (None, 2.0), (False, True), (None, (1, 4, 12, 12), (12, 12, 4), (1, 4, 1, 12), (9, 4))):
                tensors = [torch.randn(s, dtype=torch.float64) for s in (
                    (2, 4, 12, 8), (2, 2, 12, 8), (2, 2, 12, 10), (4,), shape or (1,))]
                q, k, v, sink, bias = (x.requires_grad_() for x in tensors)
                sink = sink if sinks else None
                bias = None if shape is None else bias
                leaf = bias
                if shape == (12, 12, 4):  # in memory as T5's
                    bias = bias.permute(2, 0, 1)[None]
                if shape == (9, 4):  # T5's
                    bias = arranged(embedding(drawn(12, 12, 9), leaf))
                added, floats = bias, mask is not None and seen is None
                if floats:
                    added = mask if bias is None else mask + bias
                found = self.attention(module, q, k, v, mask, scaling=0.3, softcap=softcap,
                                       s_aux=sink, position_bias=bias)[0]
                expected = formula(q, k, v, seen, added, softcap, sink)
                learned = [x for x in (q, k, v, sink, leaf) if x is not None]
                dout = torch.randn_like(expected)
                with self.subTest(mask=type(mask), softcap=softcap, sinks=sinks, bias=shape):
                    for x, y in zip([found, *torch.autograd.grad(found, learned, dout, retain_graph=True)],
                                    [expected, *torch.autograd.grad(expected, learned, dout)]):
                        self.assertLess(float((x - y).detach().abs().max()),
                                        1e-13 * float(y.detach().abs().max()))
        self.assertEqual(attn.torch.calls(verbose=True).count("\n"), before)

    def test_changes_without_a_trace(self):
        """What is written into a mask or a bias through .data or NumPy between two calls is seen; nothing is kept in it."""
        q, k = torch.randn(2, 4, 6, 8), torch.randn(2, 2, 7, 8)
        by_distance = torch.randn(12, 4)[torch.arange(7)[None] - torch.arange(6)[:, None] + 5]
        masks = {"bfloat16": torch.randn(2, 1, 6, 7).bfloat16(), "float16": torch.randn(1, 4, 6, 7).half(),
                 "heads last": torch.randn(1, 6, 7, 4).permute(0, 3, 1, 2), "by distance": arranged(by_distance),
                 "T5's": None}

        def by_data(x):
            x.data[..., 2, 3] = 9

        def by_numpy(x):
            (x.detach().view(torch.int16) if x.dtype == torch.bfloat16 else x.detach()).numpy()[..., 2, 3] = 9

        for (name, given), change, as_bias in itertools.product(masks.items(), (by_data, by_numpy), (True, False)):
            with self.subTest(name, change=change.__name__, as_bias=as_bias):
                if given is None:
                    leaf = torch.randn(12, 4, requires_grad=True)
                    index = torch.arange(7)[None] - torch.arange(6)[:, None] + 5
                    given = arranged(embedding(index, leaf))
                else:
                    given = given.clone(memory_format=torch.preserve_format)
                dtype = given.dtype if given.dtype != torch.float32 else torch.float32
                x, y = q.to(dtype), k.to(dtype)

                def computed(bias):
                    options = {"position_bias": bias} if as_bias else {"attention_mask": bias}
                    return self.attention(self.module(), x, y, y, is_causal=False, **options)[0]

                before = computed(given)
                change(given)
                after = computed(given)
                self.assertFalse(torch.equal(before, after))
                self.near(after.detach().float(), computed(given.detach().clone().contiguous()).detach().float(),
                          2e-2 if dtype == torch.bfloat16 else 2e-3)
                self.assertEqual(vars(given), {})

    def test_one_bias_for_several_layers(self):
        """Each layer reads the tensor as it is, and the layers' gradients are added up."""
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
        expected = self.attention(self.module(), q, k, v, given)[0]
        self.assertLess(float((torch.stack(draws).mean(0) - expected).abs().max()), 0.1)
        for everything in (given, self.mask(1, 6, 6), torch.rand(1, 1, 6, 6) < 0.7, torch.randn(1, 1, 6, 6)):
            o = self.attention(self.module(), q, k, v, everything, dropout=1.0, softcap=3.0)[0]
            self.assertTrue(torch.equal(o, torch.zeros(o.shape)))
        again = []
        for _ in range(2):
            torch.manual_seed(9)
            again.append(self.attention(self.module(), q, k, v, given, dropout=0.3)[0])
        self.assertTrue(torch.equal(*again))

    def module(self):
        return torch.nn.Identity()


class Distances(Registered):
    """Biases that depend only on the distance of key and query."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.addClassCleanup(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)  # small tensors: threads that wait cost most of the time on a busy machine

    def recognized(self, bias):
        """Whether a bias is read by distance; if so, table and index must have its numbers."""
        found = _distance.distances(bias)
        if found is None:
            return False
        _, heads, queries, keys = bias.shape
        self.assertEqual((found.indices.dtype, found.indices.shape), (torch.int32, (queries + keys - 1,)))
        self.assertEqual((found.table.dim(), found.table.shape[1]), (2, heads))
        same = arranged(found.table[found.indices.long()[distances(queries, keys)]])
        self.assertTrue(torch.equal(same.double(), bias.double()))
        return True

    def equal(self, found, expected, tolerance=1e-13):
        """Compares numbers of order 1; the gradient of a bias that is the same for all keys is 0."""
        self.assertEqual(found.shape, expected.shape)
        self.assertLess(float((found - expected).abs().max()), tolerance * max(1.0, float(expected.abs().max())))

    def layouts(self, values):
        """The numbers of values [1,H,q,k], arranged in memory in several ways."""
        for order in itertools.permutations(range(4)):
            back = sorted(range(4), key=order.__getitem__)
            yield values.permute(order).contiguous().permute(back)
        yield pad(values, (1, 2, 3, 1), value=9.0)[:, :, 3:-1, 1:-2]
        yield torch.stack([values, values + 1], -1)[..., 0]
        yield values[:, :1].expand(values.shape)

    def test_values(self):
        """Without a gradient a bias is recognized by its numbers, in each layout and type."""
        dtypes = torch.float32, torch.bfloat16, torch.float16
        shapes = (1, 2, 2), (3, 2, 5), (2, 5, 3), (2, 3, 1), (1, 19, 37)
        for dtype, (heads, queries, keys) in itertools.product(dtypes, shapes):
            table = torch.randn(queries + keys - 1, heads).to(dtype)
            table[0], table[-1] = torch.inf, -torch.inf
            for bias in self.layouts(arranged(table[distances(queries, keys)])):
                with self.subTest(dtype=dtype, shape=bias.shape, strides=bias.stride()):
                    self.assertTrue(self.recognized(bias))
        self.assertTrue(self.recognized(torch.zeros(1, 1, 1, 1).expand(1, 2, 3, 4)))

    def test_one_number(self):
        """The smallest change of one number counts, unless no other pair has its distance."""
        for heads, queries, keys in ((1, 2, 2), (3, 2, 5), (2, 5, 3), (2, 4, 4)):
            values = arranged(torch.randn(queries + keys - 1, heads)[distances(queries, keys)])
            for at in itertools.product(range(heads), range(queries), range(keys)):
                alone = at[1:] in ((0, keys - 1), (queries - 1, 0))
                for bias in (torch.stack([*values]), torch.stack([*values.mT]).mT):
                    bias[0][at] = torch.nextafter(bias[0][at], torch.tensor(torch.inf))
                    with self.subTest(shape=bias.shape, at=at, strides=bias.stride()):
                        self.assertEqual(self.recognized(bias), alone)
        bias = arranged(torch.randn(399, 2)[distances(170, 230)]).contiguous()
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            changed = bias.to(dtype, copy=True)
            for i, j in ((0, 0), (169, 229), (1, 229), (169, 1), (64, 128), (127, 63)):
                self.assertTrue(self.recognized(changed))
                before = changed[0, 1, i, j].clone()
                for value in (torch.inf, -torch.inf, torch.nan, before * 1.01):
                    changed[0, 1, i, j] = value
                    self.assertFalse(self.recognized(changed))
                changed[0, 1, i, j] = before

    def results(self, attention, leaf, make, change, sizes=(3, 5, 8)):
        """The bias, and the result of two layers with it and the gradients."""
        torch.manual_seed(7)
        heads, *lengths = sizes
        tensors = [torch.randn(2, heads, n, 4, dtype=leaf.dtype) for n in (*lengths, lengths[1])]
        qkv, leaf = [x.requires_grad_() for x in tensors], torch.nn.Parameter(leaf.clone())
        bias = make(leaf)
        change(leaf, bias)
        o = attention(*qkv, bias).sin() + attention(*qkv, bias)
        (o * torch.randn(o.shape, dtype=o.dtype)).sum().backward()
        kept = [bias.grad] if bias.is_leaf or bias.retains_grad else []
        return bias, [o.detach(), *(x.grad for x in (*qkv, leaf)), *kept]

    def same_as_formula(self, leaf, make, change=lambda leaf, bias: None, **options):
        """Compares attn with the formula, and returns the bias that attn had."""
        def computed(q, k, v, bias):
            return self.attention(types.SimpleNamespace(is_causal=False), q, k, v, scaling=0.3, position_bias=bias)[0]

        bias, found = self.results(computed, leaf, make, change, **options)
        expected = self.results(lambda q, k, v, bias: formula(q, k, v, None, bias), leaf, make, change, **options)[1]
        self.assertEqual(len(found), len(expected))
        for x, y in zip(found, expected):
            self.equal(x.to_dense(), y.to_dense())
        return bias

    def embeddings(self):
        """Biases made of a table: name, how, whether read by distance."""
        index, pairs = drawn(5, 8, 6), torch.randint(6, (5, 8))
        other = index.clone()
        other[2, 3] = (other[2, 3] + 1) % 6

        def t5(function=lambda e: e, given=index, **options):
            return lambda w: arranged(function(embedding(given, w, **options)))

        def module(hook=None):
            def make(w):
                found = torch.nn.Embedding(6, 3)
                found.weight = w
                if hook is not None:
                    found.register_full_backward_hook(hook)
                return arranged(found(index))
            return make

        yield "T5", t5(), True
        yield "T5's module", module(), True
        yield "int32", t5(given=index.int()), True
        yield "few rows", t5(given=index.clamp(1, 2)), True
        yield "index in columns", t5(given=index.T.contiguous().T), True
        yield "module with hook", module(lambda m, gi, go: (gi[0] * 2,) if gi[0] is not None else None), False
        yield "pairs", t5(given=pairs), False
        yield "i + j", t5(given=distances(5, 8).flip(0) % 6), False
        yield "one pair", t5(given=other), False
        yield "padding_idx", t5(padding_idx=2), False
        yield "sparse", t5(sparse=True), False
        yield "scale_grad_by_freq", t5(scale_grad_by_freq=True), False
        yield "product", lambda w: t5()(w * 2), False
        yield "view", lambda w: t5()(w.view(6, 3)), False
        yield "part of a parameter", lambda w: t5(given=index % 5)(w[:5]), False
        yield "indexed", lambda w: arranged(w[index]), False
        yield "dropout", t5(lambda e: dropout(e, 0.3)), False
        yield "addition", t5(lambda e: e + 1.0), False
        yield "addition after", lambda w: t5()(w) + 1.0, False
        yield "sum", lambda w: t5()(w) + t5(given=pairs)(w), False
        yield "clone", lambda w: t5()(w).clone(), False
        yield "slice", lambda w: arranged(embedding(drawn(5, 9, 6), w))[..., :8], False
        yield "identity slice", lambda w: t5()(w)[:], False
        yield "other heads", lambda w: t5()(w)[:, [1, 0, 2]], False
        yield "detached", lambda w: t5()(w).detach() + t5()(w), False
        yield "zeros", lambda w: t5()(w) * 0, False

    def test_embeddings(self):
        """With a gradient only T5's form is recognized; the gradients are those of the dense bias."""
        leaf = torch.randn(6, 3, dtype=torch.float64)
        for name, make, expected in self.embeddings():
            with self.subTest(name):
                bias = self.same_as_formula(leaf, make)
                self.assertEqual(self.recognized(make(torch.nn.Parameter(leaf))), expected)
                with torch.no_grad():
                    self.assertEqual(self.recognized(bias), self.recognized(bias.clone()))
        for value in (torch.zeros, torch.ones):
            leaf = value(1, 3, 5, 8, dtype=torch.float64)
            self.assertFalse(self.recognized(self.same_as_formula(leaf, lambda w: w)))

    def test_axes(self):
        """With a gradient only T5's order of axes is recognized, though all axes have one length."""
        leaf, index = torch.randn(4, 4, dtype=torch.float64), drawn(4, 4, 4)
        for order in itertools.permutations(range(3)):
            with self.subTest(order=order):
                def make(w, order=order):
                    return embedding(index, w).permute(order).unsqueeze(0)

                self.same_as_formula(leaf, make, sizes=(4, 4, 4))
                self.assertEqual(self.recognized(make(leaf)), order in ((2, 0, 1), (2, 1, 0)))
                self.assertEqual(self.recognized(make(torch.nn.Parameter(leaf))), order == (2, 0, 1))

    def test_changes(self):
        """Hooks, retained gradients and changes after the embedding act as on the dense bias."""
        def without(change):
            return torch.no_grad()(change)

        def replaced(leaf, bias):
            leaf.data = leaf.data * 2

        changes = {
            "hook": lambda leaf, bias: bias.register_hook(lambda g: g * 2),
            "retain_grad": lambda leaf, bias: bias.retain_grad(),
            "bias times 2": lambda leaf, bias: bias.mul_(2),
            "bias times 2 without a gradient": without(lambda leaf, bias: bias.mul_(2)),
            "bias masked": without(lambda leaf, bias: bias[..., 1:3].fill_(-9)),
            "parameter times 2": without(lambda leaf, bias: leaf.mul_(2)),
            "parameter's data times 2": lambda leaf, bias: leaf.data.mul_(2),
            "parameter's data replaced": replaced}
        leaf, index = torch.randn(6, 3, dtype=torch.float64), drawn(5, 8, 6)
        for name, change in changes.items():
            with self.subTest(name):
                self.same_as_formula(leaf, lambda w: arranged(embedding(index, w)), change)
                parameter = torch.nn.Parameter(leaf.clone())
                bias = arranged(embedding(index, parameter))
                self.assertTrue(self.recognized(bias))
                change(parameter, bias)
                self.assertFalse(self.recognized(bias))
        calls = []

        def hooks(leaf, bias):
            leaf.register_hook(lambda g: g * 2)
            leaf.register_post_accumulate_grad_hook(calls.append)

        self.same_as_formula(leaf, lambda w: arranged(embedding(index, w)), hooks)
        self.assertEqual(len(calls), 2)

    def test_shapes_and_masks(self):
        """Parts of the bias, lengths, masks and requests of weights."""
        theirs, zeros = masking_utils, torch.zeros(2, dtype=torch.int64)
        padding = torch.ones(2, 12, dtype=torch.bool)
        padding[1, :3], padding[0, 10:] = False, False
        window, chunks = theirs.sliding_window_causal_mask_function(3), theirs.chunked_causal_mask_function(5, zeros)
        parts = (lambda b: b, lambda b: b[:, :1], lambda b: b[:, :, -1:], lambda b: b[..., :1], lambda b: b[0],
                 lambda b: b[0, 0], lambda b: b.expand(2, -1, -1, -1), lambda b: b[:, :1, :1, :1])
        for queries, keys, first in ((12, 12, 0), (4, 12, 2), (3, 12, 9), (1, 12, 11)):
            index, sizes = drawn(queries, keys, 9), {"q_length": queries, "kv_length": keys, "q_offset": first}
            masks = [self.mask(2, mask_function=function, attention_mask=rows, **sizes)
                     for function in (theirs.causal_mask_function, window, chunks) for rows in (None, padding)]
            masks = [None, torch.randn(2, 1, queries, keys, dtype=torch.float64), *masks]
            pairs = [*itertools.product(masks, (0,)), *itertools.product(masks[:3], range(1, len(parts)))]
            for (mask, part), learned in itertools.product(pairs, (True, False)):
                leaf = torch.randn(9, 4, dtype=torch.float64, requires_grad=learned)
                q, k, v = (torch.randn(2, heads, n, 8, dtype=torch.float64, requires_grad=True)
                           for heads, n in ((4, queries), (2, keys), (2, keys)))
                bias, floats = parts[part](arranged(embedding(index, leaf))), mask is masks[1]
                module = types.SimpleNamespace(is_causal=False)
                found = [self.attention(module, q, k, v, mask, scaling=0.3, position_bias=bias, **options)[0]
                         for options in ({}, {"output_attentions": True})]
                seen = None if mask is None or floats else mask.dense()
                expected = formula(q, k, v, seen, bias + mask if floats else bias)
                inputs, dout = [q, k, v] + [leaf] * learned, torch.randn_like(expected)
                results = [[o, *torch.autograd.grad(o, inputs, dout, retain_graph=True)] for o in (*found, expected)]
                with self.subTest(mask=repr(mask), part=part, learned=learned, **sizes):
                    for *both, y in zip(*results):
                        for x in both:
                            self.equal(x.detach(), y.detach())

    def t5(self, kind=transformers.T5Model, **options):
        """A random T5 whose biases matter."""
        config = kind.config_class(
            vocab_size=31, d_model=16, d_kv=4, d_ff=24, num_layers=2, num_decoder_layers=2, num_heads=2,
            dropout_rate=0.0, relative_attention_num_buckets=8, relative_attention_max_distance=12,
            decoder_start_token_id=0, **options)
        model = kind(config).train()
        for name, parameter in model.named_parameters():
            if "relative_attention_bias" in name:
                torch.nn.init.normal_(parameter)
        return model

    def inputs(self):
        padding, later = torch.ones(2, 11, dtype=torch.long), torch.ones(2, 7, dtype=torch.long)
        padding[0, :2], padding[1, 8:], later[1, 5:] = 0, 0, 0
        return {"input_ids": torch.randint(1, 31, (2, 11)), "attention_mask": padding,
                "decoder_input_ids": torch.randint(1, 31, (2, 7)), "decoder_attention_mask": later}

    def both(self, model, use):
        """The result of `use` on a model, and the gradients, by attn and by the eager function."""
        results = []
        for implementation in ("attn", "eager"):
            copied = copy.deepcopy(model)
            copied.set_attn_implementation(implementation)
            torch.manual_seed(11)
            with unittest.mock.patch.object(_distance, "distances", wraps=_distance.distances) as asked:
                found = use(copied)
            self.assertEqual(asked.called, implementation == "attn")
            gradients = {name: p.grad for name, p in copied.named_parameters()}
            self.assertTrue(any("relative_attention_bias" in name for name in gradients))
            results.append({"output": found.detach(), **gradients})
        return results

    def test_t5(self):
        """Models with padding, layers that share the bias, checkpoints, copies and steps."""
        inputs, other = self.inputs(), self.inputs()

        def output(model, inputs=inputs):
            return model(**inputs, use_cache=False).last_hidden_state

        def loss(o):
            return (o * torch.randn(o.shape).to(o.dtype)).sum()

        def plain(model):
            o = output(model)
            loss(o).backward()
            return o

        def evaluated(model):
            with torch.no_grad():
                o = output(model)
            loss(output(model.eval())).backward()
            return o

        def checkpoints(reentrant):
            def use(model):
                model.gradient_checkpointing_enable({"use_reentrant": reentrant})
                return plain(model)
            return use

        def copied(model):
            plain(model)
            again = copy.deepcopy(model)
            o = plain(again)
            for p, x in zip(model.parameters(), again.parameters()):
                p.grad += 2 * x.grad
            return o

        def two_backward_passes(model):
            o = output(model)
            loss(o).backward(retain_graph=True)
            loss(o).backward()
            return o

        def two_forward_passes(model):
            first, second = output(model), output(model, other)
            loss(second).backward()
            loss(first).backward()
            return first

        def steps(model):
            optimizer = torch.optim.SGD(model.parameters(), 0.01)
            for given in (inputs, other):
                optimizer.zero_grad()
                o = output(model, given)
                loss(o).backward()
                optimizer.step()
            return o

        def frozen(model):
            for name, parameter in model.named_parameters():
                parameter.requires_grad_("relative_attention_bias" not in name)
            return plain(model)

        def biases_only(model):
            for name, parameter in model.named_parameters():
                parameter.requires_grad_("relative_attention_bias" in name)
            return plain(model)

        uses = (plain, evaluated, checkpoints(True), checkpoints(False), copied, two_backward_passes,
                two_forward_passes, steps, frozen, biases_only)
        models = self.t5().double(), self.t5(transformers.UMT5Model).double()
        for model, use in (*itertools.product(models[:1], uses), (models[1], plain)):
            found, expected = self.both(model, use)
            for name, x in found.items():
                with self.subTest(use=use.__name__, name=name):
                    self.assertEqual(x is None, expected[name] is None)
                    if x is not None:
                        self.equal(x, expected[name], 1e-12)

    def test_t5_in_halves(self):
        """In bfloat16 and under autocast attn is as near to float64 as the eager function."""
        inputs = self.inputs()

        def use(model):
            o = model(**inputs, use_cache=False).last_hidden_state
            (o * torch.randn(o.shape)).sum().backward()
            return o

        def autocast(model):
            with torch.autocast("cpu", torch.bfloat16):
                return use(model)

        model = self.t5(feed_forward_proj="gated-gelu").bfloat16()
        exact = self.both(copy.deepcopy(model).double(), use)[1]
        for kind, function in ((torch.bfloat16, use), (torch.float32, autocast)):
            found, expected = ([float((x - exact[name]).norm() / exact[name].norm()) for name, x in result.items()]
                             for result in self.both(copy.deepcopy(model).to(kind), function))
            self.assertLess(max(found), 3 * max(expected))
            self.assertLess(sum(found), 1.5 * sum(expected))

    def test_t5_without_gradients(self):
        """Tokens one by one, several tokens after those in the cache, and weights."""
        model, given = self.t5(transformers.T5ForConditionalGeneration).eval(), self.inputs()
        start, results = given.pop("decoder_input_ids"), []
        del given["decoder_attention_mask"]
        for implementation in ("attn", "eager"):
            model.set_attn_implementation(implementation)
            with torch.no_grad():
                generated = model.generate(**given, max_new_tokens=6, min_new_tokens=6, do_sample=False, output_logits=True,
                                           return_dict_in_generate=True)
                whole, cache, parts = model(**given, decoder_input_ids=start, output_attentions=True), None, []
                for part in start.split((3, 1, 3), 1):
                    found = model(**given, decoder_input_ids=part, past_key_values=cache, use_cache=True)
                    cache = found.past_key_values
                    parts.append(found.logits)
            self.near(torch.cat(parts, 1), whole.logits)
            results.append([generated.sequences, *generated.logits, *parts, *whole.encoder_attentions, *whole.decoder_attentions])
        self.assertEqual(*map(len, results))
        for found, expected in zip(*results):
            self.near(found, expected)


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
        expected = self.logits()
        self.assertTrue(torch.equal(self.logits(copy.deepcopy(self.model)), expected))
        self.assertTrue(torch.equal(self.logits(pickle.loads(pickle.dumps(self.model))), expected))

    def test_some_gradients(self):
        """With frozen parameters and with checkpointing the gradients are the same."""
        expected = self.gradients()
        names = [name for name, _ in self.model.named_parameters()]
        for reentrant in (False, True):
            self.model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            for found, x in zip(self.gradients(self.model.train()), expected):
                self.near(found, x)
        self.model.gradient_checkpointing_disable()
        for name, parameter in self.model.eval().named_parameters():
            parameter.requires_grad_("k_proj" in name)
        chosen = [x for name, x in zip(names, expected) if "k_proj" in name]
        found = self.gradients()
        self.assertEqual(len(found), len(chosen))
        for x, y in zip(found, chosen):
            self.near(x, y)

    def test_two_threads(self):
        expected = self.logits().detach()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for found in pool.map(lambda _: self.logits().detach(), range(6)):
                self.assertTrue(torch.equal(found, expected))

    def test_compile(self):
        """One graph, forward and backward, and the eager function where weights are requested."""
        expected, gradients = self.logits().detach(), self.gradients()
        compiled = torch.compile(self.model, backend="aot_eager", fullgraph=True)
        self.near(self.logits(compiled).detach(), expected)
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
                expected = self.model(self.ids, use_cache=False, **options).logits
                with attn.torch.record_weights() as weights:
                    found = self.model(self.ids, use_cache=False, **options).logits
                self.model.set_attn_implementation("eager")
                eager = self.model(self.ids, use_cache=False, output_attentions=True, **options).attentions
                self.model.set_attn_implementation("attn")
            self.assertTrue(torch.equal(found, expected))
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
