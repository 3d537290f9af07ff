# SPDX-License-Identifier: MIT
"""attn.plot: each format, the data in the page, and refused input."""
import base64
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import unittest
import zlib

import numpy as np

import attn
from attn import _command

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "documents"))
import standins

MAGIC = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF", "html": b"<!doctype html>"}
X = np.linspace(0.5, 4, 8)


def pictures():
    try:
        attn.plot.curves(X)
    except attn.UnsupportedError:
        return False
    return True


def png(draw, *given, **options):
    """The pixels, which are equal for equal drawings; an SVG contains a counter of surfaces."""
    return draw(*given, format="png", **options).data


def page_of(picture):
    """The JSON object, and the weights of each (map, layer) in a page, [heads, rows, cols]."""
    text = picture.data.decode()
    page = json.loads(re.search(r'id="attn-page">(.*?)</script>', text, re.S).group(1))
    found = {}
    for at, layer, packed in re.findall(r'id="w(\d+)-(\d+)">(.*?)</script>', text):
        m = page["maps"][int(at)]
        shares = np.frombuffer(zlib.decompress(base64.b64decode(packed)), np.uint8).reshape(m["heads"], m["rows"], m["cols"])
        found[int(at), int(layer)] = shares / 255 * np.reshape(m["peaks"][int(layer)], (-1, 1, 1))
    return page, found


@unittest.skipUnless(pictures(), "this library draws no pictures")
class Drawings(unittest.TestCase):
    def test_formats(self):
        with tempfile.TemporaryDirectory() as folder:
            for ending in ("png", "svg", "pdf"):
                for draw, given in ((attn.plot.curves, {"a": X}), (attn.plot.heatmaps, np.eye(3))):
                    path = os.path.join(folder, "x." + ending)
                    picture = draw(given, path)
                    with open(path, "rb") as file:
                        self.assertEqual(file.read(), picture.data)
                    self.assertEqual((picture.format, picture.data[:4]), (ending, MAGIC[ending][:4]))
                    self.assertEqual(len(picture._repr_mimebundle_()), 1)
            self.assertEqual(attn.plot.curves(X, format="pdf").format, "pdf")
        self.assertEqual(attn.plot.heatmaps(np.eye(3)).format, "svg")

    def test_curves(self):
        lines = lambda p: len(re.findall(rb'stroke-width[:=]"?1.6', p.data))
        self.assertEqual(lines(attn.plot.curves(X)), 1)  # a curve without a name has no entry in the legend
        self.assertEqual(lines(attn.plot.curves(np.stack([X, X], 1))), 4)
        styles = {"b": "dashes", "c": "dots"}
        self.assertEqual(lines(attn.plot.curves({"a": X, "b": (X, X ** 2), "c": (X[:3], X[:3])}, styles=styles)), 4)
        panels = attn.plot.curves({"left": {"a": X}, "right": {"a": -X}}, size=(500, 200), title="t", x_label="x", y_label="y")
        self.assertEqual(lines(panels), 3)
        self.assertIn(b'width="500', panels.data)
        self.assertNotEqual(*(png(attn.plot.curves, {"a": (X, X)}, log_x=log) for log in (False, True)))

    def test_heatmaps(self):
        weights = np.random.default_rng(1).random((2, 3, 4, 5))
        drawn = {colours: png(attn.plot.heatmaps, weights, colours=colours) for colours in attn.plot.COLOURS}
        self.assertEqual(len(set(drawn.values())), 4)
        full = attn.plot.heatmaps(weights, labels=list("abcd"), key_labels=list("vwxyz"), titles=["1", "2", "3"],
                                  row_titles=["a", "b"], x_label="x", y_label="y", title="t", scale=(0, 2), per_line=2)
        self.assertEqual(full.format, "svg")
        half = np.where(weights < 0.5, np.nan, weights).astype(np.float16)
        self.assertTrue(attn.plot.heatmaps(half[0, 0]).data)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            history, array = os.path.join(folder, "history.tsv"), os.path.join(folder, "x.npy")
            np.save(array, np.stack([X, X, X], 1))
            for text, says in (("epoch\tnote\ttrain_loss\trate\n1\ta\t2\t.1\n2\tb\t\t.1\n3\tb\t1\t.1\n", None),
                               ("a\tb\n1\n", "row 2 has 1 fields"), ("a\tb\n", "the table has no rows"), ("a\tb\n1\tx\n", "two columns")):
                with open(history, "w") as file:
                    file.write(text)
                if says:
                    self.assertRaisesRegex(attn.Error, says, attn.plot.curves, history)
                else:
                    given = {"train_loss": ([1.0, 2.0, 3.0], [2, np.nan, 1])}
                    self.assertEqual(png(attn.plot.curves, folder), png(attn.plot.curves, given, x_label="epoch"))
            self.assertEqual(png(attn.plot.curves, array), png(attn.plot.curves, np.load(array)))
            self.assertRaises(OSError, attn.plot.curves, os.path.join(folder, "nothing.tsv"))

    def test_refusals(self):
        eye, plot = np.eye(3), attn.plot
        for call, kind, says in (
                (lambda: plot.curves({}), attn.ArgumentError, "0 curves are given"),
                (lambda: plot.curves({"a": []}), attn.ArgumentError, "no curve has a point"),
                (lambda: plot.curves({"a": [np.nan]}), attn.ArgumentError, "no curve has a point with finite x and y"),
                (lambda: plot.curves({"a": (X, X[:2])}), attn.ShapeError, r"curve 'a': x has the shape \(8,\), y \(2,\)"),
                (lambda: plot.curves({"a": 1j * X}), attn.ArgumentError, "complex"),
                (lambda: plot.curves(np.ones((2, 2, 2))), attn.ShapeError, "a curve for each column"),
                (lambda: plot.curves({"a": X}, styles={"b": "dots"}), attn.ArgumentError, "no curve 'b'"),
                (lambda: plot.curves({"a": X}, styles={"a": "bold"}), attn.ArgumentError, "line, dashes, dots"),
                (lambda: plot.curves({"a": -X}, log_y=True), attn.ArgumentError, "logarithmic"),
                (lambda: plot.curves({"a": X}, size=(1, 2)), attn.ArgumentError, "1 x 2 points"),
                (lambda: plot.curves({"a": X}, "x.gif"), attn.ArgumentError, "must end in .png"),
                (lambda: plot.curves({"a": X}, format="html"), attn.UnsupportedError, "page"),
                (lambda: plot.heatmaps(X), attn.ShapeError, "queries and keys"),
                (lambda: plot.heatmaps(np.ones((0, 3))), attn.ShapeError, "empty"),
                (lambda: plot.heatmaps(eye, labels=["a"]), attn.ShapeError, "labels: found 1 texts, expected 3"),
                (lambda: plot.heatmaps(eye, labels="abc"), attn.ShapeError, "one text"),
                (lambda: plot.heatmaps(eye, titles=["a", "b"]), attn.ShapeError, "titles: found 2 texts"),
                (lambda: plot.heatmaps(eye, colours="green"), attn.ArgumentError, "heat, blues, reds, diverging"),
                (lambda: plot.heatmaps(eye, scale=(1, 1)), attn.ArgumentError, "below the second"),
                (lambda: plot.heatmaps(np.ones((1, 5000))), attn.ArgumentError, "5000"),
                (lambda: plot.heatmaps(np.array([["a"]])), attn.ArgumentError, "expected numbers")):
            with self.assertRaisesRegex(kind, says):
                call()
        self.assertFalse(os.path.exists("x.gif"))


@unittest.skipIf(pictures(), "this library draws pictures")
class WithoutCairo(unittest.TestCase):
    def test_heatmaps_without_a_path_are_a_page(self):
        self.assertEqual(attn.plot.heatmaps(np.eye(3)).format, "html")
        self.assertEqual(attn.plot.explore(np.eye(3)).format, "html")

    def test_what_cannot_be_drawn_is_refused_with_the_reason(self):
        for call in (lambda: attn.plot.curves(X), lambda: attn.plot.curves(X, format="html"), lambda: attn.plot.curves(X, "x.png"),
                     lambda: attn.plot.heatmaps(np.eye(3), format="svg"), lambda: attn.plot.heatmaps(np.eye(3), "x.svg")):
            with self.assertRaisesRegex(attn.UnsupportedError, "made without cairo"):
                call()

    def test_contacts_have_no_picture(self):
        with tempfile.TemporaryDirectory() as folder:
            standins.esm2(folder, random.Random(7))
            run = subprocess.run([_command.path(), "contacts", "protein.fasta", "--model", "esm2_t6_8M_UR50D.pt"], cwd=folder,
                                 capture_output=True, text=True, check=True)
            self.assertEqual(run.stdout.split(), ["./protein.contacts.npy", "./protein.contacts.tsv"])
            self.assertIn("no picture is drawn", run.stderr)


class Pages(unittest.TestCase):
    def test_the_page_holds_the_arrays(self):
        random = np.random.default_rng(2)
        one, two = random.random((2, 3, 4, 4)), random.random((5, 6))
        two[1, 2] = np.nan
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page.html")
            picture = attn.plot.explore({"self": one, "cross": (two, list("abcde"), list("uvwxyz"))}, ["to", "be", "<b>", "é"],
                                        path, title="t", about="a", colours="blues")
            with open(path, "rb") as file:
                self.assertEqual(file.read(), picture.data)
        page, weights = page_of(picture)
        self.assertEqual((page["title"], page["about"], page["colours"]), ("t", "a", "blues"))
        self.assertEqual([[m[k] for k in ("name", "layers", "heads", "rows", "cols")] for m in page["maps"]],
                         [["self", 2, 3, 4, 4], ["cross", 1, 1, 5, 6]])
        self.assertEqual(page["maps"][0]["queries"], ["to", "be", "<b>", "é"])
        self.assertEqual(page["maps"][0]["keys"], ["to", "be", "<b>", "é"])
        self.assertEqual((page["maps"][1]["queries"], page["maps"][1]["keys"]), (list("abcde"), list("uvwxyz")))
        for layer in range(2):
            np.testing.assert_allclose(weights[0, layer], one[layer], atol=0.51 / 255)
        np.testing.assert_allclose(weights[1, 0][0], np.nan_to_num(two), atol=0.51 / 255)
        self.assertIn("iframe", picture._repr_mimebundle_()["text/html"])

    def test_one_array(self):
        page, weights = page_of(attn.plot.explore(np.eye(3)))
        self.assertEqual(page["maps"][0]["queries"], [])
        np.testing.assert_array_equal(weights[0, 0][0], np.eye(3))

    def test_refusals(self):
        for call, kind, says in (
                (lambda: attn.plot.explore({}), attn.ArgumentError, "no maps to show"),
                (lambda: attn.plot.explore(X), attn.ShapeError, "queries and keys"),
                (lambda: attn.plot.explore(-np.eye(2)), attn.ArgumentError, "map 0, row 0, column 0: the weight is -1"),
                (lambda: attn.plot.explore([[0, np.inf]]), attn.ArgumentError, "column 1: the weight is inf"),
                (lambda: attn.plot.explore(np.eye(2), ["a"]), attn.ShapeError, "tokens: found 1 texts"),
                (lambda: attn.plot.explore(np.ones((2, 3)), ["a", "b"], keys=["a"]), attn.ShapeError, "keys: found 1 texts"),
                (lambda: attn.plot.explore(np.eye(2), ["a", "\ud800"]), attn.ArgumentError, "not a text"),
                (lambda: attn.plot.explore(np.eye(2), path="x.png"), attn.ArgumentError, "must end in .html")):
            with self.assertRaisesRegex(kind, says):
                call()


if __name__ == "__main__":
    unittest.main()
