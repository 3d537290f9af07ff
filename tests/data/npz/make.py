# SPDX-License-Identifier: MIT
"""Writes the .npz files here without NumPy: python3 make.py"""

import struct
import zipfile


def npy(kind, shape, data, columns=False):
    header = "{'descr': '%s', 'fortran_order': %s, 'shape': %r, }" % (kind, columns, shape)
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


def write(name, arrays, method):
    with zipfile.ZipFile(name, "w", method) as archive:
        for key, data in arrays.items():
            archive.writestr(zipfile.ZipInfo(key + ".npy"), data, method)


ARRAYS = {
    "encoder_l1_self_Wq": npy("<f4", (2, 3), struct.pack("<6f", *range(6))),
    "half": npy("<f2", (2,), struct.pack("<2e", 1.5, -2)),
    "columns": npy("<f4", (2, 3), struct.pack("<6f", 0, 3, 1, 4, 2, 5), True),
    "special:model.yml": npy("|i1", (11,), b"type: tran\x00"),
}
write("stored.npz", ARRAYS, zipfile.ZIP_STORED)
write("deflated.npz", ARRAYS, zipfile.ZIP_DEFLATED)
write("objects.npz", {"objects": npy("|O", (1,), b"\x80\x02N.")}, zipfile.ZIP_STORED)
write("huge.npz", {"huge": npy("<f4", (1 << 20, 1 << 20), b"")}, zipfile.ZIP_STORED)
