# SPDX-License-Identifier: MIT
"""Writes python2.pt, typed.pt, no_crc.pt and protocol4.pt beside it, with PyTorch: forms of torch.save besides the usual one."""
import collections
import pathlib

import torch

HERE = pathlib.Path(__file__).parent


class Python2:
    """Pickled as Python 2 pickles an OrderedDict: the items are an argument."""

    def __init__(self, *pairs):
        self.pairs = pairs

    def __reduce__(self):
        return collections.OrderedDict, (self.pairs,)


def numbers(first, n):
    return torch.arange(first, first + n, dtype=torch.float32)


def main():
    inner = Python2(["w", numbers(0, 2)], ["b", numbers(2, 3)])
    pairs = Python2(("a", numbers(6, 1)), ("inner", Python2(["x", numbers(7, 2)])))
    given = Python2()
    given.pairs = {"y": numbers(9, 2)}
    torch.save({"net": inner, "ema": pairs, "given": given, "last": numbers(5, 1)}, HERE / "python2.pt")
    tensor = numbers(0, 3)
    tensor.note = "an attribute, with which PyTorch writes the tensor's class too"
    torch.save({"typed": tensor, "plain": numbers(3, 2)}, HERE / "typed.pt")
    torch.save({"x": numbers(0, 4)}, HERE / "protocol4.pt", pickle_protocol=4, _use_new_zipfile_serialization=False)
    torch.serialization.set_crc32_options(False)
    torch.save({"x": numbers(0, 4)}, HERE / "no_crc.pt")


if __name__ == "__main__":
    main()
