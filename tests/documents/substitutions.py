# SPDX-License-Identifier: MIT
"""All changes that tests/documents/run.py makes to the commands of the documents, and all that it leaves out."""
import os
import subprocess
from collections import namedtuple

Rule = namedtuple("Rule", "pattern replacement why")


def _has_header(name):
    return subprocess.run(["cc", "-E", "-x", "c", "-include", name, os.devnull], capture_output=True).returncode == 0


# The rest of a command: up to a comment, a pipe or the end of the line.
REST = r"([^#|\n;]*?)(?= *(?:#|\||;|$))"

SMALL_TRANSLATOR = " --epochs 1 --max-examples 600 --num-hiddens 32 --quiet"
SMALL_CLASSIFIER = " --epochs 1 --size 14 --width 16 --heads 2 --quiet"
SMALL_GENERATOR = " --epochs 1 --size 8 --levels 4 --dim 16 --heads 2 --outer-blocks 2 --inner-blocks 1 --quiet"
SMALL_MSA = " --layers 2 --embed-dim 16 --ffn-embed-dim 32 --attention-heads 2 --steps 4 --epochs 2 --quiet"

RULES = [
    Rule(r"build/attn train translate" + REST, r"build/attn train translate\1" + SMALL_TRANSLATOR,
         "training a translator: 1 epoch of 600 pairs, 32 wide"),
    Rule(r"build/attn train classify(?=[^#\n]*--model sasa)" + REST,
         r"build/attn train classify\1" + SMALL_CLASSIFIER + " --depth 26",
         "training a ResNet of windows: 1 epoch, 16 wide, 26 layers (there is no smaller), images of 14 x 14"),
    Rule(r"build/attn train classify(?=[^#\n]*--compat d2l)" + REST,
         r"build/attn train classify\1 --epochs 1 --size 32 --width 16 --heads 2 --mlp 16 --quiet",
         "training the book's classifier: 1 epoch, 16 wide, images of 32 x 32"),
    Rule(r"build/attn train classify(?![^#\n]*--(?:model sasa|compat d2l))" + REST,
         r"build/attn train classify\1" + SMALL_CLASSIFIER + " --depth $([ ${model:-vit} = sasa ] && echo 26 || echo 2)",
         "training a classifier: 1 epoch, 16 wide, 2 blocks, images of 14 x 14"),
    Rule(r"build/attn train images" + REST, r"build/attn train images\1" + SMALL_GENERATOR,
         "training a generator: 1 epoch, 16 wide, images of 8 x 8 in 4 levels"),
    Rule(r"--videos 6000", "--videos 60", "sixty videos instead of six thousand"),
    Rule(r"^build/attn train images (.*--dim 48)", r"rm -rf drawn && build/attn train images \1",
         "a second model of the same name: the first is put away"),
    Rule(r"--rows 7", r"--rows 4", "half of 8 rows instead of half of 14"),
    Rule(r"build/attn train msa" + REST, r"build/attn train msa\1" + SMALL_MSA,
         "training on alignments: 2 layers, 16 wide, 8 steps"),
    Rule(r"build/attn train contacts(?![^#\n]*--strength)" + REST, r"build/attn train contacts\1 --strength 1000",
         "fitting contacts to a model that has hardly learnt: a weak penalty, without which no map would be used"),
    Rule(r"build/attn demo detect(?![^#\n]*-n )" + REST, r"build/attn demo detect\1 -n 24 --valid 4",
         "drawing shapes: 28 images instead of 2,200"),
    Rule(r"build/attn bench attend(?![^#\n]*b\dh)" + REST, r"build/attn bench attend\1 --quick --seconds 0.001",
         "bench attend: the short list, measured briefly"),
    Rule(r"(build/attn bench attend[^#\n]*b\dh\d+q\d\d[^#\n]*?)(?= *(?:#|$))", r"\1 --seconds 0.001",
         "bench attend of one problem, measured briefly"),
    Rule(r"q512k512d64:cosine|h4q128k128d32:cosine", "h2q32k32d16:gaussian",
         "bench of the score that docs/adding-a-score.md adds, which is not in this build"),
    Rule(r"build/attn bench products" + REST, r"build/attn bench products\1 --seconds 0 --tolerance 1e6 --threads 1 16,24,40t",
         "bench products: one small product, no alarms on a machine that does other things"),
    Rule(r"build/attn bench --sets" + REST, r"build/attn bench --sets\1 --quick --seconds 0 --tolerance 1e6 vit",
         "bench --sets: a small ViT, no alarms"),
    Rule(r"build/attn bench train" + REST, r"build/attn bench train d2l\1 --seconds 0.05 --threads 2",
         "bench train: the small shape, measured briefly"),
    Rule(r"(?:src/\S*\*\.c )+(.*?)-lm", r"\1 build/libattn.a -lm",
         "the engine's sources: the objects that the build made of them; tests/engine_alone.sh compiles them"),
    Rule(r"\$\(pkg-config --cflags --libs attn\)", "-Wall -Wextra -Werror -Iinclude -Lbuild -lattn -Wl,-rpath,$PWD/build",
         "the library as built instead of as installed; tests/package.sh asks pkg-config"),
    Rule(r"\./unfused 1 b8h12q197k197d64", "./unfused 1 b1h2q64k64d64", "the unfused path on a smaller problem"),
    Rule(r"cmake --build build && ", "", "building: done before"),
    Rule(r"build/tests/test_attend_random", "ATTN_TEST_PROBLEMS=50 build/tests/test_attend_random",
         "fifty random problems instead of two thousand"),
    Rule(r"pip wheel \.", "ATTN_OFFLINE=1 sh scripts/wheel $ATTN_BUILD .",
         "pip: packs the library that is built, asks no network"),
    Rule(r"pip install attn-", "python3 -m pip install -q --no-deps --no-index --disable-pip-version-check "
         "--target site attn-", "pip: installs into the sandbox"),
]

NOT_RUN = [
    (r"make install", "tests/install.sh installs into a directory of its own and builds on it"),
    (r"make package", "tests/package.sh makes the packages, unpacks and uses them"),
    (r"make wheel", "tests/wheel.sh makes the wheel, installs and uses it"),
    (r"make( |$)", "the build itself, which came before; tests/docs.sh checks that the targets exist"),
    (r"sh scripts/install-deps", "installs packages; .ci/run begins with it"),
    (r"scripts/install-parity", "installs PyTorch; make test-parity and bench/peers are for a machine that has it"),
    (r"([A-Z_]+=\S+ )*build/venv/bin/python bench/peers", "needs PyTorch"),
    (r"scripts/figures measure", "needs PyTorch and a machine of its own; tests/figures.sh measures a table"),
    (r"python3 -m venv", "a reader's own environment; the package goes into the sandbox"),
    (r"mpirun", "needs MPI; tests/mpi.sh runs it where MPI is"),
    (r"(sudo )?(dpkg|apt)", "installs on the system; tests/package.sh unpacks the packages and uses them"),
]

if not _has_header("dnnl.h"):
    NOT_RUN.append((r"cc .* -ldnnl", "needs oneDNN, which the machine has not"))

# Pages whose Python is not run.
PYTHON_NOT_RUN = {"docs/pytorch.md": "needs PyTorch; python/tests/test_torch*.py call these functions where it is"}

# Names that snippets of C speak of without declaring them.
C_BEFORE = """
#include <attn/attn.h>
#include <stdbool.h>
static float q[1 << 19], k[1 << 19], v[1 << 19], o[1 << 19];
"""

_ARRAYS = """
import numpy, attn
_r = numpy.random.default_rng(1)
q, k, v, do = (_r.standard_normal((2, 6, 4, 16)).astype("f4") for _ in range(4))
mask, bias = numpy.ones((6, 6), bool), numpy.zeros((4, 6, 6), "f4")
"""
# The same for Python, by page.
PYTHON_BEFORE = {
    "README.md": _ARRAYS + 'x = _r.standard_normal((1, 8, 8, 64)).astype("f4")\ndy = numpy.ones_like(x)\n',
    "docs/python.md": _ARRAYS + 'x = _r.standard_normal((2, 6, 64)).astype("f4")\ndy = numpy.ones_like(x)\n'
                      'lens = numpy.array([6, 4], "i4")\n'
                      'state = attn.build("multi-head-attention", {"num_hiddens": 64, "num_heads": 4}).state_dict()\n'
                      'layer = attn.build("multi-head-attention", {"num_hiddens": 64, "num_heads": 4})\n'
                      'import os, subprocess\n'
                      'if not os.path.exists("en-fr"):  # the translator, for the snippet that opens one\n'
                      '    subprocess.run("build/attn train translate --data phrasebook --num-hiddens 16 --ffn-num-hiddens 16 "\n'
                      '                   "--num-blks 1 --num-heads 2 --epochs 1 --quiet --out en-fr".split(), check=True)\n',
}
