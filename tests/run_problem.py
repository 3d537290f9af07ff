# SPDX-License-Identifier: MIT
"""run_problem.py ATTN: `attn run --problem` on arrays, compared with the formula in Python's floats: softcap, sinks,
packed sequences, blocks, a bias through an index, gradients by differences, and what is refused."""
import ast
import math
import os
import random
import struct
import subprocess
import sys
import tempfile

ATTN = os.path.abspath(sys.argv[1])
folder = tempfile.TemporaryDirectory()
os.chdir(folder.name)
draw = random.Random(7)


def write(name, shape, values, code="<f4"):
    head = str({"descr": code, "fortran_order": False, "shape": tuple(shape)}).encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    kind = {"<f4": "f", "<i4": "i", "|u1": "B"}[code]
    with open(name + ".npy", "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + struct.pack(f"<{len(values)}{kind}", *values))


def read(name):
    with open(name + ".npy", "rb") as file:
        data = file.read()
    length = struct.unpack("<H", data[8:10])[0]
    head = ast.literal_eval(data[10:10 + length].decode())
    assert head["descr"] == "<f4" and not head["fortran_order"], head
    return head["shape"], list(struct.unpack(f"<{(len(data) - 10 - length) // 4}f", data[10 + length:]))


def run(problem, inputs, outputs):
    words = [ATTN, "run", "--problem", problem, *(f"--input={n}={n}.npy" for n in inputs), *(f"--output={n}={n}.npy" for n in outputs)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (problem, done.stderr)
    return [read(name) for name in outputs]


def refused(problem, inputs, outputs, words):
    done = subprocess.run([ATTN, "run", "--problem", problem, *(f"--input={n}={n}.npy" for n in inputs),
                           *(f"--output={n}={n}.npy" for n in outputs)], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1, (problem, words, done)


def numbers(n):
    return [struct.unpack("f", struct.pack("f", draw.gauss(0, 1)))[0] for _ in range(n)]


def head(q, k, v, allowed=lambda i, j: True, bias=lambda i, j: 0.0, softcap=0.0, sink=None):
    """o and lse of one head; rows are lists."""
    o, lse = [], []
    for i, row in enumerate(q):
        scores = {}
        for j, key in enumerate(k):
            if allowed(i, j):
                s = sum(a * b for a, b in zip(row, key)) / math.sqrt(len(row))
                scores[j] = (softcap * math.tanh(s / softcap) if softcap else s) + bias(i, j)
        total = sum(map(math.exp, scores.values())) + (math.exp(sink) if sink is not None else 0)
        lse.append(math.log(total) if total else -math.inf)
        o.append([sum(math.exp(s) * v[j][c] for j, s in scores.items()) / total if total else 0.0 for c in range(len(v[0]))])
    return o, lse


def rows(flat, batch, tokens, heads, channels, b, h):
    """One head of [batch, tokens, heads, channels]."""
    return [flat[((b * tokens + t) * heads + h) * channels:][:channels] for t in range(tokens)]


def close(found, wanted, tolerance=2e-5):
    assert len(found) == len(wanted), (len(found), len(wanted))
    for a, b in zip(found, wanted):
        assert a == b or abs(a - b) <= tolerance * max(1, abs(b)), (a, b)


B, Q, K, H, D = 2, 5, 7, 2, 4
q, k, v = numbers(B * Q * H * D), numbers(B * K * H * D), numbers(B * K * H * D)
for name, tokens, values in (("q", Q, q), ("k", K, k), ("v", K, v), ("dout", Q, numbers(B * Q * H * D))):
    write(name, (B, tokens, H, D), values)
sinks = numbers(H)
write("sinks", (H,), sinks)


def compare(features, inputs, **how):
    (shape, o), (rows_shape, lse) = run(f"b{B}h{H}q{Q}k{K}d{D}:{features}", ("q", "k", "v", *inputs), ("o", "lse"))
    assert shape == (B, Q, H, D) and math.prod(rows_shape) == B * Q * H, (shape, rows_shape)
    for b in range(B):
        for h in range(H):
            mine = {key: value(h) if key in ("sink", "bias") else value for key, value in how.items()}
            wanted, logs = head(*(rows(x, B, n, H, D, b, h) for x, n in ((q, Q), (k, K), (v, K))), **mine)
            close(sum(rows(o, B, Q, H, D, b, h), []), sum(wanted, []))
            first, step = {(B, H, Q): ((b * H + h) * Q, 1), (B, Q, H): (b * Q * H + h, H)}[rows_shape]
            close([lse[first + t * step] for t in range(Q)], logs)


compare("causal", (), allowed=lambda i, j: j <= i)
compare("softcap=2", (), softcap=2.0)
compare("sinks,causal-br", ("sinks",), allowed=lambda i, j: j <= i + K - Q, sink=lambda h: sinks[h])
blocks = [draw.random() < 0.6 for _ in range(3 * 4)]
write("blocks", (3, 4), [int(x) for x in blocks], "|u1")
compare("blocks=2", ("blocks",), allowed=lambda i, j: blocks[i // 2 * 4 + j // 2])

# A bias by distance, and one through an index: [heads,distances] and [heads,rows], the distance of the last query first.
distances = Q + K - 1
of_distance, table, index = numbers(H * distances), numbers(H * 3), [draw.randrange(3) for _ in range(distances)]
write("bias", (H, distances), of_distance)
compare("biasd", ("bias",), bias=lambda h: lambda i, j: of_distance[h * distances + j - i + Q - 1])
write("bias", (H, 3), table)
write("bias_index", (distances,), index, "<i4")
compare("buckets=3", ("bias", "bias_index"), bias=lambda h: lambda i, j: table[h * 3 + index[j - i + Q - 1]])

# Heads that share keys, one head, no queries, bf16.
more = numbers(B * Q * 2 * H * D)
write("many", (B, Q, 2 * H, D), more)
shared = ["--input=q=many.npy", "--input=k=k.npy", "--input=v=v.npy", "--output=o=o.npy"]
subprocess.run([ATTN, "run", "--problem", f"b{B}h{2 * H}g{H}q{Q}k{K}d{D}", *shared], check=True, capture_output=True)
shape, o = read("o")
assert shape == (B, Q, 2 * H, D), shape
for h in range(2 * H):
    wanted = head(rows(more, B, Q, 2 * H, D, 1, h), *(rows(x, B, K, H, D, 1, h // 2) for x in (k, v)))[0]
    close(sum(rows(o, B, Q, 2 * H, D, 1, h), []), sum(wanted, []))
for name, tokens in (("q", Q), ("k", K), ("v", K)):
    write("one" + name, (1, tokens, 1, D), numbers(tokens * D))
one_head = [f"--input={n}=one{n}.npy" for n in "qkv"] + ["--output=o=o.npy"]
subprocess.run([ATTN, "run", "--problem", f"b1h1q{Q}k{K}d{D}:bf16", *one_head], check=True, capture_output=True)
shape, o = read("o")
assert shape == (1, Q, 1, D), shape
parts = [[x[t * D:][:D] for t in range(n)] for x, n in ((read("oneq")[1], Q), (read("onek")[1], K), (read("onev")[1], K))]
close(o, sum(head(*parts)[0], []), 3e-2)
write("oneq", (1, 0, 1, D), [])
subprocess.run([ATTN, "run", "--problem", f"b1h1q0k{K}d{D}", *one_head], check=True, capture_output=True)
assert read("o")[1] == []

# Dropout follows the seed.
drops = []
for seed in (1, 2, 1):
    subprocess.run([ATTN, "run", "--seed", str(seed), "--problem", f"b{B}h{H}q{Q}k{K}d{D}:dropout=0.5", "--input=q=q.npy", *shared[1:]],
                   check=True, capture_output=True)
    drops.append(read("o")[1])
assert drops[0] == drops[2] != drops[1]

# Packed sequences: rows behind the last one are zeros.
ends = {"q_offsets": [0, 2, 2, 5], "k_offsets": [0, 3, 4, 6]}
for name, values in ends.items():
    write(name, (4,), values, "<i4")
one = {n: numbers(x * H * D) for n, x in (("q", 6), ("k", 6), ("v", 6))}
for name, values in one.items():
    write("p" + name, (6, H, D), values)
for name in one:
    os.replace(f"p{name}.npy", f"{name}.npy")
((shape, o),) = run(f"b3h{H}q3k3d{D}:packed=6", ("q", "k", "v", *ends), ("o",))
for h in range(H):
    found = rows(o, 1, 6, H, D, 0, h)
    for s in range(3):
        part = [rows(one[n], 1, 6, H, D, 0, h)[ends[e][s]:ends[e][s + 1]] for n, e in (("q", "q_offsets"), ("k", "k_offsets"), ("v", "k_offsets"))]
        if part[0]:
            close(sum(found[ends["q_offsets"][s]:ends["q_offsets"][s + 1]], []), sum(head(*part)[0], []))
    assert found[5] == [0.0] * D, found[5]

# Gradients, by differences of the outputs.
for name, tokens, values in (("q", Q, q), ("k", K, k), ("v", K, v)):
    write(name, (B, tokens, H, D), values)
dout = read("dout")[1]
text = f"b{B}h{H}q{Q}k{K}d{D}:softcap=2,sinks"
inputs = ("q", "k", "v", "sinks")
found = dict(zip(("dq", "dv", "dsinks"), run(text, (*inputs, "dout"), ("dq", "dv", "dsinks"))))
for name, shape, values in (("q", (B, Q, H, D), q), ("v", (B, K, H, D), v), ("sinks", (H,), sinks)):
    assert found["d" + name][0] == shape, found["d" + name][0]
    for at in range(0, len(values), max(1, len(values) // 5)):
        step, ends_of = 1e-2, []
        for sign in (1, -1):
            write(name, shape, [x + sign * step * (i == at) for i, x in enumerate(values)])
            ends_of.append(sum(a * b for a, b in zip(run(text, inputs, ("o",))[0][1], dout)))
        write(name, shape, values)
        close([found["d" + name][1][at]], [(ends_of[0] - ends_of[1]) / (2 * step)], 5e-3)

refused(text, ("q", "k", "v"), ("o",), "--input sinks is missing; its shape is [2]")
refused(text, ("q", "k", "k"), ("o",), "v")
refused(text, (*inputs, "blocks"), ("o",), 'has no input "blocks"')
refused(text, inputs, ("weights",), 'has no output "weights"')
refused(text, inputs, ("dog",), 'has no output "dog"')
refused(text, inputs, (), "no output is requested")
refused(text, (*inputs, "q"), ("o",), '"q" is given twice')
refused(text, inputs, ("dq",), "--input dout is missing; its shape is [2,5,2,4]")
refused("b2h2q5k7d8:softcap=2,sinks", inputs, ("o",), "--input q: expected the shape [2,5,2,8], found [2,5,2,4]")
refused("b2h2q5k7d4:softcat=2", inputs, ("o",), "softcat")
write("sinks", (), [1.0])
refused(text, inputs, ("o",), "--input sinks: expected the shape [2], found []")
print("attn run --problem: as the formula")
