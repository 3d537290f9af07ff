# SPDX-License-Identifier: MIT
"""attn.torch.optimize: packed weights against PyTorch in float64, and every way to read, write, copy and store them."""
import copy
import io
import pickle
import unittest

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:
    raise unittest.SkipTest("no PyTorch here")

import attn.torch
from attn.torch._packed import PackedWeight
from together import together


def relative(found, wanted):
    return ((found.double() - wanted.double()).abs().max() / wanted.double().abs().max().clamp(min=1e-30)).item()


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(70, 96), nn.GELU(), nn.Linear(96, 33, bias=False)).eval()


X = torch.randn(2, 5, 70, generator=torch.Generator().manual_seed(1))
BOUNDS = ((None, 1e-6), ("bf16", 1e-2), (torch.bfloat16, 2e-2), ("int8", 4e-2))


class Layers(unittest.TestCase):
    def test_equals_float64(self):
        model = network()
        wanted = copy.deepcopy(model).double()(X.double())
        for dtype, bound in BOUNDS:
            found = attn.torch.optimize(model, dtype)
            x = X.bfloat16() if dtype is torch.bfloat16 else X
            with torch.no_grad():
                for given in (x, x[0], x[0, 0], x[:, :0], x.transpose(0, 1), x[..., :69].new_zeros(3, 140)[:, ::2]):
                    y = found(given)
                    self.assertEqual((y.dtype, y.shape), (given.dtype, (*given.shape[:-1], 33)))
                self.assertLess(relative(found(x), wanted), bound, dtype)
            self.assertIsInstance(found[0].weight, PackedWeight)
            self.assertIsInstance(found[0].weight, nn.Parameter)
            self.assertIsNot(type(model[0].weight), PackedWeight)

    def test_half(self):
        model = network().half()
        found = attn.torch.optimize(model)
        with torch.no_grad():
            self.assertLess(relative(found(X.half()), copy.deepcopy(model).double()(X.half().double())), 4e-3)
        self.assertTrue(torch.equal(found.state_dict()["0.weight"], model[0].weight))

    def test_in_place_and_eval(self):
        model = network().train()
        self.assertIs(attn.torch.optimize(model, inplace=True), model)
        self.assertFalse(model.training)
        self.assertIsInstance(model[2].weight, PackedWeight)

    def test_report(self):
        model = nn.Sequential(network(), nn.LSTM(4, 4), nn.Linear(3, 3).double())
        text = attn.torch.report(attn.torch.optimize(model, "bf16"))
        for words in ("2 linear layers packed", "Linear, packed as bf16", "LSTM multiplies by a kernel of PyTorch's own",
                      "Linear: weight is of torch.float64"):
            self.assertIn(words, text)
        self.assertIn("2 left as they are", text)
        self.assertIn("Linear: not packed", attn.torch.report(network()))

    def test_layers_that_are_left(self):
        class Own(nn.Linear):
            def forward(self, x):
                return super().forward(x) + self.weight.sum()
        model = nn.Sequential(Own(4, 4), nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.Linear(4, 4, device="meta"),
                              nn.Linear(4, 0))
        found = attn.torch.optimize(model)
        for module in found.modules():
            for weight in module._parameters.values():
                self.assertNotIsInstance(weight, PackedWeight)
        bad = nn.Linear(4, 4)
        with torch.no_grad():
            bad.weight[1, 1] = float("inf")
        self.assertNotIsInstance(attn.torch.optimize(bad, "int8").weight, PackedWeight)
        wanted, found = bad(torch.ones(2, 4)), attn.torch.optimize(bad)(torch.ones(2, 4))
        self.assertTrue(torch.equal(wanted.isinf(), found.isinf()))

    def test_bad_arguments(self):
        with self.assertRaisesRegex(ValueError, "dtype is 'int4'; expected None, \"f32\""):
            attn.torch.optimize(network(), "int4")
        with self.assertRaisesRegex(ValueError, "dtype is torch.float16"):
            attn.torch.optimize(network(), torch.float16)
        with self.assertRaisesRegex(ValueError, "expected a torch.nn.Module"):
            attn.torch.optimize(torch.ones(3))


    def test_float32_is_the_default_and_converts_a_model_of_another_type(self):
        for model in (network(), network().bfloat16(), network().double()):
            whole = attn.torch.optimize(model, torch.float32)
            self.assertEqual((whole[0].weight.dtype, whole[0].weight.form), (torch.float32, "f32"))
            with torch.no_grad():
                self.assertTrue(torch.equal(whole(X), attn.torch.optimize(copy.deepcopy(model).float())(X)))
        packed = attn.torch.optimize(network(), "f32")
        with torch.no_grad():
            self.assertTrue(torch.equal(packed(X), attn.torch.optimize(network())(X)))
        self.assertIn("2 Linear, packed as f32", attn.torch.report(packed))
        half = attn.torch.optimize(network().bfloat16(), "f32")[0].weight
        self.assertEqual((half.dtype, half.form), (torch.bfloat16, "f32"))

    def test_an_optimizer_is_refused_with_what_there_is_for_training(self):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for call in (lambda: attn.torch.optimize(model, optimizer=optimizer), lambda: attn.torch.optimize(model, None, optimizer)):
            with self.assertRaisesRegex(TypeError, "makes models for inference.*attn.torch.enable"):
                call()
        self.assertIsInstance(attn.torch.optimize(model, optimizer=None)[0].weight, PackedWeight)


class Weights(unittest.TestCase):
    """Reading and writing."""

    def setUp(self):
        self.model = network()
        self.found = attn.torch.optimize(self.model)
        self.weight, self.plain = self.found[0].weight, self.model[0].weight

    def check(self):
        with torch.no_grad():
            self.assertTrue(torch.equal(self.weight.dense(), self.plain))
            self.assertLess(relative(self.found(X), copy.deepcopy(self.model).double()(X.double())), 1e-6)

    def test_reads_as_before(self):
        weight, plain = self.weight, self.plain
        self.assertEqual((weight.shape, weight.dtype, weight.device, weight.numel(), weight.stride()),
                         (plain.shape, plain.dtype, plain.device, plain.numel(), plain.stride()))
        for read in (lambda w: w + 1, lambda w: w[3], lambda w: w[1:3, ::2], lambda w: w.t() * 2, lambda w: w.view(-1).sum(),
                     lambda w: w.norm(), lambda w: w.float(), lambda w: w.double(), lambda w: torch.cat([w, w]), lambda w: w.clone(),
                     lambda w: w.detach() - 1, lambda w: w.data.abs(), lambda w: w @ torch.eye(70), lambda w: w.reshape(2, -1) + 0,
                     lambda w: F.linear(torch.eye(70), w), lambda w: F.linear(torch.eye(70), w[:40]), lambda w: w.chunk(2)[1] + 0,
                     lambda w: torch.eye(96) @ w, lambda w: torch.einsum("ij,kj->ik", w, w)):
            with torch.no_grad():
                self.assertLess(relative(read(weight), read(plain)), 1e-6)
        self.assertEqual(weight.tolist(), plain.tolist())
        self.assertTrue((weight.detach().numpy() == plain.detach().numpy()).all())
        self.assertEqual(weight[0, 0].item(), plain[0, 0].item())

    def test_writes_are_packed(self):
        new = torch.randn_like(self.plain)
        with torch.no_grad():
            for write in (lambda w: w.mul_(2), lambda w: w.data.add_(1), lambda w: w.copy_(new), lambda w: w.zero_(),
                          lambda w: nn.init.constant_(w, 0.25), lambda w: w.t().mul_(3), lambda w: w.detach().sub_(new),
                          lambda w: w.__setitem__(3, 7.0), lambda w: w.__setitem__((slice(2), 1), new[:2, 1]),
                          lambda w: torch.add(new, 1, out=w), lambda w: w.clamp_(min=0), lambda w: torch._foreach_mul_([w], 2.0)):
                write(self.weight)
                write(self.plain)
                self.check()
            self.weight.data, self.plain.data = new.clone(), new.clone()
            self.check()
            merged = self.weight.data.clone()  # as peft merges
            merged += 1
            self.weight.data, self.plain.data = merged, self.plain.data + 1
            self.check()

    def test_writes_that_would_be_lost_are_refused(self):
        for write in (lambda w: w[3].fill_(1), lambda w: w.view(-1).add_(1), lambda w: w.reshape(-1).mul_(2), lambda w: w[:, 1].zero_(),
                      lambda w: w.detach().numpy().fill(3), lambda w: w.data_ptr(), lambda w: w.chunk(2)[0].zero_(),
                      lambda w: w.requires_grad_(), lambda w: setattr(w, "requires_grad", True),
                      lambda w: w.flatten().copy_(torch.ones(w.numel())), lambda w: torch.from_dlpack(w)):
            before = self.weight.dense()
            with torch.no_grad(), self.assertRaises((attn.Error, ValueError, RuntimeError)):
                write(self.weight)
            self.assertTrue(torch.equal(self.weight.dense(), before))
        with self.assertRaises(attn.UnsupportedError):
            self.found.requires_grad_(True)

    def test_every_method_that_writes(self):
        """Each in-place method of tensors: the packed weight has the numbers that a plain one gets, or keeps its own and raises."""
        other, rows = torch.rand(96, 70) + 0.1, torch.tensor([1, 3])
        given = ((), (2.0,), (other,), (other, other), (0.1, 0.9), (0, rows, 1.0), (0, rows, other[:2]), (other > 0.5, 1.0), (0, 1))
        names = [name for name in dir(torch.Tensor) if name.endswith("_") and not name.startswith("_") and not name.endswith("__")]
        same = 0
        with torch.no_grad():
            for name in names:
                for arguments in given:
                    weight, plain = copy.deepcopy(self.weight), self.plain.detach().clone()
                    torch.manual_seed(5)
                    try:
                        getattr(plain, name)(*arguments)
                    except (RuntimeError, TypeError, ValueError, IndexError):
                        continue
                    torch.manual_seed(5)
                    try:
                        getattr(weight, name)(*arguments)
                    except attn.Error:
                        plain = self.plain  # refused in words
                    else:
                        same += 1
                    self.assertTrue(torch.equal(weight.dense().nan_to_num(), plain.detach().nan_to_num()), name)
        self.assertGreater(same, 100)

    def test_views_have_the_numbers_of_their_time(self):
        views = [lambda w: w[3], lambda w: w.view(-1)[5:9], lambda w: w.t(), lambda w: w.chunk(2)[1], lambda w: w.unbind(0)[4],
                 lambda w: w.detach(), lambda w: w.data, lambda w: w[None, :, ::2].expand(2, -1, -1)]
        with torch.no_grad():
            made = [(view(self.weight), view(self.plain)) for view in views]
            for write in (lambda w: w.mul_(2), lambda w: w.copy_(torch.ones(96, 70)), lambda w: w.t().add_(1)):
                write(self.weight)
                write(self.plain)
                for one, other in made:
                    self.assertTrue(torch.equal(one + 0, other + 0))

    def test_rounded_weights_are_not_changed_in_place(self):
        for dtype in ("bf16", "int8"):
            found = attn.torch.optimize(self.model, dtype)
            with torch.no_grad():
                with self.assertRaisesRegex(attn.UnsupportedError, f"packed as {dtype}"):
                    found[0].weight.mul_(2)
                found[0].weight.copy_(self.plain * 2)  # all numbers are new
                self.assertLess(relative(found[0].weight.dense(), self.plain * 2), 1e-2)

    def test_replaced_weights(self):
        new = torch.randn(96, 70)
        self.found[0].weight = nn.Parameter(new)
        self.model[0].weight = nn.Parameter(new)
        with torch.no_grad():
            self.assertLess(relative(self.found(X), self.model(X)), 1e-6)
            y = torch.func.functional_call(self.found, {"0.weight": torch.zeros(96, 70)}, (X,))
            self.assertTrue(torch.equal(y[0, 0], y[1, 1]))

    def test_conversions(self):
        for convert, dtype, packed in ((lambda m: m.to("cpu"), torch.float32, True), (lambda m: m.float(), torch.float32, True),
                                       (lambda m: m.double(), torch.float64, False),
                                       (lambda m: m.to(torch.bfloat16), torch.bfloat16, False)):
            found, wanted = convert(copy.deepcopy(self.found)), convert(copy.deepcopy(self.model))
            self.assertEqual((found[0].weight.dtype, isinstance(found[0].weight, PackedWeight)), (dtype, packed))
            self.assertLess(relative(found(X.to(dtype)), wanted(X.to(dtype))), 1e-2 if dtype is torch.bfloat16 else 1e-6)


    def test_numbers_that_are_stored_with_the_other_sign(self):
        other = torch._neg_view(torch.randn(40, 70))
        model = nn.Linear(70, 40)
        with torch.no_grad():
            model.weight.copy_(other)
            model.bias.copy_(other[:, 0])
        written, made = attn.torch.optimize(nn.Linear(70, 40)), nn.Linear(70, 40)
        made.weight, made.bias = nn.Parameter(other), nn.Parameter(torch._neg_view(-model.bias.detach()))
        written.weight.data, written.bias = other, nn.Parameter(torch._neg_view(-model.bias.detach()), False)
        with torch.no_grad():
            for found in (written, attn.torch.optimize(made)):
                self.assertLess(relative(found(X), model(X)), 1e-6)
                self.assertLess(relative(found(torch._neg_view(X)), model(-X)), 1e-6)

    def test_a_bias_on_another_device_is_an_error(self):
        found = attn.torch.optimize(nn.Linear(70, 40))
        found.bias = nn.Parameter(torch.empty(40, device="meta"), False)
        with self.assertRaises(RuntimeError), torch.no_grad():
            found(X)

    def test_a_write_between_forward_and_backward_is_an_error(self):
        found, x = attn.torch.optimize(nn.Linear(70, 40)), X.clone().requires_grad_()
        y = found(x)
        with torch.no_grad():
            found.weight.mul_(2)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            y.sum().backward()

    def test_weights_that_share_memory_with_another_tensor_stay_what_they_are(self):
        model = nn.ModuleList([nn.Linear(70, 70) for _ in range(6)]).eval()
        model[1].weight.data = model[0].weight.data
        model[2].register_buffer("part", model[2].weight.detach()[3:5])
        whole = torch.randn(140, 70)
        model[4].weight.data, model[5].weight.data = whole[:70], whole[70:]
        found = attn.torch.optimize(model, inplace=True)
        self.assertEqual([isinstance(one.weight, PackedWeight) for one in found], [False] * 3 + [True] * 3)
        self.assertIn("3 Linear: weight shares its memory with another tensor", attn.torch.report(found))
        with torch.no_grad():
            found[0].weight.zero_()
            self.assertTrue(torch.equal(found[1](X), found[1].bias.expand(2, 5, 70)))
            self.assertLess(relative(found[5](X), nn.functional.linear(X, whole[70:], found[5].bias)), 1e-6)

    def test_no_function_writes_through_a_memory_of_numbers(self):
        weight = attn.torch.optimize(nn.Linear(70, 40)).weight
        for write in (lambda: weight.apply_(abs), lambda: weight.map_(weight.dense(), max), lambda: weight.storage().fill_(0)):
            with self.assertRaises(attn.UnsupportedError):
                write()


class States(unittest.TestCase):
    """Copying, storing, loading."""

    def test_state_dict_has_the_original_tensors(self):
        model = network()
        state, wanted = attn.torch.optimize(model).state_dict(), model.state_dict()
        self.assertEqual(list(state), list(wanted))
        for one, other in zip(state.values(), wanted.values()):
            self.assertIs(type(one), torch.Tensor)
            self.assertTrue(torch.equal(one, other))
        other = network()
        other.load_state_dict(state)

    def test_a_bf16_models_state_dict(self):
        model = network().bfloat16()
        for found in (attn.torch.optimize(model), attn.torch.optimize(model.float(), "bf16")):  # float() is in place, and exact
            for one, other in zip(found.state_dict().values(), model.state_dict().values()):
                self.assertTrue(torch.equal(one.float(), other.float()))

    def test_rounded_state_dicts_are_refused(self):
        for dtype in ("bf16", "int8"):
            with self.assertRaisesRegex(attn.UnsupportedError, f"0.weight is packed as {dtype}"):
                attn.torch.optimize(network(), dtype).state_dict()

    def test_load_state_dict(self):
        for dtype, bound in BOUNDS:
            found, other = attn.torch.optimize(network(), dtype), network()
            with torch.no_grad():
                for parameter in other.parameters():
                    parameter.add_(torch.randn_like(parameter))
            found.load_state_dict(other.state_dict())
            x = X.bfloat16() if dtype is torch.bfloat16 else X
            self.assertIsInstance(found[0].weight, PackedWeight)
            self.assertLess(relative(found(x), other(X)), bound)

    def test_copies(self):
        for dtype, _ in BOUNDS:
            found = attn.torch.optimize(network(), dtype)
            x = X.bfloat16() if dtype is torch.bfloat16 else X
            stored = io.BytesIO()
            torch.save(found, stored)
            stored.seek(0)
            for copied in (copy.deepcopy(found), pickle.loads(pickle.dumps(found)), torch.load(stored, weights_only=False)):
                self.assertTrue(torch.equal(copied(x), found(x)))
                self.assertIsInstance(copied[0].weight, PackedWeight)
                self.assertIsInstance(copied[0].weight, nn.Parameter)
                with torch.no_grad():
                    copied[0].weight.zero_()
                self.assertFalse(torch.equal(copied(x), found(x)))

    def test_another_machines_packed_weight_is_refused(self):
        weight = attn.torch.optimize(network(), "int8")[0].weight
        weight._packed[9] ^= 1  # in what tells the orders of packed numbers apart
        with self.assertRaisesRegex(attn.UnsupportedError, "pack it again"):
            F.linear(X, weight)
        with self.assertRaisesRegex(attn.UnsupportedError, "pack it again"):
            pickle.loads(pickle.dumps(weight))

    def test_tied_weights(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head = nn.Embedding(50, 32), nn.Linear(32, 50, bias=False)
                self.head.weight = self.embed.weight

            def forward(self, ids):
                return self.head(self.embed(ids))
        model, ids = Model(), torch.tensor([[3, 49, 0], [7, 7, 1]])
        for dtype, bound in BOUNDS:
            found = attn.torch.optimize(model, dtype)
            self.assertIs(found.embed.weight, found.head.weight)
            self.assertLess(relative(found(ids), model(ids)), bound)
            self.assertIs(copy.deepcopy(found).embed.weight is found.embed.weight, False)
            again = copy.deepcopy(found)
            self.assertIs(again.embed.weight, again.head.weight)
            with torch.no_grad():
                again.head.weight.zero_()
                self.assertEqual(again.embed(ids).abs().max(), 0)
            with self.assertRaises((IndexError, RuntimeError, attn.Error)):
                found(torch.tensor([50]))


class Calls(unittest.TestCase):
    """Gradients, modes, compilers, threads."""

    def setUp(self):
        self.model = network()
        self.found = attn.torch.optimize(self.model)

    def test_gradient_of_the_input(self):
        gradients = []
        for model in (self.found, self.model):
            x = X.clone().requires_grad_()
            gradients.append(torch.autograd.grad(model(x).sin().sum(), x)[0])
        self.assertLess(relative(*gradients), 1e-5)

    def test_transforms(self):
        with torch.no_grad():
            self.assertLess(relative(torch.func.vmap(self.found)(X), self.model(X)), 1e-6)
        found, wanted = (torch.func.grad(lambda x, m=m: m(x).sin().sum())(X) for m in (self.found, self.model))
        self.assertLess(relative(found, wanted), 1e-5)
        with torch.no_grad():
            (_, found), (_, wanted) = (torch.func.jvp(m, (X,), (X * 2,)) for m in (self.found, self.model))
        self.assertLess(relative(found, wanted), 1e-5)

    def test_modes(self):
        with torch.inference_mode():
            self.assertLess(relative(self.found(X), self.model(X)), 1e-6)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            found, wanted = self.found(X), self.model(X)
            self.assertIs(found.dtype, wanted.dtype)
            self.assertLess(relative(found, wanted), 2e-2)

    def test_errors_are_pytorchs(self):
        for x in (torch.randn(3, 71), X.double(), X.long()):
            with self.assertRaises(RuntimeError) as ours:
                self.found(x)
            with self.assertRaises(RuntimeError) as theirs:
                self.model(x)
            self.assertEqual(str(ours.exception), str(theirs.exception))

    def test_compile_and_export(self):
        with torch.no_grad():
            wanted = self.model(X)
            self.assertLess(relative(torch.compile(self.found, backend="aot_eager", fullgraph=True)(X), wanted), 1e-6)
            compiled = torch.compile(self.found, backend="aot_eager", fullgraph=True)
            compiled(X)
            self.found[0].weight.mul_(2)  # after compiling
            self.model[0].weight.mul_(2)
            self.assertLess(relative(compiled(X), self.model(X)), 1e-6)

    def test_hooks(self):
        seen = []
        self.found[0].register_forward_hook(lambda module, given, out: seen.append(out.shape))
        self.found(X)
        self.assertEqual(seen, [(2, 5, 96)])

    def test_threads(self):
        wanted, found = self.found(X), [None] * 4

        def work(i):
            with torch.no_grad():
                for _ in range(50):
                    found[i] = self.found(X)
        together(work)
        for one in found:
            self.assertTrue(torch.equal(one, wanted))

    def test_under_enable(self):
        with attn.torch.enable(always=True), torch.no_grad():
            self.assertLess(relative(self.found(X), self.model(X)), 1e-6)


class Activations(unittest.TestCase):
    KINDS = (nn.ReLU(), nn.GELU(), nn.GELU(approximate="tanh"), nn.SiLU(), nn.Tanh(), nn.Sigmoid())

    def test_each_kind_is_part_of_the_layer(self):
        for activation in self.KINDS:
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(70, 40), copy.deepcopy(activation), nn.Linear(40, 8)).eval()
            wanted = copy.deepcopy(model).double()(X.double())
            for dtype, bound in BOUNDS:
                found = attn.torch.optimize(model, dtype)
                self.assertIn("1 with the activation behind them", attn.torch.report(found))
                x = X.bfloat16() if dtype is torch.bfloat16 else X
                with torch.no_grad():
                    self.assertLess(relative(found(x), wanted), bound)
                self.assertLess(relative(found(x.clone().requires_grad_()), wanted), bound)
                self.assertTrue(torch.equal(pickle.loads(pickle.dumps(found))(x), found(x)))
            self.assertLess(relative(attn.torch.optimize(model).double()(X.double()), wanted), 1e-12)
            gradients = []
            for one in (attn.torch.optimize(model), model):
                x = X.clone().requires_grad_()
                gradients.append(torch.autograd.grad(one(x).sin().sum(), x)[0])
            self.assertLess(relative(*gradients), 1e-5)
            with torch.no_grad():
                compiled = torch.compile(attn.torch.optimize(model), backend="aot_eager", fullgraph=True)
                self.assertLess(relative(compiled(X), wanted), 1e-6)

    def test_layers_of_a_sequential_alone_have_no_activation(self):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(70, 40), nn.ReLU(), nn.Linear(40, 8), nn.Sigmoid()).eval()
        found = attn.torch.optimize(model)
        self.assertIn("2 with the activation behind them", attn.torch.report(found))
        with torch.no_grad():
            for length in range(1, 5):
                self.assertLess(relative(found[:length](X), model[:length](X)), 1e-6)
                x = X
                for layer in list(found)[:length]:
                    x = layer(x)
                self.assertLess(relative(x, model[:length](X)), 1e-6)
            again = attn.torch.optimize(found)
            self.assertLess(relative(again(X), model(X)), 1e-6)
            self.assertIn("2 with the activation behind them", attn.torch.report(again))

    def test_hooks_and_modules_put_into_a_sequential_afterwards(self):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(70, 40), nn.ReLU(), nn.Linear(40, 8)).eval()
        found, seen = attn.torch.optimize(model), []
        with torch.no_grad():
            handle = found[0].register_forward_hook(lambda module, given, out: seen.append(out))
            self.assertLess(relative(found(X), model(X)), 1e-6)
            handle.remove()
            self.assertLess(relative(seen[0], model[0](X)), 1e-6)
            for one in (found, model):
                one[1] = nn.Tanh()
            self.assertLess(relative(found(X), model(X)), 1e-6)

    def test_what_is_not_the_layers_alone(self):
        shared, slow = nn.GELU(), nn.GELU()
        slow.register_forward_hook(lambda module, given, out: out * 2)
        model = nn.Sequential(nn.Linear(70, 70), shared, nn.Linear(70, 70), shared)
        found = attn.torch.optimize(model)
        self.assertLess(relative(found(X), model(X)), 1e-6)
        self.assertLess(relative(found[1](X), model[1](X)), 1e-6)
        for model in (nn.Sequential(nn.Linear(70, 70), slow), nn.Sequential(nn.Linear(70, 70), nn.PReLU()),
                      nn.Sequential(nn.Linear(70, 70), nn.Softplus()),
                      nn.Sequential(nn.Linear(70, 70), nn.LeakyReLU(0.3)), nn.Sequential(nn.Linear(70, 70), nn.Softmax(-1))):
            found = attn.torch.optimize(model)
            self.assertNotIn("activation", attn.torch.report(found))
            self.assertLess(relative(found(X), model(X)), 1e-6)


class Transformers(unittest.TestCase):
    """Modules of transformers, whose forward passes are read."""

    @classmethod
    def setUpClass(cls):
        try:
            import transformers
        except ImportError:
            raise unittest.SkipTest("no transformers here")
        cls.transformers = transformers

    def models(self):
        torch.manual_seed(0)
        t, small = self.transformers, {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2,
                                       "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0}
        yield t.LlamaForCausalLM(t.LlamaConfig(**small)), 2, 2, 5
        yield t.Qwen2ForCausalLM(t.Qwen2Config(**small)), 2, 2, 5
        yield t.GPT2LMHeadModel(t.GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=4)), 2, 0, 0
        yield t.T5EncoderModel(t.T5Config(vocab_size=50, d_model=32, d_kv=8, d_ff=56, num_layers=2, num_heads=4)), 2, 0, 5
        yield t.GemmaForCausalLM(t.GemmaConfig(**small, head_dim=8)), 2, 2, 0  # its norm multiplies by 1 + weight

    def test_activations_gated_pairs_and_norms(self):
        ids = torch.randint(1, 50, (2, 6))
        for model, activations, gates, norms in self.models():
            model.eval()
            for one in model.modules():
                if "Norm" in type(one).__name__:
                    nn.init.uniform_(one.weight, 0.5, 1.5)
            with torch.no_grad():
                wanted, eager = copy.deepcopy(model).double()(input_ids=ids)[0], model(input_ids=ids)[0]
                for dtype, bound in ((None, max(2 * relative(eager, wanted), 1e-6)), ("bf16", 2e-2), (torch.bfloat16, 4e-2), ("int8", 8e-2)):
                    found = attn.torch.optimize(model, dtype)
                    text = attn.torch.report(found)
                    for n, what in ((activations, "with the activation behind them"), (gates, "with the factor of a gated pair"),
                                    (norms, "norms in one pass")):
                        self.assertEqual(f"{n} {what}" in text, n > 0, text)
                    y = found(input_ids=ids)[0]
                    self.assertLess(relative(y, wanted), bound, (type(model), dtype))
                    for again in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
                        self.assertTrue(torch.equal(again(input_ids=ids)[0], y))
                        self.assertEqual([type(one) for one in again.modules()], [type(one) for one in found.modules()])
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                self.assertLess(relative(attn.torch.optimize(model)(input_ids=ids)[0], wanted), 4e-2)
            found = attn.torch.optimize(model)
            self.assertIs(found.double()(input_ids=ids)[0].dtype, torch.float64)
            self.assertLess(relative(found(input_ids=ids)[0], wanted), 1e-12)

    def test_state_dict_and_classes_stay(self):
        for model, *_ in self.models():
            found = attn.torch.optimize(model)
            wanted, state = model.state_dict(), found.state_dict()
            self.assertEqual(list(wanted), list(state))
            for name, x in wanted.items():
                self.assertTrue(torch.equal(x, state[name]), name)
            for one, other in zip(model.modules(), attn.torch.optimize(attn.torch.optimize(model)).modules()):
                self.assertIsInstance(other, type(one))

    def test_hooks_gradients_and_new_weights(self):
        model = next(self.models())[0].eval()
        x = torch.randn(3, 32)
        for hooked in ("gate_proj", "up_proj", "down_proj", "act_fn"):
            found = attn.torch.optimize(model)
            plain, layer = model.model.layers[0].mlp, found.model.layers[0].mlp
            for one in (plain, layer):
                handle = getattr(one, hooked).register_forward_hook(lambda module, given, out: out * 2)
                one.handle = handle
            with torch.no_grad():
                self.assertLess(relative(layer(x), plain(x)), 1e-6, hooked)
            plain.handle.remove()
        found = attn.torch.optimize(model)
        layer, plain = found.model.layers[0].mlp, model.model.layers[0].mlp
        with torch.no_grad():
            new = torch.randn_like(plain.up_proj.weight)
            layer.up_proj.weight.copy_(new)
            changed = copy.deepcopy(plain)
            changed.up_proj.weight.copy_(new)
            self.assertLess(relative(layer(x), changed(x)), 1e-6)
            norm, other = found.model.norm, model.model.norm
            for change in (lambda one: one.weight.mul_(3), lambda one: one.weight.data.numpy().__setitem__(2, 5.0),
                           lambda one: setattr(one, "variance_epsilon", 0.25)):
                change(norm), change(other)
                self.assertLess(relative(norm(x), other(x)), 1e-6)
            self.assertLess(relative(norm(x.t().contiguous().t()), other(x)), 1e-6)
            self.assertIs(norm(x.double()).dtype, torch.float64)
        gradients = []
        for one in (layer, changed):
            given = x.clone().requires_grad_()
            gradients.append(torch.autograd.grad(one(norm(given)).sin().sum(), given)[0])
        self.assertLess(relative(*gradients), 1e-5)
        with torch.no_grad():
            compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
            self.assertLess(relative(compiled(x), changed(x)), 1e-6)


class PyTorchsModules(unittest.TestCase):
    def test_multi_head_attention(self):
        torch.manual_seed(0)
        q, k, v = torch.randn(3, 5, 32), torch.randn(3, 7, 32), torch.randn(3, 7, 32)
        for batch_first, form, near in ((True, None, 2e-6), (False, None, 2e-6), (True, "bf16", 2e-2), (True, "int8", 5e-2)):
            layer = nn.MultiheadAttention(32, 4, batch_first=batch_first).eval()
            nn.init.normal_(layer.in_proj_bias)
            found = attn.torch.optimize(layer, form)
            self.assertIsInstance(found.in_proj_weight, PackedWeight)
            for given in ((q, q, q), (q, k, k), (q, k, v)):
                queries, keys = given[0].shape[1], given[1].shape[1]
                hidden, sums = torch.rand(queries, keys) > 0.6, torch.randn(12, queries, keys)
                padding = torch.arange(keys) >= torch.tensor([[keys], [keys - 2], [keys - 1]])
                hidden[:, 0] = False
                for mask in (None, hidden, sums):
                    for pad in (None, padding):
                        for options in ({"need_weights": False}, {}, {"average_attn_weights": False}):
                            options = {**options, "attn_mask": mask, "key_padding_mask": pad}
                            turned = {id(x): x if batch_first else x.transpose(0, 1) for x in given}
                            inputs = [turned[id(x)] for x in given]  # the same tensors are the same still
                            with torch.no_grad(), self.subTest(form=form, **options):
                                one, other = found(*inputs, **options), layer(*inputs, **options)
                                self.assertLess(relative(one[0], other[0]), near)
                                self.assertEqual(one[1] is None, other[1] is None)
                                if one[1] is not None:
                                    self.assertLess(relative(one[1], other[1]), near)

    def test_rows_of_a_weight_follow_what_is_written_to_it(self):
        torch.manual_seed(0)
        q, k = torch.randn(2, 5, 32), torch.randn(2, 7, 32)
        layer, other = (nn.MultiheadAttention(32, 4, batch_first=True).eval() for _ in range(2))
        found = attn.torch.optimize(layer)
        with torch.no_grad():
            found(q, k, k, need_weights=False)
            found.load_state_dict(other.state_dict())
            self.assertLess(relative(found(q, k, k, need_weights=False)[0], other(q, k, k, need_weights=False)[0]), 2e-6)
            found.in_proj_weight.mul_(2)
            other.in_proj_weight.mul_(2)
            self.assertLess(relative(found(q, k, k, need_weights=False)[0], other(q, k, k, need_weights=False)[0]), 2e-6)

    def test_a_mask_of_a_wrong_shape_is_refused_in_pytorchs_words(self):
        layer, x = nn.MultiheadAttention(32, 4, batch_first=True).eval(), torch.randn(2, 5, 32)
        for one in (layer, attn.torch.optimize(layer)):
            with self.assertRaisesRegex(RuntimeError, "attn_mask"), torch.no_grad():
                one(x, x, x, attn_mask=torch.zeros(4, 5))

    def test_transformer_encoder(self):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        model, x = nn.TransformerEncoder(layer, 2).eval(), torch.randn(2, 6, 32)
        padding = torch.tensor([[0, 0, 0, 0, 1, 1], [0] * 6]).bool()
        found = attn.torch.optimize(model)
        with torch.no_grad():
            self.assertLess(relative(found(x), model(x)), 2e-6)
            one, other = (m(x, src_key_padding_mask=padding) for m in (found, model))
            self.assertLess(relative(one[:, :4], other[:, :4]), 2e-6)
        with torch.inference_mode():
            self.assertLess(relative(found(x), model(x)), 2e-6)

    def test_feed_forward_parts_have_their_activation_in_the_product(self):
        torch.manual_seed(0)
        x, memory = torch.randn(2, 6, 32), torch.randn(2, 9, 32)
        for activation in ("relu", "gelu", nn.SiLU(), torch.tanh):
            for norm_first in (False, True):
                model = nn.Transformer(32, 4, 1, 1, 64, activation=activation, norm_first=norm_first, batch_first=True).eval()
                found = copy.deepcopy(attn.torch.optimize(model))
                taken = activation is not torch.tanh
                self.assertEqual("with the activation behind them" in attn.torch.report(found), taken)
                with torch.no_grad():
                    self.assertLess(relative(found(memory, x), model(memory, x)), 2e-6)
                    calls = []
                    found.encoder.layers[0].linear1.register_forward_hook(lambda _, __, y: calls.append(float(y.min())))
                    found(memory, x)
                self.assertLess(calls[0], -0.5)  # a hook gets the layer's own result


if __name__ == "__main__":
    unittest.main()
