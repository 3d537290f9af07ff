# SPDX-License-Identifier: MIT
"""Clocks and memory for the peers' benchmarks."""
import os
import statistics
import subprocess
import time

SECONDS = 0.6  # for each median of attend.py
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("ATTN_BUILD", os.path.join(ROOT, "build"))


def times_ms(call, budget_s=2.0, least=3, warm_up=2):
    """The times of calls in milliseconds: at least `least` calls, more while the budget lasts."""
    for _ in range(warm_up):
        call()
    times, end = [], time.perf_counter() + budget_s
    while len(times) < least or (time.perf_counter() < end and len(times) < 1000):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return [1e3 * seconds for seconds in times]


def median_ms(call, budget_s=2.0, least=3, warm_up=2):
    """The median time of a call in milliseconds."""
    return statistics.median(times_ms(call, budget_s, least, warm_up))


def best_of_turns(calls, seconds, clock=time.perf_counter, before=lambda call: None, least=4):
    """The shortest time of each call, in seconds: they run one after the other, at least `least` times each.  `before`
    is not timed."""
    best, end, turns = [float("inf")] * len(calls), time.perf_counter() + seconds, 0
    while turns < least or time.perf_counter() < end:
        for i, call in enumerate(calls):
            before(call)
            begin = clock()
            call()
            best[i] = min(best[i], clock() - begin)
        turns += 1
    return best


def probe(folder, name, *sources):
    """bench/NAME.c with further sources, compiled with build/libattn.a into a folder: its path."""
    path = os.path.join(folder, name)
    libraries = subprocess.run(["pkg-config", "--libs", "jansson", "cairo", "libpng"], check=True, capture_output=True,
                               text=True).stdout.split()
    subprocess.run(["cc", "-O2", "-pthread", f"-I{ROOT}/include", f"-I{ROOT}/src/engine", f"-I{ROOT}/src/networks",
                    f"-I{ROOT}/bench/attn-bench", f"{ROOT}/bench/{name}.c",
                    *[os.path.join(ROOT, source) for source in sources], os.path.join(BUILD, "libattn.a"), *libraries, "-ljpeg",
                    "-lz", "-lm", "-o", path], check=True)
    return path


def status_mib(field):
    """A line of /proc/self/status in MiB: VmRSS is the memory in use, VmHWM the most there was."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
    raise KeyError(field)


def reset_high_water():
    """Forgets the high-water mark so far, so that it speaks of what comes next."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


# Settings of glibc and PyTorch that need no other libraries: keep freed memory instead of giving pages back
# and faulting them in again at every step, and put large tensors on huge pages.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(1 << 26),
               "THP_MEM_ALLOC_ENABLE": "1"}


def environment(threads, keep_memory):
    """A child's environment: its threads, and glibc's settings if requested."""
    extra = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    return {**os.environ, **extra, **(KEEP_MEMORY if keep_memory else {})}
