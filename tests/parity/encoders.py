# SPDX-License-Identifier: MIT
"""Encoders of Hugging Face with random weights: python encoders.py [--cases N] [NAME...]

BERT, RoBERTa, DistilBERT, ModernBERT and ESM-2 in random sizes are saved as transformers saves them, and `attn.load` reads the
directory.  Every output (hidden states, pooler, classes, masked words, ESM's contacts) of padded batches must be that of transformers:
to 1e-9 of the largest in float64 (ESM-2 to 1e-7: transformers counts its masked tokens in float32), to 2e-5 in float32.  The same texts packed one after another must give the same.  transformers
computes angles of rotary positions in float32; here they are computed in float64 as well."""
import argparse
import pathlib
import tempfile

import numpy as np
import torch
import transformers
from transformers.models.esm import modeling_esm
from transformers.models.modernbert import modeling_modernbert

import attn

transformers.utils.logging.disable_progress_bar()


# ---------------------------------------------------------------------------- float64 where transformers has float32

def modernbert_angles(self, x, position_ids, layer_type):
    config = self.config
    base = config.rope_parameters[layer_type]["rope_theta"]
    dim = config.hidden_size // config.num_attention_heads
    inverse = base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = position_ids[..., None].double() * inverse
    both = torch.cat((angles, angles), -1)
    return both.cos().to(x.dtype), both.sin().to(x.dtype)


def rotate(q, k, cos, sin, unsqueeze_dim=1):
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    half = modeling_modernbert.rotate_half
    return q * cos + half(q) * sin, k * cos + half(k) * sin


def esm_angles(self, x, position_ids, layer_type=None):
    dim = self.config.hidden_size // self.config.num_attention_heads
    inverse = self.config.rope_theta ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = position_ids[..., None].double() * inverse
    both = torch.cat((angles, angles), -1)
    return both.cos().to(x.dtype), both.sin().to(x.dtype)


def patch():
    modeling_modernbert.ModernBertRotaryEmbedding.forward = modernbert_angles
    modeling_esm.EsmRotaryEmbedding.forward = esm_angles
    modeling_modernbert.apply_rotary_pos_emb = modeling_esm.apply_rotary_pos_emb = rotate


# ------------------------------------------------------------------------------------------------------- the cases

def randomize(model, generator):
    for name, p in model.named_parameters():
        with torch.no_grad():
            norm = "norm" in name.lower() and "weight" in name
            x = torch.randn(p.shape, generator=generator)
            p.copy_((1 + 0.2 * x if norm else 0.3 * x).half().float())
    return model.eval()


def sizes(random):
    heads = int(random.integers(1, 4))
    dim = 2 * int(random.integers(2, 9))
    return {"heads": heads, "hidden": heads * dim, "wide": int(random.integers(3, 40)), "blocks": int(random.integers(1, 6)),
            "vocabulary": int(random.integers(40, 60))}


def bert(random):
    s = sizes(random)
    config = transformers.BertConfig(vocab_size=s["vocabulary"], hidden_size=s["hidden"], num_hidden_layers=s["blocks"],
                                     num_attention_heads=s["heads"], intermediate_size=s["wide"], num_labels=3, type_vocab_size=2,
                                     max_position_embeddings=64, hidden_act=str(random.choice(["gelu", "relu", "gelu_new", "silu"])))
    return config, [transformers.BertModel, transformers.BertForSequenceClassification, transformers.BertForMaskedLM]


def roberta(random):
    s = sizes(random)
    config = transformers.RobertaConfig(vocab_size=s["vocabulary"], hidden_size=s["hidden"], num_hidden_layers=s["blocks"],
                                        num_attention_heads=s["heads"], intermediate_size=s["wide"], num_labels=3, type_vocab_size=1,
                                        max_position_embeddings=66, pad_token_id=int(random.integers(0, 3)), layer_norm_eps=1e-5)
    return config, [transformers.RobertaModel, transformers.RobertaForSequenceClassification, transformers.RobertaForMaskedLM]


def xlm_roberta(random):
    config, _ = roberta(random)
    config = transformers.XLMRobertaConfig(**{k: v for k, v in config.to_dict().items() if k != "model_type"})
    return config, [transformers.XLMRobertaModel, transformers.XLMRobertaForMaskedLM]


def distilbert(random):
    s = sizes(random)
    config = transformers.DistilBertConfig(vocab_size=s["vocabulary"], dim=s["hidden"], n_layers=s["blocks"], n_heads=s["heads"],
                                           hidden_dim=s["wide"], num_labels=3, max_position_embeddings=64,
                                           activation=str(random.choice(["gelu", "relu"])))
    return config, [transformers.DistilBertModel, transformers.DistilBertForSequenceClassification, transformers.DistilBertForMaskedLM]


def modernbert(random):
    s = sizes(random)
    yes = lambda: bool(random.integers(2))
    config = transformers.ModernBertConfig(
        vocab_size=s["vocabulary"], hidden_size=s["hidden"], num_hidden_layers=s["blocks"], num_attention_heads=s["heads"],
        intermediate_size=s["wide"], num_labels=3, max_position_embeddings=128, local_attention=2 * int(random.integers(2, 6)),
        global_attn_every_n_layers=int(random.integers(1, 4)), norm_bias=yes(), attention_bias=yes(), mlp_bias=yes(),
        classifier_bias=yes(), decoder_bias=yes(), classifier_pooling="mean" if yes() else "cls", pad_token_id=0, bos_token_id=1,
        eos_token_id=2, cls_token_id=1, sep_token_id=2, attn_implementation="sdpa")
    return config, [transformers.ModernBertModel, transformers.ModernBertForSequenceClassification, transformers.ModernBertForMaskedLM]


def esm2(random):
    s = sizes(random)
    config = transformers.EsmConfig(vocab_size=33, hidden_size=s["hidden"], num_hidden_layers=s["blocks"], num_attention_heads=s["heads"],
                                    intermediate_size=s["wide"], num_labels=3, position_embedding_type="rotary", pad_token_id=1,
                                    mask_token_id=32, token_dropout=bool(random.integers(4)), layer_norm_eps=1e-5,
                                    emb_layer_norm_before=bool(random.integers(2)), attn_implementation="eager")
    return config, [transformers.EsmModel, transformers.EsmForMaskedLM, transformers.EsmForSequenceClassification]


FAMILIES = {"bert": bert, "roberta": roberta, "xlm-roberta": xlm_roberta, "distilbert": distilbert, "modernbert": modernbert,
            "esm2": esm2}


def batch(random, config):
    """Tokens, lengths: ids that are not padding, then padding."""
    texts, most = int(random.integers(1, 5)), int(random.integers(1, 45))
    lens = random.integers(1, most + 1, texts)
    lens[0] = most
    pad = config.pad_token_id or 0
    low, high = (4, 33) if config.model_type == "esm" else (4, config.vocab_size)
    ids = random.integers(low, high, (texts, most))
    for row, n in zip(ids, lens):
        if config.model_type == "esm":
            row[0], row[n - 1] = (0, 2) if n > 1 else (0, 0)
        row[n:] = pad
    return ids, lens


def expected(model, ids, lens, segments):
    mask = (torch.arange(ids.shape[1]) < torch.tensor(lens)[:, None]).long()
    how = {"input_ids": torch.tensor(ids), "attention_mask": mask}
    if segments is not None:
        how["token_type_ids"] = torch.tensor(segments)
    name, outputs = type(model).__name__, {}
    with torch.no_grad():
        result = model(**how)
        if name.endswith("Model"):
            outputs["out"] = result.last_hidden_state
            if getattr(result, "pooler_output", None) is not None:
                outputs["pooled"] = result.pooler_output
            if name == "EsmModel":
                outputs["contacts"] = model.predict_contacts(how["input_ids"], mask)
        elif name.endswith("ForMaskedLM"):
            outputs["token_logits"] = result.logits
        else:
            outputs["logits"] = result.logits
    return {key: x.numpy() for key, x in outputs.items()}


def worst(found, wanted, lens, packed):
    """The largest difference, as a share of the largest number, without padding."""
    error = 0.0
    for key, x in wanted.items():
        y = found[key]
        if key in ("out", "token_logits"):
            x = np.concatenate([row[:n] for row, n in zip(x, lens)])
            y = y[0] if packed else np.concatenate([row[:n] for row, n in zip(y, lens)])
        elif key == "contacts":
            x = np.concatenate([row[:max(n - 2, 0), :max(n - 2, 0)].ravel() for row, n in zip(x, lens)])
            y = np.concatenate([row[:max(n - 2, 0), :max(n - 2, 0)].ravel() for row, n in zip(y, lens)])
        assert x.shape == y.shape, (key, x.shape, y.shape)
        if x.size:
            error = max(error, float(abs(x - y).max() / max(abs(x).max(), 1e-30)))
    return error


def compare(model, folder, random):
    """The largest differences in float64 and float32."""
    config, errors = model.config, []
    ids, lens = batch(random, config)
    kinds = getattr(config, "type_vocab_size", 0) or 0
    segments = random.integers(0, kinds, ids.shape) if kinds > 1 else None
    for dtype in (np.float64, np.float32):
        wanted = expected(model.double() if dtype == np.float64 else model.float(), ids, lens, segments)
        loaded = attn.load(folder, dtype=dtype).eval()
        inputs = {"tokens": ids, "valid_lens": lens} | ({} if segments is None else {"segments": segments})
        found = dict(zip(wanted, attn_outputs(loaded, inputs, list(wanted))))
        error = worst(found, wanted, lens, False)
        wanted.pop("contacts", None)
        if wanted:
            pack = lambda x: np.concatenate([row[:n] for row, n in zip(x, lens)])[None]
            inputs = {"tokens": pack(ids), "offsets": np.concatenate([[0], np.cumsum(lens)])}
            inputs |= {} if segments is None else {"segments": pack(segments)}
            found = dict(zip(wanted, attn_outputs(loaded, inputs, list(wanted))))
            error = max(error, worst(found, wanted, lens, True))
        errors.append(error)
    return errors


# -------------------------------------------------------------------------------------------- fair-esm's ESM-2

def compare_fair(case):
    """The largest difference of contacts and mean vectors from fair-esm's, for a checkpoint of its form."""
    from esm import Alphabet
    from esm.model.esm2 import ESM2
    random = np.random.default_rng(case)
    layers, heads = int(random.integers(1, 5)), int(random.integers(1, 4))
    torch.manual_seed(case)
    model = ESM2(num_layers=layers, embed_dim=heads * 2 * int(random.integers(2, 9)), attention_heads=heads, alphabet="ESM-1b")
    state = randomize(model, torch.Generator().manual_seed(case)).state_dict()
    published = {("encoder." if name.startswith("lm_head") else "encoder.sentence_encoder.") + name: x
                 for name, x in state.items() if not name.startswith("contact_head")}
    protein = "".join(random.choice(list("LAGVSERTIDPKQNFYMHWC"), int(random.integers(1, 60))))
    _, _, tokens = Alphabet.from_architecture("ESM-1b").get_batch_converter()([("protein", protein)])
    with torch.no_grad():
        wanted = model(tokens, repr_layers=[layers], return_contacts=True)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "esm2.pt"
        settings = argparse.Namespace(encoder_layers=layers, encoder_attention_heads=heads, token_dropout=True)
        torch.save({"cfg": {"model": settings}, "model": published}, path)
        torch.save({"model": {name: x for name, x in state.items() if name.startswith("contact_head")}},
                   path.with_name("esm2-contact-regression.pt"))
        encoder = attn.Encoder(path)
        contacts, vector = encoder.contacts(protein), encoder.encode(protein)
    mean = wanted["representations"][layers][0, 1:-1].mean(0).numpy()
    return max(abs(contacts - wanted["contacts"][0].numpy()).max(), abs(vector - mean).max() / abs(mean).max())


# ------------------------------------------------------------------------------------------ a published directory

SENTENCES = ["How do I get my money back?", "", "Où est la bibliothèque ?", "日本語のテキストです。", "a" * 3000, "one two " * 400,
             "The weather is lovely today. \U0001f468\u200d\U0001f469\u200d\U0001f467"]


def compare_published(folder):
    """The largest difference of the vectors of a directory of sentence-transformers with mean pooling and Normalize."""
    encoder = attn.Encoder(folder)
    split, model = transformers.AutoTokenizer.from_pretrained(folder), transformers.AutoModel.from_pretrained(folder).eval()
    worst_of = 0.0
    for text, vector in zip(SENTENCES, encoder.encode(SENTENCES)):
        with torch.no_grad():
            tokens = split(text, truncation=True, max_length=encoder.max_seq_length, return_tensors="pt")
            mean = model(**tokens).last_hidden_state[0].mean(0).numpy()
        worst_of = max(worst_of, float(abs(vector - mean / np.linalg.norm(mean)).max()))
    return worst_of


def attn_outputs(model, inputs, names):
    inputs = {key: np.asarray(x, np.int32) for key, x in inputs.items()}
    found = model(**inputs, outputs=tuple(names))
    return found if isinstance(found, (tuple, list)) else (found,)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--cases", type=int, default=12)
    parser.add_argument("--published", help="a directory of sentence-transformers: its vectors are compared, too")
    how = parser.parse_args()
    patch()
    failed = 0
    for family in how.families:
        most = [0.0, 0.0]
        for case in range(how.cases):
            random = np.random.default_rng([case, len(family)])
            config, classes = FAMILIES[family](random)
            for kind in classes:
                torch.manual_seed(case)
                model = randomize(kind(config), torch.Generator().manual_seed(case))
                with tempfile.TemporaryDirectory() as folder:
                    model.save_pretrained(folder)
                    errors = compare(model, pathlib.Path(folder), random)
                if errors[0] > (1e-7 if family == "esm2" else 1e-9) or errors[1] > 2e-5:
                    failed += 1
                    print(f"{family}: case {case}, {kind.__name__}: {errors[0]:.1e} in float64, {errors[1]:.1e} in float32")
                most = [max(a, b) for a, b in zip(most, errors)]
        print(f"{family}: {how.cases} cases of {len(classes)} classes, padded and packed: at most {most[0]:.1e} in float64, "
              f"{most[1]:.1e} in float32")
    try:
        error = max(compare_fair(case) for case in range(how.cases))
        failed += error > 2e-5
        print(f"esm2-esm: {how.cases} checkpoints as fair-esm publishes them: at most {error:.1e} in float32")
    except ImportError:
        print("esm2-esm: skipped: there is no fair-esm (pip install fair-esm)")
    if how.published:
        error = compare_published(how.published)
        failed += error > 1e-5
        print(f"{how.published}: {len(SENTENCES)} texts: at most {error:.1e} from transformers")
    else:
        print("published vectors: skipped: --published DIR names a directory, such as all-MiniLM-L6-v2")
    raise SystemExit(int(failed > 0))


if __name__ == "__main__":
    main()
