# SPDX-License-Identifier: MIT
"""If mypy is installed, mypy --strict must accept the package and a program that uses all of it."""
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

import attn

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(os.path.abspath(attn.__file__))
# attn.torch is checked if PyTorch's types are installed.
FOLDERS = ("", "torch") if importlib.util.find_spec("torch") else ("",)
FILES = [os.path.join(folder, name) for folder in FOLDERS for name in sorted(os.listdir(os.path.join(PACKAGE, folder)))
         if name.endswith(".py")]
PROGRAM = os.path.join(HERE, "typed_program.py")


class Types(unittest.TestCase):
    def test_the_program_uses_every_public_name(self):
        with open(PROGRAM, encoding="utf-8") as file:
            text = file.read()
        for name in attn.__all__:
            self.assertIn(f"attn.{name}", text)

    def test_the_program_runs(self):
        run = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, check=False,
                             env={**os.environ, "PYTHONPATH": os.path.dirname(PACKAGE)})
        self.assertEqual((run.stdout, run.stderr), ("(1, 3, 2, 4) ['q', 'v'] ['k', 'q', 'v'] True True\n", ""))

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
    def test_strict(self):
        with tempfile.TemporaryDirectory() as cache:
            run = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache,
                                  *(os.path.join(PACKAGE, name) for name in FILES), PROGRAM],
                                 capture_output=True, text=True, check=False, cwd=os.path.dirname(PACKAGE))
        self.assertIn("Success", run.stdout, run.stdout + run.stderr)


if __name__ == "__main__":
    unittest.main()
