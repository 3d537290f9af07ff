# SPDX-License-Identifier: MIT
"""Writes old.pth beside it without PyTorch: a training's checkpoint in the form before 1.6, with what such files hold beside
weights (an optimizer, a Namespace, an object of a class that nobody knows), a view of a storage and a tied tensor."""
import argparse
import collections
import io
import pathlib
import pickle
import struct
import sys
import types

HERE = pathlib.Path(__file__).parent


def module(name, **members):
    sys.modules[name] = types.ModuleType(name)
    for key, value in members.items():
        value.__module__, value.__qualname__ = name, key
        setattr(sys.modules[name], key, value)


def rebuild(*arguments):
    return arguments


class Float:
    unit, code = 4, "f"


class Half:
    unit, code = 2, "e"


class Scheduler:
    def __init__(self, best):
        self.best = best


module("torch", FloatStorage=Float, HalfStorage=Half)
module("torch._utils", _rebuild_tensor_v2=rebuild)
module("somewhere", Scheduler=Scheduler)


class Storage:
    def __init__(self, key, kind, numbers, view=None):
        self.key, self.kind, self.numbers, self.view = key, kind, numbers, view


class Tensor:
    def __init__(self, storage, shape, stride, offset=0):
        self.parts = (storage, offset, shape, stride, False, collections.OrderedDict())

    def __reduce__(self):
        return rebuild, self.parts


class Pickler(pickle.Pickler):
    def persistent_id(self, thing):
        if isinstance(thing, Storage):
            return "storage", thing.kind, thing.key, "cpu", len(thing.numbers), thing.view
        return None


def main():
    weight = Storage("10", Float, [float(i) for i in range(6)])
    half = Storage("11", Half, [1.5, -2.0])
    viewed = Storage("10", Float, weight.numbers, ("13", 2, 4))
    unknown = Storage("09", Float, [9.0, 8.0, 7.0])
    moment = Storage("12", Float, [0.25, 0.5])
    checkpoint = {
        "scheduler": Scheduler(Tensor(unknown, (3,), (1,))),
        "model": collections.OrderedDict([
            ("embed.weight", Tensor(weight, (2, 3), (3, 1))),
            ("head.weight", Tensor(weight, (2, 3), (3, 1))),
            ("view", Tensor(viewed, (2, 2), (2, 1))),
            ("bias", Tensor(half, (2,), (1,))),
        ]),
        "optimizer": {"state": {0: {"step": 10, "exp_avg": Tensor(moment, (2,), (1,))}},
                      "param_groups": [{"lr": 1e-4, "params": [0, 1]}]},
        "epoch": 3,
        "args": argparse.Namespace(arch="detr", lr=1e-4, device=None, masks=False),
    }
    out = io.BytesIO()
    for head in (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}):
        pickle.dump(head, out, protocol=2)
    Pickler(out, protocol=2).dump(checkpoint)
    storages = [unknown, weight, half, moment]
    pickle.dump([s.key for s in storages], out, protocol=2)
    for s in storages:
        out.write(struct.pack("<q", len(s.numbers)) + struct.pack("<%d%s" % (len(s.numbers), s.kind.code), *s.numbers))
    (HERE / "old.pth").write_bytes(out.getvalue())


if __name__ == "__main__":
    main()
