# SPDX-License-Identifier: MIT
"""Times translation by attn and by CTranslate2: the same weights, the same sentences, the same searches.

    translate.py DATA [--shape small|base] [--sentences N] [--rounds N] [--precision f32|int8] [--batch N]
                 [--cpu] [--keep DIR] [--json]

DATA has sentence pairs, a tab between, plain or gzip.  A MarianMT directory with random weights is made from vocabularies
that SentencePiece learns from it, and converted for CTranslate2.  Hardly a sentence ends before the limit with such weights, so
both do the same work.  Each engine runs in a process of its own, and their rounds alternate; cutting into pieces and
joining them counts.  CTranslate2 uses several threads in two ways, together on one batch or each on a batch of its own:
where sentences come in batches both run.  Prints source words a second (the best round), their ratio, how many translations
are the same, and the most memory that each process held.
"""
import argparse
import ctypes
import gzip
import json
import os
import random
import subprocess
import sys
import time

BUILD = os.environ.get("ATTN_BUILD", "build")
SHAPES = {
    "small": {"layers": 3, "d": 256, "ffn": 1024, "heads": 4, "vocabulary": 16000, "end": 19},
    "base": {"layers": 6, "d": 512, "ffn": 2048, "heads": 8, "vocabulary": 60000, "end": 31},
}
# name, beam, sentences at once, share of the sentences
SEARCHES = [("greedy, batch 32", 1, 32, 1.0), ("beam 4, batch 32", 4, 32, 0.25), ("greedy, one at a time", 1, 1, 0.15)]
MAX_LENGTH = 64


def read_pairs(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
        return [line.rstrip("\n").split("\t")[:2] for line in file]


def make_vocabularies(pairs, folder, size):
    import sentencepiece
    pieces = []
    for side, name in enumerate(("source", "target")):
        prefix = os.path.join(folder, name)
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(p[side] for p in pairs[:20000]),
                                                 model_prefix=prefix, vocab_size=4000, minloglevel=3)
        os.rename(prefix + ".model", prefix + ".spm")
        model = sentencepiece.SentencePieceProcessor(model_file=prefix + ".spm")
        pieces += [model.id_to_piece(i) for i in range(3, model.get_piece_size())]
    names = ["</s>", "<unk>"] + list(dict.fromkeys(pieces))
    names += [f"\u2581{i}x" for i in range(size - 1 - len(names))] + ["<pad>"]
    with open(os.path.join(folder, "vocab.json"), "w") as file:
        json.dump({piece: i for i, piece in enumerate(names)}, file)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
        json.dump({"source_lang": "en", "target_lang": "fr", "tokenizer_class": "MarianTokenizer"}, file)


def make_model(shape, folder):
    import torch
    from transformers import GenerationConfig, MarianConfig, MarianMTModel
    torch.manual_seed(5)
    size = shape["vocabulary"]
    config = MarianConfig(vocab_size=size, d_model=shape["d"], encoder_layers=shape["layers"],
                          decoder_layers=shape["layers"], encoder_attention_heads=shape["heads"],
                          decoder_attention_heads=shape["heads"], encoder_ffn_dim=shape["ffn"],
                          decoder_ffn_dim=shape["ffn"], max_length=MAX_LENGTH, max_position_embeddings=512,
                          activation_function="swish", scale_embedding=False, pad_token_id=size - 1,
                          decoder_start_token_id=size - 1, eos_token_id=0, forced_eos_token_id=None)
    model = MarianMTModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" in name:
                continue
            wide = parameter.dim() > 1 and "shared" not in name
            parameter.normal_(0, 2 * parameter.shape[-1] ** -0.5 if wide else 0.5 if parameter.dim() > 1 else 0.02)
            if "layer_norm.weight" in name:
                parameter.add_(1)
        model.model.shared.weight[size - 1] = 0
        model.final_logits_bias.normal_(0, 0.5)
        model.final_logits_bias[0, 0] = shape["end"]
    model.generation_config = GenerationConfig(
        bad_words_ids=[[size - 1]], num_beams=4, max_length=MAX_LENGTH, pad_token_id=size - 1, eos_token_id=0,
        decoder_start_token_id=size - 1, bos_token_id=0, early_stopping=True)
    model.save_pretrained(folder)


def prepare(shape, pairs, folder):
    marian, peer = os.path.join(folder, "marian"), os.path.join(folder, "ctranslate2")
    if not os.path.exists(os.path.join(marian, "model.safetensors")):
        os.makedirs(marian, exist_ok=True)
        make_vocabularies(pairs, marian, shape["vocabulary"])
        make_model(shape, marian)
    if not os.path.exists(os.path.join(peer, "model.bin")):
        import ctranslate2
        ctranslate2.converters.TransformersConverter(marian).convert(peer, force=True)
    return marian, peer


# ------------------------------------------------------------------------------------------------ the two engines

class Attn:
    """attn_translator_translate of the shared library."""

    class Options(ctypes.Structure):
        _fields_ = [("beam", ctypes.c_int64), ("length_penalty", ctypes.c_double), ("batch", ctypes.c_int64),
                    ("max_len", ctypes.c_int64), ("length_factor", ctypes.c_double), ("min_len", ctypes.c_int64),
                    ("no_repeat_ngram", ctypes.c_int64), ("repetition_penalty", ctypes.c_double),
                    ("suppressed", ctypes.c_void_p), ("nsuppressed", ctypes.c_int64), ("nbest", ctypes.c_int64), ("mbr", ctypes.c_bool),
                    ("prefixes", ctypes.c_void_p), ("alignments", ctypes.c_bool), ("shortlist", ctypes.c_void_p),
                    ("shortlist_first", ctypes.c_int64), ("shortlist_best", ctypes.c_int64),
                    ("unscored", ctypes.c_bool), ("reserved", ctypes.c_int64 * 4)]

    def __init__(self, job):
        precision = job["precision"]
        self.lib = lib = ctypes.CDLL(os.path.join(BUILD, "libattn.so"))
        lib.attn_context_error.restype = ctypes.c_char_p
        self.context, self.translator = ctypes.c_void_p(), ctypes.c_void_p()
        os.environ["ATTN_THREADS"] = str(job["threads"])
        os.environ["ATTN_PRECISION"] = precision
        assert lib.attn_context_create(ctypes.byref(self.context), None) == 0
        lib.attn_context_set_inference(self.context, ctypes.c_bool(precision != "f32"))  # as the command does
        status = lib.attn_translator_load(ctypes.byref(self.translator), self.context, job["folder"].encode(), None)
        assert status == 0, lib.attn_context_error(self.context)
        assert lib.attn_translator_pack_weights(self.translator) == 0

    def translate(self, lines, beam, batch):
        class Translation(ctypes.Structure):
            _fields_ = [("text", ctypes.c_char_p), ("tokens", ctypes.c_char_p), ("score", ctypes.c_double),
                        ("words", ctypes.c_int64), ("unknown", ctypes.c_int64), ("unknown_words", ctypes.c_char_p),
                        ("truncated", ctypes.c_bool), ("alignment", ctypes.c_char_p)]
        array, results = (ctypes.c_char_p * len(lines))(*[line.encode() for line in lines]), (Translation * len(lines))()
        options = self.Options(beam, 1.0, batch, unscored=True)  # CTranslate2's return_scores is false, too
        status = self.lib.attn_translator_translate(self.translator, array, ctypes.c_int64(len(lines)),
                                                    ctypes.byref(options), results)
        assert status == 0, self.lib.attn_context_error(self.context)
        texts = [result.text.decode() for result in results]
        self.lib.attn_translations_free(self.context, results, ctypes.c_int64(len(lines)))
        return texts


class CTranslate2:
    def __init__(self, job):
        import ctranslate2
        import sentencepiece
        marian = os.path.join(os.path.dirname(job["folder"]), "marian")
        self.source = sentencepiece.SentencePieceProcessor(model_file=os.path.join(marian, "source.spm"))
        self.target = sentencepiece.SentencePieceProcessor(model_file=os.path.join(marian, "target.spm"))
        self.translator = ctranslate2.Translator(
            job["folder"], device="cpu", inter_threads=job["workers"], intra_threads=job["threads"] // job["workers"],
            compute_type={"f32": "float32"}.get(job["precision"], job["precision"]))

    def translate(self, lines, beam, batch):
        pieces = [self.source.encode(line, out_type=str) + ["</s>"] for line in lines]
        results = self.translator.translate_batch(pieces, beam_size=beam, max_batch_size=batch, length_penalty=1,
                                                  max_decoding_length=MAX_LENGTH - 1)
        return ["".join(result.hypotheses[0]).replace("\u2581", " ").strip() for result in results]


def most_memory():
    """MiB that this program held at most.  Not ru_maxrss, which begins with what the process held that started it."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) / 1024


def work():
    """One engine in this process: reads a job, then a line for each round, which it answers with what it found."""
    job = json.loads(sys.stdin.readline())
    engine = {"attn": Attn, "ctranslate2": CTranslate2}[job["engine"]](job)
    lines = job["lines"]
    clock = time.process_time if job["cpu"] else time.perf_counter
    at_once = job["batch"] if job["batch"] == 1 else len(lines)

    def run(some):
        return [t for i in range(0, len(some), at_once) for t in engine.translate(some[i:i + at_once], job["beam"], job["batch"])]
    run(lines[:2])
    for _ in sys.stdin:
        start = clock()
        texts = run(lines)
        print(json.dumps({"seconds": clock() - start, "texts": texts, "memory": most_memory()}), flush=True)


def start_worker(**job):
    environment = dict(os.environ, ATTN_THREADS=str(job["threads"]), OMP_NUM_THREADS=str(job["threads"]))
    worker = subprocess.Popen([sys.executable, __file__, "--worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True, env=environment)
    print(json.dumps(job), file=worker.stdin, flush=True)
    return worker


def run_round(worker):
    print("go", file=worker.stdin, flush=True)
    answer = worker.stdout.readline()
    if not answer:
        sys.exit("an engine failed")
    return json.loads(answer)


def compare(folders, lines, name, beam, batch, threads, rounds, cpu, precision, own_batch):
    """A search by attn and by each way of CTranslate2: an object for each way."""
    words = sum(len(line.split()) for line in lines)
    ways = [("attn", 1, ""), ("ctranslate2", 1, "")]  # the workers matter to CTranslate2 alone
    if threads > 1 and batch > 1:
        ways[1:] = [("ctranslate2", 1, ", together"), ("ctranslate2", threads, ", a batch each")]
    workers = [start_worker(engine=engine, workers=n, folder=folders[engine], lines=lines, beam=beam,
                            batch=min(own_batch, batch) if engine == "attn" else batch, threads=threads, cpu=cpu,
                            precision=precision) for engine, n, _ in ways]
    found = [[run_round(worker) for worker in workers] for _ in range(rounds)]  # in turns
    for worker in workers:
        worker.communicate()
    best = [dict(min(rounds, key=lambda r: r["seconds"]), memory=max(r["memory"] for r in rounds)) for rounds in zip(*found)]
    ours = best[0]
    longest = sum(len(t.split()) for t in ours["texts"]) / words
    return [{"search": name, "precision": precision, "threads": threads, "way": way.lstrip(", "), "sentences": len(lines),
             "words_out_per_word": round(longest, 2), "same": sum(a == b for a, b in zip(ours["texts"], theirs["texts"])),
             "attn_words_per_s": round(words / ours["seconds"], 1),
             "ctranslate2_words_per_s": round(words / theirs["seconds"], 1), "attn_mib": round(ours["memory"]),
             "ctranslate2_mib": round(theirs["memory"])} for (_, _, way), theirs in zip(ways[1:], best[1:])]


def print_row(row):
    threads, own, peer = row["threads"], row["attn_words_per_s"], row["ctranslate2_words_per_s"]
    use = f"{threads} thread{'s' if threads > 1 else ''}{', ' if row['way'] else ''}{row['way']}"
    print(f"{row['search']:22} {use:23}  attn {own:7.0f} words/s  CTranslate2 {peer:7.0f}  {own / peer:5.2f} x"
          f"  same {100 * row['same'] / row['sentences']:6.2f} %  memory {row['attn_mib']:5} and {row['ctranslate2_mib']:5} MiB"
          f"  ({row['sentences']} sentences, {row['words_out_per_word']:.2f} words out a word in)", flush=True)


def main():
    if sys.argv[1:] == ["--worker"]:
        work()
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--cpu", action="store_true",
                        help="processor time in place of the clock: one thread on a machine that others use too")
    parser.add_argument("--precision", choices=["f32", "int8"], default="f32", help="of both")
    parser.add_argument("--batch", type=int, default=32, help="attn's, at most CTranslate2's 32")
    parser.add_argument("--only", type=int, help="one of the searches: 0, 1, 2")
    parser.add_argument("--keep", default="/tmp/attn-bench-translate")
    parser.add_argument("--json", action="store_true", help="an array of objects instead of the lines")
    args = parser.parse_args()
    pairs = read_pairs(args.data)
    random.Random(1).shuffle(pairs)
    marian, peer = prepare(SHAPES[args.shape], pairs, os.path.join(args.keep, args.shape))
    folders = {"attn": marian, "ctranslate2": peer}
    sources = [pair[0] for pair in pairs[-args.sentences:]]
    rows = []
    for threads in args.threads:
        for i, (name, beam, batch, share) in enumerate(SEARCHES):
            if args.only in (None, i):
                lines = sources[:max(1, int(share * len(sources)))]
                found = compare(folders, lines, name, beam, batch, threads, args.rounds, args.cpu, args.precision, args.batch)
                rows += [{"shape": args.shape, **row} for row in found]
                for row in [] if args.json else found:
                    print_row(row)
    if args.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
