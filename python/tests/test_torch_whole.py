# SPDX-License-Identifier: MIT
"""Whole models of transformers with small random weights under attn.torch.enable() and by attn.torch.optimize(): the error
against PyTorch in float64 is at most twice PyTorch's own in float32."""
import copy
import os
import pickle
import tempfile
import unittest

try:
    import torch
    import transformers
except ImportError:
    raise unittest.SkipTest("no PyTorch or no transformers here")

import attn.torch
from attn.torch._packed import PackedWeight

TEXT = {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
        "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = {**TEXT, "num_key_value_heads": 2, "head_dim": 8}
SEQ2SEQ = {"vocab_size": 61, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
           "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64, "pad_token_id": 0,
           "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "forced_eos_token_id": None}
IMAGE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "image_size": 32,
         "patch_size": 8}
# The class of the model, its configuration, and the kind of its inputs.
MODELS = (
    ("BertModel", TEXT, "ids"), ("BertForMaskedLM", TEXT, "ids"), ("RobertaModel", TEXT, "ids"), ("ElectraModel", TEXT, "ids"),
    ("AlbertModel", {**TEXT, "embedding_size": 16}, "ids"), ("MPNetModel", TEXT, "ids"), ("EsmModel", {**TEXT, "mask_token_id": 3}, "ids"),
    ("DistilBertModel", {"vocab_size": 61, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}, "ids"),
    ("DebertaV2Model", {**TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}, "ids"),
    ("GPT2LMHeadModel", {"vocab_size": 61, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "bos_token_id": 1,
                         "eos_token_id": 2}, "ids"),
    ("OPTForCausalLM", {**TEXT, "ffn_dim": 64, "word_embed_proj_dim": 32}, "ids"), ("GPTNeoXForCausalLM", TEXT, "ids"),
    ("BloomForCausalLM", {"vocab_size": 61, "hidden_size": 32, "n_layer": 2, "n_head": 4}, "ids"),
    ("LlamaForCausalLM", GROUPED, "ids"), ("MistralForCausalLM", GROUPED, "ids"), ("Qwen2ForCausalLM", GROUPED, "ids"),
    ("GemmaForCausalLM", GROUPED, "ids"), ("PhiForCausalLM", TEXT, "ids"), ("CohereForCausalLM", GROUPED, "ids"),
    ("T5ForConditionalGeneration", {"vocab_size": 61, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
                                    "decoder_start_token_id": 0}, "pairs"),
    ("BartModel", SEQ2SEQ, "pairs"), ("MarianMTModel", SEQ2SEQ, "pairs"),
    ("WhisperModel", {**SEQ2SEQ, "num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 30}, "frames"),
    ("ViTModel", IMAGE, "pixels"), ("DeiTModel", IMAGE, "pixels"), ("BeitModel", IMAGE, "pixels"),
    ("SwinModel", {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}, "pixels"),
)


def made(name, config):
    torch.manual_seed(0)
    kind = getattr(transformers, name, None)
    if kind is None:
        raise unittest.SkipTest(f"this version of transformers has no {name}")
    model = kind(kind.config_class(**config)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))  # biases and norms among them
    return model


def inputs(kind, dtype):
    torch.manual_seed(1)
    ids = torch.randint(3, 61, (2, 12))
    mask = torch.ones_like(ids)
    mask[1, 9:] = 0
    return {"ids": lambda: {"input_ids": ids, "attention_mask": mask},
            "pairs": lambda: {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": ids[:, :7]},
            "frames": lambda: {"input_features": torch.randn(2, 8, 40).to(dtype), "decoder_input_ids": ids[:, :7]},
            "pixels": lambda: {"pixel_values": torch.randn(2, 3, 32, 32).to(dtype)}}[kind]()


def result(model, kind, dtype=torch.float32):
    with torch.no_grad():
        return model(**inputs(kind, dtype))[0]


def error(found, wanted):
    return (found.double() - wanted).abs().max().item() / wanted.abs().max().item()


class Whole(unittest.TestCase):
    def test_outputs(self):
        for name, config, kind in MODELS:
            with self.subTest(name):
                model = made(name, config)
                wanted = result(copy.deepcopy(model).double(), kind, torch.float64)
                own = error(result(model, kind), wanted)
                bound = 2 * own + 1e-6
                with attn.torch.enable(always=True):
                    self.assertLess(error(result(model, kind), wanted), bound)
                attn.torch.disable()
                found = attn.torch.optimize(model)
                self.assertTrue(any(isinstance(weight, PackedWeight) for weight in found.parameters()))
                self.assertLess(error(result(found, kind), wanted), bound)
                state = found.state_dict()
                for key, weight in model.state_dict().items():
                    self.assertTrue(torch.equal(state[key], weight), key)

    def test_rounded_outputs(self):
        for name, config, kind in MODELS:
            with self.subTest(name):
                model = made(name, config)
                wanted = result(copy.deepcopy(model).double(), kind, torch.float64)
                half = error(result(copy.deepcopy(model).to(torch.bfloat16), kind, torch.bfloat16), wanted)
                self.assertLess(error(result(attn.torch.optimize(model, "bf16"), kind), wanted), 2 * half + 1e-3)
                self.assertLess(error(result(attn.torch.optimize(model, torch.bfloat16), kind, torch.bfloat16), wanted), 3 * half + 1e-3)
                self.assertLess(error(result(attn.torch.optimize(model, "int8"), kind), wanted), 0.5)

    def test_gradients(self):
        for name, config, kind in MODELS:
            with self.subTest(name):
                model = made(name, config)

                def gradients(model, dtype=torch.float32):
                    model.zero_grad()
                    model(**inputs(kind, dtype))[0].sin().sum().backward()
                    return [p.grad.double() for p in model.parameters() if p.grad is not None]
                wanted = gradients(copy.deepcopy(model).double(), torch.float64)
                own = gradients(model)
                with attn.torch.enable(always=True):
                    found = gradients(model)
                attn.torch.disable()
                size = max(g.abs().max().item() for g in wanted)
                errors = [max((one - other).abs().max().item() for one, other in zip(some, wanted)) / size for some in (own, found)]
                self.assertLess(errors[1], 2 * errors[0] + 1e-6)

    def test_attention_and_pickling(self):
        for name, config, kind in MODELS:
            if name not in ("BertModel", "BloomForCausalLM", "DetrModel"):
                continue
            model = made(name, config)
            found = attn.torch.optimize(model)
            self.assertEqual(found.config._attn_implementation, "attn" if name == "BertModel" else model.config._attn_implementation)
            self.assertIn(f'attention of {name}: "', attn.torch.report(found))
            self.assertNotEqual(model.config._attn_implementation, "attn")
            self.assertTrue(torch.equal(result(pickle.loads(pickle.dumps(found)), kind), result(found, kind)))

    def test_generate(self):
        for name, config, _ in MODELS:
            if name not in ("GPT2LMHeadModel", "LlamaForCausalLM", "T5ForConditionalGeneration"):
                continue
            with self.subTest(name):
                model, ids = made(name, config), torch.tensor([[5, 9, 30, 12]])
                how = {"max_new_tokens": 8, "do_sample": False, "attention_mask": torch.ones_like(ids)}
                self.assertTrue(torch.equal(attn.torch.optimize(model).generate(ids, **how), model.generate(ids, **how)))

    def test_save_pretrained(self):
        for name, config, kind in MODELS:
            if name not in ("GPT2LMHeadModel", "BertModel"):
                continue
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                model = made(name, config)
                attn.torch.optimize(model).save_pretrained(os.path.join(folder, "model"))
                again = type(model).from_pretrained(os.path.join(folder, "model"))
                self.assertTrue(torch.equal(result(again, kind), result(model, kind)))


if __name__ == "__main__":
    unittest.main()
