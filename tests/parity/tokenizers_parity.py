#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares attn's tokenizers with the library `tokenizers` of Hugging Face, id by id.

    tokenizers_parity.py [--build build] [--lines 100000] [--seed 1] [--only NAME] [--characters]
                         [--directory DIR]

Trains small tokenizers (WordPiece, byte-level BPE, Unigram), writes them as published models are written, and encodes
generated lines with both libraries: every script, emoji with joiners, combining marks, control characters, malformed
UTF-8 and lines of a megabyte. Ids and types must be equal; offsets too where the texts are valid UTF-8.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Optional, Tuple

try:
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
except ImportError:
    print("tokenizers_parity: skipped: the package tokenizers is not installed (scripts/install-parity)")
    sys.exit(0)

Record = Tuple[bytes, Optional[bytes]]  # a text, and the second text of a pair
GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
WORDS = """the of and to in a is that for it as was with be by on not he his but at are this have from or one had word
which you were her all she there would their we him been has when who will no more if out so said what up its about
into than them can only other new some could time these two may then do first any my now such like our over man me
even most made after also did many before must through back years where much your way well down should because each
just those people mr how too little state good very make world still own see men work long get here between both life
being under never day same another know while last might us great old year off come since against go came right used
take three embedding sentence tokenizer attention vectors unbelievable internationalization""".split()
RANGES = [(0x20, 0x7e), (0xa0, 0x24f), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x52f), (0x590, 0x6ff), (0x900, 0xdff),
          (0xe00, 0xfff), (0x1100, 0x11ff), (0x1680, 0x18af), (0x1ab0, 0x1aff), (0x1cd0, 0x1dff), (0x1e00, 0x1fff),
          (0x2000, 0x206f), (0x20d0, 0x214f), (0x2460, 0x24ff), (0x2e00, 0x303f), (0x3040, 0x33ff), (0x4e00, 0x4fff),
          (0xa640, 0xa8ff), (0xac00, 0xd7a3), (0xf900, 0xfb4f), (0xfe00, 0xffff), (0x10000, 0x11fff), (0x16f00, 0x16fff),
          (0x1d100, 0x1d7ff), (0x1e000, 0x1efff), (0x1f000, 0x1faff), (0x2f800, 0x2fa1f), (0xe0000, 0xe01ff)]
EMOJI = ["\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f3f3\ufe0f\u200d\U0001f308", "\U0001f44d\U0001f3fd",
         "\U0001f1e9\U0001f1ea", "1\ufe0f\u20e3", "\u2764\ufe0f", "\U0001f9d1\U0001f3ff\u200d\U0001f680"]
SPECIAL = ["[CLS]", "[SEP]", "[MASK]", "[UNK]", "[PAD]", "<s>", "</s>", "<mask>", "<unk>", "<pad>", "<extra>", "Word-X"]
PIECES = ["'s", "'S", "'ll", "'LL", "'\u017f", "don't", "I'VE", "  ", "\n", "\r\n", "\t", " \n ", "\u3000", "\u00a0", "\u200b",
          "...", "3.14", "1234567", "\u00bd", "\u2460", "e\u0301", "A\u030a\u0323", "\u1e9b\u0323", "\u0130", "\u01c5",
          "\ufb01", "\u3392", "\uff21\uff22", "\u0958", "\u0344", "\u1112\u1161\u11ab", "\ud55c", "\u2581", "\u2581a",
          "\x00", "\x01", "\x7f", "\x85", "\u2028", "\ufeff", "\ufffd", "\u00ad", "<0x41>", "##ing", "_", "http://a.b/c?d=e"]


def text_of(rng: random.Random) -> str:
    """Returns a line of mixed content."""
    parts = []
    for _ in range(rng.randint(1, 12)):
        kind = rng.random()
        if kind < 0.4:
            word = rng.choice(WORDS)
            parts.append(rng.choice([word, word.capitalize(), word.upper(), word + "ing", "un" + word]))
        elif kind < 0.6:
            low, high = rng.choice(RANGES)
            parts.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 8))))
        elif kind < 0.7:
            parts.append(rng.choice(EMOJI))
        elif kind < 0.85:
            parts.append(rng.choice(PIECES))
        elif kind < 0.92:
            parts.append(rng.choice(SPECIAL))
        else:
            code = rng.randint(0, 0x10ffff)
            parts.append(chr(code) if not 0xd800 <= code < 0xe000 else "x")
        parts.append(rng.choice([" ", " ", " ", "", "", "  ", "\t", "-", ", "]))
    return "".join(parts)


def malformed(rng: random.Random, text: str) -> bytes:
    """Damages the bytes of a line."""
    data = bytearray(text.encode())
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(data))
        choice = rng.random()
        if choice < 0.5 and data:
            data[min(at, len(data) - 1)] = rng.randint(0x80, 0xff)
        elif choice < 0.8:
            data[at:at] = rng.choice([b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xf0\x9f\x98", b"\xff"])
        else:
            del data[at:]
    return bytes(data)


def all_characters() -> Iterator[bytes]:
    """Returns every code point, alone between letters, many to a line."""
    codes = [c for c in range(0x110000) if not 0xd800 <= c < 0xe000]
    for begin in range(0, len(codes), 64):
        line = codes[begin:begin + 64]
        yield " ".join("a" + chr(c) + "b" for c in line).encode()
        yield "".join(chr(c) for c in line).encode()


def lines_of(count: int, seed: int) -> list[bytes]:
    rng = random.Random(seed)
    lines = [b"", b" ", b"\n", b"a", " \u2581 ".encode(), b"\x00"]
    while len(lines) < count:
        text = text_of(rng)
        lines.append(malformed(rng, text) if rng.random() < 0.1 else text.encode())
    return lines


def long_lines(seed: int) -> list[bytes]:
    """Returns lines of a megabyte: words, one word, spaces, marks, digits, Han."""
    rng = random.Random(seed)
    words = " ".join(rng.choice(WORDS) for _ in range(200000))[:1 << 20]
    return [words.encode(), b"a" * (1 << 20), b" " * (1 << 20) + b"x", ("a" + "\u0301\u0323" * (1 << 18)).encode(),
            b"1" * (1 << 20), ("\u6f22\u5b57" * (1 << 17)).encode(), b"\xff" * (1 << 18), b"ab\n" * (1 << 18), b"!?" * (1 << 19)]


def corpus(seed: int) -> list[str]:
    """Returns texts to learn from. attn reads no token with the character U+0000."""
    rng = random.Random(seed)
    return [text_of(rng).replace("\0", "") for _ in range(4000)]


def bert_template(tokenizer: Tokenizer) -> processors.TemplateProcessing:
    ids = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    return processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids)


def word_piece(lower: bool, accents: bool | None) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower, strip_accents=accents)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=3000, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
                                        show_progress=False)
    tokenizer.train_from_iterator(corpus(11), trainer)
    tokenizer.post_processor = bert_template(tokenizer)
    return tokenizer


def byte_level(split: str | None, prefix: bool, ignore: bool, form: normalizers.Normalizer | None = None) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore))
    if form:
        tokenizer.normalizer = form
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=split is None)
    tokenizer.pre_tokenizer = bytes_only if split is None else pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(split), "isolated"), bytes_only])
    trainer = trainers.BpeTrainer(vocab_size=2000, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(corpus(12), trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=prefix)
    return tokenizer


def metaspace_bpe(scheme: str, fallback: bool, fuse: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=fallback, fuse_unk=fuse))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=scheme != "never")
    special = ["<unk>", "<s>", "</s>"] + ([f"<0x{i:02X}>" for i in range(256)] if fallback else [])
    trainer = trainers.BpeTrainer(vocab_size=1500, special_tokens=special, limit_alphabet=200, show_progress=False)
    tokenizer.train_from_iterator(corpus(13), trainer)
    if fallback:  # as published models have them: pieces of the model, not added tokens
        data = json.loads(tokenizer.to_str())
        data["added_tokens"] = [t for t in data["added_tokens"] if not t["content"].startswith("<0x")]
        tokenizer = Tokenizer.from_str(json.dumps(data))
    return tokenizer


def charsmap() -> str | None:
    """Returns the rules nmt_nfkc in base64, from a model that the program spm_train makes; None without it."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "t.txt").write_text("\n".join(WORDS * 20), encoding="utf-8", errors="replace")
            subprocess.run(["spm_train", f"--input={folder}/t.txt", f"--model_prefix={folder}/m", "--vocab_size=100",
                            "--hard_vocab_limit=false", "--minloglevel=3"], check=True, capture_output=True)
            model = (Path(folder) / "m.model").read_bytes()
    except (OSError, subprocess.CalledProcessError):
        return None
    # The message NormalizerSpec: name (1), precompiled_charsmap (2)
    import base64
    at = model.index(b"nmt_nfkc") + len(b"nmt_nfkc")
    assert model[at] == 0x12
    size = shift = 0
    at += 1
    while True:
        size |= (model[at] & 0x7f) << shift
        shift += 7
        at += 1
        if model[at - 1] < 0x80:
            break
    return base64.b64encode(model[at:at + size]).decode()


def unigram(normalizer: normalizers.Normalizer | None, fallback: bool = False) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(vocab_size=3000, special_tokens=special, unk_token="<unk>", show_progress=False)
    # a model has every character of its texts: those of a few scripts, so that others are unknown
    few = ["".join(c if ord(c) < 0x600 or 0x3040 <= ord(c) < 0x3100 else " " for c in text) for text in corpus(15)]
    tokenizer.train_from_iterator(few, trainer)
    data = json.loads(tokenizer.to_str())
    if fallback:
        data["model"]["vocab"] += [[f"<0x{i:02X}>", -20.0] for i in range(256)]
        data["model"]["byte_fallback"] = True
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>",
                                                             special_tokens=[("<s>", 0), ("</s>", 2)])
    return tokenizer


def added_tokens(tokenizer: Tokenizer) -> Tokenizer:
    data = json.loads(tokenizer.to_str())
    size = tokenizer.get_vocab_size()
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    for i, (content, extra) in enumerate([("<extra>", {"lstrip": True, "rstrip": True}), ("<mask>", {"lstrip": True}),
                                          ("Word-X", {"normalized": True}), ("would", {"single_word": True}),
                                          ("\u00c9t\u00e9", {"normalized": True, "rstrip": True})]):
        data["added_tokens"] = [t for t in data["added_tokens"] if t["content"] != content]
        data["added_tokens"].append({"id": size + i, "content": content, **flags, **extra})
    return Tokenizer.from_str(json.dumps(data))


def whole_words() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
                                                 normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(True),
                                                       pre_tokenizers.Punctuation("merged_with_previous")])
    trainer = trainers.WordLevelTrainer(vocab_size=8000, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False)
    tokenizer.train_from_iterator(corpus(16), trainer)
    return tokenizer


def many_steps() -> Tokenizer:
    """A WordPiece model of single characters, after normalizers and pre-tokenizers that few models use."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFC(), normalizers.Prepend("\u2581"),
                                                 normalizers.Replace("the", "THE"), normalizers.Replace(Regex(r"\d+"), "#")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"[A-Z]+|\p{Lo}"), "merged_with_next"),
        pre_tokenizers.Split("-", "contiguous"), pre_tokenizers.Split(Regex(r"\w+|[^\w\s]+"), "removed", invert=True),
        pre_tokenizers.Digits(False)])
    trainer = trainers.WordPieceTrainer(vocab_size=4000, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False)
    tokenizer.train_from_iterator(corpus(17), trainer)
    tokenizer.post_processor = bert_template(tokenizer)
    return tokenizer


def cases() -> Iterator[tuple[str, Callable[[], Tokenizer]]]:
    yield "wordpiece-uncased", lambda: word_piece(True, None)
    yield "wordpiece-cased", lambda: word_piece(False, None)
    yield "wordpiece-added", lambda: added_tokens(word_piece(True, False))
    yield "bpe-gpt2", lambda: byte_level(None, False, False)
    yield "bpe-roberta", lambda: added_tokens(byte_level(None, True, False))
    yield "bpe-modernbert", lambda: byte_level(None, False, False, normalizers.NFC())
    yield "bpe-cl100k", lambda: byte_level(GPT4, False, True)
    yield "bpe-o200k", lambda: byte_level(O200K, False, True)
    yield "bpe-metaspace-first", lambda: metaspace_bpe("first", True, True)
    yield "bpe-metaspace-never", lambda: metaspace_bpe("never", False, False)
    yield "bpe-metaspace-fuse", lambda: metaspace_bpe("always", False, True)
    yield "unigram", lambda: unigram(None)
    yield "unigram-nfkc", lambda: added_tokens(unigram(normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])))
    yield "unigram-bytes", lambda: unigram(normalizers.NFKD(), True)
    rules = charsmap()
    if rules:
        data = json.loads(unigram(None).to_str())
        data["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": rules}
        yield "unigram-nmt-nfkc", lambda: Tokenizer.from_str(json.dumps(data))
    else:
        print("unigram-nmt-nfkc: skipped: the program spm_train is not installed (Debian: sentencepiece)")
    yield "words", lambda: whole_words()
    yield "many-steps", lambda: many_steps()


def published(folder: str) -> Iterator[tuple[str, Callable[[], Tokenizer]]]:
    yield Path(folder).name, lambda: Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))


def encode_here(tool: str, folder: str, records: list[Record], special: bool, most: int,
                left: bool) -> list[list[tuple[int, int, int, int]]]:
    data = bytearray()
    for first, second in records:
        data += struct.pack("=i", len(first)) + first
        if second is not None:
            data += struct.pack("=ii", -1, len(second)) + second
    flags = ("s" if special else "-") + ("l" if left else "")
    done = subprocess.run([tool, folder, flags, str(most)], input=bytes(data), capture_output=True)
    if done.returncode:
        sys.exit(done.stderr.decode())
    rows, at = [], 0
    while at < len(done.stdout):
        (n,) = struct.unpack_from("=i", done.stdout, at)
        values = struct.unpack_from(f"={4 * n}i", done.stdout, at + 4)
        rows.append(list(zip(values[0::4], values[1::4], values[2::4], values[3::4])))
        at += 4 + 16 * n
    return rows


def byte_offsets(text: str) -> list[int]:
    offsets, at = [], 0
    for c in text:
        offsets.append(at)
        at += len(c.encode())
    return offsets + [at]


def compare(name: str, tool: str, tokenizer: Tokenizer, folder: str, records: list[Record],
            special: bool = True, most: int = 0, left: bool = False) -> int:
    """Returns the number of records that differ, and prints the first ones."""
    ours = encode_here(tool, folder, records, special, most, left)
    texts = [(a.decode(errors="replace"), b.decode(errors="replace") if b is not None else None) for a, b in records]
    tokenizer.no_truncation()
    if most:
        tokenizer.enable_truncation(most, direction="left" if left else "right")
    wrong = moved = 0
    for begin in range(0, len(texts), 2000):
        inputs = [a if b is None else (a, b) for a, b in texts[begin:begin + 2000]]
        theirs = tokenizer.encode_batch(inputs, add_special_tokens=special)
        for i, encoding in enumerate(theirs, begin):
            got = ours[i]
            if [t[0] for t in got] != encoding.ids or [t[1] for t in got] != encoding.type_ids:
                wrong += 1
                if wrong <= 3:
                    at = next((j for j, (x, y) in enumerate(zip([t[0] for t in got], encoding.ids)) if x != y), -1)
                    print(f"{name}: {texts[i]!r:.300}\n  token {at}: attn {[t[0] for t in got][max(at, 0):][:20]}\n  "
                          f"tokenizers {encoding.ids[max(at, 0):][:20]} {encoding.tokens[max(at, 0):][:20]}"
                          f" {encoding.offsets[max(at, 0):][:6]}")
            elif records[i][1] is None and len(records[i][0]) < 10000 and texts[i][0].encode() == records[i][0]:
                places = byte_offsets(texts[i][0])
                expected = [(places[a], places[b]) for a, b in encoding.offsets]
                if [t[2:] for t in got] != expected:
                    moved += 1
                    if os.environ.get("SHOW_OFFSETS") and moved <= 3:
                        at = next(j for j, (x, y) in enumerate(zip(got, expected)) if x[2:] != y)
                        print(f"{name}: offsets: {texts[i][0]!r:.200} token {at} {encoding.tokens[at]!r}: attn {got[at][2:]}, tokenizers {expected[at]}")
    print(f"{name}: {len(records)} records, {wrong} differ, {moved} with other offsets")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--lines", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="only the tokenizers whose names begin so")
    parser.add_argument("--directory", help="the tokenizer of a published model, instead of those that are trained here")
    parser.add_argument("--characters", action="store_true", help="also every code point, alone and beside others")
    args = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tool = str(Path(args.build) / "tests" / "tokens_tool")
    lines = lines_of(args.lines, args.seed)
    single: list[Record] = [(line, None) for line in lines]
    pairs: list[Record] = [(lines[i], lines[-i - 1]) for i in range(min(300, args.lines))]
    wrong = 0
    for name, make in published(args.directory) if args.directory else cases():
        if not name.startswith(args.only):
            continue
        tokenizer = make()
        tokenizer.no_padding()
        with tempfile.TemporaryDirectory() as folder:
            tokenizer.save(str(Path(folder) / "tokenizer.json"))
            wrong += compare(name, tool, tokenizer, folder, single)
            if args.characters:
                wrong += compare(name + ", every character", tool, tokenizer, folder, [(c, None) for c in all_characters()])
            wrong += compare(name + ", long", tool, tokenizer, folder, [(c, None) for c in long_lines(args.seed)])
            for most in (0, 8, 15, 16):
                for left in (False, True) if most else (False,):
                    wrong += compare(f"{name}, pairs, {most} tokens{' on the left' * left}", tool, tokenizer, folder, pairs, True, most, left)
            wrong += compare(f"{name}, pairs without special tokens", tool, tokenizer, folder, pairs, False, 11)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
