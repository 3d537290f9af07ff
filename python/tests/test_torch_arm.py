# SPDX-License-Identifier: MIT
"""attn.torch on a machine that calls itself ARM: float32 is PyTorch's unless always=True.  Skipped without PyTorch; the part
of transformers without transformers."""
import importlib.util
import subprocess
import sys
import unittest

HAS = {name: importlib.util.find_spec(name) is not None for name in ("torch", "transformers")}

BEGIN = """
import platform
platform.machine = lambda: "aarch64"
import torch
import attn.torch
sdpa = torch.nn.functional.scaled_dot_product_attention
q = torch.randn(1, 2, 64, 16)
"""

ENABLE = BEGIN + """
attn.torch.enable()
sdpa(q, q, q); sdpa(q, q, q, is_causal=True)
print(attn.torch.calls(verbose=True))
sdpa(*[q.bfloat16()] * 3); sdpa(*[q.half()] * 3)
print(attn.torch.calls())
with attn.torch.enable(always=True):
    sdpa(q, q, q)
print(attn.torch.calls())
sdpa(q, q, q)
print(attn.torch.calls())
"""

DROPOUT_AND_FLEX = BEGIN + """
from torch.nn.attention.flex_attention import flex_attention
attn.torch.enable(linear=False)
sdpa(q, q, q, dropout_p=0.1)
torch.nn.MultiheadAttention(16, 2, dropout=0.1).train()(*[q[0]] * 3, need_weights=False)
print(attn.torch.calls(verbose=True))
wanted = flex_attention(q, q, q)
print(attn.torch.calls(verbose=True))
x = q.clone().requires_grad_()
flex_attention(x, x, x).sum().backward()
print(attn.torch.calls())
with attn.torch.enable(always=True):
    sdpa(q, q, q, dropout_p=0.1)
    assert (flex_attention(q, q, q) - wanted).abs().max() < 1e-5
print(attn.torch.calls())
"""

REGISTER = BEGIN + """
import transformers
def net(implementation, **options):
    torch.manual_seed(3)
    config = transformers.LlamaConfig(vocab_size=31, hidden_size=32, intermediate_size=40, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                                      attn_implementation=implementation)
    return transformers.LlamaForCausalLM(config).eval()
attn.torch.register()
ids, mask = torch.arange(12).reshape(2, 6), torch.ones(2, 6, dtype=torch.long)
mask[0, :2] = 0
with torch.no_grad():
    for given in (None, mask):
        wanted = net("eager")(ids, attention_mask=given).logits
        found = net("attn")(ids, attention_mask=given).logits
        seen = torch.ones_like(mask, dtype=torch.bool) if given is None else given.bool()
        assert (found - wanted)[seen].abs().max() < 1e-5
    print(attn.torch.calls(verbose=True))
    attn.torch.register(always=True)
    net("attn")(ids)
    print(attn.torch.calls())
    attn.torch.register()
    net("attn").bfloat16()(ids)
    print(attn.torch.calls())
"""


def lines_of(program):
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


@unittest.skipUnless(HAS["torch"], "torch is not installed")
class Arm(unittest.TestCase):
    REASON = "by PyTorch: float32 is not timed on ARM (always=True takes it)"

    def test_enable_leaves_float32_to_pytorch_and_always_takes_it(self):
        self.assertEqual(lines_of(ENABLE), ["0 by attn", f"2 {self.REASON}", "2", "3", "3"])

    def test_enable_leaves_dropout_and_flex_attention_without_gradients_in_float32_too(self):
        self.assertEqual(lines_of(DROPOUT_AND_FLEX), [
            "0 by attn", f"2 {self.REASON}", "0 by attn", f"2 {self.REASON}",
            "1 by PyTorch: flex_attention: float32 is not timed on ARM (always=True takes it)", "1", "3"])

    @unittest.skipUnless(HAS["transformers"], "transformers is not installed")
    def test_register_leaves_float32_to_pytorch_and_always_takes_it(self):
        self.assertEqual(lines_of(REGISTER), ["0 by attn", f"4 {self.REASON}", "2", "4"])


if __name__ == "__main__":
    unittest.main()
