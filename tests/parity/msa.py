# SPDX-License-Identifier: MIT
"""The MSA Transformer against facebookresearch/esm on PyTorch, with a checkpoint of the exact published form.

    msa.py --data FOLDER [--esm FOLDER] [--work FOLDER] [--layers N] [--tolerance X] [--only TEXT] [--bf16]
           [--row-positions 1]

FOLDER of --data holds alignments (.a3m).  The weights are random: what is compared is arithmetic and loading, the
published names, their swapped axes and the separate regression file among them.  Every result of the library, in
chunks and not, is compared with the original's: logits, representations, row and column attention, contacts.
--row-positions 1 gives the table of MSA positions the one channel that the first release (ESM-MSA-1) has.  --bf16 shows,
and does not judge, how far the library's bf16 is from the original in f32, and the original cast to bf16.
Exit code 77, with a message, where esm cannot be imported.
"""
import argparse
import ctypes
import glob
import gzip
import os
import re
import sys
import tempfile

import numpy as np
import torch

from compare import distance, peak

ROWS, PARAMETERS = 24, {768: 115_616_434, 1: 114_831_026}


class Options(ctypes.Structure):
    _fields_ = [(name, ctypes.c_bool) for name in ("logits", "contacts", "row_maps", "column_maps")] + [
        ("layers", ctypes.POINTER(ctypes.c_int64)), ("nlayers", ctypes.c_int64), ("memory", ctypes.c_size_t),
        ("max_tokens", ctypes.c_int64), ("map_layer", ctypes.c_int64), ("reserved", ctypes.c_int64 * 4)]


class LoadOptions(ctypes.Structure):
    _fields_ = [("regression", ctypes.c_char_p), ("compat", ctypes.c_bool), ("names", ctypes.c_char_p),
                ("reserved", ctypes.c_int64 * 4)]


class Result(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("logits", "contacts", "row_maps", "column_maps")] + [
        ("representations", ctypes.POINTER(ctypes.c_void_p))]


class Library:
    """The few functions of attn/msa.h that are needed here, in a context of one precision."""

    def __init__(self, path, precision="f32"):
        os.environ["ATTN_PRECISION"] = precision  # which the context reads when it is made
        self.lib = ctypes.CDLL(path)
        for name in "attn_context_error", "attn_tensor_data", "attn_tensor_shape":
            getattr(self.lib, name).restype = ctypes.c_void_p
        self.context = ctypes.c_void_p()
        self.check(self.lib.attn_context_create(ctypes.byref(self.context), None))

    def check(self, status):
        if status:
            text = ctypes.cast(self.lib.attn_context_error(self.context), ctypes.c_char_p).value
            raise RuntimeError(text.decode())

    def load(self, path, compat=False):
        msa = ctypes.c_void_p()
        options = LoadOptions(None, compat, None)
        self.check(self.lib.attn_msa_load(ctypes.byref(msa), self.context, path.encode(), ctypes.byref(options)))
        return msa

    def array(self, tensor):
        rank = self.lib.attn_tensor_rank(ctypes.c_void_p(tensor))
        shape = ctypes.cast(self.lib.attn_tensor_shape(ctypes.c_void_p(tensor)), ctypes.POINTER(ctypes.c_int64))[:rank]
        data = ctypes.cast(self.lib.attn_tensor_data(ctypes.c_void_p(tensor)), ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(data, shape=tuple(shape)).copy()

    def run(self, msa, tokens, layers, **options):
        ids = np.ascontiguousarray(tokens, np.int32)
        wanted = (ctypes.c_int64 * len(layers))(*layers)
        o = Options(logits=True, contacts=True, row_maps=True, column_maps=True, layers=wanted, nlayers=len(layers),
                    **options)
        result = Result()
        sizes = [ctypes.c_int64(n) for n in ids.shape]
        self.check(self.lib.attn_msa_run(msa, ids.ctypes.data_as(ctypes.c_void_p), *sizes, ctypes.byref(o),
                                         ctypes.byref(result)))
        out = {name: self.array(getattr(result, name)) for name in ("logits", "contacts", "row_maps", "column_maps")}
        return out | {f"representation {n}": self.array(result.representations[i]) for i, n in enumerate(layers)}


def original_model(layers, row_positions):
    """The published model's shape with random weights: sharper than its first values, or all maps would be flat."""
    import esm
    from esm.model.msa_transformer import MSATransformer
    torch.manual_seed(0)
    alphabet = esm.Alphabet.from_architecture("msa_transformer")
    args = argparse.Namespace(arch="msa_transformer", layers=layers, embed_dim=768, ffn_embed_dim=3072,
                              attention_heads=12, dropout=0.1, attention_dropout=0.1, activation_dropout=0.1,
                              max_tokens=2 ** 14, max_positions=1024, embed_positions_msa=True,
                              embed_positions_msa_dim=row_positions)
    model = MSATransformer(args, alphabet).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if re.search("[qk]_proj.weight", name):
                p.mul_(1.5)
            elif name.endswith("layer_norm.weight"):
                p.add_(0.1 * torch.randn_like(p))
            elif name.endswith("bias"):
                p.normal_(0, 0.02)
        model.contact_head.regression.weight.normal_(0, 3)
    return model, alphabet, args


def write_checkpoint(model, args, folder):
    """Two files as the published ones are: fairseq's names, rows called columns, the regression apart."""
    def swapped(name):
        return name.replace("row", "column") if "row" in name else name.replace("column", "row")
    state, regression = {}, {}
    for name, tensor in model.state_dict().items():
        if name.startswith("contact_head"):
            regression[name] = tensor
        else:
            prefix = "encoder." if name.startswith("lm_head") else "encoder.sentence_encoder."
            state[prefix + swapped(name)] = tensor
    renamed = {("encoder_" + k if k in ("layers", "embed_dim", "ffn_embed_dim", "attention_heads") else k): v
               for k, v in vars(args).items() if k != "embed_positions_msa_dim"}
    path = os.path.join(folder, "esm_msa1b_t12_100M_UR50S")
    torch.save({"args": argparse.Namespace(**renamed), "model": state}, path + ".pt")
    torch.save({"model": regression}, path + "-contact-regression.pt")
    return path + ".pt"


def read_alignment(path, rows, columns):
    text = (gzip.open if path.endswith(".gz") else open)(path, "rt").read()
    names_and_rows = [record.split("\n", 1) for record in text.split(">")[1:]]
    lines = [re.sub("[a-z.*\\s]", "", body) for _, body in names_and_rows]
    return [("row", line[:columns]) for line in lines if len(line) == len(lines[0])][:rows]


def batches(data, alphabet):
    """Single alignments, and padded batches of unlike depth and length."""
    files = [os.path.join(data, name) for name in ("esm_1a3a_1_A.a3m", "esm_5ahw_1_A.a3m", "dncon2_3e7u.a3m")]
    if not all(map(os.path.exists, files)):
        files = sorted(glob.glob(os.path.join(data, "*.a3m")))[:3]
    convert = alphabet.get_batch_converter()
    full, second, third = (read_alignment(path, rows, 1000) for path, rows in zip(files, (ROWS, 16, 64)))
    yield "one alignment", convert([full])[2]
    yield "a small one", convert([third])[2]
    yield "one sequence", convert([second[:1]])[2]
    yield "padded batch", convert([second, third[:9], full[:1]])[2]


def original_run(model, tokens, layers):
    with torch.no_grad():
        model.max_tokens_per_msa_(2 ** 30)  # the original's own chunks round scores; here it runs in one piece
        out = model(tokens, repr_layers=layers, return_contacts=True)
    made = {"logits": out["logits"], "contacts": out["contacts"], "row_maps": out["row_attentions"],
            "column_maps": out["col_attentions"]}
    made |= {f"representation {n}": out["representations"][n] for n in layers}
    return {name: a.float().numpy() for name, a in made.items()}


def errors_of(got, wanted):
    return ", ".join(f"{k} {distance(got[k], a, max(peak(a), 1e-30)):.1e}" for k, a in wanted.items())


def show_bf16(lib, msa, model, chosen, layers):
    """The original's own error in bf16 is the scale: a number of 8 bits cannot give more than about 4e-3 at once."""
    wanted = [original_run(model, tokens, layers) for _, tokens in chosen]
    for (name, tokens), exact in zip(chosen, wanted):
        print(f"{name} {tuple(tokens.shape)}: attn bf16:", errors_of(lib.run(msa, tokens.numpy(), layers), exact))
    model.bfloat16()
    for (name, tokens), exact in zip(chosen, wanted):
        print(f"{name} {tuple(tokens.shape)}: esm bf16: ", errors_of(original_run(model, tokens, layers), exact))


def compare_batch(lib, msa, wanted, tokens, layers, options):
    got = lib.run(msa, tokens.numpy(), layers, **options)
    return {name: distance(got[name], a, max(peak(a), 1e-30)) for name, a in wanted.items()}


def compare_alone(lib, msa, tokens, layers):
    """Without the original's quirk: an alignment's results in a padded batch are those it has alone."""
    together = lib.run(msa, tokens.numpy(), layers)
    worst = 0.0
    for b in range(tokens.shape[0]):
        rows, cols = int((tokens[b, :, 0] != 1).sum()), int((tokens[b, 0] != 1).sum())
        alone = lib.run(msa, tokens[b:b + 1, :rows, :cols].numpy(), layers)
        for name, cut in (("logits", np.s_[b, :rows, :cols]), ("contacts", np.s_[b, :cols - 1, :cols - 1])):
            worst = max(worst, distance(together[name][cut], alone[name][0], max(peak(alone[name]), 1e-30)))
    return worst


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    build = os.environ.get("ATTN_BUILD", os.path.join(here, "..", "..", "build"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--esm", default=os.path.join(build, "esm"))
    parser.add_argument("--work")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--only", default="", help="of the batches those with this text in their name")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--row-positions", type=int, default=768, choices=(1, 768), help="channels of their table")
    options = parser.parse_args()
    sys.path.insert(0, options.esm)
    try:
        model, alphabet, args = original_model(options.layers, options.row_positions)
    except ImportError as error:
        print(f"skipped: facebookresearch/esm cannot be imported ({error}); scripts/install-parity --esm fetches it")
        return 77
    count = sum(p.numel() for p in model.parameters())
    failed = options.layers == 12 and count != PARAMETERS[options.row_positions]
    print(f"{count:,} parameters")
    lib = Library(os.path.join(build, "libattn.so"), "bf16" if options.bf16 else "f32")
    layers = [0, options.layers // 2, options.layers]
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        path = write_checkpoint(model, args, folder)
        compat, own = lib.load(path, compat=True), lib.load(path)
        chosen = [(name, tokens) for name, tokens in batches(options.data, alphabet) if options.only in name]
        if options.bf16:
            show_bf16(lib, compat, model, chosen, layers)
            return 0
        for name, tokens in chosen:
            wanted = original_run(model, tokens, layers)
            for title, how in ("whole", {"max_tokens": 1 << 30}), ("in chunks", {"max_tokens": 500}):
                errors = compare_batch(lib, compat, wanted, tokens, layers, how)
                bad = max(errors.values()) > options.tolerance
                failed |= bad
                print("FAIL" if bad else "ok  ", name, tuple(tokens.shape), title + ":",
                      ", ".join(f"{k} {v:.1e}" for k, v in errors.items()), flush=True)
        error = compare_alone(lib, own, tokens, layers)
        failed |= error > options.tolerance
        print("FAIL" if error > options.tolerance else "ok  ", f"each of the batch alone: {error:.1e}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
