# SPDX-License-Identifier: MIT
"""The safetensors format for real arrays: a length, a JSON header, the data."""
import json
import struct

import numpy as np


def write(path, arrays, double=False):
    """Writes a dict of name to array, in the dict's order, as float32 or as float64."""
    header, data, offset = {}, [], 0
    for name, array in arrays.items():
        raw = np.ascontiguousarray(array, dtype="<f8" if double else "<f4").tobytes()
        header[name] = {"dtype": "F64" if double else "F32", "shape": list(array.shape),
                        "data_offsets": [offset, offset + len(raw)]}
        data.append(raw)
        offset += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the data begin at a multiple of 8
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def read(path):
    """Reads what write() writes, and any other file whose tensors are F32 or F64."""
    with open(path, "rb") as file:
        blob = file.read()
    (length,) = struct.unpack_from("<Q", blob)
    header = json.loads(blob[8:8 + length])
    header.pop("__metadata__", None)
    types = {"F32": "<f4", "F64": "<f8"}
    arrays = {}
    for name, entry in header.items():
        begin, end = (8 + length + at for at in entry["data_offsets"])
        arrays[name] = np.frombuffer(blob[begin:end], types[entry["dtype"]]).reshape(entry["shape"])
    return arrays
