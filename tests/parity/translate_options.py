# SPDX-License-Identifier: MIT
"""Compares the options of attn.Translator with those of the same name in CTranslate2.

    translate_options.py [DATA] [--sentences N]

DATA has sentence pairs, a tab between (default: data/phrasebook.tsv).  A small model of random weights is saved as Hugging
Face saves it and converted for CTranslate2.  Both translate with each option: the tokens of the best translation must be
the same, and the scores to 1e-4.  The model has "renormalize_logits", because CTranslate2's probabilities are shared among
the tokens that are not suppressed.  Needs transformers, sentencepiece, PyTorch and CTranslate2; prints so and exits with
77 if they are missing.
"""
import argparse
import json
import os
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.append(os.path.join(ROOT, "bench", "peers"))
try:
    import ctranslate2
    import marian  # exits with 77 if transformers is missing
    import translate
except ImportError as error:
    print(f"not tried: {error}")
    sys.exit(77)

import attn

LIKELY_END = 14  # logit of the end token with which many sentences end before the maximum


def make(pairs, folder):
    own, peer = os.path.join(folder, "marian"), os.path.join(folder, "ctranslate2")
    os.makedirs(own)
    size = marian.make_vocabularies(pairs, own)
    translate.make_model({"vocabulary": size, "d": 64, "layers": 2, "heads": 4, "ffn": 128, "end": LIKELY_END}, own)
    path = os.path.join(own, "generation_config.json")
    with open(path, encoding="utf-8") as file:
        settings = json.load(file)
    with open(path, "w", encoding="utf-8") as file:
        json.dump({**settings, "renormalize_logits": True}, file)
    ctranslate2.converters.TransformersConverter(own).convert(peer)
    return own, peer


def searches(found):
    """Options that change the translations `found` of a greedy search."""
    tokens = [result.tokens[0] for result in found]
    pairs = [list(pair) for pair in dict.fromkeys((a, b) for one in tokens for a, b in zip(one, one[1:]))][:20]
    triples = [one[2:5] for one in tokens if len(one) > 5]
    yield from ({}, {"beam_size": 4}, {"max_input_length": 4}, {"no_repeat_ngram_size": 2}, {"disable_unk": True})
    for beam in (1, 4):
        for sequences in (pairs, triples, pairs[:2] + [tokens[0][:1]]):
            yield {"beam_size": beam, "suppress_sequences": sequences}
    for patience in (0.25, 0.5, 0.75, 1.5, 2, 4):
        for penalty in (1, 3):
            yield {"beam_size": 4, "patience": patience, "length_penalty": penalty}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default=os.path.join(ROOT, "data", "phrasebook.tsv"))
    parser.add_argument("--sentences", type=int, default=30)
    options = parser.parse_args()
    pairs, wrong = marian.read_pairs(options.data), 0
    lines = [pair[0] for pair in marian.spread(pairs, options.sentences)]
    with tempfile.TemporaryDirectory() as folder:
        own, peer = make(pairs, folder)
        tokenizer = marian.MarianTokenizer.from_pretrained(own)
        pieces = [tokenizer.convert_ids_to_tokens(tokenizer(line).input_ids) for line in lines]
        ours, theirs = attn.Translator(own, intra_threads=1), ctranslate2.Translator(peer, intra_threads=1)
        common = {"beam_size": 1, "length_penalty": 1, "max_decoding_length": 30}
        for how in searches(ours.translate_batch(lines, **common)):
            both = {**common, **how}
            found = ours.translate_batch(lines, **both)
            wanted = theirs.translate_batch(pieces, return_scores=True, min_decoding_length=0, **both)
            same = sum(a.tokens[0] == b.hypotheses[0] and abs(a.scores[0] - b.scores[0]) < 1e-4 for a, b in zip(found, wanted))
            print(f"{same} of {len(lines)} the same, {sum(len(a.tokens[0]) for a in found)} tokens: {str(how)[:80]}", flush=True)
            wrong += len(lines) - same
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
