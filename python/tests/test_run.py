# SPDX-License-Identifier: MIT
"""attn run and attn list: .npy files in and out against NumPy formulas; messages about bad input."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import attn
import numpy as np
from formulas import distance
from numpy_layers import LAYERS

COMMAND = os.path.join(os.environ.get("ATTN_BUILD", "build"), "attn")
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def call(self, *arguments):
        return subprocess.run([os.path.abspath(COMMAND), *arguments], cwd=self.folder, capture_output=True, text=True)

    def save(self, **arrays):
        for name, array in arrays.items():
            np.save(os.path.join(self.folder, name + ".npy"), array)

    def load(self, name):
        return np.load(os.path.join(self.folder, name + ".npy"))

    def run_layer(self, name, config, inputs, outputs, *more):
        self.save(**inputs)
        arguments = [f"--input={key}={key}.npy" for key in inputs] + [f"--output={o}={o}.out.npy" for o in outputs]
        return self.call("run", "--arch", name, "--config", json.dumps(config), *arguments, *more)

    def test_layers_on_files(self):
        """Every output of a layer, including attention weights, with parameters from safetensors."""
        for name, (config, inputs, formula) in LAYERS.items():
            model = attn.build(name, config, seed=6)
            model.save(os.path.join(self.folder, name))
            wanted = formula({k: v.astype(np.float64) for k, v in model.state_dict().items()}, inputs)
            more = ["--weights", f"{name}/model.safetensors"] if model.state_dict() else []
            done = self.run_layer(name, config, inputs, wanted, *more)
            self.assertEqual((done.returncode, done.stderr), (0, ""), name)
            for output, array in wanted.items():
                got = self.load(output + ".out")
                with self.subTest(layer=name, output=output):
                    self.assertEqual(got.dtype, np.float32)
                    self.assertLess(distance(got, array), 3e-6)
                    self.assertIn(" x ".join(map(str, array.shape)), done.stdout)

    def peak(self, *arguments):
        """The maximum memory of a command, in bytes. A small process starts it, because memory of the parent counts
        too."""
        start = ("import os, sys; pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ); "
                 "_, status, used = os.wait4(pid, 0); print('peak', used.ru_maxrss); sys.exit(status != 0)")
        done = subprocess.run([sys.executable, "-S", "-c", start, os.path.abspath(COMMAND), *arguments], cwd=self.folder,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return int(done.stdout.split()[-1]) * (1 if sys.platform == "darwin" else 1024)

    def test_few_bytes_in_memory(self):
        """In bf16 and int8 the f32 form of all weights is never in memory at once, for any type in the file."""
        config = {"img_size": 8, "patch_size": 4, "num_hiddens": 512, "mlp_num_hiddens": 2048, "num_heads": 8,
                  "num_blks": 6, "num_classes": 10}
        model = attn.build("vit", config, seed=2)
        weights = sum(w.nbytes for w in model.parameters().values())
        model.save(os.path.join(self.folder, "f32"))
        self.save(x=np.random.default_rng(3).standard_normal((1, 3, 8, 8)).astype("f4"))
        peaks, results = {}, {}
        for precision in ("f32", "bf16", "int8"):
            if precision != "f32":
                self.assertEqual(self.call("convert", "f32", "--precision", precision, "-o", precision).returncode, 0)
            for file in {"f32", precision}:
                peaks[precision, file] = self.peak(
                    "run", "--arch", "vit", "--config", json.dumps(config), "--weights", f"{file}/model.safetensors",
                    "--input", "x=x.npy", "--output", "logits=logits.npy", "--threads", "1", "--precision", precision)
                results[precision, file] = self.load("logits")
            np.testing.assert_array_equal(results[precision, "f32"], results[precision, precision])
        most = {"f32": 2, "bf16": 0.75, "int8": 0.5}  # bytes of the weights in f32; the command itself needs the rest
        for of, peak in peaks.items():
            self.assertLess(peak, peaks["f32", "f32"] + (most[of[0]] - 1) * weights, of)

    def test_weights_written_by_pytorch(self):
        _, inputs, formula = LAYERS["self-attention"]
        shapes = {"to_q.weight": (6, 6), "to_kv.weight": (12, 6), "to_out.weight": (6, 6), "to_out.bias": (6,)}
        w = {name: np.sin(np.arange(np.prod(shape)) + p).reshape(shape) for p, (name, shape) in
             enumerate(shapes.items())}
        done = self.run_layer("self-attention", {"dim": 6, "heads": 2}, inputs, ["out", "weights"], "--weights",
                              os.path.abspath(os.path.join(ROOT, "tests/data/pt/self_attention.pt")), "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(json.loads(done.stdout), {"out": [2, 3, 6], "weights": [2, 2, 3, 5]})
        for output, array in formula(w, inputs).items():
            self.assertLess(distance(self.load(output + ".out"), array), 3e-6)

    def test_files_of_other_types_and_orders(self):
        config, inputs, formula = LAYERS["masked-softmax"]
        wanted = formula({}, inputs)["out"]
        for x in (inputs["x"].astype(">f8"), np.asfortranarray(inputs["x"]), inputs["x"].astype(np.float32)):
            for lens in (inputs["valid_lens"].astype(t) for t in (np.int8, np.int64, np.uint16, np.float64)):
                done = self.run_layer("masked-softmax", config, {"x": x, "valid_lens": lens}, ["out"])
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertLess(distance(self.load("out.out"), wanted), 3e-6)

    def test_every_parameter_that_does_not_fit_is_listed(self):
        model = attn.build("self-attention", {"dim": 6, "heads": 2})
        state = model.state_dict()
        model.save(self.folder)
        _, inputs, _ = LAYERS["detr-ffn"]
        done = self.run_layer("detr-ffn", {"d": 6}, inputs, ["out"], "--weights", "model.safetensors")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        for name, array in state.items():
            self.assertIn(f"attn: extra: {name} {list(array.shape)}".replace(", ", ","), done.stderr)
        for name, array in attn.build("detr-ffn", {"d": 6}).state_dict().items():
            self.assertIn(f"attn: missing: {name} {list(array.shape)}".replace(", ", ","), done.stderr)
        done = self.run_layer("self-attention", {"dim": 8, "heads": 2}, inputs, ["out"], "--weights",
                              "model.safetensors")
        for name, array in attn.build("self-attention", {"dim": 8, "heads": 2}).state_dict().items():
            expected, found = (str(list(a.shape)).replace(" ", "") for a in (array, state[name]))
            self.assertIn(f"attn: misshapen: {name} expected {expected}, found {found}", done.stderr)
        self.assertTrue(all(line.startswith("attn: ") for line in done.stderr.splitlines()))

    def refused(self, pattern, *arguments):
        done = self.call(*arguments)
        with self.subTest(arguments=arguments):
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertRegex(done.stderr, "^attn: .*" + pattern)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_bad_input_is_named(self):
        x = np.ones((2, 3, 6), np.float32)
        self.save(x=x, flat=x[0, 0], wide=np.ones((2, 3, 7)), ids=x.astype(int), empty=x[:0], halves=x[:, 0, 0] / 2)
        with open(os.path.join(self.folder, "x.npy"), "rb") as file:
            good = file.read()
        for name, data in (("cut", good[:-4]), ("head", good[:20]), ("noise", b"\x93NUMPY\xff" + good), ("none", b"")):
            with open(os.path.join(self.folder, name + ".npy"), "wb") as file:
                file.write(data)
        with open(os.path.join(self.folder, "noise.pt"), "wb") as file:
            file.write(b"PK\x03\x04" + bytes(range(256)))
        with open(os.path.join(self.folder, "bad.json"), "w") as file:
            file.write('{"dim": 6,\n "heads": }')

        def run(config='{"dim": 6, "heads": 2}', arch="self-attention", output="out=y.npy", **inputs):
            given = [f"--input={k}={v}.npy" for k, v in (inputs or {"x": "x"}).items()]
            return ["run", "--arch", arch, "--config", config, *given, "--output", output]
        for pattern, arguments in (
                ('no architecture "selfattention"', run(arch="selfattention")),
                ('no key "dims"; did you mean "dim".; the keys are: dim, heads', run('{"dims": 6}')),
                ('must be an integer, not a text', run('{"dim": "6", "heads": 2}')),
                ('the key "heads" is missing', run('{"dim": 6}')),
                ('is 0; allowed: 1 to', run('{"dim": 6, "heads": 0}')),
                ('allowed: gaussian', run('{"kernel": "cosine"}', "nadaraya-watson")),
                ('--config:1', run('{"dim": 6,')),
                ('bad.json:2', run('bad.json')),
                ('nothere.json', run('nothere.json')),
                ('input x .* is missing', run(kv="x")),
                ('no input "y"', run(x="x", y="x")),
                ('no output "attention"', run(output="attention=y.npy")),
                ('the outputs y.npy and y.npy are the same file', [*run(), "--output", "weights=y.npy"]),
                ('7', run(x="wide")),
                ('x', run(x="flat")),
                ('expected real numbers', run(x="ids")),
                ('expected a 32-bit integer', run("{}", "masked-softmax", x="x", valid_lens="halves")),
                ('cut.npy', run(x="cut")),
                ('head.npy', run(x="head")),
                ('noise.npy', run(x="noise")),
                ('none.npy', run(x="none")),
                ('nothere.npy', run(x="nothere")),
                ('nowhere', run(output="out=nowhere/y.npy")),
                ('noise.pt', [*run(), "--weights", "noise.pt"]),
                ('nothere.pt', [*run(), "--weights", "nothere.pt"]),
                ('noise.npy', [*run(), "--weights", "noise.npy"])):
            self.refused(pattern, *arguments)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "y.npy")))
        self.assertEqual(self.call(*run(x="empty")).returncode, 0)

    def test_list_tells_what_the_library_has(self):
        every = json.loads(self.call("list", "--json").stdout)
        self.assertEqual([a["name"] for a in every], list(attn.architectures()))
        for a in every:
            if a["name"] == "msa-transformer":
                continue  # a hundred million parameters
            one = json.loads(self.call("list", a["name"], "--json").stdout)
            with self.subTest(architecture=a["name"]):
                model = attn.build(a["name"], {k: v for k, v in one["config"].items() if v is not None})
                self.assertEqual([(p["name"], tuple(p["shape"])) for p in one["parameters"]],
                                 [(name, array.shape) for name, array in model.state_dict().items()])
                text = self.call("list", a["name"]).stdout
                for part in one["settings"] + one["inputs"] + one["outputs"] + one["parameters"]:
                    self.assertIn(f"  {part['name']} ", text)

    def test_list_shows_parameters_for_settings(self):
        one = json.loads(self.call("list", "self-attention", "--config", '{"dim": 6, "heads": 3}', "--json").stdout)
        self.assertEqual({p["name"]: p["shape"] for p in one["parameters"]}["to_kv.weight"], [12, 6])
        self.refused("4 heads", "list", "self-attention", "--config", '{"dim": 6, "heads": 4}')
        self.refused("needs the NAME", "list", "--config", "{}")


if __name__ == "__main__":
    unittest.main()
