# SPDX-License-Identifier: MIT
"""Calls that would be silently wrong are refused with a message: copies of models, integers that would overflow, masks
that would be ignored."""
import copy
import os
import pickle
import tempfile
import unittest

import attn
import numpy as np

X = np.ones((2, 3, 2, 4), np.float32)


class Copies(unittest.TestCase):
    def test_models_are_neither_copied_nor_pickled(self):
        model = attn.build("detr-ffn", {"d": 4})
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            with self.assertRaisesRegex(TypeError, "save.directory"):
                way(model)
        self.assertEqual(model(X[:, :, 0]).shape, (2, 3, 4))  # the model still owns the library's memory


class Numbers(unittest.TestCase):
    def test_wide_windows_mean_no_limit(self):
        q = np.random.default_rng(1).standard_normal(X.shape).astype(np.float32)
        for window in (2**62, 2**63, 2**70, (2**62, 2**63), (None, 2**70), np.uint64(2**63)):
            np.testing.assert_array_equal(attn.attend(q, q, q, window=window), attn.attend(q, q, q))
        causal = attn.attend(q, q, q, causal=True)
        np.testing.assert_array_equal(attn.attend(q, q, q, window=(2**63, 5), causal=True), causal)

    def test_windows_that_are_none(self):
        for window in (-1, (1, -2), 1.5, (0.5, 1), (1, 2, 3), "ab"):
            with self.assertRaisesRegex(attn.ArgumentError, "window must be"):
                attn.attend(X, X, X, window=window)

    def test_threads(self):
        for threads in (-1, 1025, 2**31, 2**32 + 1, 2**40):
            with self.assertRaisesRegex(attn.ArgumentError, str(threads)):
                attn.attend(X, X, X, threads=threads)
            with self.assertRaisesRegex(attn.ArgumentError, str(threads)):
                attn.build("detr-ffn", {"d": 4}, threads=threads)

    def test_scale_and_fill_are_finite(self):
        for value in (1e39, -1e39, float("inf"), float("nan")):
            with self.assertRaisesRegex(attn.ArgumentError, "scale is"):
                attn.attend(X, X, X, scale=value)
            with self.assertRaisesRegex(attn.ArgumentError, "mask_fill"):
                attn.attend(X, X, X, mask_fill=value)
        double = X.astype(np.float64)
        self.assertTrue(np.isfinite(attn.attend(double, double, double, scale=1e39)).all())

    def test_lens_of_every_integer(self):
        for lens in (np.array([2**63, 1], np.uint64), np.array([2**62, 1]), [99, 1]):
            np.testing.assert_array_equal(attn.attend(X, X, X, key_lengths=lens), attn.attend(X, X, X, key_lengths=[3, 1]))
        keys = np.random.default_rng(1).standard_normal((2, 300, 2, 4)).astype(np.float32)
        wanted = attn.attend(X, keys, keys, key_lengths=[3, 1])
        for kind in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"):
            np.testing.assert_array_equal(attn.attend(X, keys, keys, key_lengths=np.array([3, 1], kind)), wanted)
        np.testing.assert_array_equal(attn.attend(X, keys, keys, key_lengths=np.array([-128, 127], "i1"))[0], 0 * X[0])

    def test_integers_without_a_sign(self):
        layer, x = attn.build("multi-head-attention", {"num_hiddens": 4, "num_heads": 2}), X[:, :, 0]
        np.testing.assert_array_equal(layer(x, x, x, np.array([3, 1], np.uint64)), layer(x, x, x, np.array([3, 1])))
        with self.assertRaisesRegex(attn.ArgumentError, "valid_lens holds 18446744073709551615"):
            layer(x, x, x, np.array([2**64 - 1, 1], np.uint64))

    def test_options_that_are_no_numbers(self):
        for name, values in (("scale", ("x", 1j, 2**2000, np.ones(2))), ("mask_fill", (None, 10**400)),
                             ("dropout", (None, "a")), ("seed", (None, 1.5))):
            for value in values:
                with self.subTest(name=name, value=str(value)[:20]):
                    with self.assertRaisesRegex(attn.ArgumentError, f"{name} is .* not "):
                        attn.attend(X, X, X, **{name: value})
        np.testing.assert_array_equal(attn.attend(X, X, X, dropout=0.5, seed=2**200 + 7),
                                      attn.attend(X, X, X, dropout=0.5, seed=7))


class Arrays(unittest.TestCase):
    def test_lists_with_holes(self):
        model = attn.build("detr-ffn", {"d": 4})
        for bad in ([[1.0, None]], [[2**70, 1]], [[1.0], [1.0, 2.0]], np.ones((2, 2), object)):
            with self.assertRaisesRegex(attn.ArgumentError, "^q holds"):
                attn.attend(bad, X, X)
            with self.assertRaisesRegex(attn.ArgumentError, "^x holds"):
                model(bad)
        for lens in ([None, 1], [2**70, 1]):
            with self.assertRaisesRegex(attn.ArgumentError, "key_lengths holds"):
                attn.attend(X, X, X, key_lengths=lens)

    def test_bfloat16_through_dlpack(self):
        try:
            import ml_dtypes
            import torch
        except ImportError:
            self.skipTest("PyTorch or ml_dtypes is not installed")

        class Foreign:
            """A tensor whose only interface is DLPack."""

            def __init__(self, tensor):
                self.__dlpack__, self.__dlpack_device__ = tensor.__dlpack__, tensor.__dlpack_device__

        x = torch.randn(2, 5, 3, 8).bfloat16()
        for tensor in (x, x.transpose(1, 2), x[:, 1:, :, :4], x[:0]):
            same = tensor.float().numpy().astype(ml_dtypes.bfloat16)
            wanted = attn.attend(same, same, same).astype(np.float32)
            for q in (tensor, Foreign(tensor)):
                got = attn.attend(q, q, q)
                self.assertEqual(got.dtype, ml_dtypes.bfloat16)
                np.testing.assert_array_equal(got.astype(np.float32), wanted)
        layer = attn.build("detr-ffn", {"d": 8})
        np.testing.assert_array_equal(layer(x[:, :, 0]), layer(x[:, :, 0].float()))

    def test_what_is_no_number(self):
        for bias in ([None], ["x"], [1j], [object()]):
            with self.assertRaisesRegex(attn.ArgumentError, "bias"):
                attn.attend(X, X, X, bias=bias)
            with self.assertRaisesRegex(attn.ArgumentError, "bias"):
                attn.attend(X, X, X, bias=np.array(bias))

    def test_what_would_be_lost(self):
        layer = attn.build("detr-ffn", {"d": 4})
        layer(X[:, :, 0])
        with self.assertRaisesRegex(attn.ArgumentError, "the gradient of 'out' is of complex64"):
            layer.backward(X[:, :, 0] * 1j)
        with self.assertRaisesRegex(attn.ArgumentError, "causal must be True"):
            attn.attend(X, X, X, causal=np.array([True, False]))

    def test_memory_that_is_not_aligned(self):
        layer = attn.build("detr-ffn", {"d": 4})
        x = X[:, :, 0].copy()
        odd = np.frombuffer(b"x" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
        self.assertFalse(odd.flags.aligned)
        np.testing.assert_array_equal(layer(odd), layer(x))
        self.assertTrue(attn._arrays.dense(odd).flags.aligned)

    def test_texts(self):
        for name in ("detr-ffn\0", "\ud800", 5, None, b"detr-ffn"):
            with self.assertRaisesRegex(attn.ArgumentError, "architecture (must be|is)"):
                attn.build(name, {"d": 4})
        with self.assertRaisesRegex(attn.ArgumentError, "precision is"):
            attn.build("detr-ffn", {"d": 4}, precision="f32\0")
        for name in ("linear1.weight\0x", "\ud800", 5):
            with self.assertRaisesRegex(attn.ArgumentError, "a name (must be|is)"):
                attn.build("detr-ffn", {"d": 4}, weights={name: X})
        with self.assertRaisesRegex(attn.ArgumentError, "cannot be encoded"):
            attn.load("\ud800")

    def test_what_would_broadcast(self):
        ids = np.zeros((2, 3), int)
        encoder = attn.build("transformer-encoder", {"vocab_size": 5, "num_hiddens": 4, "num_heads": 2, "segments": 2})
        for tokens, segments in (ids, ids[:1]), (ids, ids[:, :1]), (ids, ids[0]), (ids[:1], ids), (ids[:, :1], ids):
            with self.assertRaisesRegex(attn.ShapeError, "segments: expected one for each token"):
                encoder(tokens, segments=segments)
        self.assertEqual(encoder(ids, segments=ids).shape, (2, 3, 4))
        layer, x = attn.build("detr-multi-head-attention", {"M": 2, "d": 4, "d_head": 3}), X[:, :, 0]
        with self.assertRaisesRegex(attn.ShapeError, r"p_q: expected \[1,1,4\] or \[2,1,4\], found \[2,3,4\]"):
            layer(x[:, :1], x, p_q=x)
        with self.assertRaisesRegex(attn.ShapeError, "expected 4 channels"):
            attn.build("positional-encoding", {"num_hiddens": 4})(x[..., :1])

    def test_masked_arrays(self):
        masked = np.ma.masked_array(X, X > 0)
        with self.assertRaisesRegex(attn.ArgumentError, "k is a masked array"):
            attn.attend(X, masked, X)
        with self.assertRaisesRegex(attn.ArgumentError, "mask is a masked array"):
            attn.attend(X, X, X, mask=np.ma.masked_array(np.ones((3, 3), bool)))
        with self.assertRaisesRegex(attn.ArgumentError, "x is a masked array"):
            attn.build("detr-ffn", {"d": 4})(masked[:, :, 0])

    def test_tensors_that_numpy_does_not_take(self):
        class Tensor:
            requires_grad, dtype = True, "torch.float32"

            def __dlpack__(self, **_):
                raise BufferError("on another device")

        tensor = Tensor()
        with self.assertRaisesRegex(attn.ArgumentError, r"q is a tensor that needs a gradient.*q\.detach"):
            attn.attend(tensor, X, X)
        tensor.requires_grad = False
        with self.assertRaisesRegex(attn.ArgumentError, "k, of Tensor, cannot be read as an array"):
            attn.attend(X, tensor, X)

    def test_tensors_of_pytorch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("PyTorch is not installed")
        q = torch.randn(2, 5, 2, 8)
        with self.assertRaisesRegex(attn.ArgumentError, "detach"):
            attn.attend(q.clone().requires_grad_(), q, q)
        negated = torch._neg_view(-q)
        np.testing.assert_array_equal(attn.attend(negated, negated, negated), attn.attend(q, q, q))
        layer = attn.build("detr-ffn", {"d": 8})
        np.testing.assert_array_equal(layer(negated[:, :, 0]), layer(q[:, :, 0]))
        brain = q.bfloat16()
        freed = q.clone()
        freed.untyped_storage().resize_(0)  # like modules that store their parameters elsewhere
        for tensor in (freed, torch._efficientzerotensor(q.shape)):
            with self.assertRaisesRegex(attn.ArgumentError, "the tensor has no memory"):
                attn.attend(tensor, tensor, tensor)
        try:
            import ml_dtypes
        except ImportError:
            with self.assertRaisesRegex(attn.ArgumentError, "ml_dtypes"):
                attn.attend(brain, brain, brain)
            return
        o = attn.attend(brain, brain, brain)
        self.assertEqual(o.dtype, ml_dtypes.bfloat16)
        close = attn.attend(*[brain.float().numpy()] * 3)
        self.assertLess(abs(o.astype(np.float32) - close).max(), 0.02)


class Paths(unittest.TestCase):
    def test_zero_bytes(self):
        model = attn.build("detr-ffn", {"d": 4})
        with tempfile.TemporaryDirectory() as folder:
            model.save(os.path.join(folder, "m"))
            for use in (lambda p: attn.load(p), lambda p: model.save(p), lambda p: attn.build("detr-ffn", {"d": 4}, p)):
                with self.assertRaisesRegex(attn.ArgumentError, "zero byte"):
                    use(os.path.join(folder, "m\0.x"))
            self.assertEqual(os.listdir(folder), ["m"])

    def test_settings_larger_than_the_weights(self):
        model = attn.build("positional-encoding", {"num_hiddens": 8})
        with tempfile.TemporaryDirectory() as folder:
            model.save(folder)
            path = os.path.join(folder, "config.json")
            with open(path) as file:
                text = file.read().replace("1000", "900000000")
            with open(path, "w") as file:
                file.write(text)
            with self.assertRaisesRegex(attn.ArgumentError, "more than [0-9]+ bytes"):
                attn.load(folder)


if __name__ == "__main__":
    unittest.main()
