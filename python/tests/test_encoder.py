# SPDX-License-Identifier: MIT
"""Encoders: vectors of proteins, whose letters need no tokenizer, beside the model's own outputs."""
import os
import random
import sys
import tempfile
import unittest

import numpy as np

import attn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "documents"))
import standins

SETTINGS = {"vocab_size": 33, "num_hiddens": 12, "num_heads": 3, "ffn_num_hiddens": 10, "positions": "none", "norm": "pre",
            "rotary": "halves", "masked_token": 32, "contacts": True, "max_len": 50}
LETTERS = "LAGVSERTIDPKQNFYMHWC"


def ids(protein):
    return np.array([[0, *(4 + LETTERS.index(c) for c in protein), 2]], np.int32)


class Encoders(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.model = attn.build("transformer-encoder", SETTINGS, seed=3).eval()
        self.model.save(self.folder.name)
        self.proteins = ["MKTAYIAKQR", "W", "LAGVSERTIDPKQNFYMHWC"]
        self.rows = [self.model(ids(p))[0, 1:-1] for p in self.proteins]

    def test_vectors_are_means_of_residues_in_the_order_of_the_texts(self):
        encoder = attn.Encoder(self.folder.name)
        self.assertEqual((encoder.dim, encoder.max_seq_length, encoder.get_sentence_embedding_dimension()), (12, 50, 12))
        vectors = encoder.encode(self.proteins)
        self.assertEqual((vectors.shape, vectors.dtype), ((3, 12), np.float32))
        np.testing.assert_allclose(vectors, [x.mean(0) for x in self.rows], atol=1e-5)
        np.testing.assert_array_equal(encoder.encode(self.proteins[0]), vectors[0])
        np.testing.assert_array_equal(encoder.encode(p for p in self.proteins), vectors)
        unit = encoder.encode(self.proteins, normalize_embeddings=True)
        np.testing.assert_allclose((unit ** 2).sum(1), 1, atol=1e-5)
        np.testing.assert_allclose(encoder.similarity(unit, vectors).diagonal(), 1, atol=1e-5)
        self.assertEqual(encoder.encode([]).shape, (0, 12))
        self.assertIsInstance(encoder.encode(self.proteins, convert_to_numpy=False), list)
        self.assertEqual(encoder.encode(self.proteins, truncate_dim=5).shape, (3, 5))

    def test_open_gives_an_encoder(self):
        opened = attn.open(self.folder.name)
        self.assertIsInstance(opened, attn.Encoder)
        np.testing.assert_allclose(opened.encode(self.proteins), [x.mean(0) for x in self.rows], atol=1e-5)

    def test_open_gives_an_encoder_of_a_pt_file_of_esm2(self):
        standins.esm2(self.folder.name, random.Random(7))
        path = os.path.join(self.folder.name, "esm2_t6_8M_UR50D.pt")
        opened = attn.open(path)
        self.assertIsInstance(opened, attn.Encoder)
        np.testing.assert_array_equal(opened.encode(self.proteins), attn.Encoder(path).encode(self.proteins))
        self.assertEqual(opened.contacts(self.proteins[0]).shape, (10, 10))
        self.assertIsInstance(attn.open(path, names="esm2-esm"), attn.Encoder)

    def test_tokens_have_vectors_of_their_own(self):
        found = attn.Encoder(self.folder.name).encode(self.proteins, output_value="token_embeddings")
        for x, y in zip(found, self.rows):
            np.testing.assert_allclose(x, y, atol=1e-5)

    def test_a_loaded_model_encodes_with_its_present_weights(self):
        model = attn.load(self.folder.name, gradients=True)
        before = model.encode(self.proteins)
        np.testing.assert_allclose(before, [x.mean(0) for x in self.rows], atol=1e-5)
        state = model.state_dict()
        model.load_state_dict({name: 2 * x for name, x in state.items()})
        after = model.encode(self.proteins)
        np.testing.assert_allclose(after, [model(ids(p))[0, 1:-1].mean(0) for p in self.proteins], atol=1e-5)
        self.assertFalse(np.allclose(before, after))
        with self.assertRaisesRegex(attn.UnsupportedError, "attn.load"):
            self.model.encode("MK")

    def test_contacts_are_the_models(self):
        found = attn.Encoder(self.folder.name).contacts(self.proteins[0])
        np.testing.assert_allclose(found, self.model(ids(self.proteins[0]), outputs=("contacts",))[0], atol=1e-6)

    def test_refusals_name_what_is_not_followed(self):
        encoder = attn.Encoder(self.folder.name)
        for words, error, how in (("cuda", attn.UnsupportedError, {"device": "cuda"}),
                                  ("ubinary", attn.UnsupportedError, {"precision": "ubinary"}),
                                  ("prompt has the name", attn.NotFoundError, {"prompt_name": "query"}),
                                  ("median", attn.ArgumentError, {"pool": "median"}),
                                  ("batch_size", attn.ArgumentError, {"batch_size": 0}),
                                  ("truncate_dim", attn.ArgumentError, {"truncate_dim": 0})):
            with self.assertRaisesRegex(error, words):
                encoder.encode(self.proteins, **how)
        with self.assertRaisesRegex(attn.FormatError, "'1', is no residue"):
            encoder.encode(["MK", "MK1"])
        with self.assertRaisesRegex(attn.ArgumentError, "sentence 1 is not a text"):
            encoder.encode(["MK", 7])
        for wrong in (None, 3, b"MK"):
            with self.assertRaisesRegex(attn.ArgumentError, "a text or several texts, not"):
                encoder.encode(wrong)
        with self.assertRaises(attn.NotFoundError):
            attn.Encoder(os.path.join(self.folder.name, "missing"))


if __name__ == "__main__":
    unittest.main()
