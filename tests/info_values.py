# SPDX-License-Identifier: MIT
"""Range, norm and NaN of tensors of every type, as `attn info --values` prints them: python3 info_values.py ATTN

The numbers are worked out here from the bytes, the sums exactly (math.fsum)."""
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

NAN, INF = math.nan, math.inf
wave = [math.sin(1.7 * i) * (1 + i % 7) for i in range(101)]
CASES = {"F32": ("f", [struct.unpack("f", struct.pack("f", x))[0] for x in wave] + [NAN, -0.0, NAN]),
         "F16": ("e", [struct.unpack("e", struct.pack("e", x))[0] for x in wave] + [2.0**-24, 65504.0, NAN]),
         "F64": ("d", [x * 1e200 for x in wave]), "I64": ("q", [-(2**60), 3, 2**59]), "I32": ("i", [-(2**30), 7]),
         "I16": ("h", [-(2**15), 7]), "I8": ("b", [-128, 127]), "U8": ("B", [255, 0]), "BOOL": ("?", [True, False, True])}
CASES |= {"tiny": ("d", [x * 1e-200 for x in wave]), "infinite": ("f", [1.0, INF, -INF]), "hollow": ("f", [NAN] * 3), "empty": ("f", [])}
TYPES = {"tiny": "F64", "infinite": "F32", "hollow": "F32", "empty": "F32"}


def expected(numbers):
    real = [x for x in numbers if not math.isnan(x)]
    most = max(map(abs, real), default=0)
    norm = most if most in (0, INF) else most * math.sqrt(math.fsum((x / most)**2 for x in real))
    finite = lambda x: x if x is not None and math.isfinite(x) else None  # JSON has no others
    return finite(min(real, default=None)), finite(max(real, default=None)), finite(norm), len(numbers) - len(real)


def main():
    header, data = {}, b""
    for name, (code, numbers) in CASES.items():
        packed = struct.pack(f"<{len(numbers)}{code}", *numbers)
        header[name] = {"dtype": TYPES.get(name, name), "shape": [len(numbers)], "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    halves = [struct.unpack("<I", struct.pack("<f", x))[0] >> 16 for x in wave]
    header["BF16"] = {"dtype": "BF16", "shape": [101], "data_offsets": [len(data), len(data) + 202]}
    data += struct.pack("<101H", *halves)
    numbers = {name: numbers for name, (_, numbers) in CASES.items()}
    numbers["BF16"] = [struct.unpack("<f", struct.pack("<I", bits << 16))[0] for bits in halves]
    text = json.dumps(header).encode()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "all.safetensors"
        path.write_bytes(struct.pack("<Q", len(text)) + text + data)
        said = subprocess.run([sys.argv[1], "info", str(path), "--values", "--json"], check=True, capture_output=True, text=True)
    found = {t["name"]: t for t in json.loads(said.stdout)["tensors"]}
    for name in numbers:
        least, most, norm, nans = expected(numbers[name])
        t = found[name]
        close = t["norm"] == norm or (norm and t["norm"] and abs(t["norm"] / norm - 1) < 1e-14)
        if (t["min"], t["max"], t["nans"]) != (least, most, nans) or not close:
            sys.exit(f"{name}: {t}, not {least} to {most}, norm {norm}, {nans} NaN")


if __name__ == "__main__":
    main()
