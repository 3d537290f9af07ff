# SPDX-License-Identifier: MIT
"""attn.load and Model.save; weights written by PyTorch; damaged files."""
import json
import os
import tempfile
import unittest

import attn
import numpy as np
from formulas import distance
from numpy_layers import LAYERS

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "data", "pt")


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.x = np.random.default_rng(0).standard_normal((2, 3, 6)).astype(np.float32)

    def path(self, name):
        return os.path.join(self.folder, name)

    def test_what_is_saved_loads(self):
        model = attn.build("self-attention", {"dim": 6, "heads": 2}, seed=9)
        model.save(self.path("new/model"))
        loaded = attn.load(self.path("new/model"))
        np.testing.assert_array_equal(loaded(self.x), model(self.x))
        self.assertEqual(loaded.config, model.config)
        file = self.path("new/model/model.safetensors")
        for config in ({"architecture": "self-attention", "dim": 6, "heads": 2}, self.path("new/model/config.json")):
            np.testing.assert_array_equal(attn.load(file, config)(self.x), model(self.x))
        again = attn.load(file, {"dim": 6, "heads": 2}, architecture="self-attention", dtype=np.float64)
        self.assertEqual(again(self.x).dtype, np.float64)
        self.assertLess(distance(again(self.x), model(self.x)), 1e-6)

    def test_names_bring_foreign_tensors_under_own_names(self):
        rules = self.path("own.names")
        with open(rules, "w") as file:
            file.write("attn names 1\narch self-attention\nset dim=6 heads=2\n(to_q|to_out)\\.(.*) \\1.\\2\n"
                       "to_kv\\.weight to_kv.weight part 0/2 join 0/2\nto_kv\\.weight to_kv.weight part 1/2 join 1/2\n")
        weights = os.path.join(DATA, "self_attention.pt")
        plain = attn.load(weights, {"dim": 6, "heads": 2}, architecture="self-attention")
        np.testing.assert_array_equal(attn.load(weights, names=rules)(self.x), plain(self.x))
        with open(rules) as file:
            measured = file.read().replace("set dim=6 heads=2", "set heads=2\nsize dim to_q.weight 1")
        with open(self.path("measured.names"), "w") as file:
            file.write(measured)
        np.testing.assert_array_equal(attn.load(weights, names=self.path("measured.names"))(self.x), plain(self.x))
        with open(rules, "a") as file:
            file.write("to_out\\.bias to_q.weight\n")
        with self.assertRaisesRegex(attn.FormatError, "\"to_q.weight\" is filled twice"):
            attn.load(weights, names=rules)
        with self.assertRaises(attn.NotFoundError):
            attn.load(weights, names=self.path("none.names"))

    def test_a_tied_parameter_may_come_under_both_names(self):
        """As in PyTorch's state dict of the MSA Transformer, lm_head.weight is embed_tokens.weight."""
        config = {"layers": 1, "embed_dim": 4, "ffn_embed_dim": 6, "attention_heads": 2}
        state = attn.build("msa-transformer", config, seed=3).state_dict()
        state["lm_head.weight"] = state["embed_tokens.weight"]
        model = attn.build("msa-transformer", config, seed=4)
        model.load_state_dict(state)
        np.testing.assert_array_equal(model.state_dict()["embed_tokens.weight"], state["embed_tokens.weight"])
        state["lm_head.weight"] = state["embed_tokens.weight"] + 1
        with self.assertRaisesRegex(attn.ShapeError, r"extra: lm_head.weight \[33,4\]"):
            model.load_state_dict(state)

    def test_the_books_recurrent_encoder_loads_by_a_names_file(self):
        """d2l.Seq2SeqEncoder holds a d2l.GRU, which holds a GRU: encoder.rnn.rnn.weight_ih_l0."""
        sizes = {"src_vocab_size": 9, "tgt_vocab_size": 11, "embed_size": 5, "num_hiddens": 6, "num_layers": 3}
        model = attn.build("seq2seq-attention", sizes, seed=3)
        model.save(self.folder)
        with open(self.path("model.safetensors"), "rb") as file:
            header = file.read(int.from_bytes(file.read(8), "little"))
            data = file.read()
        header = header.replace(b"encoder.rnn.", b"encoder.rnn.rnn.")
        with open(self.path("book.safetensors"), "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header + data)
        book = attn.load(self.path("book.safetensors"), names="bahdanau-d2l")
        self.assertEqual({key: book.config[key] for key in sizes}, sizes)
        for name, array in model.state_dict().items():
            np.testing.assert_array_equal(book.state_dict()[name], array)

    def test_a_config_file_may_hold_more(self):
        attn.build("detr-ffn", {"d": 3}).save(self.folder)
        with open(self.path("config.json")) as file:
            config = json.load(file)
        with open(self.path("config.json"), "w") as file:
            json.dump({**config, "epochs": 3, "nested": {"a": 1}}, file)
        self.assertEqual(attn.load(self.folder).config["d"], 3)
        with self.assertRaisesRegex(attn.ArgumentError, "no key \"epochs\""):
            attn.load(self.path("model.safetensors"), {**config, "epochs": 3})

    def test_weights_written_by_pytorch(self):
        """tests/data/pt/make.py defines the fixture's numbers."""
        config, _, formula = LAYERS["self-attention"]
        model = attn.load(os.path.join(DATA, "self_attention.pt"), {"dim": 6, "heads": 2},
                          architecture="self-attention")
        for number, (name, array) in enumerate(model.state_dict().items()):
            wanted = np.sin(np.arange(array.size) + number).astype(np.float32).reshape(array.shape)
            np.testing.assert_allclose(array, wanted, atol=1e-6, err_msg=name)
        inputs = {"x": self.x, "kv": self.x}
        self.assertLess(distance(model(self.x), formula(model.state_dict(), inputs)["out"]), 2e-6)
        self.assertEqual(config["dim"], 6)

    def test_what_is_wrong_is_said(self):
        attn.build("self-attention", {"dim": 6, "heads": 2}).save(self.folder)
        weights = self.path("model.safetensors")
        with open(weights, "rb") as file:
            good = file.read()

        def damaged(data):
            with open(self.path("bad.safetensors"), "wb") as file:
                file.write(data)
            return attn.load(self.path("bad.safetensors"), self.path("config.json"))
        for error, text, call in (
                (attn.NotFoundError, "nothere", lambda: attn.load(self.path("nothere.pt"), {"dim": 6},
                                                                  architecture="self-attention")),
                (attn.ArgumentError, "the architecture is unknown", lambda: attn.load(weights, {"dim": 6})),
                (attn.ArgumentError, "does not describe its model", lambda: attn.load(weights)),
                (attn.FormatError, "bad.safetensors", lambda: damaged(good[:-10])),
                (attn.FormatError, "bad.safetensors", lambda: damaged(good[:20])),
                (attn.FormatError, "bad.safetensors", lambda: damaged(b"")),
                (attn.Error, "bad.safetensors", lambda: damaged(b"PK" + good)),
                (attn.ShapeError, r"(?s)to_q.weight expected \[8,8\], found \[6,6\].*to_out.bias expected \[8\]",
                 lambda: attn.build("self-attention", {"dim": 8, "heads": 2}, weights=weights))):
            with self.subTest(text=text), self.assertRaisesRegex(error, text):
                call()
        with open(self.path("config.json"), "w") as file:
            file.write('{"dim": 6,\n"heads" 2}')
        with self.assertRaisesRegex(attn.FormatError, "config.json:2"):
            attn.load(self.folder)

    def test_few_bytes_only_infer(self):
        model = attn.build("detr-ffn", {"d": 64, "hidden": 256}, seed=3)
        model.save(self.path("wide"))
        x = np.random.default_rng(4).standard_normal((2, 5, 64)).astype("f4")
        for precision in ("bf16", "int8"):
            full = attn.load(self.path("wide"), precision=precision, gradients=True)
            packed = attn.load(self.path("wide"), precision=precision)
            self.assertLess(packed.memory()[0], sum(w.nbytes for w in full.parameters().values()))
            with full.no_grad():
                np.testing.assert_array_equal(packed(x), full(x))
            for refused in (packed.state_dict, packed.parameters, lambda: packed.save(self.path("no"))):
                with self.assertRaisesRegex(attn.ArgumentError, "packed"):
                    refused()
            for model in (packed, full) if precision == "int8" else (packed,):
                with self.assertRaisesRegex(attn.ArgumentError, "int8 has no gradients" if precision == "int8" else "packed"):
                    model.backward(np.ones_like(x))
        full = attn.load(self.path("wide"), precision="bf16", gradients=True)
        full(x)
        self.assertEqual(full.backward(np.ones_like(x))["x"].shape, x.shape)
        for precision in ("f32", None):
            plain = attn.load(self.path("wide"), precision=precision)
            wanted = plain(x)
            plain.backward(np.ones_like(x))
            packed = attn.load(self.path("wide"), precision=precision, gradients=False)
            self.assertLessEqual(packed.memory()[0], plain.memory()[0])  # packed and only packed
            np.testing.assert_allclose(packed(x), wanted, rtol=1e-5, atol=1e-6)  # the same bits, except with AMX
            with self.assertRaisesRegex(attn.ArgumentError, "packed"):
                packed.backward(np.ones_like(x))


if __name__ == "__main__":
    unittest.main()
