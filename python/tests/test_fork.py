# SPDX-License-Identifier: MIT
"""Processes that fork makes after the library has used threads, as in multiprocessing."""
import multiprocessing
import unittest

import numpy as np

import attn

PATIENCE = 120  # seconds; a child that hangs is killed
FORK = "fork" in multiprocessing.get_all_start_methods()


def arrays():
    generator = np.random.default_rng(3)
    return [generator.standard_normal((2, 65, 4, 32), dtype="f4") for _ in range(3)]


def attend(_):
    return attn.attend(*arrays(), threads=2)


def layer(_):
    x = np.random.default_rng(4).standard_normal((4, 32, 64), dtype="f4")
    return attn.build("detr-ffn", {"d": 64}, threads=2)(x)


def in_children(work):
    """The results of two children of this process."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map_async(work, range(4)).get(PATIENCE)


@unittest.skipUnless(FORK, "no fork here")
class Fork(unittest.TestCase):
    def test_attend(self):
        expected = attend(0)
        for found in in_children(attend):
            np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(attend(0), expected)

    def test_layer(self):
        expected = layer(0)
        for found in in_children(layer):
            np.testing.assert_array_equal(found, expected)


if __name__ == "__main__":
    unittest.main()
