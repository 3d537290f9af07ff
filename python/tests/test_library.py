# SPDX-License-Identifier: MIT
"""The package's copies of the C interface against the headers, by a C compiler; statuses and exceptions."""
import ctypes
import glob
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import attn
from attn import _errors, _library

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
CONSTANTS = {"ATTN_COCO_MEASURES": "COCO_MEASURES",
             "ATTN_MAX_RANK": "MAX_RANK", "ATTN_MAX_DIMS": "MAX_DIMS", "ATTN_MAX_BANDS": "MAX_BANDS",
             "ATTN_MAX_WINDOWS": "MAX_WINDOWS", "ATTN_MAX_RELATIVE": "MAX_RELATIVE", "ATTN_MAX_PICKS": "MAX_PICKS",
             **{f"ATTN_{n}": n for n in vars(_library) if n.startswith(("WITH_", "WANT_", "PRECISION_", "ACTIVATION_"))},
             **{f"ATTN_{n}": n for n in ("F32", "BF16", "F64", "F16", "I32", "I64", "U8", "BOOL")},
             **{f"ATTN_ROLE_{n}": n for n in ("BATCH", "QUERY", "KEY", "CONTRACT", "VALUE")},
             **{f"ATTN_DIRECTION_{n}": n for n in ("FORWARD", "BACKWARD")},
             **{f"ATTN_CONFIG_{n}": n for n in ("TYPE_NULL", "TYPE_BOOL", "TYPE_INT", "TYPE_REAL", "TYPE_TEXT", "TYPE_INTS",
                                                "TYPE_TEXTS", "TYPE_REALS")}}


class Headers(unittest.TestCase):
    def test_structs_and_constants(self):
        compiler = shutil.which("cc")
        if not compiler:
            self.skipTest("no C compiler")
        lines, wanted = [], {}
        for name, struct in _library.STRUCTS.items():
            lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
            wanted[name] = _library.c.sizeof(struct)
            for field, *_ in struct._fields_:
                lines.append(f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));')
                wanted[f"{name}.{field}"] = getattr(struct, field).offset
        for name, own in CONSTANTS.items():
            lines.append(f'printf("{name} %zu\\n", (size_t){name});')
            wanted[name] = getattr(_library, own)
        headers = "".join(f'#include "attn/{h}.h"\n' for h in ("attn", "config", "encode", "io", "models", "plot", "product", "tensor",
                                                                "train", "trainer",
                                                               "translate", "classify", "detect", "generate", "image", "msa"))
        program = headers + "#include <stddef.h>\n#include <stdio.h>\nint main(void)\n{\n" + "\n".join(lines) + "}\n"
        with tempfile.TemporaryDirectory() as folder:
            source, binary = os.path.join(folder, "offsets.c"), os.path.join(folder, "offsets")
            with open(source, "w") as file:
                file.write(program)
            subprocess.run([compiler, "-I", os.path.join(ROOT, "include"), source, "-o", binary], check=True)
            printed = subprocess.run([binary], check=True, capture_output=True, text=True).stdout
        self.assertEqual({k: int(v) for k, v in (line.split() for line in printed.splitlines())}, wanted)

    def test_arrays_are_those_of_the_header(self):
        with open(os.path.join(ROOT, "include", "attn", "attn.h"), encoding="utf-8") as file:
            table = re.search(r"#define ATTN_ARRAYS\(X\)(.*?)\n#define", file.read(), re.S).group(1)
        rows = re.findall(r"X\(\w+, (\w+), ", table)
        known = {name for name, *_ in _library.Arrays._fields_}
        self.assertEqual(known - set(rows), {"table", "dtable", "weights", "seed_offset", "reserved"})
        self.assertLessEqual(set(rows), known)


def kind_of(declaration):
    """How C passes a type: "pointer", or the size and kind of a number."""
    if "*" in declaration or "[" in declaration:
        return "pointer"
    words = declaration.replace("const ", "").split()
    return {"void": "nothing", "bool": "bool", "double": "real", "int64_t": "int64", "size_t": "size",
            "uint64_t": "size"}.get(words[0], "int")  # int and the enums


def kind_of_ctype(given):
    kinds = {None: "nothing", ctypes.c_bool: "bool", ctypes.c_double: "real", ctypes.c_int64: "int64",
             ctypes.c_size_t: "size", ctypes.c_int: "int"}
    return kinds.get(given, "pointer")


def declared(headers):
    """name: [result, parameter...] of each function in the text of headers."""
    text = re.sub(r"/\*.*?\*/", " ", headers, flags=re.S)
    found = {}
    for result, name, inner in re.findall(r"ATTN_API\s+([\w\s*]+?)\battn_(\w+)\(((?:[^()]|\([^()]*\))*)\)", text):
        inner = re.sub(r"\(\*\w+\)\s*\([^()]*\)", "*", inner)  # a pointer to a function
        parameters = [p.strip() for p in inner.split(",")]
        found[name] = [kind_of(result.strip())] + [kind_of(p) for p in parameters if p != "void"]
    return found


class Functions(unittest.TestCase):
    def test_results_and_parameters(self):
        text = ""
        for path in glob.glob(os.path.join(ROOT, "include", "attn", "*.h")):
            with open(path, encoding="utf-8") as file:
                text += file.read()
        known = declared(text)
        self.assertGreater(len(known), 150)
        for name, (result, arguments) in _library._FUNCTIONS.items():
            self.assertEqual([kind_of_ctype(t) for t in (result, *arguments)], known.get(name), f"attn_{name}")


class Statuses(unittest.TestCase):
    def test_each_has_its_class(self):
        known = [i for i in range(64) if _library.lib.status_text(i) != b"unknown status"]
        self.assertEqual(known, [0, *_errors.BY_STATUS])
        for status, kind in _errors.BY_STATUS.items():
            self.assertTrue(issubclass(kind, attn.Error))
            self.assertEqual(kind("what").status, status)
            self.assertEqual(str(kind("what")), "what")

    def test_exceptions_are_the_built_in_ones_too(self):
        for builtin, call in ((ValueError, lambda: attn.build("detr-ffn", {"d": 0})),
                              (FileNotFoundError, lambda: attn.load("/nowhere/at/all")),
                              (LookupError, lambda: attn.build("nothing"))):
            with self.assertRaises(builtin):
                call()

    def test_version(self):
        self.assertRegex(attn.__version__, r"^\d+\.\d+\.\d+$")
        with open(os.path.join(ROOT, "pyproject.toml"), encoding="utf-8") as file:
            text = file.read()
        self.assertNotIn(attn.__version__, text, "attn.h alone has the version")
        pattern = re.search(r"^regex = \'\'\'(.*)\'\'\'$", text, re.MULTILINE).group(1).replace("\\#", "#").replace("\\ ", " ")
        with open(os.path.join(ROOT, "include", "attn", "attn.h"), encoding="utf-8") as file:
            self.assertEqual(".".join(re.search(pattern, file.read()).groups()), attn.__version__)


if __name__ == "__main__":
    unittest.main()
