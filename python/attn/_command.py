# SPDX-License-Identifier: MIT
"""The command `attn` of the wheel, as a console script and as `python -m attn`."""
from __future__ import annotations

import os
import shutil
import sys


def path() -> str:
    """The path of the command: the wheel's or, beside a library that ATTN_LIBRARY names or the system has, the one there."""
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "attn")
    if os.path.exists(beside):
        return beside
    library = os.environ.get("ATTN_LIBRARY")
    built = os.path.join(os.path.dirname(os.path.abspath(library)), "attn") if library else shutil.which("attn")
    if not built or not os.access(built, os.X_OK):
        raise SystemExit("attn: the command is not in this package: install the wheel, or set ATTN_LIBRARY to the library "
                         "in a build that has the command")
    return built


def main() -> None:
    command = path()
    os.execv(command, [command, *sys.argv[1:]])
