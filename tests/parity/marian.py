# SPDX-License-Identifier: MIT
"""Compares `attn translate` with transformers' MarianMTModel.generate, and its tokens with MarianTokenizer's.

    marian.py DATA [--sentences N] [--lines N] [--keep DIR]

DATA has sentence pairs, a tab between, plain or gzip.  A model with random weights is made from vocabularies that
SentencePiece learns from it, saved as Hugging Face saves it, and used for translations: greedy, with 4 beams, and for
all four hypotheses of these.
Needs transformers, sentencepiece and PyTorch; prints so and exits with 77 if they are missing.
"""
import argparse
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import safetensors.torch
    import sentencepiece
    import torch
    from transformers import AddedToken, GenerationConfig, MarianConfig, MarianMTModel, MarianTokenizer
except ImportError as error:
    print(f"not tried: {error}")
    sys.exit(77)

BUILD = os.environ.get("ATTN_BUILD", "build")


def read_pairs(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
        return [line.rstrip("\n").split("\t")[:2] for line in file]


def spread(pairs, n):
    """n of them at most, from beginning to end: files are often sorted by length."""
    return pairs[::max(1, len(pairs) // n)][:n]


def make_vocabularies(pairs, folder):
    pieces = []
    for side, name in enumerate(("source", "target")):
        prefix = os.path.join(folder, name)
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(p[side] for p in spread(pairs, 20000)),
                                                 model_prefix=prefix, vocab_size=3000, hard_vocab_limit=False, minloglevel=3)
        os.rename(prefix + ".model", prefix + ".spm")
        model = sentencepiece.SentencePieceProcessor(model_file=prefix + ".spm")
        pieces += [model.id_to_piece(i) for i in range(3, model.get_piece_size())]
    # Every seventh piece is left out: the vocabulary and the .spm have different ones in published models too.
    names = ["</s>", "<unk>", ">>fra<<"] + [p for i, p in enumerate(dict.fromkeys(pieces)) if i % 7] + ["<pad>"]
    with open(os.path.join(folder, "vocab.json"), "w") as file:
        json.dump({piece: i for i, piece in enumerate(names)}, file)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
        json.dump({"source_lang": "en", "target_lang": "fr", "tokenizer_class": "MarianTokenizer"}, file)
    return len(names)


def make_model(size, folder, safe):
    torch.manual_seed(5)
    config = MarianConfig(vocab_size=size, d_model=64, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4,
                          decoder_attention_heads=2, encoder_ffn_dim=96, decoder_ffn_dim=128, max_length=40,
                          max_position_embeddings=128, activation_function="swish", scale_embedding=True,
                          pad_token_id=size - 1, decoder_start_token_id=size - 1, eos_token_id=0, forced_eos_token_id=0)
    model = MarianMTModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" in name:
                continue
            parameter.normal_(0, 0.3 if parameter.dim() > 1 and "shared" not in name else 0.15)
            if "layer_norm.weight" in name:
                parameter.add_(1)
        model.model.shared.weight[size - 1] = 0
        model.final_logits_bias.normal_(0, 0.5)
        model.final_logits_bias[0, 0] = 4  # so that sentences end at different lengths
    model.generation_config = GenerationConfig(
        bad_words_ids=[[size - 1]], num_beams=4, max_length=40, pad_token_id=size - 1, eos_token_id=0,
        decoder_start_token_id=size - 1, forced_eos_token_id=0, bos_token_id=0)
    model.save_pretrained(folder)
    if not safe:
        os.remove(os.path.join(folder, "model.safetensors"))
        torch.save(model.state_dict(), os.path.join(folder, "pytorch_model.bin"))
    return model


def tokens_of(folder, lines):
    """The ids of the library's source vocabulary for each line."""
    tool = os.path.join(BUILD, "tests", "parity_tool")
    done = subprocess.run([tool, "--tokens", folder], input="".join(line + "\n" for line in lines), text=True, check=True,
                          stdout=subprocess.PIPE, encoding="utf-8")
    return [[int(word) for word in line.split()] for line in done.stdout.split("\n")[:-1]]


def compare_tokens(folder, tokenizer, lines):
    wrong = 0
    for line, found in zip(lines, tokens_of(folder, lines), strict=True):
        wanted = tokenizer(line).input_ids
        if wanted != found:
            wrong += 1
            if wrong <= 5:
                print(f"tokens of {line!r}:\n  {wanted}\n  {found}")
    print(f"tokens: {len(lines) - wrong} of {len(lines)} lines the same")
    return wrong


def reference(model, tokenizer, lines, beams):
    texts = []
    for i in range(0, len(lines), 16):
        batch = tokenizer(lines[i:i + 16], return_tensors="pt", padding=True)
        with torch.no_grad():
            ids = model.generate(**batch, num_beams=beams)
        texts += tokenizer.batch_decode(ids, skip_special_tokens=True)
    return texts


def compare_sentences(folder, model, tokenizer, lines, beams, options=()):
    wanted = reference(model, tokenizer, lines, beams)
    done = subprocess.run([os.path.join(BUILD, "attn"), "translate", folder, "--beam", str(beams), "--quiet", *options],
                          input="\n".join(lines) + "\n", capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stderr)
        return len(lines)
    found = done.stdout.split("\n")[:-1]
    wanted = [re.sub("[\x80-\x9f]", "  ", re.sub("[\0-\x1f\x7f]", " ", text).strip()) for text in wanted]  # as a terminal gets it
    wrong = [i for i in range(len(lines)) if i >= len(found) or found[i] != wanted[i]]
    for i in wrong[:3]:
        print(f"{lines[i]!r}:\n  {wanted[i]!r}\n  {found[i] if i < len(found) else None!r}")
    distinct = len(set(wanted))
    print(f"beams {beams}: {len(lines) - len(wrong)} of {len(lines)} sentences the same ({distinct} distinct)")
    return len(wrong)


def compare_nbest(folder, model, tokenizer, lines, beams):
    """All hypotheses of a beam and their scores, to four digits."""
    wanted, wrong = [], 0
    for i in range(0, len(lines), 16):
        batch = tokenizer(lines[i:i + 16], return_tensors="pt", padding=True)
        with torch.no_grad():
            out = model.generate(**batch, num_beams=beams, num_return_sequences=beams, output_scores=True,
                                 return_dict_in_generate=True)
        wanted += zip(tokenizer.batch_decode(out.sequences, skip_special_tokens=True), out.sequences_scores.tolist())
    command = [os.path.join(BUILD, "attn"), "translate", folder, "--beam", str(beams), "--nbest", str(beams)]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True)
    found = [line.split(" ||| ") for line in done.stdout.split("\n")[:-1]]
    if len(found) != len(wanted):
        print(f"n-best of {beams}: {len(found)} hypotheses, not {len(wanted)}: {done.stderr}")
        return len(wanted)
    for i, (text, score) in enumerate(wanted):
        same = found[i][0] == str(i // beams) and found[i][1] == text and abs(float(found[i][2]) - score) < 1e-4
        if not same and wrong < 3:
            print(f"{found[i]}, not {text!r} with {score}")
        wrong += not same
    print(f"n-best of {beams}: {len(wanted) - wrong} of {len(wanted)} hypotheses the same")
    return wrong


# Search settings that generation_config.json may have beyond the model's own, and the options of `translate` that are
# the same.
SEARCHES = [
    ({"renormalize_logits": True}, []),
    ({"no_repeat_ngram_size": 1}, ["--no-repeat-ngram", "1"]),
    ({"no_repeat_ngram_size": 2}, ["--no-repeat-ngram", "2"]),
    ({"no_repeat_ngram_size": 3, "renormalize_logits": True}, []),
    ({"repetition_penalty": 1.3}, ["--repetition-penalty", "1.3"]),
    ({"repetition_penalty": 0.8, "renormalize_logits": True}, []),
    ({"min_length": 12}, ["--min-length", "12"]),
    ({"min_new_tokens": 11}, ["--min-length", "12"]),
    ({"suppress_tokens": [1, 7, 9, 20, 21, 22]}, ["--suppress-tokens"]),
    ({"suppress_tokens": [5, 6], "renormalize_logits": True, "repetition_penalty": 1.2, "no_repeat_ngram_size": 2, "min_length": 5}, []),
    ({"forced_eos_token_id": [0], "max_length": 9}, []),
    ({"do_sample": False, "temperature": 0.7, "top_k": 10, "top_p": 0.9}, []),
]


def pairs_of_tokens(model, tokenizer, lines):
    """Pairs of tokens that follow each other in translations, also the last token and the end."""
    with torch.no_grad():
        rows = model.generate(**tokenizer(lines[:16], return_tensors="pt", padding=True), num_beams=1).tolist()
    return [list(pair) for pair in dict.fromkeys(pair for row in rows for pair in zip(row[1:], row[2:]))][:40]


def compare_searches(folder, model, tokenizer, lines):
    """Each of these settings, from the file and as options."""
    path, wrong = os.path.join(folder, "generation_config.json"), 0
    with open(path) as file:
        own = json.load(file)
    sequences = own["bad_words_ids"] + pairs_of_tokens(model, tokenizer, lines)
    for settings, options in [*SEARCHES, ({"bad_words_ids": sequences}, [])]:
        if options == ["--suppress-tokens"]:
            options = options + [" ".join(tokenizer.convert_ids_to_tokens(settings["suppress_tokens"]))]
        print(settings, flush=True)
        model.generation_config = GenerationConfig(**{**own, **settings})
        for beams in (1, 4):
            with open(path, "w") as file:
                json.dump({**own, **settings}, file)
            wrong += compare_sentences(folder, model, tokenizer, lines, beams)
            if beams > 1:
                wrong += compare_nbest(folder, model, tokenizer, lines, beams)
            with open(path, "w") as file:
                json.dump(own, file)
            if options:
                wrong += compare_sentences(folder, model, tokenizer, lines, beams, options)
    model.generation_config = GenerationConfig(**own)
    return wrong


ODD = [">>fra<< Hello.", "a</s>b", "<unk> x <pad>", " two  spaces ", "\ufb01ne \uff21\uff22", "\u2603 caf\u00e9 e\u0301",
       "no\u00a0break\u202fspace", ">>xxx<<", "a >>fra<< b", "\u200bzero\u00adwidth", "1\u00bd \u2122 \u2026", "\u4f60\u597d"]


def compare_tuned(folder, data, made):
    """A fine-tuned directory is read by transformers whole, and translates there as here."""
    tuned, pairs = os.path.join(made, "tuned"), os.path.join(made, "pairs.tsv")
    with open(pairs, "w", encoding="utf-8") as file:
        file.writelines("\t".join(pair) + "\n" for pair in data[::max(1, len(data) // 300)])
    subprocess.run([f"{BUILD}/attn", "train", "translate", "--data", pairs, "--from", folder, "--out", tuned, "--epochs", "1",
                    "--rate", "0.001", "--valid-sentences", "0", "--threads", "1", "--quiet"], check=True, stdout=subprocess.DEVNULL)
    model, info = MarianMTModel.from_pretrained(tuned, output_loading_info=True)
    before = MarianMTModel.from_pretrained(folder).state_dict()
    changed = sum(not torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    wrong = len(info["missing_keys"]) + len(info["unexpected_keys"]) + (changed < 100)
    print(f"fine-tuned: {changed} tensors changed, {wrong} complaints")
    sentences = [pair[0] for pair in spread(data, 20)]
    return wrong + compare_sentences(tuned, model.eval(), MarianTokenizer.from_pretrained(tuned), sentences, 1)


def compare_archives():
    """attn's conversion of archives with one vocabulary and with two is loaded whole, and translates there as here."""
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
    import marian_archive as archive
    archive.ATTN, wrong = f"{BUILD}/attn", 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        lines, tokens = archive.pieces_of(folder)
        tensors = archive.weights(len(tokens), 9)
        _, native = archive.write_forms(folder, tokens, tensors)
        for form in (native, archive.two_vocabularies(folder, tokens, tensors)):
            made = str(form) + "-converted"
            subprocess.run([f"{BUILD}/attn", "convert", form, "-o", made, "--quiet"], check=True, stdout=subprocess.DEVNULL)
            model, info = MarianMTModel.from_pretrained(made, output_loading_info=True)
            wrong += len(info["missing_keys"]) + len(info["unexpected_keys"]) + len(info["mismatched_keys"])
            for module in model.modules():
                if isinstance(module, torch.nn.LayerNorm):
                    module.eps = 1e-6
            model.generation_config.max_length = 25
            tokenizer, sentences = MarianTokenizer.from_pretrained(made), [pair[0] for pair in lines[:40]]
            for beams in (1, 4):
                wrong += compare_sentences(made, model.eval(), tokenizer, sentences, beams, ["--max-length", "24"])
    return wrong


def compare_tokenizers(folder, model, pairs):
    """Tokens that add_tokens made, tidied spaces, a file of save_model: the sentences of transformers."""
    tokenizer, made = MarianTokenizer.from_pretrained(folder, clean_up_tokenization_spaces=True), os.path.join(folder, "added")
    tokenizer.add_tokens(["<place>", "Tom", AddedToken("wide", lstrip=True, rstrip=True)])
    tokenizer.add_tokens(["<sep>", " ,".strip()], special_tokens=True)
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    with torch.no_grad():
        model.model.shared.weight[-5:].normal_(0, 0.3)
        model.final_logits_bias[0, -5:] = 2  # so that they are produced
    model.save_pretrained(made)
    tokenizer.save_pretrained(made)
    os.remove(os.path.join(made, "model.safetensors"))
    safetensors.torch.save_model(model, os.path.join(made, "model.safetensors"))
    sentences = [pair[0] for pair in spread(pairs, 40)] + ["Tom <place> Tomorrow", "a  wide  b <sep>c", "<sep><place>"]
    wrong = compare_tokens(made, tokenizer, sentences + ODD)
    for beams in (1, 4):
        wrong += compare_sentences(made, model, tokenizer, sentences, beams)
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--lines", type=int, default=10000)
    parser.add_argument("--keep")
    options = parser.parse_args()
    torch.set_num_threads(1)
    pairs, wrong = read_pairs(options.data), 0
    for safe in (True, False):
        with tempfile.TemporaryDirectory() as made:
            folder = os.path.join(options.keep, "safetensors" if safe else "bin") if options.keep else made
            os.makedirs(folder, exist_ok=True)
            model = make_model(make_vocabularies(pairs, folder), folder, safe)
            tokenizer = MarianTokenizer.from_pretrained(folder)
            lines = [side for pair in spread(pairs, options.lines // 2) for side in pair]
            wrong += compare_tokens(folder, tokenizer, ODD + (lines if safe else lines[:100]))
            sentences = [pair[0] for pair in spread(pairs, options.sentences)]
            for beams in (1, 4):
                wrong += compare_sentences(folder, model, tokenizer, sentences, beams)
            wrong += compare_nbest(folder, model, tokenizer, sentences, 4)
            if safe:
                wrong += compare_searches(folder, model, tokenizer, sentences[:40])
            wrong += compare_tuned(folder, pairs, made)
            if safe:
                wrong += compare_tokenizers(folder, model, pairs)
    wrong += compare_archives()
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
