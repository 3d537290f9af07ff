# SPDX-License-Identifier: MIT
"""Models against NumPy formulas: outputs, weights on demand, gradients; modes, state, errors."""
import re
import unittest

import attn
import numpy as np
from attn import _library
from formulas import differences, distance, every
from numpy_layers import LAYERS


class Formulas(unittest.TestCase):
    def test_outputs(self):
        for name, (config, inputs, formula) in LAYERS.items():
            for dtype, tolerance in ((np.float32, 2e-6), (np.float64, 1e-12)):
                model = attn.build(name, config, seed=3, dtype=dtype)
                wanted = formula(model.state_dict(), inputs)
                given = {k: x.astype(dtype) if x.dtype.kind == "f" else x for k, x in inputs.items()}
                got = model(**given, outputs=list(wanted))
                got = got if isinstance(got, tuple) else (got,)
                for (output, w), g in zip(wanted.items(), got):
                    with self.subTest(layer=name, output=output, dtype=np.dtype(dtype).name):
                        self.assertEqual(g.dtype, dtype)
                        self.assertLess(distance(g, w), tolerance)

    def test_gradients(self):
        """Compares gradients with difference quotients of the formula, not of the model."""
        for name, (config, inputs, formula) in LAYERS.items():
            model = attn.build(name, config, seed=4, dtype=np.float64)
            state = {k: v.copy() for k, v in model.state_dict().items()}
            out = model(**inputs)
            dout = np.random.default_rng(1).standard_normal(out.shape)
            grads = {**model.backward(dout), **model.grads()}
            self.assertEqual(set(model.grads()), set(state))

            def loss(**changed):
                w = {k: changed.get(k, v) for k, v in state.items()}
                x = {k: changed.get(k, v) for k, v in inputs.items()}
                return (next(iter(formula(w, x).values())) * dout).sum()
            for part in (state, {k: x for k, x in inputs.items() if x.dtype.kind == "f"}):
                for key, value in part.items():
                    with self.subTest(layer=name, gradient=key):
                        wanted = differences(lambda x, key=key: loss(**{key: x}), value)
                        self.assertLess(np.abs(grads[key] - wanted).max(), 1e-7 * max(1, np.abs(wanted).max()))

    def test_the_gradient_may_be_given_by_output(self):
        model = attn.build("self-attention", {"dim": 6, "heads": 2}, seed=1)
        x = np.ones((1, 3, 6), np.float32) * np.arange(3, dtype=np.float32)[None, :, None]
        model(x)
        wanted = model.backward(np.ones_like(x))["x"]
        out, weights = model(x, outputs=("out", "weights"))
        np.testing.assert_array_equal(model.backward({"out": np.ones_like(x)})["x"], wanted)
        model(x, outputs=("weights", "out"))
        with self.assertRaisesRegex(attn.ArgumentError, "not an output of the latest call, whose outputs are weights, out"):
            model.backward({"y": np.ones_like(x)})
        with self.assertRaisesRegex(attn.ArgumentError, "the result depends on no recorded tensor"):
            model.backward(np.ones_like(weights))  # no gradient flows through attention weights


class Calls(unittest.TestCase):
    def setUp(self):
        self.model = attn.build("self-attention", {"dim": 6, "heads": 2}, seed=1)
        self.x = np.random.default_rng(0).standard_normal((2, 4, 6)).astype(np.float32)

    def test_fma_does_without_amx(self):
        model = attn.build("detr-ffn", {"d": 4}, precision="fma")
        self.assertEqual(model.precision, "fma")
        self.assertNotEqual(_library.lib.context_isa(model._context.pointer), b"amx")

    def test_inputs_by_place_and_name(self):
        one = self.model(self.x)
        np.testing.assert_array_equal(one, self.model(x=self.x))
        np.testing.assert_array_equal(one, self.model(self.x, None))
        np.testing.assert_array_equal(one, self.model(self.x.tolist()))
        np.testing.assert_array_equal(one, self.model(np.asfortranarray(self.x)))
        self.assertGreater(distance(self.model(self.x, self.x[:, :2]), one), 0.01)

    def test_wrong_calls_are_named(self):
        for error, text, call in (
                (attn.ArgumentError, "has no input 'y'; its inputs: x, kv", lambda: self.model(y=self.x)),
                (attn.ArgumentError, "given twice", lambda: self.model(self.x, x=self.x)),
                (attn.ArgumentError, "takes 2 inputs", lambda: self.model(self.x, self.x, self.x)),
                (attn.ArgumentError, "input x .* is missing", lambda: self.model()),
                (attn.ArgumentError, "has no output 'w'; its outputs: out, weights",
                 lambda: self.model(self.x, outputs=["w"])),
                (attn.ArgumentError, "expected real numbers", lambda: self.model(np.ones((1, 2, 6), int))),
                (attn.ShapeError, "6", lambda: self.model(self.x[..., :5])),
                (attn.Error, "", lambda: self.model(self.x[0, 0])),
                (TypeError, "complex", lambda: self.model(self.x + 0j))):
            with self.assertRaisesRegex(error, text):
                call()
        self.assertEqual(self.model(self.x).shape, self.x.shape)  # works on

    def test_backward_needs_a_call(self):
        with self.assertRaisesRegex(attn.ArgumentError, "no call"):
            self.model.backward(self.x)
        with self.model.no_grad():
            self.model(self.x)
        with self.assertRaisesRegex(attn.ArgumentError, "no_grad"):
            self.model.backward(self.x)
        y = self.model(self.x)
        with self.assertRaisesRegex(attn.ShapeError, r"\(2, 4, 5\), but the output has \(2, 4, 6\)"):
            self.model.backward(y[..., :5])
        with self.assertRaisesRegex(attn.ArgumentError, "give its gradient"):
            self.model.backward()
        self.model.backward(y)
        with self.assertRaisesRegex(attn.ArgumentError, "no call"):
            self.model.backward(y)

    def test_gradients_add_up_until_cleared(self):
        def step():
            self.model.backward(np.ones_like(self.model(self.x)))
            return self.model.grads()["to_q.weight"]
        once = step()
        before = once.copy()
        twice = step()
        np.testing.assert_array_equal(once, before)  # a returned array does not change
        np.testing.assert_allclose(twice, 2 * before, rtol=1e-6)
        self.model.zero_grad()
        self.assertEqual(self.model.grads(), {})
        np.testing.assert_array_equal(step(), before)

    def test_an_input_that_takes_no_part_has_a_gradient_of_zeros(self):
        model = attn.build("dot-product-attention", {})
        q = self.x[:, :1]
        out = model(q, q[:, :1], q[:, :1])  # a single key has weight 1 for any query
        self.assertEqual(np.abs(model.backward(np.ones_like(out))["queries"]).max(), 0)

    def test_lengths_given_as_reals_have_no_gradient(self):
        model = attn.build("dot-product-attention", {})
        out = model(self.x, self.x, self.x, np.array([2.0, 4.0]))
        np.testing.assert_array_equal(out, model(self.x, self.x, self.x, np.array([2, 4], np.int8)))
        self.assertEqual(list(model.backward(out)), ["queries", "keys", "values"])

    def test_training_drops_and_repeats(self):
        config = {"num_hiddens": 8, "num_heads": 2, "dropout": 0.5}
        x = np.ones((1, 40, 8), np.float32) * np.arange(40, dtype=np.float32)[None, :, None] / 40

        def runs(seed, train):
            model = attn.build("multi-head-attention", config, seed=seed).train(train)
            return [model(x, x, x).copy() for _ in range(2)]
        quiet, dropped, again = runs(1, False), runs(1, True), runs(1, True)
        np.testing.assert_array_equal(quiet[0], quiet[1])
        self.assertGreater(distance(dropped[0], quiet[0]), 1e-3)
        self.assertGreater(distance(dropped[1], dropped[0]), 1e-3)
        np.testing.assert_array_equal(dropped, again)
        self.assertFalse(attn.build("detr-ffn", {"d": 3}).train().eval().training)

    def test_seeds(self):
        weights = [attn.build("self-attention", {"dim": 6, "heads": 2}, seed=s).state_dict()["to_q.weight"]
                   for s in (1, np.int64(1), 2)]
        np.testing.assert_array_equal(weights[0], weights[1])
        model = attn.build("detr-ffn", {"d": 4}, seed=np.int8(-3), dtype=np.dtype(np.float32).newbyteorder())
        self.assertEqual(model(np.ones((1, 4), np.float32)).shape, (1, 4))
        self.assertEqual(model.backward(np.ones((1, 4)))["x"].dtype, np.float32)
        self.assertEqual(model.dtype, np.float32)
        self.assertGreater(distance(weights[2], weights[0]), 0.1)


class State(unittest.TestCase):
    config = {"dim": 6, "heads": 2}

    def test_writing_to_a_parameter_changes_the_model(self):
        model = attn.build("self-attention", self.config)
        x = np.ones((1, 2, 6), np.float32)
        state = model.state_dict()
        state["to_out.weight"][:] = 0
        state["to_out.bias"][:] = np.arange(6)
        np.testing.assert_array_equal(model(x)[0, 1], np.arange(6))

    def test_parameters_outlive_the_model_in_hand(self):
        state = attn.build("self-attention", self.config, seed=5).state_dict()
        other = attn.build("self-attention", self.config, weights=state)
        for name, array in other.state_dict().items():
            np.testing.assert_array_equal(array, state[name])

    def test_everything_that_does_not_fit_is_listed_and_nothing_changed(self):
        model = attn.build("self-attention", self.config, seed=5)
        before = {k: v.copy() for k, v in model.state_dict().items()}
        wrong = {"to_q.weight": np.zeros((6, 5)), "to_kv.weight": np.zeros((12, 6)), "other": np.zeros(2), "b.c": 1.0}
        with self.assertRaises(attn.ShapeError) as caught:
            model.load_state_dict(wrong)
        text = str(caught.exception)
        for part in ("to_q.weight", "[6,6]", "[6,5]", "to_out.weight", "to_out.bias", "other [2]", "b.c"):
            self.assertIn(part, text)
        for name, array in model.state_dict().items():
            np.testing.assert_array_equal(array, before[name])
        model.load_state_dict({"to_kv.weight": np.ones((12, 6)), "other": np.zeros(2)}, strict=False)
        self.assertEqual(model.state_dict()["to_kv.weight"].min(), 1)

    def test_float64_arrays_become_the_parameters_type(self):
        model = attn.build("detr-ffn", {"d": 3, "hidden": 2})
        model.load_state_dict({k: np.full(v.shape, 0.1) for k, v in model.state_dict().items()})
        self.assertEqual(model.state_dict()["ffn_layers.0.weight"][0, 0], np.float32(0.1))

    def test_inputs_of_16_bits_are_converted(self):
        model = attn.build("detr-ffn", {"d": 3, "hidden": 2})
        x = np.random.default_rng(0).standard_normal((2, 4, 3)).astype(np.float16)
        for array in (x, x.astype(">f2")):
            np.testing.assert_array_equal(model(array), model(x.astype(np.float32)))


class Building(unittest.TestCase):
    def test_the_table_of_architectures(self):
        table = attn.architectures()
        self.assertGreater(len(table), 15)
        a = table["multi-head-attention"]
        self.assertEqual([p.name for p in a.inputs], ["queries", "keys", "values", "valid_lens"])
        self.assertTrue(a.inputs[3].optional and a.inputs[3].integer)
        keys = {key.name: key for key in a.keys}
        self.assertEqual((keys["dropout"].type, keys["dropout"].default), ("float", "0"))
        self.assertEqual(set(table["nadaraya-watson"].keys[0].choices) >= {"gaussian", "boxcar"}, True)

    def test_config_comes_back_with_defaults(self):
        model = attn.build("axial-attention", {"dim": np.int64(8), "heads": 2})
        self.assertEqual(model.config["dim"], 8)
        self.assertEqual(model.config["num_dimensions"], 2)
        self.assertIs(model.config["sum_axial_out"], True)
        self.assertEqual(model.architecture.name, "axial-attention")

    def test_wrong_configs_say_what_is_allowed(self):
        for error, text, name, config in (
                (attn.NotFoundError, "no architecture \"selfattention\"", "selfattention", {}),
                (attn.ArgumentError, "no key \"dims\"; did you mean \"dim\".; the keys are: dim, heads", "self-attention", {"dims": 3}),
                (attn.ArgumentError, "must be an integer, not a text", "self-attention", {"dim": "3"}),
                (attn.ArgumentError, "must be an integer, not a number", "self-attention", {"dim": 3.5}),
                (attn.ArgumentError, "allowed: gaussian", "nadaraya-watson", {"kernel": "epanechnikow"}),
                (attn.ArgumentError, "allowed: 0 to 0.99", "dot-product-attention", {"dropout": 2}),
                (attn.ArgumentError, "heads", "self-attention", {"dim": 6, "heads": 4}),
                (attn.ArgumentError, "set", "self-attention", {"dim": {3}}),
                (attn.ArgumentError, "config", "self-attention", {"dim": float("nan")})):
            with self.subTest(text=text), self.assertRaisesRegex(error, text):
                attn.build(name, config)
        with self.assertRaisesRegex(attn.ArgumentError, "float32 or float64"):
            attn.build("detr-ffn", {"d": 3}, dtype=np.float16)


def built(name, config, **options):
    return attn.build(name, config, dtype=np.float64, seed=3, **options)


class Claims(unittest.TestCase):
    """Statements of texts about attention (docs/seeds.md) on their layers, by value."""

    random = np.random.default_rng(5)

    def weights(self, name, config, x, output="weights"):
        return built(name, config).eval()(x, outputs=(output,))

    def test_each_kind_computes_so_many_weights(self):
        rows, columns, d = 6, 10, 8
        n = rows * columns
        image, channels = self.random.standard_normal((1, rows, columns, d)), {"dim": d, "heads": 1}
        image_first, lines = image.transpose(0, 3, 1, 2), image[0][:, :, None]
        window = {"in_channels": d, "mid_channels": d, "out_channels": d, "num_heads": 1, "kernel_size": 3, "padding": "mask"}
        one, row = {"M": 1, "d": d, "d_head": d}, {"embed_dim": d, "num_heads": 1}
        flat = image.reshape(1, n, d)
        vit = {"img_size": 96, "patch_size": 16, "num_hiddens": 8, "mlp_num_hiddens": 8, "num_heads": 1, "num_blks": 1}
        for wanted, found in (
                (n * n, self.weights("self-attention", channels, flat)),
                (n * (rows + columns), self.weights("axial-attention", channels, image)),
                (rows * columns ** 2, self.weights("row-self-attention", {**row, "tied": False}, lines, "attention")),
                (columns ** 2, self.weights("row-self-attention", row, lines, "attention")),
                (columns * rows ** 2, self.weights("column-self-attention", row, lines, "attention")),
                ((3 * rows - 2) * (3 * columns - 2), self.weights("local-self-attention", window, image_first)),
                (n * n // 4, self.weights("non-local", {"in_channels": d, "dimension": 2}, image_first, "nl_map")),
                (n, self.weights("key-content-attention", one, flat)),
                ((96 * 96 // 16 ** 2 + 1) ** 2, self.weights("vit", vit, self.random.standard_normal((1, 3, 96, 96))))):
            self.assertEqual(np.count_nonzero(found), wanted)

    def test_recurrence_and_convolution_have_so_many_products_a_position(self):
        d = 8
        sizes = {name: x.size for name, x in built("seq2seq-attention", {
            "vocab_size": 10, "embed_size": d, "num_hiddens": d, "num_layers": 1}).state_dict().items()}
        self.assertEqual(sizes["encoder.rnn.weight_ih_l0"] + sizes["encoder.rnn.weight_hh_l0"], 6 * d * d)
        sizes = {name: x.size for name, x in built("axial-image-transformer", {"dim": d, "depth": 1}).state_dict().items()}
        self.assertEqual(sizes["layers.blocks.1.f.net.1.weight"], 3 * 3 * d * 4 * d)

    def test_axes_in_turn_reach_every_place(self):
        x = self.random.standard_normal((1, 6, 5, 8))
        moved = x + (np.indices(x.shape[1:3]) == np.array([2, 3])[:, None, None]).all(0)[:, :, None]
        for both, wanted in ((True, 6 + 5 - 1), (False, 6 * 5)):
            layer = built("axial-attention", {"dim": 8, "heads": 2, "sum_axial_out": both})
            self.assertEqual((np.abs(layer(moved) - layer(x)).max(-1) > 1e-9).sum(), wanted)

    def test_windows_reach_further_with_each_layer_and_move_with_the_image(self):
        x = self.random.standard_normal((1, 4, 12, 11))
        config = {"in_channels": 4, "mid_channels": 4, "out_channels": 4, "num_heads": 1, "kernel_size": 3}
        for relative in False, True:
            layer = built("local-self-attention", {**config, "relative": relative})
            shifted, inside = (np.roll(a, (2, 3), (2, 3)) for a in (x, layer(x))), np.s_[..., 3:-1, 4:-1]
            self.assertLess(distance(layer(next(shifted))[inside], next(shifted)[inside]), 1e-12)
        moved = x.copy()
        moved[..., 6, 5] += 1
        for layers in 1, 2, 3:
            x, moved = layer(x), layer(moved)
            self.assertEqual((np.abs(x - moved).max(1) > 1e-15).sum(), (1 + 2 * layers) ** 2)

    def test_without_positions_outputs_are_rearranged_as_inputs(self):
        x, order = self.random.standard_normal((1, 9, 8)), self.random.permutation(9)
        for positions in False, True:
            layer = built("self-attention", {"dim": 8, "heads": 2})
            given = (x, x[:, order])
            if positions:
                given = tuple(map(built("positional-encoding", {"num_hiddens": 8}), given))
            plain, arranged = map(layer, given)
            self.assertEqual(distance(arranged, plain[:, order]) < 1e-12, not positions)

    def test_an_offset_rotates_each_pair_of_positions(self):
        table = built("positional-encoding", {"num_hiddens": 32})(np.zeros((1, 60, 32)))[0]
        for offset in 1, 7:
            angle = offset / 10000 ** (np.arange(0, 32, 2) / 32)
            sine, cosine = table[:-offset, 0::2], table[:-offset, 1::2]
            later = table[offset:]
            self.assertLess(distance(later[:, 0::2], np.cos(angle) * sine + np.sin(angle) * cosine), 1e-12)
            self.assertLess(distance(later[:, 1::2], np.cos(angle) * cosine - np.sin(angle) * sine), 1e-12)

    def test_kernels_depend_on_distances_alone(self):
        keys, queries, labels = (self.random.standard_normal(shape) for shape in ((30, 8), (5, 8), (30, 2)))
        turn = np.linalg.qr(self.random.standard_normal((8, 8)))[0]
        for kernel in "gaussian", "boxcar", "constant", "epanechnikov":
            layer = built("nadaraya-watson", {"kernel": kernel, "sigma": 6})
            here, there = (layer(a, labels, b, outputs=("weights",)) for a, b in
                           ((keys, queries), (keys @ turn + 2, queries @ turn + 2)))
            self.assertLess(distance(there, here), 1e-12)
        keys /= np.linalg.norm(keys, axis=1, keepdims=True) / 3
        wanted = built("dot-product-attention", {})(queries[None], keys[None], labels[None])[0]
        self.assertLess(distance(built("nadaraya-watson", {"sigma": 8 ** 0.25})(keys, labels, queries), wanted), 1e-12)

    def test_scaled_scores_have_the_variance_one(self):
        for d in 4, 64, 1024:
            q, k = self.random.standard_normal((2, 1, 200, d))
            self.assertLess(abs(attn.attend(q, k, np.eye(200)[None], normalization="none").var() - 1), 0.2)

    def test_first_weights_of_heads_have_the_deviation_of_xavier(self):
        for init, variance in ("torch", 2 / (64 * 16 + 4 * 16)), ("xavier", 2 / (64 + 4 * 16)):
            for name in "detr-multi-head-attention", "key-content-attention":
                first = built(name, {"M": 4, "d": 64, "init": init}).state_dict()  # d_head is d / M
                self.assertEqual(first["w_k"].shape, (4, 64, 16))
                self.assertLess(abs(first["w_k"].var() / variance - 1), 0.1)
                self.assertLess(abs(first["proj.weight"].var() / (2 / (64 + 64)) - 1), 0.1)
                bound = np.sqrt(6 / (64 + 64))  # of the uniform distribution; the text's is normal
                self.assertEqual((abs(first["proj.weight"]) > bound).any(), init == "torch")
        with self.assertRaisesRegex(attn.ArgumentError, "3 heads do not divide 10 channels; d_head"):
            built("detr-multi-head-attention", {"M": 3, "d": 10})

    def test_classes_are_numbers_of_any_type_or_one_hot(self):
        layer, x, classes = built("nadaraya-watson", {"task": "classification"}), np.arange(5.0), np.array([0, 2, 1, 2, 0])
        expected = layer(x, classes.astype(np.float32), x)
        for labels in classes, classes.astype(np.uint8), np.eye(3)[classes], np.eye(3, dtype=int)[classes]:
            np.testing.assert_array_equal(layer(x, labels, x), expected)
        np.testing.assert_allclose(built("nadaraya-watson", {})(x, classes, x),
                                   built("nadaraya-watson", {})(x, classes.astype(float), x))
        for wrong in np.ones((5, 3)), np.zeros((5, 3)), np.eye(3)[classes] * 2:
            with self.assertRaisesRegex(attn.ArgumentError, r"y_train\[0\] is not a one-hot row"):
                layer(x, wrong, x)
        with self.assertRaisesRegex(attn.ShapeError, "y_train has 3 classes, but num_classes is 4"):
            built("nadaraya-watson", {"task": "classification", "num_classes": 4})(x, np.eye(3)[classes], x)

    def test_additive_scores_are_a_network_of_query_and_key(self):
        layer = built("additive-attention", {"num_hiddens": 6, "query_size": 5, "key_size": 3})
        q, k, v = (self.random.standard_normal(shape).astype(np.float32) for shape in ((1, 2, 5), (1, 4, 3), (1, 4, 2)))
        weights = layer.state_dict()
        first = np.concatenate((weights["W_q.weight"], weights["W_k.weight"]), axis=1)
        pairs = np.concatenate((np.repeat(q[0, :, None], 4, 1), np.repeat(k, 2, 0)), axis=-1)
        scores = np.tanh(pairs @ first.T) @ weights["w_v.weight"][0]
        expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        np.testing.assert_allclose(layer(q, k, v), (expected @ v[0])[None], rtol=1e-5, atol=1e-6)

    def test_first_weights_of_a_gate_have_the_variance_of_xavier(self):
        for init, gates, linear in ("xavier", 1, 2 / (60 + 60)), ("torch", 3, 1 / (3 * 60)):  # gates that are one matrix
            weights = built("seq2seq-attention", {"vocab_size": 9, "embed_size": 40, "num_hiddens": 60, "init": init}).state_dict()
            for gate in np.split(weights["encoder.rnn.weight_ih_l0"], 3):
                self.assertLess(abs(gate.var() * (40 + gates * 60) / 2 - 1), 0.1)
            self.assertLess(abs(weights["decoder.attention.W_k.weight"].var() / linear - 1), 0.1)

    def test_inputs_that_the_listings_cannot_take_are_named(self):
        r = self.random.standard_normal
        spatial = {"in_channels": 3, "mid_channels": 22, "out_channels": 8, "num_heads": 2, "max_pos_embedding": 4}
        for name, config, inputs, text in (
                ("detr-multi-head-attention", {"M": 2, "d": 10, "d_head": 10}, [r((2, 40, 10)), r((3, 5, 10))], "2 in queries, 3 in keys and 3 in values"),
                ("stand-alone-self-attention", spatial, [r((1, 3, 5, 4))], "at most 4 (max_pos_embedding)")):
            with self.assertRaisesRegex(attn.ShapeError, re.escape(text)):
                built(name, config)(*inputs)
        for name, config, text in (("non-local", {"in_channels": 3, "dimension": 4}, "dimension is 4"),
                                   ("axial-image-transformer", {"dim": 8, "depth": 1, "dim_index": 2}, "dim_index is 2")):
            with self.assertRaisesRegex(attn.ArgumentError, text):
                attn.build(name, config)

    def test_listings_print_their_shapes(self):
        r, f4 = self.random.standard_normal, np.float32
        book = {"num_hiddens": 24, "ffn_num_hiddens": 48, "num_heads": 8, "num_blks": 1, "vocab_size": 200}
        ids, lens = np.zeros((2, 100), np.int32), np.array([1, 3], np.int32)
        large = [("axial-attention", {"dim": 512, "dim_index": -1, "heads": 8}, [r((1, 20, 20, 512))], (1, 20, 20, 512)),
                 ("axial-attention", {"dim": 128, "dim_index": 2, "heads": 8, "num_dimensions": 3}, [r((1, 5, 128, 32, 32))],
                  (1, 5, 128, 32, 32)),
                 ("axial-attention", {"dim": 3, "dim_index": 1, "dim_heads": 32, "heads": 1}, [r((1, 3, 256, 256))],
                  (1, 3, 256, 256)),
                 ("axial-image-transformer", {"dim": 64, "depth": 12}, [r((1, 64, 32, 32))], (1, 64, 32, 32))]
        rows = [("detr-multi-head-attention", {"M": 2, "d": 10, "d_head": 10}, [r((2, 40, 10)), r((2, 5, 10))], (2, 40, 10)),
                ("key-content-attention", {"M": 2, "d": 10, "d_head": 10}, [r((2, 40, 10))], (2, 40, 10)),
                ("stand-alone-self-attention", {"in_channels": 3, "mid_channels": 22, "out_channels": 8, "num_heads": 2,
                                                "max_pos_embedding": 4}, [r((4, 3, 4, 4))], (4, 8, 4, 4)),
                ("dot-product-attention", {}, [r((2, 1, 2)), r((2, 10, 2)), r((2, 10, 4)), 2 * lens], (2, 1, 4)),
                ("additive-attention", {"num_hiddens": 8, "query_size": 20, "key_size": 2},
                 [r((2, 1, 20)), r((2, 10, 2)), r((2, 10, 4)), 2 * lens], (2, 1, 4)),
                ("multi-head-attention", {"num_hiddens": 100, "num_heads": 5},
                 [r((2, 4, 100)), r((2, 6, 100)), r((2, 6, 100)), np.array([3, 2], np.int32)], (2, 4, 100)),
                ("self-attention", {"dim": 10, "heads": 1, "project": False}, [r((1, 12, 10))], (1, 12, 10)),
                ("local-self-attention", {"in_channels": 3, "mid_channels": 3, "out_channels": 3, "num_heads": 1,
                                          "kernel_size": 3, "relative": False, "project": False, "bias": False},
                 [r((1, 3, 28, 28))], (1, 3, 28, 28)),
                ("transformer-encoder", book, [ids, np.array([3, 2], np.int32)], (2, 100, 24)),
                ("transformer-decoder", book, [ids, r((2, 100, 24)), np.array([3, 2], np.int32)], (2, 100, 200)),
                ("seq2seq-attention", {"vocab_size": 10, "embed_size": 8, "num_hiddens": 16},
                 [np.ones((4, 7), np.int32), None, np.ones((4, 7), np.int32)], (4, 7, 10))]
        rows += [("non-local", {"in_channels": 3, "dimension": len(sides), "sub_sample": sub, "bn_layer": norm},
                  [r((2, 3, *sides))], (2, 3, *sides))
                 for sub in (True, False) for norm in (True, False) for sides in ((20,), (20, 20), (8, 20, 20))]
        for name, config, inputs, shape in every(large) + rows:
            model = attn.build(name, config, seed=1).eval()
            given = {port.name: x if x is None or x.dtype == np.int32 else x.astype(f4)
                     for port, x in zip(model.architecture.inputs, inputs) if x is not None}
            with self.subTest(layer=name, config=config):
                self.assertEqual(model(**given).shape, shape)
        for lens, kept in (([2, 3], [[2, 2], [3, 3]]), ([[1, 3], [2, 4]], [[1, 3], [2, 4]])):
            softmax = attn.build("masked-softmax", {})(r((2, 2, 4)).astype(f4), np.array(lens, np.int32))
            np.testing.assert_array_equal((softmax > 0).sum(-1), kept)
            np.testing.assert_allclose(softmax.sum(-1), 1, rtol=1e-6)


if __name__ == "__main__":
    unittest.main()
