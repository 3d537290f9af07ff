# SPDX-License-Identifier: MIT
"""Commands that list a checkpoint say which of its contents they skip: python3 skipped_notes.py ATTN"""
import pathlib
import struct
import subprocess
import sys
import tempfile
import zipfile

COMMANDS = {"info": ["info", "A"], "info --json": ["info", "A", "--json"], "diff": ["diff", "A", "B"],
            "diff, second file": ["diff", "B", "A"], "convert --dry-run": ["convert", "A", "--dry-run"]}


def array(numbers):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({len(numbers)},), }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(numbers)}f", *numbers)


def main():
    with tempfile.TemporaryDirectory() as folder:
        for name in "AB":
            with zipfile.ZipFile(pathlib.Path(folder) / f"{name}.npz", "w") as file:
                file.writestr("weight.npy", array([1.0, 2.0]))
                if name == "A":
                    file.writestr("rest.bin", b"numbers of another kind")
        for what, words in COMMANDS.items():
            command = [f"{folder}/{word}.npz" if word in "AB" else word for word in words]
            for quiet in (False, True):
                said = subprocess.run([sys.argv[1], *command, *["--quiet"] * quiet], check=True, capture_output=True, text=True)
                if ("rest.bin" in said.stderr) == quiet:
                    sys.exit(f"{what}{' --quiet' * quiet}: rest.bin is skipped, and stderr is {said.stderr!r}")


if __name__ == "__main__":
    main()
