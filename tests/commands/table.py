# SPDX-License-Identifier: MIT
"""Every command of attn on an input so small that it ends in hundredths of a second: what the tests that break things
under a command (memory, disks, pipes, kills) have in common."""
import os
import shutil
import struct
import subprocess

ATTN = os.path.join(os.path.abspath(os.environ.get("ATTN_BUILD", "build")), "attn")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

TRANSLATE = ("--num-hiddens 8 --ffn-num-hiddens 8 --num-blks 1 --num-heads 2 --min-frequency 1 --batch 8 "
             "--valid 0.2 --test 0.2 --warmup 2").split()
CLASSIFY = "--patch 2 --width 4 --depth 1 --heads 1 --batch 4 --valid 0.3 --warmup 2 --shift 0".split()
IMAGES = ("--levels 2 --dim 4 --heads 1 --exterior-blocks 0 --outer-blocks 1 --inner-blocks 1 --batch 4 --warmup 2 "
          "--valid 0.3").split()
MSA = ("--layers 1 --embed-dim 8 --ffn-embed-dim 8 --attention-heads 1 --steps 2 --max-tokens 60 --warmup 2 "
       "--valid 0.4").split()


class Command:
    """words: the command line; out: what it writes below out/, files and directories; old: whether a file of that name
    may be there before (a training refuses a directory with a model in it); trains: resumed by these words."""

    def __init__(self, name, words, out=(), stdin=None, old=True, resume=None):
        self.name, self.words, self.out, self.stdin, self.old, self.resume = name, words.split() if isinstance(
            words, str) else words, list(out), stdin, old, resume


def commands():
    t = "--data pairs.tsv --out out/t --epochs 1".split()
    c = "--data pictures --out out/c --epochs 1".split()
    i = "--data pictures --out out/i --epochs 1".split()
    m = "--data families --out out/m --epochs 1".split()
    return [
        Command("train translate", ["train", "translate"] + t + TRANSLATE, ["t"], old=False,
                resume=["train", "translate", "--out", "out/t", "--resume"]),
        Command("translate", ["translate", "translator", "go on", "who are you"]),
        Command("translate", "translate translator --beam 2 --json", stdin=b"go on\n\nstop it\n"),
        Command("eval", "eval translator --part train -n 2"),
        Command("eval", "eval classifier --part test --json"),
        Command("eval", "eval generator --part test"),
        Command("show", ["show", "translator", "go", "--kinds", "cross", "-o", "out/s.png"], ["s.png"]),
        Command("show", ["show", "translator", "go on", "-o", "out/s.html"], ["s.html"]),
        Command("show", "show classifier pictures/test/a/0.pgm -o out/c.svg", ["c.svg"]),
        Command("show", "show fitted f1.a3m --kinds rows,columns -o out/m.html", ["m.html"]),
        Command("train classify", ["train", "classify"] + c + CLASSIFY, ["c"], old=False,
                resume=["train", "classify", "--out", "out/c", "--resume"]),
        Command("classify", "classify classifier pictures/test/a/0.pgm picture.png"),
        Command("train images", ["train", "images"] + i + IMAGES, ["i"], old=False,
                resume=["train", "images", "--out", "out/i", "--resume"]),
        Command("generate", "generate generator -n 2 -o out/g.png", ["g.png"]),
        Command("complete", "complete generator picture.png -o out/d.pgm", ["d.pgm"]),
        Command("contacts", "contacts f1.a3m --model fitted -o out/k --least 0",
                ["k/f1.contacts.npy", "k/f1.contacts.tsv", "k/f1.contacts.png"]),
        Command("weights", "weights f1.a3m -o out/w", ["w/f1.weights.tsv"]),
        Command("embed", "embed f1.a3m --model fitted --what all -o out/e", ["e/f1.all.npy", "e/f1.names.txt"]),
        Command("score", "score f1.a3m --every --model fitted -o out/score.tsv", ["score.tsv"]),
        Command("train msa", ["train", "msa"] + m + MSA, ["m"], old=False,
                resume=["train", "msa", "--out", "out/m", "--resume"]),
        Command("train contacts", "train contacts f1.a3m=f1.pdb --model msa --out out/f --strength 100", ["f"], old=False),
        Command("convert", f"convert {ROOT}/tests/data/pt/msa_tiny.pt -o out/v", ["v"], old=False),
        Command("info", "info translator"),
        Command("info", "info classifier --json"),
        Command("list", "list transformer"),
        Command("show", "show x.npy -o out/w.svg", ["w.svg"]),
        Command("plot", "plot translator x.npy -y train_loss,0,1 -o out/p.svg", ["p.svg"]),
        Command("run", ["run", "--arch", "self-attention", "--config", '{"dim": 8, "heads": 2}', "--input", "x=x.npy",
                        "--output", "out=out/y.npy"], ["y.npy"]),
        Command("bench attend", "bench attend b1h1q4k4d4 --seconds 0 --verify --json"),
        Command("bench products", "bench products 3,4,5t 3,4,5p 5,4,3a --seconds 0 --tolerance 1e6 --json"),
        Command("version", "version"),
        Command("help", "help --man"),
        Command("help", "help --completion zsh"),
    ]


# Seconds to a minute long, on inputs of their own.
def slow_commands():
    return [Command("demo", "demo --out out/demo", ["demo"], old=False,
                    resume=["train", "translate", "--out", "out/demo", "--resume"]),
            Command("bench", "bench --sets --quick --seconds 0 --tolerance 1e6 training"),
            Command("bench train", "bench train d2l --seconds 0"),
            Command("list", "list --all")]


def run(words, stdin=None, env=None, **more):
    return subprocess.run([ATTN] + words + ["--threads", "1"], input=stdin if stdin is not None else b"",
                          stderr=subprocess.PIPE, env=environment(env), **{"stdout": subprocess.PIPE, **more})


def environment(more=None):
    suppressions = os.path.join(ROOT, "tests", "support", "lsan.txt")  # read by builds with a sanitizer only
    env = dict(os.environ, ATTN_THREADS="1", LC_ALL="C", LSAN_OPTIONS=f"suppressions={suppressions}:print_suppressions=0")
    env.update(more or {})
    return env


def picture(path, size, seed):
    with open(path, "w") as f:
        f.write(f"P2 {size} {size} 255\n")
        for y in range(size):
            f.write(" ".join(str((x * seed * 37 + y * 11 * (seed + 3)) % 256) for x in range(size)) + "\n")


def must(words, **more):
    done = run(words, **more)
    if done.returncode != 0:
        raise SystemExit(f"attn {' '.join(words)}: {done.returncode}: {done.stderr.decode()}")


def make_fixture(at):
    """Fills the directory `at` with every input that commands() names, trained models among them."""
    os.makedirs(at, exist_ok=True)
    os.chdir(at)
    words = "go stop run on it here who are you we".split()
    with open("pairs.tsv", "w") as f:
        for n in range(24):
            f.write(f"{words[n % 10]} {words[n * 3 % 7]}\t{words[n * 7 % 10]} {words[n % 5]} a\n")
    for part, count in (("train", 8), ("test", 3)):
        for k, label in enumerate("ab"):
            os.makedirs(f"pictures/{part}/{label}")
            for n in range(count):
                picture(f"pictures/{part}/{label}/{n}.pgm", 4, n * 2 + k + 1)
    letters = "ACDEFGHIKLMNPQRSTVWY"
    names = "ALA CYS ASP GLU PHE GLY HIS ILE LYS LEU MET ASN PRO GLN ARG SER THR VAL TRP TYR".split()
    os.makedirs("families")
    for f in range(3):
        rows = ["".join(letters[(c * 7 + f * 3 + (r * c % 5 == 4) * r) % 20] for c in range(14)) for r in range(4)]
        with open(f"families/f{f}.a3m", "w") as out:
            out.write("".join(f">s{r}\n{row}\n" for r, row in enumerate(rows)))
        if f == 1:
            shutil.copy("families/f1.a3m", "f1.a3m")
            with open("f1.pdb", "w") as out:
                for c, letter in enumerate(rows[0]):
                    x, y = (3.8 * c, 0) if c < 7 else (3.8 * (13 - c), 5)
                    out.write(f"ATOM  {c + 1:5d}  CA  {names[letters.index(letter)]} A{c + 1:4d}    "
                              f"{x:8.3f}{y:8.3f}{0:8.3f}  1.00  0.00\n")
    with open("x.npy", "wb") as f:
        header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3, 8), }"
        header += " " * (117 - len(header)) + "\n"
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() +
                struct.pack("<24f", *[n / 24 for n in range(24)]))
    must(["train", "translate", "--data", "pairs.tsv", "--out", "translator", "--epochs", "1"] + TRANSLATE)
    must(["train", "classify", "--data", "pictures", "--out", "classifier", "--epochs", "1"] + CLASSIFY)
    must(["train", "images", "--data", "pictures", "--out", "generator", "--epochs", "1"] + IMAGES)
    must("generate generator -n 1 -o picture.png --gap 0 --zoom 1".split())
    must(["train", "msa", "--data", "families", "--out", "msa", "--epochs", "1"] + MSA)
    must("train contacts f1.a3m=f1.pdb --model msa --out fitted --strength 100".split())


def contents(folder):
    """Every file below `folder`, by its path, and what is in it; locks, which stay, are passed over."""
    found = {}
    for at, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(at, name)
            if name != ".lock":
                with open(path, "rb") as f:
                    found[os.path.relpath(path, folder)] = f.read()
    return found


OLD = b"what was there before\n"


def prepare(command):
    """Empties out/ and puts an older file wherever the command will write one."""
    shutil.rmtree("out", ignore_errors=True)
    os.mkdir("out")
    for path in command.out if command.old else ():
        os.makedirs(os.path.dirname(os.path.join("out", path)), exist_ok=True)
        with open(os.path.join("out", path), "wb") as f:
            f.write(OLD)
