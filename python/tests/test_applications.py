# SPDX-License-Identifier: MIT
"""The applications: results against the command's, the model's own and independent formulas; refusals; threads."""
import inspect
import json
import os
import shutil
import subprocess
import tempfile
import unittest

import numpy as np

import attn
from attn import _command
from together import together

SENTENCES = ["Where is the station?", "Is the door open?", "The window is closed."]


def command(*words):
    """The output of the command, which the tests compare with."""
    return subprocess.run([_command.path(), *words], check=True, capture_output=True, text=True).stdout


def has_command():
    try:
        return bool(_command.path())
    except SystemExit:
        return False


class Folder(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)


@unittest.skipUnless(has_command(), "no command beside this library")
class Translators(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = os.path.join(cls.folder, "en-fr")
        command("train", "translate", "--data", "phrasebook", "--num-hiddens", "16", "--ffn-num-hiddens", "16", "--num-blks",
                "1", "--num-heads", "2", "--max-examples", "200", "--epochs", "2", "--threads", "1", "--quiet", "--out", cls.model)
        cls.translator = attn.Translator(cls.model, intra_threads=1)

    def test_lines_are_translated_as_by_the_command(self):
        for beam in (1, 3):
            said = command("translate", self.model, *SENTENCES, "--quiet", "--beam", str(beam)).splitlines()
            self.assertEqual(self.translator.translate(SENTENCES, beam_size=beam), said)

    def test_a_text_gives_a_text_and_iterators_give_lists(self):
        one = self.translator.translate(SENTENCES[0])
        self.assertIsInstance(one, str)
        self.assertEqual(self.translator.translate(iter(SENTENCES))[0], one)
        self.assertEqual(self.translator(SENTENCES[0]), one)
        self.assertEqual(self.translator.translate([]), [])
        self.assertEqual(len(list(self.translator.translate_iterable(SENTENCES, max_batch_size=0))), len(SENTENCES))
        self.assertEqual([r.hypotheses[0] for r in self.translator.translate_iterable(iter(SENTENCES), max_batch_size=2)],
                         self.translator.translate(SENTENCES))

    def test_hypotheses_have_falling_scores(self):
        found = self.translator.translate_batch(SENTENCES, beam_size=4, num_hypotheses=4)
        for result in found:
            self.assertEqual(len(result.hypotheses), len(result.scores))
            self.assertEqual(result.scores, sorted(result.scores, reverse=True))
            self.assertLess(result.scores[0], 0)

    def test_options_with_ctranslate2s_names_have_their_effect(self):
        prefix = "la"
        for text in self.translator.translate(SENTENCES, target_prefix=[prefix] * 3):
            self.assertTrue(text.lower().startswith(prefix), text)
        short = self.translator.translate_batch(SENTENCES, max_decoding_length=2)
        self.assertTrue(all(len(r.tokens[0]) <= 2 for r in short))
        aligned = self.translator.translate_batch(SENTENCES[:1], return_alignments=True)[0]
        self.assertEqual([b for _, b in aligned.alignments[0]], list(range(len(aligned.hypotheses[0].split()))))
        self.assertEqual(self.translator.translate_batch(SENTENCES, beam_size=1, return_scores=False)[0].scores, [0.0])
        self.assertEqual(self.translator.translate_batch(["Zyzzyva is the door?"])[0].unknown, ["zyzzyva"])

    def fixed(self, logits):
        """A translator whose words have these logits at every step; those of the others are far lower."""
        folder, kept = self.path("fixed"), self.path("fixed-weights")
        for path in (folder, kept):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.model, folder)
        with open(os.path.join(folder, "target.vocab"), encoding="utf-8") as file:
            words = file.read().split()
        model = attn.load(self.model)
        state = {name: array.copy() for name, array in model.state_dict().items()}
        state["decoder.dense.weight"][:] = 0
        state["decoder.dense.bias"][:] = -12
        for word, logit in logits.items():
            state["decoder.dense.bias"][words.index(word)] = logit
        model.load_state_dict(state)
        model.save(kept)
        shutil.copy(os.path.join(kept, "model.safetensors"), folder)
        return attn.Translator(folder, intra_threads=1), words

    def test_options_of_the_search_change_the_words(self):
        translator, words = self.fixed({"le": 3, "la": 2, "est": 1, "<eos>": 0})
        for wanted, options in (("le le le le", {}), ("le le le", {"max_decoding_length": 3}),
                                ("le la est", {"no_repeat_ngram_size": 1}), ("le le la le", {"no_repeat_ngram_size": 2}),
                                ("le la est le", {"repetition_penalty": 4}),
                                ("le la le la", {"suppress_sequences": ["le le"]}),
                                ("le la le la", {"suppress_sequences": [["le", "le"]]}),
                                ("la la la la", {"suppress_sequences": ["Le"]}), ("la la la la", {"suppress_sequences": [("le",)]}),
                                ("le est le est", {"suppress_sequences": ["le le", "le la", "la la"]}),
                                ("le le la le", {"suppress_sequences": ("le le le",)}),
                                ("le le le le", {"suppress_sequences": ["le zyzzyva", "le <eos>"]}),
                                ("la la la la", {"suppress_sequences": [["le", "<eos>"], ["le"], ["la", "<eos>"]]}),
                                ("le le le le", {"suppress_sequences": []})):
            for scores in (True, False):
                found = translator.translate(SENTENCES[0], **{"max_decoding_length": 4, "return_scores": scores, **options})
                self.assertEqual(found, wanted, options)
        with self.assertRaisesRegex(attn.ArgumentError, "sentence 1 has no translation: all tokens"):
            translator.translate(SENTENCES[0], suppress_sequences=([word] for word in words))

    def test_the_unknown_token_can_be_disabled(self):
        translator, _ = self.fixed({"<unk>": 3, "le": 2})
        for beam in (1, 3):
            def tokens(disable_unk):
                return translator.translate_batch(SENTENCES[:1], disable_unk=disable_unk, max_decoding_length=3, beam_size=beam)[0].tokens[0]
            self.assertEqual((tokens(False), tokens(True)), (["<unk>"] * 3, ["le"] * 3))

    def test_lengths_and_patience_change_the_length(self):
        translator, _ = self.fixed({"<eos>": 1.2, "le": 1})

        def best(**options):
            found = translator.translate_batch(SENTENCES[:1], beam_size=4, **{"num_hypotheses": 2, "max_decoding_length": 40, **options})[0]
            return len(found.tokens[0]), dict(zip(found.hypotheses, found.scores))
        length, scores = best()
        self.assertEqual(length, 0)
        self.assertEqual(best(patience=1), (length, scores))
        self.assertEqual(best(min_decoding_length=3)[0], 2)  # and the end
        longer, penalized = best(length_penalty=10)
        self.assertEqual(longer, 1)
        for n, text in enumerate(("", "le")):  # the score is the log-probability divided by the penalty
            self.assertAlmostEqual(penalized[text], scores[text] / ((5 + n + 1) / 6) ** 10, places=6)
        longest, patient = best(length_penalty=10, patience=5)
        self.assertGreater(longest, longer)
        self.assertGreater(max(patient.values()), max(penalized.values()))
        self.assertEqual(best(length_penalty=10, patience=0.25, num_hypotheses=1)[0], 0)

    def test_lines_are_cut_at_the_maximum_input(self):
        for most, line in ((4, "Is the door"), (6, SENTENCES[1]), (0, SENTENCES[1]), (1000000, SENTENCES[1])):
            found = self.translator.translate_batch([SENTENCES[1]], max_input_length=most, beam_size=2)[0]
            self.assertEqual(found.truncated, line != SENTENCES[1])
            self.assertEqual(found.hypotheses, self.translator.translate_batch([line], beam_size=2)[0].hypotheses)

    def test_every_option_of_ctranslate2_is_taken_or_refused_with_what_there_is(self):
        refused = {"batch_type": ("examples", "max_batch_size"), "asynchronous": (False, "thread"),
                   "coverage_penalty": (0, "no_repeat_ngram_size"), "end_token": (None, ""), "return_end_token": (False, "tokens"),
                   "prefix_bias_beta": (0, "target_prefix"), "use_vmap": (False, "shortlist="),
                   "return_logits_vocab": (False, "scores"), "return_attention": (False, "return_alignments=True"),
                   "return_alternatives": (False, "num_hypotheses"), "replace_unknowns": (False, "unknown"),
                   "min_alternative_expansion_prob": (0, "num_hypotheses"), "sampling_topk": (1, "does not sample"),
                   "sampling_topp": (1, "does not sample"), "sampling_temperature": (1.0, "does not sample"),
                   "callback": (None, "translate_iterable")}  # with CTranslate2's defaults
        taken = ("max_batch_size", "beam_size", "patience", "num_hypotheses", "length_penalty", "repetition_penalty", "no_repeat_ngram_size",
                 "disable_unk", "suppress_sequences", "max_input_length", "max_decoding_length", "min_decoding_length", "return_scores")
        self.assertEqual(len(refused) + len(taken), 29)
        self.assertLessEqual(set(taken), set(inspect.signature(self.translator.translate_batch).parameters))
        defaults = {name: default for name, (default, _) in refused.items()}
        for call in (self.translator.translate_batch, self.translator.translate, lambda *a, **o: list(self.translator.translate_iterable(*a, **o))):
            self.assertEqual(call(SENTENCES, **defaults), call(SENTENCES))
            for name, (_, instead) in refused.items():
                for value in (2, "tokens", [0]):
                    with self.assertRaisesRegex(TypeError, f"unexpected keyword argument '{name}': .*{instead}"):
                        call(SENTENCES, **{name: value})
        for value in (4, None):
            with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'beam'$"):
                self.translator.translate(SENTENCES, beam=value)

    def test_every_argument_of_ctranslate2s_translator_is_taken_or_refused_with_what_there_is(self):
        refused = {"device_index": (0, "processor"), "inter_threads": (1, "for each thread, or give intra_threads"),
                   "max_queued_batches": (0, "no queue"), "flash_attention": (False, "itself"),
                   "tensor_parallel": (False, "one process"), "files": (None, "directory")}
        defaults = {name: default for name, (default, _) in refused.items()}
        wanted = self.translator.translate(SENTENCES)
        for device in ("cpu", "auto"):
            for translator in (attn.Translator(self.model, device, compute_type="default", **defaults), attn.Translator(self.model, device=device)):
                self.assertEqual(translator.translate(SENTENCES), wanted)
        for name, (_, instead) in refused.items():
            with self.assertRaisesRegex(TypeError, f"Translator.. got an unexpected keyword argument '{name}': .*{instead}"):
                attn.Translator(self.model, **{name: 2})
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'threads'$"):
            attn.Translator(self.model, threads=2)
        with self.assertRaisesRegex(attn.UnsupportedError, "device is 'cuda'; only \"cpu\" and \"auto\""):
            attn.Translator(self.model, "cuda")

    def test_compute_types_are_by_device_too(self):
        for given, wanted in ({"cpu": "int8", "cuda": "float16"}, "int8"), ({"cuda": "float16"}, self.translator.precision), ("bfloat16", "bf16"):
            self.assertEqual(attn.Translator(self.model, compute_type=given).precision, wanted)
        for given in ("float16", "int16", "int8_float16", "int4", 8, ["int8"], {"cpu": "float16"}):
            with self.assertRaisesRegex(attn.ArgumentError, "compute_type must be one of default, .*float32, bfloat16, int8, .*not"):
                attn.Translator(self.model, compute_type=given)
        for call in (attn.open, attn.Classifier, attn.Detector, attn.Generator, attn.Alignments):
            with self.assertRaisesRegex(attn.ArgumentError, "^precision must be one of default, .*not 'fp16'"):
                call(self.model, precision="fp16")

    def test_lists_of_tokens_are_refused_with_what_to_give(self):
        for call, what in ((lambda: self.translator.translate_batch([["is", "the"]]), "line 0"),
                           (lambda: self.translator.translate(["Go.", ("is", "the")]), "line 1"),
                           (lambda: self.translator.translate_batch(SENTENCES, [None, ["is", "the"], None]), "prefix 1")):
            with self.assertRaisesRegex(attn.ArgumentError, f"^{what} must be a text, not .'is', 'the'.: attn divides texts into tokens itself"):
                call()
        with self.assertRaisesRegex(attn.ArgumentError, "^prefix 0 must be a text, not 3$"):
            self.translator.translate_batch(SENTENCES[:1], [3])

    def test_its_representation_has_the_path_and_the_precision(self):
        self.assertEqual(repr(attn.open(self.model, precision="int8")), f"<attn.Translator of {self.model!r}: precision int8>")

    def test_wrong_options_are_refused_by_name(self):
        for options, words in (({"num_hypotheses": 3, "beam_size": 2}, "3 translations of a line"), ({"target_prefix": ["a"]}, "1 prefixes"),
                               ({"target_prefix": ["qqqq", None, None]}, "qqqq"), ({"beam_size": -1}, "beam cannot be -1"),
                               ({"max_batch_size": -2}, "at once cannot be -2"), ({"num_hypotheses": -1}, "of a line cannot be -1"),
                               ({"length_penalty": float("nan")}, "length penalty cannot be nan"),
                               ({"repetition_penalty": -0.5}, "repetition penalty cannot be -0.5"),
                               ({"no_repeat_ngram_size": -1}, "do not repeat cannot be -1"),
                               ({"max_input_length": -1}, "tokens of a line cannot be -1"),
                               ({"patience": float("nan"), "beam_size": 2}, "patience of the beam cannot be nan"),
                               ({"patience": 0.5, "beam_size": 4, "num_hypotheses": 3}, "a beam of 4 finishes only 2"),
                               ({"suppress_sequences": "le la"}, "must be a list of texts or of lists of tokens, not 'le la'"),
                               ({"suppress_sequences": ["le", 3]}, "must be a list of texts"), ({"suppress_sequences": 3}, "not 3"),
                               ({"suppress_sequences": ["le", ["la"]]}, "texts and lists of tokens; expected one of the two"),
                               ({"suppress_sequences": [["le", "la est"]]}, "suppressed sequence 1 has the token 'la est'"),
                               ({"suppress_sequences": [["le", b"la"]]}, "a token of suppressed sequence 1 must be a text"),
                               ({"suppress_sequences": [["le"], ["zyzzyva"]]}, 'suppressed sequence 2: "zyzzyva" is not a token'),
                               ({"suppress_sequences": ["le", " "]}, "suppressed sequence 2 has no tokens"),
                               ({"suppress_sequences": [[]]}, "suppressed sequence 1 has no tokens"),
                               ({"min_decoding_length": 9, "max_decoding_length": 5}, "the minimum number of tokens is 9, but a translation can have at most 5")):
            with self.assertRaisesRegex(attn.ArgumentError, words):
                self.translator.translate_batch(SENTENCES, **options)
        with self.assertRaisesRegex(attn.ArgumentError, "line 1"):
            self.translator.translate(["a", 3])
        for wrong in (None, 3, b"Go."):
            with self.assertRaisesRegex(attn.ArgumentError, "lines must be a text or several texts"):
                self.translator.translate(wrong)
        with self.assertRaisesRegex(attn.ArgumentError, "compute_type"):
            attn.Translator(self.model, compute_type="int4")
        with self.assertRaises(attn.NotFoundError):
            attn.Translator(self.path("nowhere"))

    def test_threads_share_a_translator(self):
        alone, found = self.translator.translate(SENTENCES), [None] * 4

        def work(i):
            found[i] = self.translator.translate(SENTENCES)
        together(work)
        self.assertEqual(found, [alone] * 4)

    def test_doubtful_translations_are_marked(self):
        limited = self.path("limited")
        shutil.copytree(self.model, limited)
        with open(os.path.join(limited, "low_score.json"), "w", encoding="utf-8") as file:
            json.dump({"score_per_token": 0, "sentences": 9}, file)  # a limit that no translation reaches
        for model, line, wanted in ((limited, SENTENCES[1], True), (self.model, "The zyzzyva is here.", True)):
            self.assertIs(attn.Translator(model).translate_batch([line])[0].doubtful, wanted)
        os.remove(os.path.join(limited, "low_score.json"))
        self.assertIs(attn.Translator(limited).translate_batch([SENTENCES[1]])[0].doubtful, False)

    def test_open_gives_a_translator_in_a_precision(self):
        opened = attn.open(self.model, precision="bfloat16")
        self.assertIsInstance(opened, attn.Translator)
        self.assertEqual(opened.precision, "bf16")
        self.assertIsInstance(opened.translate("Where is the station?"), str)


class Pictures(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.random = np.random.default_rng(3)

    def save(self, architecture, config, **more):
        model = attn.build(architecture, config, seed=5)
        folder = self.path(architecture)
        model.save(folder)
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            settings = json.load(file)
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump({**settings, **more}, file)
        return model, folder

    def test_classes_have_the_probabilities_of_the_model(self):
        model, folder = self.save("vit", {"img_size": 8, "patch_size": 4, "num_hiddens": 8, "mlp_num_hiddens": 8, "num_heads": 2,
                                          "num_blks": 1, "num_classes": 3, "in_channels": 3},
                                  class_names=["cat", "dog", "cow"], **{f"input.{k}": n for k, n in (("width", 8), ("height", 8), ("channels", 3))},
                                  mean=[0.5] * 3, std=[0.5] * 3)
        classifier = attn.open(folder)
        self.assertIsInstance(classifier, attn.Classifier)
        picture = self.random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        logits = model(np.ascontiguousarray((picture / 255 * 2 - 1).transpose(2, 0, 1)[None], np.float32))[0].astype(float)
        wanted = np.exp(logits - logits.max())
        wanted /= wanted.sum()
        found = classifier(picture, top_k=3)
        self.assertEqual([f["label"] for f in found], [["cat", "dog", "cow"][i] for i in np.argsort(-wanted)])
        np.testing.assert_allclose([f["score"] for f in found], np.sort(wanted)[::-1], rtol=1e-4)
        self.assertEqual(classifier([picture, picture], top_k=1), [found[:1], found[:1]])
        self.assertEqual(classifier(iter([])), [])
        self.assertEqual(len(classifier(picture)), 3)
        self.assertEqual(repr(classifier), f"<attn.Classifier of {folder!r}: 3 classes, precision {classifier.precision}>")
        for bad, words in ((None, "which is not a whole number"), ("2", "whole number"), (1.5, "whole number"), (0, "at least 1")):
            with self.assertRaisesRegex(attn.ArgumentError, f"top_k is {bad!r}[,;] .*{words}"):
                classifier(picture, top_k=bad)
        self.assertEqual(classifier(picture, top_k=np.int64(1)), found[:1])

    def test_pictures_come_as_paths_and_arrays_and_refusals_name_them(self):
        _, folder = self.save("vit", {"img_size": 8, "patch_size": 4, "num_hiddens": 8, "mlp_num_hiddens": 8, "num_heads": 2,
                                      "num_blks": 1, "num_classes": 2, "in_channels": 3})
        classifier = attn.Classifier(folder)
        grey = self.random.integers(0, 256, (5, 9), dtype=np.uint8)
        path = self.path("grey.pgm")
        with open(path, "wb") as file:
            file.write(b"P5 9 5 255\n" + grey.tobytes())
        self.assertEqual(classifier(path), classifier(grey))
        self.assertEqual(classifier([path, grey[:, :, None]]), [classifier(grey)] * 2)
        for bad, words in ((grey.astype(float), "uint8"), (np.zeros((2, 2, 4), np.uint8), r"\[2, 2, 4\]")):
            with self.assertRaisesRegex(attn.ArgumentError, words):
                classifier([bad])
        for bad in (None, 3, b"P5 1 1 255\n0"):
            with self.assertRaisesRegex(attn.ArgumentError, "images must be a picture .* or several pictures, not "):
                classifier(bad)
        with self.assertRaisesRegex(attn.ArgumentError, "picture 1 holds None"):
            classifier([path, None])
        with self.assertRaises(attn.NotFoundError):
            classifier(self.path("none.png"))

    def test_objects_have_the_boxes_of_the_model(self):
        settings = {"backbone": "resnet18", "stage_blocks": [1, 1], "width": 4, "stem": "small", "norm": "group",
                    "norm_groups": 2, "num_classes": 2, "num_queries": 5, "hidden_dim": 8, "nheads": 2, "dim_feedforward": 8,
                    "enc_layers": 1, "dec_layers": 1}
        model, folder = self.save("detr", settings, class_names=["cup", "plate"], class_ids=[4, 9], size=16, longest=32,
                                  mean=[0.5] * 3, std=[0.5] * 3)
        detector = attn.open(folder)
        self.assertIsInstance(detector, attn.Detector)
        self.assertEqual(detector.labels, ["cup", "plate"])
        picture = self.random.integers(0, 256, (16, 16, 3), dtype=np.uint8)
        logits, boxes = model(np.ascontiguousarray((picture / 255 * 2 - 1).transpose(2, 0, 1)[None], np.float32),
                              outputs=("pred_logits", "pred_boxes"))
        p = np.exp(logits[0].astype(float) - logits[0].max(-1, keepdims=True))
        p = (p / p.sum(-1, keepdims=True))[:, :-1]
        order = np.argsort(-p.max(-1), kind="stable")
        found = detector(picture, threshold=0)
        self.assertEqual([f["label"] for f in found], [detector.labels[p[i].argmax()] for i in order])
        np.testing.assert_allclose([f["score"] for f in found], p.max(-1)[order], rtol=1e-4)
        cx, cy, w, h = (boxes[0][order] * 16).T
        np.testing.assert_allclose([[f["box"][k] for k in ("xmin", "ymin", "xmax", "ymax")] for f in found],
                                   np.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], 1), atol=1e-3)
        self.assertEqual(repr(detector), f"<attn.Detector of {folder!r}: 2 classes, precision {detector.precision}>")
        for bad in (None, "high", [0.5, 0.7]):
            with self.assertRaisesRegex(attn.ArgumentError, "threshold is .*, which is not a number"):
                detector(picture, threshold=bad)
        self.assertEqual(detector(picture, threshold=np.float32(0)), found)
        cut = found[1]["score"]
        self.assertEqual(detector([picture], threshold=cut), [[f for f in found if f["score"] >= cut]])
        listed = detector.coco([picture], [7])
        self.assertEqual({(r["image_id"], r["category_id"]) for r in listed} - {(7, 4), (7, 9)}, set())
        self.assertAlmostEqual(listed[0]["bbox"][2], found[0]["box"]["xmax"] - found[0]["box"]["xmin"])

    def test_drawn_pictures_depend_on_the_seed_alone(self):
        _, folder = self.save("axial-transformer", {"height": 4, "width": 3, "channels": 3, "levels": 8, "dim": 8, "heads": 2,
                                                    "exterior_blocks": 2, "outer_blocks": 2, "inner_blocks": 1})
        generator = attn.open(folder)
        self.assertIsInstance(generator, attn.Generator)
        drawn = generator.draw(3, seed=2)
        self.assertEqual((drawn.shape, drawn.dtype), ((3, 4, 3, 3), np.uint8))
        self.assertEqual(repr(generator), f"<attn.Generator of {folder!r}: pictures, precision {generator.precision}>")
        np.testing.assert_array_equal(generator.draw(2, seed=2), drawn[:2])
        self.assertTrue((generator.draw(1, seed=3) != drawn[:1]).any())
        given = self.random.integers(0, 256, (4, 3, 3), dtype=np.uint8)
        np.testing.assert_array_equal(generator.complete(given, rows=2, seed=1)[:2], given[:2])
        with self.assertRaises(attn.ArgumentError):
            generator.draw(0)
        with self.assertRaises(attn.ArgumentError):
            generator.complete(given, rows=5)


class Families(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        model = attn.build("msa-transformer", {"layers": 2, "embed_dim": 8, "ffn_embed_dim": 8, "attention_heads": 2}, seed=1)
        model.save(os.path.join(cls.folder, "msa"))
        cls.net, cls.model = model, attn.open(os.path.join(cls.folder, "msa"), threads=1)
        cls.sequences = ["MKVLI", "MRV-I", "MKALI"]

    def test_open_gives_alignments(self):
        self.assertIsInstance(self.model, attn.Alignments)
        self.assertEqual(repr(self.model), f"<attn.Alignments of {self.path('msa')!r}: precision {self.model.precision}>")

    def tokens(self):
        order = "LAGVSERTIDPKQNFYMHWCXBUZO"
        return np.array([[0] + [30 if x == "-" else 4 + order.index(x) for x in s] for s in self.sequences], np.int32)

    def test_logits_are_those_of_the_network(self):
        wanted = self.net(self.tokens()[None], outputs="logits")[0]
        np.testing.assert_allclose(self.model.logits(self.sequences), wanted, atol=1e-5)
        path = self.path("family.a3m")
        with open(path, "w", encoding="utf-8") as file:
            file.write("".join(f">s{i}\n{s}\n" for i, s in enumerate(self.sequences)))
        np.testing.assert_array_equal(self.model.logits(path), self.model.logits(self.sequences))
        np.testing.assert_array_equal(self.model.logits([("a", s) for s in self.sequences]), self.model.logits(path))

    def test_scores_are_of_the_masked_residue(self):
        def log_p(place):
            tokens = self.tokens()
            tokens[0, place] = 32
            x = self.net(tokens[None], outputs="logits")[0, 0, place].astype(float)
            return x - x.max() - np.log(np.exp(x - x.max()).sum())
        k, r, v, i, l = 4 + 11, 4 + 6, 4 + 3, 4 + 8, 4
        one = log_p(2)[r] - log_p(2)[k]
        two = log_p(4)[i] - log_p(4)[l]
        np.testing.assert_allclose(self.model.score(self.sequences, ["K2R", "K2R:L4I"]), [one, one + two], atol=1e-5)
        self.assertAlmostEqual(self.model.score(self.sequences, "K12R", offset=10), one, places=5)
        for bad, words in (("K3R", "is V, not K"), ("K2", "not a mutation"), ("K2R:K2A", "twice"), ("K9R", "no residue 9; the query has the residues 1 to 5")):
            with self.assertRaisesRegex(attn.ArgumentError, words):
                self.model.score(self.sequences, [bad])
        self.assertNotEqual(v, l)

    def test_embeddings_and_maps_have_the_shapes_of_the_family(self):
        embedded = self.model.embed(self.sequences)
        self.assertEqual(embedded.rows.shape, (3, 5, 8))
        np.testing.assert_allclose(embedded.mean, embedded.rows[0].mean(0))
        maps = self.model.row_attentions(self.sequences)
        self.assertEqual(maps.shape, (2, 2, 6, 6))
        np.testing.assert_allclose(maps.sum(-1), 1, atol=1e-5)
        self.assertEqual(self.model.logits(self.sequences, depth=2).shape[0], 2)

    def test_what_is_wrong_with_a_family_is_said(self):
        for bad, kind, words in ((["MKV", "MK"], attn.FormatError, "sequence"), ([], attn.ArgumentError, "at least one"),
                                 (self.path("none.a3m"), attn.NotFoundError, "none.a3m")):
            with self.assertRaisesRegex(kind, words):
                self.model.logits(bad)
        with self.assertRaisesRegex(attn.ArgumentError, "select"):
            self.model.logits(self.sequences, select="best")

    def test_a_model_of_no_application_is_a_model(self):
        layer = attn.build("detr-ffn", {"d": 4})
        layer.save(self.path("ffn"))
        self.assertIsInstance(attn.open(self.path("ffn")), attn.Model)
        with self.assertRaises(attn.NotFoundError):
            attn.open(self.path("nothing"))


class Measures(Folder):
    HYPOTHESES = ["The cat sat on the mat.", "A dog barks.", "It is raining today"]
    FIRST = ["The cat sat on a mat.", "A dog is barking.", "It rains today"]
    SECOND = ["A cat sat on the mat.", "The dog barks.", None]

    def test_bleu_and_chrf_of_known_corpora(self):
        # sacrebleu 2.6.0: corpus_bleu and corpus_chrf with these streams
        one, two = attn.bleu(self.HYPOTHESES, self.FIRST), attn.bleu(self.HYPOTHESES, [self.FIRST, self.SECOND])
        self.assertAlmostEqual(one.score, 32.616068087785244, places=9)
        self.assertAlmostEqual(two.score, 73.31329005620807, places=9)
        self.assertEqual((one.sys_len, one.ref_len), (15, 15))
        self.assertAlmostEqual(attn.chrf(self.HYPOTHESES, self.FIRST), 50.14493736150343, places=9)
        self.assertAlmostEqual(attn.chrf(iter(self.HYPOTHESES), [self.FIRST, self.SECOND]), 69.79848085752725, places=9)

    def test_references_that_do_not_fit_are_refused(self):
        for references, words in ((self.FIRST[:2], "3 hypotheses"), ([self.FIRST, ["x"]], "3, 1"), ([], "no references|0 references"),
                                  ([[None, "a", "b"]], "hypothesis 0")):
            with self.assertRaisesRegex(attn.ArgumentError, words):
                attn.bleu(self.HYPOTHESES, references)
        for texts in (("a b", ["a b"]), (["a b"], "a b"), ("a", "a")):
            with self.assertRaisesRegex(attn.ArgumentError, "a list of texts"):
                attn.chrf(*texts)

    ANNOTATIONS = {"images": [{"id": 1, "width": 100, "height": 100}, {"id": 2, "width": 100, "height": 100}],
                   "categories": [{"id": 3, "name": "cup"}, {"id": 5, "name": "plate"}],
                   "annotations": [{"id": 1, "image_id": 1, "category_id": 3, "bbox": [10, 10, 20, 20], "area": 400, "iscrowd": 0},
                                   {"id": 2, "image_id": 2, "category_id": 3, "bbox": [40, 40, 50, 50], "area": 2500, "iscrowd": 0},
                                   {"id": 3, "image_id": 2, "category_id": 5, "bbox": [0, 0, 99, 99], "area": 9801, "iscrowd": 0}]}
    RESULTS = [{"image_id": 1, "category_id": 3, "bbox": [11, 11, 20, 20], "score": 0.9},
               {"image_id": 1, "category_id": 5, "bbox": [10, 10, 20, 20], "score": 0.8},
               {"image_id": 2, "category_id": 3, "bbox": [40, 42, 50, 50], "score": 0.7},
               {"image_id": 2, "category_id": 5, "bbox": [0, 0, 90, 95], "score": 0.6}]

    def test_boxes_are_evaluated_as_by_pycocotools(self):
        wanted = [0.5752475247524752, 0.75, 0.75, 0.6999999999999998, 0.8999999999999999, 0.7999999999999999, 0.8, 0.8, 0.8, 0.7, 0.9, 0.8]  # pycocotools 2.0.11: COCOeval(..., "bbox").stats of these annotations and results
        scores = attn.coco_evaluate(self.ANNOTATIONS, self.RESULTS)
        np.testing.assert_allclose(scores.stats, wanted, atol=1e-12)
        self.assertEqual(scores.named["AP50"], scores.stats[1])
        self.assertEqual([(k.id, k.name, k.objects) for k in scores.categories], [(3, "cup", 2), (5, "plate", 1)])
        paths = self.path("annotations.json"), self.path("results.json")
        for path, content in zip(paths, (self.ANNOTATIONS, self.RESULTS)):
            with open(path, "w", encoding="utf-8") as file:
                json.dump(content, file)
        rows = np.array([[r["image_id"], *r["bbox"], r["score"], r["category_id"]] for r in self.RESULTS])
        for again in (attn.coco_evaluate(*paths), attn.coco_evaluate(paths[0], rows), attn.coco_evaluate(paths[0], iter(self.RESULTS))):
            np.testing.assert_array_equal(again.stats, scores.stats)

    def test_nothing_found_and_unknown_categories(self):
        self.assertEqual(attn.coco_evaluate(self.ANNOTATIONS, []).stats[0], 0)
        odd = attn.coco_evaluate(self.ANNOTATIONS, [{**self.RESULTS[0], "category_id": 77}])
        self.assertEqual(odd.left_out, 1)
        for bad, words in (([{**self.RESULTS[0], "image_id": 9}], "image 9"), ([{"score": 1}], "result 0"),
                           ([{**self.RESULTS[0], "score": float("nan")}], "score"), (np.zeros((2, 3)), r"\[2, 3\]")):
            with self.assertRaisesRegex(attn.ArgumentError, words):
                attn.coco_evaluate(self.ANNOTATIONS, bad)


if __name__ == "__main__":
    unittest.main()
