#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes videos of moving shapes, white on black: each is a square, a plus or a cross, moves in a straight line and bounces
off the walls.  The same arguments always give the same videos.

    python3 examples/moving_shapes.py shapes.npy                 # an array (videos, frames, channels, height, width)
    python3 examples/moving_shapes.py shapes --videos 20         # a folder of frames (PGM) for each video

Kind, place and step of each shape are drawn uniformly.  A video of one shape in 12 x 12 pixels then has 10.9 bits,
however many frames there are: the first two determine the others.
"""
import argparse
import os
import struct

SHAPES = ("###", "###", "###"), (".#.", "###", ".#."), ("#.#", ".#.", "#.#")
STEPS = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0)]
SIDE = 3


class Numbers:
    """SplitMix64 (Steele, Lea and Flood 2014), the same in every version of Python."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        z = self.state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return (z ^ (z >> 31)) * n >> 64


def bounce(place, step, last):
    """The next place on 0 to last, and the step after it."""
    if not 0 <= place + step <= last:
        step = -step
    return place + step, step


def add_shape(video, numbers, size):
    """Draws a shape into the frames."""
    shape, (dy, dx) = SHAPES[numbers.below(len(SHAPES))], STEPS[numbers.below(len(STEPS))]
    y, x = numbers.below(size - SIDE + 1), numbers.below(size - SIDE + 1)
    for frame in video:
        for row in range(SIDE):
            for column in range(SIDE):
                if shape[row][column] == "#":
                    frame[(y + row) * size + x + column] = 255
        y, dy = bounce(y, dy, size - SIDE)
        x, dx = bounce(x, dx, size - SIDE)


def make(numbers, given):
    """Frames as bytes, row after row."""
    video = [bytearray(given.size**2) for _ in range(given.frames)]
    for _ in range(given.shapes):
        add_shape(video, numbers, given.size)
    return video


def write_array(path, videos, frames, size):
    """NumPy's format, version 1."""
    shape = f"({len(videos)}, {frames}, 1, {size}, {size})"
    head = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (63 - (10 + len(head)) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        for video in videos:
            file.write(b"".join(video))


def write_folders(path, videos, size):
    for i, video in enumerate(videos):
        folder = os.path.join(path, f"{i:04d}")
        os.makedirs(folder, exist_ok=True)
        for f, frame in enumerate(video):
            with open(os.path.join(folder, f"{f + 1}.pgm"), "wb") as file:
                file.write(f"P5 {size} {size} 255\n".encode() + frame)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("out", help="a file .npy, or a folder")
    for name, default in (("videos", 4000), ("shapes", 2), ("frames", 6), ("size", 12), ("seed", 1)):
        parser.add_argument("--" + name, type=int, default=default)
    given = parser.parse_args()
    if min(given.videos, given.shapes, given.frames) < 1 or given.size < SIDE:
        parser.error(f"videos, shapes and frames are 1 or more, a size is {SIDE} or more")
    numbers = Numbers(given.seed)
    videos = [make(numbers, given) for _ in range(given.videos)]
    if given.out.endswith(".npy"):
        write_array(given.out, videos, given.frames, given.size)
    else:
        write_folders(given.out, videos, given.size)


if __name__ == "__main__":
    main()
