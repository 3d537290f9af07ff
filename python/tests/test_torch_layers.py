# SPDX-License-Identifier: MIT
"""attn.torch.Layer for every architecture: parameters under the originals' names, outputs and gradients against the formulas
of tests/parity in PyTorch's float64, state_dict there and back, and an optimizer's step.  Skipped where there is no
PyTorch, or no repository around the package.  ATTN_LONG=1 tries more cases."""
import contextlib
import copy
import io
import os
import pickle
import sys
import unittest

import numpy as np

try:
    import torch
except ImportError:
    raise unittest.SkipTest("no PyTorch here") from None

PARITY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "parity")
if not os.path.isdir(PARITY):
    raise unittest.SkipTest("tests/parity is not here")
sys.path.insert(0, PARITY)
import layers  # noqa: E402
import make_case  # noqa: E402
import models  # noqa: E402

import attn  # noqa: E402
import attn.torch  # noqa: E402

SEEDS = range(8 if os.environ.get("ATTN_LONG") else 1)
# Deep networks with small batches, whose norms amplify rounding in every block.
# Separate scripts in tests/parity compare these with the originals.
MODELS = ("seq2seq-attention", "detr", "resnet")
LOOSE = {"axial-resnet": 1e-6, "sasa-resnet": 1e-6, "non-local-net": 1e-6}


def draw(name, seed):
    """Config, whether batch statistics count, weights and inputs as float64 arrays, and what the formula gives: outputs and
    gradients of the first, for the gradient dout."""
    rng = np.random.default_rng(seed)
    config, weights, inputs, forward = layers.LAYERS[name](rng)
    weights = {key: np.asarray(x, np.float64) for key, x in weights.items()}
    inputs = {key: np.asarray(x, np.float64) for key, x in inputs.items()}
    shape = layers.evaluate(forward, weights, inputs, None, torch.float64)
    dout = rng.standard_normal(shape)
    own = {key: value for key, value in config.items() if key not in ("dtype", "train")}
    return own, bool(config.get("train")), weights, inputs, dout, layers.evaluate(forward, weights, inputs, dout, torch.float64)


def given(inputs):
    return {name: torch.from_numpy(np.asarray(x, np.float64)).requires_grad_() if name not in layers.INTEGERS
            else np.asarray(x).astype(np.int64) for name, x in inputs.items()}


class Architectures(unittest.TestCase):
    def close(self, got, wanted, bound, **what):
        with self.subTest(**what):
            wanted = torch.from_numpy(np.array(wanted, np.float64))
            self.assertEqual(got.shape, wanted.shape)
            self.assertLessEqual(float((got - wanted).abs().max()), bound * max(float(wanted.abs().max()), 1e-3))

    def test_all_are_here(self):
        self.assertEqual(set(attn.architectures()), {*layers.LAYERS, *MODELS})

    def test_against_formulas(self):
        for name in layers.LAYERS:
            for seed in SEEDS:
                config, train, weights, inputs, dout, (outputs, of_weights, of_inputs) = draw(name, seed)
                layer = attn.torch.Layer(name, config, dtype=torch.float64).train(train)
                self.assertEqual(set(layer.state_dict()), set(weights), name)
                layer.load_state_dict({key: torch.from_numpy(x) for key, x in weights.items()})
                x = given(inputs)
                found = layer(**x, outputs=list(outputs))
                found = found if isinstance(found, tuple) else (found,)
                bound = LOOSE.get(name, 1e-9)
                for (key, wanted), got in zip(outputs.items(), found):
                    self.close(got.detach(), wanted, bound, layer=name, seed=seed, output=key)
                if not found[0].requires_grad:
                    continue  # positions, and layers with neither parameters nor real inputs
                found[0].backward(torch.from_numpy(dout))
                parameters = dict(layer.named_parameters())
                peak = max((float(np.abs(g).max()) for g in (*of_weights.values(), *of_inputs.values()) if g.size), default=0)
                for key, wanted in of_weights.items():
                    if key in parameters:
                        got = parameters[key].grad
                        got = torch.zeros(wanted.shape, dtype=torch.float64) if got is None else got
                        self.assertLessEqual(float((got - torch.from_numpy(wanted)).abs().max()), bound * peak,
                                             (name, seed, "gradient of", key))
                for key, wanted in of_inputs.items():
                    got = x[key].grad
                    got = torch.zeros(wanted.shape, dtype=torch.float64) if got is None else got
                    self.assertLessEqual(float((got - torch.from_numpy(wanted)).abs().max()), bound * peak,
                                         (name, seed, "gradient of", key))

    def test_saved_and_trained(self):
        """The state, loaded into another layer, gives the same bits in eval(); an optimizer's step changes the
        results."""
        for name in layers.LAYERS:
            config, _, weights, inputs, _, _ = draw(name, 0)
            layer, other = (attn.torch.Layer(name, config, seed=seed, dtype=torch.float64) for seed in (1, 2))
            layer.load_state_dict({key: torch.from_numpy(x) for key, x in weights.items()})
            other.load_state_dict(layer.state_dict())
            x = given(inputs)
            with self.subTest(layer=name), torch.no_grad():
                first, second = (one.eval()(**x) for one in (layer, other))
                first, second = ((x[0] if isinstance(x, tuple) else x) for x in (first, second))
                self.assertTrue(torch.equal(first, second))
                self.assertFalse(layer.training or layer.attn_model.training)
            if not list(layer.parameters()):
                continue
            with self.subTest(layer=name):
                optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
                found = layer.train()(**x)
                found = found[0] if isinstance(found, tuple) else found
                self.assertTrue(layer.attn_model.training)
                if not found.requires_grad:
                    continue
                found.square().sum().backward()
                moved = [p for p in layer.parameters() if p.grad is not None and bool(p.grad.any())]
                before = [p.detach().clone() for p in moved]
                optimizer.step()
                self.assertTrue(moved)
                self.assertTrue(any(not torch.equal(a, b) for a, b in zip(before, moved)))

    def test_results_may_be_changed_in_place(self):
        """With a residual connection `y += x` the gradients equal those of `y = y + x`."""
        for name in layers.LAYERS:
            config, _, weights, inputs, _, _ = draw(name, 0)
            layer = attn.torch.Layer(name, config, dtype=torch.float64).eval()
            layer.load_state_dict({key: torch.from_numpy(x) for key, x in weights.items()})
            gradients = []
            for in_place in (False, True):
                x = given(inputs)
                found = layer(**x, outputs=[layer.attn_model.architecture.outputs[0].name])
                if not found.requires_grad:
                    break
                found = found.mul_(3) if in_place else found * 3
                leaves = [leaf for leaf in (*x.values(), *layer.parameters()) if getattr(leaf, "requires_grad", False)]
                gradients.append(torch.autograd.grad(found.sin().sum(), leaves, allow_unused=True))
            for apart, own in zip(*gradients) if len(gradients) == 2 else ():
                with self.subTest(layer=name):
                    self.assertTrue(apart is own is None or torch.equal(apart, own))

    def test_an_output_asked_for_twice(self):
        layer = attn.torch.Layer("detr-ffn", {"d": 4}).eval()
        x = torch.randn(2, 3, 4, requires_grad=True)
        first, second = layer(x, outputs=("out", "out"))
        found, = torch.autograd.grad(first.sin().sum() + second.square().sum(), x)
        once = layer(x)
        wanted, = torch.autograd.grad(once.sin().sum() + once.square().sum(), x)
        self.assertTrue(torch.equal(found, wanted))

    def test_compiled_around(self):
        """torch.compile leaves a Layer unchanged, without a warning."""
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), attn.torch.Layer("detr-ffn", {"d": 4}), torch.nn.Tanh()).eval()
        x, words = torch.randn(2, 3, 4), io.StringIO()
        with contextlib.redirect_stderr(words):
            found = torch.compile(model, backend="aot_eager")(x)
        self.assertTrue(torch.equal(found, model(x)))
        self.assertEqual(words.getvalue(), "")

    def test_gradients_that_are_recorded(self):
        """create_graph returns the gradients; only their derivative is refused."""
        layer = attn.torch.Layer("detr-ffn", {"d": 4}).eval()
        x = torch.randn(2, 3, 4, requires_grad=True)
        wanted, = torch.autograd.grad(layer(x).sin().sum(), x)
        found, = torch.autograd.grad(layer(x).sin().sum(), x, create_graph=True)
        self.assertTrue(torch.equal(found.detach(), wanted))
        for second in (found.square().sum(), torch.autograd.grad(layer(x).sum(), x, create_graph=True)[0].sum()):
            with self.assertRaisesRegex(attn.UnsupportedError, "second derivative"):
                second.backward()

    def test_refusals(self):
        """Refused with a message: a second backward pass in train(), transforms without a rule, and copies."""
        layer = attn.torch.Layer("detr-ffn", {"d": 4})
        x = torch.randn(2, 3, 4, requires_grad=True)
        loss = layer(x).sum()
        loss.backward(retain_graph=True)
        with self.assertRaisesRegex(attn.UnsupportedError, "second backward pass through one call"):
            loss.backward()
        func = torch.func
        for call in (lambda: func.vmap(layer)(x), lambda: func.grad(lambda x: layer(x).sum())(x),
                     lambda: func.jvp(layer, (x,), (x,)), lambda: func.functionalize(layer)(x), lambda: torch.jit.trace(layer, x)):
            with self.assertRaisesRegex(attn.UnsupportedError, "Layer does not support"):
                call()
        with self.assertRaisesRegex(attn.UnsupportedError, "is_grads_batched"):
            torch.autograd.grad(layer(x), x, torch.ones(2, *x.shape), is_grads_batched=True)
        with self.assertRaisesRegex(attn.UnsupportedError, "plain tensors"):
            torch.export.export(layer, (x,))
        for call in (copy.deepcopy, copy.copy, pickle.dumps, torch.optim.swa_utils.AveragedModel):
            with self.assertRaisesRegex(TypeError, "Layer is neither copied nor pickled"):
                call(layer)

    def test_seq2seq(self):
        """The formula of tests/parity's models takes whole batches."""
        rng = np.random.default_rng(3)
        config = make_case.seq2seq_config(rng)
        exact = models.build(config, torch.float64)
        make_case.random_weights(config, exact, rng)
        layer = attn.torch.Layer("seq2seq-attention", {k: v for k, v in config.items() if k != "architecture"},
                                 dtype=torch.float64)
        self.assertEqual(set(layer.state_dict()), set(exact.state_dict()))
        layer.load_state_dict(exact.state_dict())
        batch = make_case.random_batch({**config, "tgt_pad": 0}, rng)
        tokens = [torch.from_numpy(batch[name]) for name in ("src", "src_valid_len", "tgt_in")]
        wanted, found = exact(*(x.long() for x in tokens)), layer(*tokens)
        self.close(found.detach(), wanted.detach().numpy(), 1e-9)
        wanted.sin().sum().backward()
        found.sin().sum().backward()
        for name, p in layer.named_parameters():
            self.close(p.grad, dict(exact.named_parameters())[name].grad.numpy(), 1e-9, gradient=name)


if __name__ == "__main__":
    unittest.main()
