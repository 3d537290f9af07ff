# SPDX-License-Identifier: MIT
"""PyTorch's scaled_dot_product_attention and ONNX Runtime's MultiHeadAttention on one dense problem."""
import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import measure


def operands(problem):
    """q, k, v and the output's gradient, [b,h,t,d] each."""
    generator = torch.Generator().manual_seed(1)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[problem.dtype]

    def make(rows):
        size = problem.batch, problem.heads, rows, problem.width
        return torch.randn(size, generator=generator).to(dtype)

    return [make(rows) for rows in (problem.queries, problem.keys, problem.keys, problem.queries)]


def pytorch(problem, direction, backend=None):
    """Milliseconds of PyTorch: by the path that it chooses itself, or by the backend given."""
    q, k, v, grad = operands(problem)

    def forward():
        return scaled_dot_product_attention(q, k, v, is_causal=problem.causal)

    with sdpa_kernel([backend] if backend else [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
        if direction == "forward":
            with torch.no_grad():
                return measure.median_ms(forward, measure.SECONDS)
        inputs = [x.requires_grad_() for x in (q, k, v)]
        out = forward()
        return measure.median_ms(lambda: torch.autograd.grad(out, inputs, grad, retain_graph=True), measure.SECONDS)


def pytorch_math(problem, direction):
    """PyTorch's unfused path, with the whole matrix of the scores."""
    return pytorch(problem, direction, SDPBackend.MATH)


def onnx_model(problem):
    """A model of one MultiHeadAttention node, as bytes."""
    from onnx import TensorProto, helper
    width = problem.heads * problem.width
    node = helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["o"], domain="com.microsoft",
                            num_heads=problem.heads, unidirectional=int(problem.causal))

    def value(name, rows):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [problem.batch, rows, width])

    graph = helper.make_graph([node], "attention", [value("q", problem.queries), value("k", problem.keys),
                                                    value("v", problem.keys)], [value("o", problem.queries)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def onnxruntime(problem, direction):
    """Milliseconds of ONNX Runtime into an output that is there already; None where it has nothing to measure."""
    if direction != "forward" or problem.dtype != "f32":
        return None
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = ort.InferenceSession(onnx_model(problem), options, providers=["CPUExecutionProvider"])
    q, k, v, _ = operands(problem)
    binding = session.io_binding()
    for name, tensor in zip("qkv", (q, k, v)):
        binding.bind_cpu_input(name, np.ascontiguousarray(tensor.transpose(1, 2).flatten(2).numpy()))
    out = np.empty((problem.batch, problem.queries, problem.heads * problem.width), np.float32)
    binding.bind_ortvalue_output("o", ort.OrtValue.ortvalue_from_numpy(out))
    return measure.median_ms(lambda: session.run_with_iobinding(binding), measure.SECONDS)


PEERS = {"pytorch": pytorch, "pytorch-math": pytorch_math, "onnxruntime": onnxruntime}
