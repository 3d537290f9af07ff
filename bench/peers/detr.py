# SPDX-License-Identifier: MIT
"""Times DETR with ResNet-50 on one picture, in attn and in PyTorch, in f32 with random weights.

    detr.py [--source DETR] [--size HEIGHT WIDTH] [--threads N] [--calls N] [--isa avx2,avx512] [--json]

DETR is a checkout of facebookresearch/detr; without it the model is transformers' DetrForObjectDetection.  Each peer runs
in a process of its own, and attn in turns with PyTorch.  Both use the same instruction set: AVX2, or AVX-512 without AMX.
"memory" is the peak less what the process had before the model was made: weights and all."""
import argparse
import json
import os
import subprocess
import sys
import time

import measure

LIMITS = {
    "avx2": {"ATTN_ISA": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "DNNL_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2",
             "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "avx512": {"ATTN_ISA": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "DNNL_MAX_CPU_ISA": "AVX512_CORE",
               "ATEN_CPU_CAPABILITY": "avx512", "MKL_ENABLE_INSTRUCTIONS": "AVX512"},
}


def of_attn(options):
    import numpy as np
    sys.path.insert(0, os.path.join(measure.ROOT, "python"))
    os.environ.setdefault("ATTN_LIBRARY", os.path.join(measure.BUILD, "libattn.so"))
    import attn
    x = np.random.default_rng(0).standard_normal((1, 3, *options.size), dtype=np.float32)
    before = measure.status_mib("VmRSS")
    model = attn.build("detr", {"norm": "frozen"}).eval()

    def call():
        with model.no_grad():
            return model(x, outputs=["pred_logits", "pred_boxes"])
    return before, call


def of_pytorch(options):
    import torch
    torch.set_num_threads(options.threads)
    if options.source:
        sys.path.insert(0, options.source)
        import main as detr_main
        from models import backbone, build_model
        backbone.is_main_process = lambda: False  # weights would be loaded from the network
    else:
        from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig
    x = torch.randn(1, 3, *options.size)
    before = measure.status_mib("VmRSS")
    if options.source:
        arguments = detr_main.get_args_parser().parse_args(["--device", "cpu"])
        model = build_model(arguments)[0].eval()
    else:
        model = DetrForObjectDetection(DetrConfig(use_timm_backbone=False, backbone=None, backbone_config=ResNetConfig(
            out_features=["stage4"]), num_labels=91)).eval()

    def call():
        with torch.inference_mode():
            return model([x[0]]) if options.source else model(pixel_values=x)
    return before, call


def child(options):
    before, call = {"attn": of_attn, "pytorch": of_pytorch}[options.peer](options)
    call()
    wall, cpu = [], []
    for _ in range(options.calls):
        begin, used = time.perf_counter(), time.process_time()
        call()
        wall.append(1e3 * (time.perf_counter() - begin))
        cpu.append(1e3 * (time.process_time() - used))
    print(json.dumps({"ms": round(min(wall), 1), "cpu_ms": round(min(cpu), 1),
                      "memory_mib": round(measure.status_mib("VmHWM") - before)}))


def run(peer, isa, options):
    threads = str(options.threads)
    environment = os.environ | LIMITS[isa] | {"ATTN_THREADS": threads, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    command = [sys.executable, "-W", "ignore", __file__, "--peer", peer, "--threads", threads, "--calls", str(options.calls),
               "--size", *map(str, options.size)] + (["--source", options.source] if options.source else [])
    return json.loads(subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", help="a checkout of facebookresearch/detr")
    parser.add_argument("--size", type=int, nargs=2, default=[800, 1066])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--calls", type=int, default=4, help="of which the shortest time is kept")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--isa", default="avx2,avx512")
    parser.add_argument("--json", action="store_true", help="an array of objects instead of the lines")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        child(options)
        return
    rows = []
    for isa in options.isa.split(","):
        found = {}
        for _ in range(options.turns):
            for peer in ("attn", "pytorch"):
                row = run(peer, isa, options)
                best = found.setdefault(peer, row)
                found[peer] = {key: min(best[key], row[key]) for key in row}
        for peer, row in found.items():
            rows.append({"peer": peer, "isa": isa, "threads": options.threads, **row})
            if not options.json:
                print(f"{isa}, {peer}: {row['ms']:.0f} ms, {row['cpu_ms']:.0f} ms of processor time, {row['memory_mib']} MiB")
        if not options.json:
            ratios = [found["pytorch"][key] / found["attn"][key] for key in ("ms", "cpu_ms")]
            print(f"{isa}: PyTorch's time over attn's {ratios[0]:.2f}, of processor time {ratios[1]:.2f}; attn's memory over "
                  f"PyTorch's {found['attn']['memory_mib'] / found['pytorch']['memory_mib']:.2f}", flush=True)
    if options.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
