# SPDX-License-Identifier: MIT
"""Optimized models in the hands of other programs: peft, pipelines, sentence-transformers, DDP and FSDP, compilers, workers.  The
right number, or an error in words."""
import copy
import inspect
import multiprocessing
import os
import tempfile
import threading
import unittest
import warnings

try:
    import torch
    import transformers
    from torch import nn
except ImportError:
    raise unittest.SkipTest("no PyTorch or no transformers here")

import attn
import attn.torch
from attn.torch._packed import PackedWeight

SMALL = {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
         "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
IDS = torch.tensor([[5, 9, 30, 12, 7, 44], [8, 3, 21, 60, 11, 9]])


def bert():
    torch.manual_seed(0)
    return transformers.BertModel(transformers.BertConfig(**{**SMALL, "initializer_range": 0.2})).eval()


def llama():
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**SMALL, "initializer_range": 0.2}, num_key_value_heads=2)).eval()


def gpt2():
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=61, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2,
                                     initializer_range=0.2)
    return transformers.GPT2LMHeadModel(config).eval()


def opt():
    """A layer calls its activation between other things, after a wrapper that checkpoints gradients."""
    torch.manual_seed(0)
    config = transformers.OPTConfig(vocab_size=61, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=64,
                                    max_position_embeddings=64, word_embed_proj_dim=32, pad_token_id=0, bos_token_id=1,
                                    eos_token_id=2, init_std=0.2)
    return transformers.OPTForCausalLM(config).eval()


def esm():
    """A layer writes its activation out in operations."""
    torch.manual_seed(0)
    config = transformers.EsmConfig(**{**SMALL, "initializer_range": 0.2}, mask_token_id=3, position_embedding_type="rotary",
                                    token_dropout=False)
    return transformers.EsmModel(config).eval()


MODELS = (bert, llama, gpt2, opt)


def of(model, ids=IDS):
    with torch.no_grad():
        return model(input_ids=ids)[0]


def relative(found, wanted):
    return ((found.double() - wanted.double()).abs().max() / wanted.double().abs().max()).item()


class Case(unittest.TestCase):
    def assertNear(self, found, wanted, bound=1e-5):
        self.assertLess(relative(found, wanted), bound)


def packed_count(model):
    return sum(isinstance(weight, PackedWeight) for weight in model.parameters())


class Peft(Case):
    def setUp(self):
        try:
            import peft
        except ImportError:
            self.skipTest("peft is not installed")
        self.peft = peft

    def adapted(self, model, *targets):
        """The model with LoRA whose matrices have random numbers."""
        config = self.peft.LoraConfig(r=4, lora_alpha=8, target_modules=list(targets) or "all-linear", lora_dropout=0.0,
                                      fan_in_fan_out=isinstance(model, transformers.GPT2LMHeadModel))
        found = self.peft.get_peft_model(model, config).eval()
        torch.manual_seed(5)
        with torch.no_grad():
            for name, weight in found.named_parameters():
                if "lora_" in name:
                    weight.copy_(0.3 * torch.randn_like(weight))
        return found

    def test_adapted_before_optimize(self):
        for make in MODELS:
            with self.subTest(make.__name__):
                model = self.adapted(make())
                found = attn.torch.optimize(model)
                self.assertGreater(packed_count(found), 4)
                self.assertNear(of(found), of(model))
                self.assertNear(of(found.merge_and_unload()), of(model))

    def test_adapted_after_optimize(self):
        for make in MODELS:
            for targets in ((), ("query",), ("dense",)) if make is bert else ((), ("c_attn",)) if make is gpt2 else ((), ("q_proj", "up_proj")):
                with self.subTest(make.__name__, targets=targets):
                    wanted = of(self.adapted(make(), *targets))
                    found = self.adapted(attn.torch.optimize(make()), *targets)
                    self.assertNear(of(found), wanted)
                    with found.disable_adapter():
                        self.assertNear(of(found), of(make()))
                    found.merge_adapter()
                    self.assertNear(of(found), wanted)
                    found.unmerge_adapter()
                    self.assertNear(of(found), wanted)
                    self.assertNear(of(found.merge_and_unload()), wanted)

    def test_rounded_weights_refuse_to_be_merged(self):
        for dtype in ("bf16", "int8"):
            found = self.adapted(attn.torch.optimize(bert(), dtype), "query")
            with self.assertRaisesRegex(attn.UnsupportedError, "rounded"):
                found.merge_and_unload()

    def test_training_of_adapters(self):
        model, found = self.adapted(bert()), self.adapted(attn.torch.optimize(bert()))
        for one in (model, found):
            one(input_ids=IDS)[0].sin().sum().backward()
        grads = {name: x.grad for name, x in model.named_parameters() if x.grad is not None}
        mine = {name: x.grad for name, x in found.named_parameters() if x.grad is not None}
        self.assertEqual(sorted(grads), sorted(mine))
        self.assertTrue(grads)
        for name, grad in grads.items():
            self.assertNear(mine[name], grad, 1e-4)


class Hooks(Case):
    def test_a_hook_sees_the_layers_own_result(self):
        for make in MODELS:
            model = make()
            found = attn.torch.optimize(model)
            for name, module in model.named_modules():
                if not isinstance(module, (nn.Linear, transformers.pytorch_utils.Conv1D)):
                    continue
                with self.subTest(make.__name__, layer=name):
                    seen = []
                    handles = [one.get_submodule(name).register_forward_hook(lambda _, given, result: seen.append((given[0], result)))
                               for one in (model, found)]
                    results = of(found), of(model)
                    for handle in handles:
                        handle.remove()
                    self.assertNear(*results)
                    self.assertEqual(len(seen), 2)
                    for one, other in zip(*seen):
                        self.assertNear(one, other)

    def test_a_hook_changes_the_result(self):
        for make in MODELS:
            model = make()
            found = attn.torch.optimize(model)
            for name, module in model.named_modules():
                if isinstance(module, (nn.Linear, transformers.pytorch_utils.Conv1D)):
                    with self.subTest(make.__name__, layer=name):
                        handles = [one.get_submodule(name).register_forward_hook(lambda _, __, result: 0.5 * result)
                                   for one in (model, found)]
                        results = of(found), of(model)
                        for handle in handles:
                            handle.remove()
                        self.assertNear(*results)

    def test_a_replaced_layer_counts(self):
        for make in MODELS:
            model = make()
            found = attn.torch.optimize(model)
            for name, module in list(model.named_modules()):
                if isinstance(module, (nn.Linear, transformers.pytorch_utils.Conv1D)):
                    with self.subTest(make.__name__, layer=name):
                        mine = found.get_submodule(name)
                        other = copy.deepcopy(module)
                        with torch.no_grad():
                            other.weight.mul_(-0.5)
                        parent, _, last = name.rpartition(".")
                        for one in (model, found):
                            setattr(one.get_submodule(parent), last, other)
                        results = of(found), of(model)
                        setattr(model.get_submodule(parent), last, module)
                        setattr(found.get_submodule(parent), last, mine)
                        self.assertNear(*results)
                        self.assertNear(of(found), of(model))

    def test_a_written_weight_counts(self):
        def scale(weight):
            weight.mul_(-0.5)

        def data(weight):
            weight.data = weight.data * -0.5

        def copied(weight):
            weight.copy_(weight.clone() * -0.5)
        for make in MODELS:
            for write in (scale, data, copied):
                model = make()
                found = attn.torch.optimize(model)
                for name, module in model.named_modules():
                    if isinstance(module, (nn.Linear, transformers.pytorch_utils.Conv1D)):
                        with self.subTest(make.__name__, layer=name, write=write.__name__), torch.no_grad():
                            for one in (model, found):
                                layer = one.get_submodule(name)
                                write(layer.weight)
                                if layer.bias is not None:
                                    layer.bias.add_(0.25)
                            self.assertNear(of(found), of(model))

    def test_parametrizations(self):
        from torch.nn.utils import parametrizations, parametrize
        for make in (bert, llama):
            model = make()
            for module in list(model.modules()):
                if isinstance(module, nn.Linear) and module.in_features == 64:
                    parametrizations.weight_norm(module)
            self.assertNear(of(attn.torch.optimize(model)), of(model))
        found, model = attn.torch.optimize(bert()), bert()

        class Half(nn.Module):
            def forward(self, weight):
                return 0.5 * weight
        for one in (found, model):
            layer = one.encoder.layer[0].intermediate.dense
            try:
                parametrize.register_parametrization(layer, "weight", Half())
            except attn.UnsupportedError as error:
                self.assertIs(one, found)
                self.assertIn("packed weight", str(error))
                return
        self.assertNear(of(found), of(model))

    def test_spectral_norm_and_pruning(self):
        from torch.nn.utils import prune
        model, found = bert(), attn.torch.optimize(bert())
        for one in (model, found):
            prune.l1_unstructured(one.encoder.layer[1].output.dense, "weight", 0.5)
            prune.l1_unstructured(one.encoder.layer[0].attention.self.query, "weight", 0.5)
        self.assertNear(of(found), of(model))


class Parts(Case):
    def test_parts_of_a_layer_may_be_called_by_keyword(self):
        for model, of in ((llama(), lambda m: m.model.layers[0].mlp), (esm(), lambda m: m.encoder.layer[0].intermediate)):
            part, x = of(model), torch.randn(2, 3, 32)
            name = next(iter(inspect.signature(part.forward).parameters))
            with torch.no_grad():
                self.assertNear(attn.torch.optimize(part)(**{name: x}), part(x))


    def test_an_activation_in_operations(self):
        """As in ESM: a hook gets the layer's own result, and another layer takes the place of the packed one."""
        part, x = esm().encoder.layer[0].intermediate, torch.randn(2, 3, 32)
        found, seen = attn.torch.optimize(part), []
        self.assertIn("1 with the activation behind them", attn.torch.report(found))
        with torch.no_grad():
            self.assertNear(found(x), part(x))
            handle = found.dense.register_forward_hook(lambda _, __, y: seen.append(y))
            self.assertNear(found(x), part(x))
            self.assertNear(seen[0], part.dense(x))
            handle.remove()
            found.dense = part.dense = nn.Linear(32, 64)
            self.assertNear(found(x), part(x))
            self.assertNear(copy.deepcopy(found)(x), part(x))


class Programs(Case):
    def tokenizer(self, folder):
        from transformers import BertTokenizerFast
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", *("##" + x for x in "abcdefghijklmnopqrstuvwxyz")]
        path = os.path.join(folder, "vocab.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(words) + "\n")
        return BertTokenizerFast(vocab_file=path, model_max_length=32)

    def test_pipelines(self):
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = self.tokenizer(folder)
        texts = ["attention", "a text", "is all you need"]
        torch.manual_seed(0)
        classifier = transformers.BertForSequenceClassification(transformers.BertConfig(**SMALL)).eval()
        generator = gpt2()
        found = transformers.pipeline("text-classification", attn.torch.optimize(classifier), tokenizer=tokenizer, device="cpu")(texts)
        wanted = transformers.pipeline("text-classification", classifier, tokenizer=tokenizer, device="cpu")(texts)
        self.assertEqual([one["label"] for one in found], [one["label"] for one in wanted])
        for one, other in zip(found, wanted):
            self.assertAlmostEqual(one["score"], other["score"], places=5)
        found, wanted = (transformers.pipeline("text-generation", one, tokenizer=tokenizer, device="cpu")("abc", max_new_tokens=6, do_sample=False)
                         for one in (attn.torch.optimize(generator), generator))
        self.assertEqual(found, wanted)
        features = [transformers.pipeline("feature-extraction", one, tokenizer=tokenizer, device="cpu", return_tensors=True)(texts)
                    for one in (attn.torch.optimize(bert()), bert())]
        for one, other in zip(*features):
            self.assertNear(one, other)

    def test_generation(self):
        for make in (llama, gpt2):
            model = make()
            for how in ({"num_beams": 3, "do_sample": False}, {"do_sample": False}, {"do_sample": False, "cache_implementation": "static"}):
                with self.subTest(make.__name__, **how):
                    how = {**how, "max_new_tokens": 7, "attention_mask": torch.ones_like(IDS), "pad_token_id": 0, "disable_compile": True}
                    self.assertTrue(torch.equal(attn.torch.optimize(model).generate(IDS, **how), model.generate(IDS, **how)))

    def test_sentence_transformers(self):
        try:
            from sentence_transformers import SentenceTransformer, models
        except ImportError:
            self.skipTest("sentence-transformers is not installed")
        with tempfile.TemporaryDirectory() as folder:
            bert().save_pretrained(folder)
            self.tokenizer(folder).save_pretrained(folder)
            word = models.Transformer(folder, max_seq_length=32)
            model = SentenceTransformer(modules=[word, models.Pooling(32)], device="cpu")
        texts = ["attention", "a text", "is all you need, and a longer one"]
        wanted = model.encode(texts, convert_to_tensor=True)
        self.assertNear(attn.torch.optimize(model).encode(texts, convert_to_tensor=True), wanted)
        found = attn.torch.optimize(model, inplace=True)
        self.assertIs(found, model)
        self.assertGreater(packed_count(model), 10)
        self.assertNear(model.encode(texts, convert_to_tensor=True), wanted)

    def test_compilers(self):
        for make in MODELS:
            with self.subTest(make.__name__):
                model = make()
                found = attn.torch.optimize(model)
                torch.compiler.reset()
                compiled = torch.compile(found, backend="aot_eager")
                self.assertNear(of(compiled), of(model))
                self.assertNear(of(compiled, IDS[:, :4]), of(model, IDS[:, :4]))

    def test_a_compiled_model_sees_a_written_weight(self):
        model, found = bert(), attn.torch.optimize(bert())
        torch.compiler.reset()
        compiled = torch.compile(found, backend="aot_eager")
        self.assertNear(of(compiled), of(model))
        with torch.no_grad():
            for one in (model, found):
                one.encoder.layer[0].intermediate.dense.weight.mul_(-0.5)
                one.encoder.layer[1].attention.self.key.weight.mul_(2)
        self.assertNear(of(compiled), of(model))

    def test_export(self):
        class First(nn.Module):
            def __init__(self, model):
                super().__init__()
                self.model = model

            def forward(self, ids):
                return self.model(input_ids=ids, use_cache=False)[0] if isinstance(self.model, transformers.GPT2LMHeadModel) \
                    else self.model(input_ids=ids)[0]
        for make in (bert, gpt2):
            with self.subTest(make.__name__), torch.no_grad():
                model = make()
                program = torch.export.export(First(attn.torch.optimize(model)), (IDS,))
                self.assertNear(program.module()(IDS), of(model))

    def test_inference_mode(self):
        for make in MODELS:
            model = make()
            with torch.inference_mode():
                found = attn.torch.optimize(model)
                inside = found(input_ids=IDS)[0].clone()
            self.assertNear(inside, of(model))
            self.assertNear(of(found), of(model))
            with torch.inference_mode():
                self.assertNear(attn.torch.optimize(model)(input_ids=IDS)[0], of(model))

    def test_weights_on_meta(self):
        with torch.device("meta"):
            model = transformers.BertModel(transformers.BertConfig(**SMALL))
        found = attn.torch.optimize(model)
        self.assertEqual(packed_count(found), 0)
        self.assertIn("on meta", attn.torch.report(found))
        moved = attn.torch.optimize(bert())
        try:
            moved.to("meta")
        except (attn.UnsupportedError, NotImplementedError, RuntimeError) as error:
            self.assertIn("attn", str(error))
        else:
            self.assertTrue(all(weight.device.type == "meta" for weight in moved.parameters()))
        found.to_empty(device="cpu")
        for one, other in zip(found.buffers(), bert().buffers()):
            one.copy_(other)  # those that a state dict does not have
        again = attn.torch.optimize(found)
        again.load_state_dict(bert().state_dict())
        self.assertNear(of(again), of(bert()))

    def test_shared_and_tied_weights(self):
        class Shared(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding, self.first, self.second = nn.Embedding(61, 32), nn.Linear(32, 61), nn.Linear(32, 61, bias=False)
                self.first.weight = self.second.weight = self.embedding.weight
                self.again = self.first

            def forward(self, ids):
                x = self.embedding(ids)
                return self.first(x) + self.second(x) + self.again(x)
        torch.manual_seed(0)
        model = Shared().eval()
        found = attn.torch.optimize(model)
        with torch.no_grad():
            self.assertNear(found(IDS), model(IDS))
            for one in (model, found):
                one.second.weight.mul_(0.5)
            self.assertNear(found(IDS), model(IDS))
            self.assertIs(found.first.weight, found.embedding.weight)
        between = nn.ModuleList([nn.Linear(32, 32), nn.Linear(32, 32)])
        between[1].weight = between[0].weight
        other = nn.Linear(32, 32)
        other.weight = between[0].weight
        found = attn.torch.optimize(between, inplace=True)
        with torch.no_grad():  # a module that is not of the model keeps the parameter that it had
            found[0].weight.zero_()
        self.assertGreater(float(other.weight.detach().abs().max()), 0)

    def test_two_threads(self):
        for make in MODELS:
            model = make()
            found, wanted, wrong = attn.torch.optimize(model), of(model), []

            def run():
                for _ in range(20):
                    if not relative(of(found), wanted) < 1e-5:
                        wrong.append(1)
            threads = [threading.Thread(target=run) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])


def _in_a_child(model, wanted, queue):
    torch.set_num_threads(1)  # as in a loader's worker: PyTorch's own operations wait for threads that a fork has not copied
    queue.put(relative(of(model), wanted))


class Processes(Case):
    def test_forked_workers(self):
        for make in MODELS:
            model = make()
            found, wanted = attn.torch.optimize(model), of(model)
            of(found)
            context = multiprocessing.get_context("fork")
            queue = context.Queue()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                child = context.Process(target=_in_a_child, args=(found, wanted, queue))
                child.start()
            error = queue.get(timeout=300)
            child.join()
            self.assertLess(error, 1e-5)


def _rank(rank, folder, kind, results):
    """A process of two: an optimized model, and steps of the original one under enable(), by DDP or FSDP."""
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/{kind}", rank=rank, world_size=2)
    try:
        results.put((rank, _stepped(kind), _optimized(kind)))
    finally:
        dist.destroy_process_group()


def _stepped(kind):
    """The largest difference of parameters after two steps by both ranks, with and without attn."""
    found = []
    for enabled in (False, True):
        model = bert()
        if kind == "ddp":
            model = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        else:
            from torch.distributed.fsdp import fully_shard
            for layer in model.encoder.layer:
                fully_shard(layer)
            fully_shard(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ids = IDS[torch.distributed.get_rank():][:1]
        for _ in range(2):
            optimizer.zero_grad()
            if enabled:
                with attn.torch.enable(always=True):
                    loss = model(input_ids=ids)[0].sin().mean()
                    loss.backward()
            else:
                loss = model(input_ids=ids)[0].sin().mean()
                loss.backward()
            optimizer.step()
        attn.torch.disable()
        found.append([p.full_tensor().detach() if hasattr(p, "full_tensor") else p.detach() for p in model.parameters()])
    return max(float((a - b).abs().max()) for a, b in zip(*found))


def _optimized(kind):
    """The error of an optimized model, or the words of an error."""
    model = bert()
    wanted, found = of(model), attn.torch.optimize(model)
    try:
        if kind == "ddp":
            found = nn.parallel.DistributedDataParallel(found)
        else:
            from torch.distributed.fsdp import fully_shard
            fully_shard(found)
        return relative(of(found), wanted)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


class Ranks(Case):
    def tried(self, kind):
        import torch.distributed as dist
        if not dist.is_available() or not dist.is_gloo_available():
            self.skipTest("PyTorch has no gloo here")
        context = multiprocessing.get_context("spawn")
        results = context.Queue()
        with tempfile.TemporaryDirectory() as folder:
            children = [context.Process(target=_rank, args=(rank, folder, kind, results)) for rank in range(2)]
            for child in children:
                child.start()
            found = [results.get(timeout=600) for _ in children]
            for child in children:
                child.join()
        for rank, stepped, optimized in found:
            self.assertLess(stepped, 1e-5)
        return [optimized for _, _, optimized in found]

    def test_ddp(self):
        for found in self.tried("ddp"):
            if isinstance(found, str):
                self.assertIn("requires a gradient", found)
            else:
                self.assertLess(found, 1e-5)

    def test_fsdp(self):
        for found in self.tried("fsdp"):
            if isinstance(found, str):
                self.assertIn("attn: ", found)
            else:
                self.assertLess(found, 1e-5)


class Autocast(Case):
    def test_parameters_are_cast_once_in_a_block(self):
        """PyTorch's autocast keeps the casts of float32 parameters until its block ends."""
        from torch.profiler import ProfilerActivity, profile

        def casts(enabled):
            torch.manual_seed(0)
            layer, x = nn.Linear(96, 80), torch.randn(64, 96)
            with profile(activities=[ProfilerActivity.CPU]) as seen, torch.autocast("cpu", dtype=torch.bfloat16):
                for _ in range(5):
                    if enabled:
                        with attn.torch.enable(always=True):
                            y = layer(x)
                    else:
                        y = layer(x)
            attn.torch.disable()
            y.float().sum().backward()
            self.assertEqual(layer.weight.grad.dtype, torch.float32)
            return sum(event.count for event in seen.key_averages() if event.key == "aten::_to_copy"), layer.weight.grad
        own, mine = casts(False), casts(True)
        self.assertEqual(mine[0], own[0])
        self.assertNear(mine[1], own[1], 1e-2)

    def test_optimized_weights_are_not_cast(self):
        from torch.profiler import ProfilerActivity, profile
        found = attn.torch.optimize(nn.Linear(96, 80), "bf16")
        x = torch.randn(64, 96)
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16), profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
            found(x)
        shapes = [event.input_shapes[0] for event in seen.events() if event.name == "aten::_to_copy"]
        self.assertNotIn([80, 96], shapes)


if __name__ == "__main__":
    unittest.main()
