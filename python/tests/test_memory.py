# SPDX-License-Identifier: MIT
"""Ownership of memory: inputs and outputs without copies, arrays that outlive models, no leaks, threads."""
import gc
import os
import threading
import unittest

import attn
import numpy as np
from formulas import distance
from together import together


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def layer(**options):
    return attn.build("self-attention", {"dim": 16, "heads": 2}, **options)


class Sharing(unittest.TestCase):
    def test_inputs_and_outputs_are_not_copied(self):
        model = attn.build("masked-softmax", {})
        x = np.zeros((1, 1000, 1000), np.float32)
        with model.no_grad():
            before = model.memory()[0]
            y = model(x)
            self.assertLess(model.memory()[1] - before, 1.3 * y.nbytes)  # only the result, without a copy of the input
        tensor = y.base
        while isinstance(tensor, np.ndarray):
            tensor = tensor.base
        self.assertEqual(tensor.__array_interface__["data"][0], y.ctypes.data)  # the library's memory itself
        recorded = model(x)
        pointer, array = model._inputs["x"]
        self.assertIs(array, x)
        self.assertEqual(attn._model.lib.tensor_data(pointer), x.ctypes.data)
        self.assertFalse(np.shares_memory(recorded, y))

    def test_results_stay_as_they_were(self):
        model = layer()
        rng = np.random.default_rng(0)
        kept = []
        for _ in range(20):
            x = rng.standard_normal((2, 5, 16)).astype(np.float32)
            y = model(x)
            grad = model.backward(np.ones_like(y))["x"]
            kept.append((x, y, y.copy(), grad, grad.copy()))
        for x, y, was, grad, grad_was in kept:
            np.testing.assert_array_equal(y, was)
            np.testing.assert_array_equal(grad, grad_was)
        del model
        gc.collect()
        for x, y, was, grad, grad_was in kept:
            np.testing.assert_array_equal(y, was)
            np.testing.assert_array_equal(grad, grad_was)
            y += 1  # the caller may write to them

    def test_results_give_their_memory_back(self):
        model = attn.build("masked-softmax", {})
        x = np.zeros((1, 500, 500), np.float32)
        with model.no_grad():
            for _ in range(3):
                model(x)
            settled = model.memory()
            for _ in range(50):
                model(x)
            self.assertEqual(model.memory(), settled)
            self.assertLess(settled[0], 4 * x.nbytes)


class Leaks(unittest.TestCase):
    def use(self, i):
        model = layer(seed=i)
        x = np.ones((2, 8, 16), np.float32)
        y, w = model(x, outputs=("out", "weights"))
        model.backward(np.ones_like(y))
        model.grads()
        model.state_dict()
        if i % 3 == 0:
            with self.assertRaises(attn.ArgumentError):
                layer(dtype=np.int8)
            with self.assertRaises(attn.ArgumentError):
                attn.build("self-attention", {"dim": 5, "heads": 2})
        return y

    def test_a_thousand_models(self):
        for i in range(200):
            self.use(i)
        gc.collect()
        before = resident()
        for i in range(1000):
            self.use(i)
        gc.collect()
        self.assertLess(resident() - before, 4 << 20)  # 1,000 models of 60 KB would be 60 MB

    def test_cycles_of_garbage_are_collected_in_any_order(self):
        for i in range(50):
            model = layer(seed=i)
            x = np.ones((2, 8, 16), np.float32)
            ring = {"y": model(x), "model": model, "state": model.state_dict(), "grads": model.grads()}
            ring["ring"] = ring
            model.ring = ring
        del ring, model
        gc.collect()

    def test_an_array_that_gets_the_memory_of_one_that_dies_keeps_the_context(self):
        model = layer(threads=1)
        context = model._context
        old, new = model(np.ones((2, 8, 16), np.float32)), []

        class Busy:  # another thread has the lock: it destroys the tensor, and its own result gets the same address
            def acquire(self, blocking):
                context.lock = lock
                new.append(attn._arrays._Memory(context, context._gone.popleft()))
                return False
        lock, context.lock = context.lock, Busy()
        del old
        gc.collect()
        self.assertEqual(len(new), 1)
        del model
        gc.collect()
        self.assertFalse(context._closed)
        new.clear()
        gc.collect()
        self.assertTrue(context._closed)

    def test_plans_are_kept_in_bounds(self):
        for t in range(1, 120):
            attn.attend(*(np.ones((1, t, 1, 4), np.float32) for _ in range(3)))
        from attn import _attend
        planner = _attend._planner(0)
        self.assertLessEqual(len(planner._plans), 32)
        held = planner.context.memory()[0]
        for t in range(1, 120):
            attn.attend(*(np.ones((1, t, 1, 4), np.float32) for _ in range(3)))
        self.assertEqual(planner.context.memory()[0], held)


class Threads(unittest.TestCase):
    def test_one_model_in_several_threads(self):
        model = layer(seed=3, threads=1)
        xs = [np.random.default_rng(i).standard_normal((3, 9, 16)).astype(np.float32) for i in range(4)]
        wanted = [model(x).copy() for x in xs]

        def work(i):
            for _ in range(60):
                np.testing.assert_array_equal(model(xs[i]), wanted[i])
        together(work)

    def test_no_grad_is_the_threads_own(self):
        model, x = layer(threads=1), np.ones((2, 8, 16), np.float32)
        inside, outside = threading.Event(), threading.Event()

        def other():
            with model.no_grad():
                inside.set()
                outside.wait()
        thread = threading.Thread(target=other)
        thread.start()
        inside.wait()
        try:
            model.backward(np.ones_like(model(x)))
            with model.no_grad():
                outside.set()
                thread.join()
        finally:
            outside.set()
        model.backward(np.ones_like(model(x)))  # the two left in the order of their entry

    def test_models_and_the_engine_side_by_side(self):
        x = np.random.default_rng(1).standard_normal((2, 40, 2, 16)).astype(np.float32)
        wanted = attn.attend(x, x, x, causal=True)

        def work(i):
            own = layer(seed=i, threads=1)
            for _ in range(20):
                got = attn.attend(x, x, x, causal=True, threads=1)
                self.assertLess(distance(got, wanted), 1e-6)
                y = own(x[:, :, 0])
                own.backward(np.ones_like(y))
        together(work)

    def test_results_may_die_in_other_threads(self):
        model = layer(threads=1)
        x = np.ones((2, 8, 16), np.float32)
        results = []

        def work(i):
            for _ in range(200):
                if i % 2:
                    results.append(model(x))
                elif results:
                    results.pop()
        together(work)
        results.clear()
        model(x)
        self.assertLess(model.memory()[0], 4 << 20)


if __name__ == "__main__":
    unittest.main()
