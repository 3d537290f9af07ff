# SPDX-License-Identifier: MIT
"""attn's regions on the threads of PyTorch's OpenMP runtime: no thread more, in several threads of Python, and in processes that
fork makes."""
import multiprocessing
import os
import subprocess
import sys
import unittest

try:
    import torch
except ImportError:
    raise unittest.SkipTest("no PyTorch here")

import attn.torch
from attn.torch import _openmp
from together import together

PATIENCE = 120  # seconds; a child that hangs is killed
FORK = "fork" in multiprocessing.get_all_start_methods()
OPENMP = sys.platform == "linux" and "ATen parallel backend: OpenMP" in torch.__config__.parallel_info()
COUNT = """
import os, torch, attn.torch
torch.set_num_threads(3)
x = torch.randn(512, 512)
torch.relu_(torch.randn(3_000_000))  # PyTorch's threads start
before = len(os.listdir("/proc/self/task"))
with attn.torch.enable(always=True):
    y = x @ x
assert "1 products" in attn.torch.calls(verbose=True)
print(len(os.listdir("/proc/self/task")) - before)
"""


def multiply(_):
    with attn.torch.enable(always=True), torch.no_grad():
        generator = torch.Generator().manual_seed(1)
        x, w = torch.randn(300, 256, generator=generator), torch.randn(256, 200, generator=generator)
        return (x @ w).numpy()


LAYER = attn.torch.optimize(torch.nn.Linear(256, 1200))  # before a fork: PyTorch itself waits forever for threads in a child


def optimized(_):
    with torch.no_grad():
        return LAYER(torch.ones(100, 256)).numpy()


class Threads(unittest.TestCase):
    def setUp(self):
        count = torch.get_num_threads()
        self.addCleanup(torch.set_num_threads, count)
        self.addCleanup(attn.torch.disable)
        torch.set_num_threads(3)

    @unittest.skipUnless(OPENMP, "PyTorch has no threads of OpenMP here")
    def test_no_thread_more(self):
        done = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual((done.stdout.strip(), done.returncode), ("0", 0), done.stderr)

    @unittest.skipUnless(OPENMP, "PyTorch has no threads of OpenMP here")
    def test_the_runtime_is_pytorchs(self):
        found = _openmp._find()
        self.assertTrue(found.parallel and found.max_threads and found.thread_number)

    def test_threads_of_python(self):
        wanted, found = multiply(0), [None] * 4

        def work(i):
            for _ in range(10):
                found[i] = multiply(0)
        together(work)
        for one in found:
            self.assertTrue((one == wanted).all())

    @unittest.skipUnless(FORK, "no fork here")
    def test_forked_processes(self):
        for work in (multiply, optimized):
            wanted = work(0)
            with multiprocessing.get_context("fork").Pool(2) as pool:
                for found in pool.map_async(work, range(4)).get(PATIENCE):
                    self.assertTrue((found == wanted).all())
            self.assertTrue((work(0) == wanted).all())

    def test_a_loaders_workers(self):
        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, i):
                return torch.from_numpy(multiply(i))
        wanted = torch.from_numpy(multiply(0))
        for found in torch.utils.data.DataLoader(Data(), batch_size=1, num_workers=2, timeout=PATIENCE):
            self.assertTrue(torch.equal(found[0], wanted))


if __name__ == "__main__":
    unittest.main()
