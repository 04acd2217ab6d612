#!/usr/bin/env bash
# GPU fractions on a real GPU: eleven steps in under ten minutes, results as JSON. Needs: an NVIDIA driver, a C compiler,
# Python 3.11. torch, jax and tensorflow are used where they are installed, and named as missing where not.
#   benchmarks/h200_fractions.sh [RESULT.json]        HAMI_LIB=/path/libvgpu.so also times that one
# Nothing is estimated: a step that could not run says why.
set -euo pipefail
cd "$(dirname "$0")/.."
RESULT=${1:-h200_fractions.json}
WORK=$(mktemp -d "${TMPDIR:-/tmp}/h200.XXXXXX")
LEDGERS=$(mktemp -d /dev/shm/h200.XXXXXX)
trap 'rm -rf "$WORK" "$LEDGERS"' EXIT
CC=${CC:-cc}
CUDA=${CUDA:-$(ldconfig -p 2>/dev/null | sed -n 's/.*libcuda\.so\.1 .*=> //p' | head -1)}
[ -n "$CUDA" ] || CUDA=$(find / -name libcuda.so.1 -not -path '*/bin/sim/*' 2>/dev/null | head -1)
[ -n "$CUDA" ] || { echo "no libcuda.so.1 here: this script needs a real GPU"; exit 1; }
$CC -std=gnu11 -O2 -fPIC -shared -fvisibility=hidden -Wl,-Bsymbolic -o "$WORK/libpliant-gpu.so" native/shim/*.c \
  -Wl,--no-as-needed -l:libdl.so.2 2>/dev/null ||
  $CC -std=gnu11 -O2 -fPIC -shared -fvisibility=hidden -Wl,-Bsymbolic -o "$WORK/libpliant-gpu.so" native/shim/*.c -ldl
$CC -std=gnu11 -O2 -Inative -o "$WORK/probe" tests/shim/probe.c -ldl
$CC -std=gnu11 -O2 -Inative -o "$WORK/worker" benchmarks/h200_worker.c "$CUDA" -ldl
export WORK LEDGERS RESULT CUDA PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}"
exec_python() { "${PYTHON:-python3}" - "$@"; }
exec_python <<'PY'
import json, os, pathlib, platform, re, shutil, signal, statistics, subprocess, sys, time

from pliant.devices import config, ledger
from pliant.devices.config import GpuConf, Grant

WORK, LEDGERS = pathlib.Path(os.environ["WORK"]), pathlib.Path(os.environ["LEDGERS"])
MIB, GIB = 2**20, 2**30
BEGUN, RESULTS = time.monotonic(), {}
LIMIT_S = 570  # whatever is slow is left out, and said

def run(*words, env=None, timeout=60, stdin=None):
    whole = {**os.environ, **(env or {})}
    return subprocess.run([str(w) for w in words], env=whole, capture_output=True, text=True, timeout=timeout, input=stdin)

def out(*words, **more):
    done = run(*words, **more)
    if done.returncode:
        raise RuntimeError(f"{words[0]} exited {done.returncode}: {(done.stderr or done.stdout).strip()[-400:]}")
    return done.stdout.strip()

def smi(what, env=None):
    return out("nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader,nounits", env=env).splitlines()[0]

def python(code, env=None, timeout=90):
    return json.loads(out(sys.executable, "-c", code, env=env, timeout=timeout).splitlines()[-1])

def grant(name, limit, weight=500, policy="none"):
    conf = LEDGERS / f"{name}.conf"
    one = Grant(UUID, limit, weight=weight, policy=policy, share=None if policy == "none" else LEDGERS / "turns")
    config.write(conf, GpuConf(name, LEDGERS / f"{name}.ledger", (one,), time.monotonic_ns()), {UUID: TOTAL})
    return {"LD_PRELOAD": str(WORK / "libpliant-gpu.so"), "PLIANT_GPU_CONF": str(conf), "CUDA_VISIBLE_DEVICES": UUID}

def probe(*ops, env=None, timeout=60):
    found = {}
    for line in out(WORK / "probe", "soname", *ops, env=env, timeout=timeout).splitlines():
        name, *numbers = line.split()
        found[name] = [int(n) for n in numbers]
    return found

def step(number, title):
    def take(function):
        if time.monotonic() - BEGUN > LIMIT_S:
            RESULTS[f"{number} {title}"] = {"left_out": "no time was left"}
            return
        begun = time.monotonic()
        try:
            found = function()
        except Exception as error:  # a failed step is a result too
            found = {"failed": f"{type(error).__name__}: {error}"[:600]}
        RESULTS[f"{number} {title}"] = {**found, "seconds": round(time.monotonic() - begun, 1)}
        print(f"{number:>2} {title}: {json.dumps(found)[:200]}", flush=True)
        pathlib.Path(os.environ["RESULT"]).write_text(json.dumps(RESULTS, indent=1) + "\n")
    return take

def has(module):
    return run(sys.executable, "-c", f"import {module}", timeout=120).returncode == 0

UUID = smi("uuid")
TOTAL = (int(smi("memory.total")) - int(smi("memory.reserved") or 0)) * MIB
HALF = config.portion_bytes(TOTAL, 500)
FRAMEWORKS = {name: has(name) for name in ("torch", "jax", "tensorflow", "pynvml")}

@step(0, "facts")
def _():
    binary, nvml = shutil.which("nvidia-smi"), os.environ["CUDA"].replace("libcuda", "libnvidia-ml")
    needed = run("readelf", "-d", binary).stdout if shutil.which("readelf") else ""
    return {
        "gpu": smi("name"), "driver": smi("driver_version"), "uuid": UUID, "total_mib": smi("memory.total"),
        "reserved_mib": smi("memory.reserved"), "date": time.strftime("%Y-%m-%d"), "kernel": platform.release(),
        "glibc": platform.libc_ver()[1], "mps": shutil.which("nvidia-cuda-mps-control"),
        "smi_needs": re.findall(r"\[(lib[^\]]+)\]", needed), "symbol_versions": "NVIDIA" in run("readelf", "-V", nvml).stdout,
        "frameworks": FRAMEWORKS,
    }

@step(1, "build")
def _():
    return {"shim_bytes": (WORK / "libpliant-gpu.so").stat().st_size, "built": True}

@step(2, "entry points")
def _():
    return json.loads(out(WORK / "worker", "entries"))

@step(3, "what programs see of half")
def _():
    env, seen = grant("see", HALF), {"limit": HALF}
    seen["nvidia-smi"] = smi("memory.total,memory.used", env)
    seen["driver"] = probe("init", "ctx", "total", "info", env=env)
    if FRAMEWORKS["pynvml"]:
        seen["pynvml"] = python("import pynvml as n, json; n.nvmlInit(); m = n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetHandleByIndex(0)); print(json.dumps([n.nvmlDeviceGetCount(), m.total, m.used]))", env)
    if FRAMEWORKS["torch"]:
        seen["torch"] = python("import torch, json; f, t = torch.cuda.mem_get_info(); print(json.dumps([f, t, torch.cuda.get_device_properties(0).total_memory]))", env)
    if FRAMEWORKS["jax"]:
        seen["jax"] = python("import jax, json; s = jax.devices()[0].memory_stats(); print(json.dumps(s))", env)
    if FRAMEWORKS["tensorflow"]:
        seen["tensorflow"] = python("import tensorflow as tf, json, subprocess; tf.constant([1.0]) + 1; print(json.dumps(tf.config.experimental.get_memory_info('GPU:0')))", env)
    return seen

GROW = """
import json, os, torch
held, code = [], "none"
try:
    while True: held.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda"))
except torch.cuda.OutOfMemoryError: code = "OutOfMemoryError"
print(json.dumps({"bytes": len(held) * (64 << 20), "error": code}))
"""

@step(4, "where allocation stops")
def _():
    found = {}
    for kind in ("alloc", "async", "pool", "vmm", "vmmrel", "array", "graph"):
        env = grant(f"oom-{kind}", 8 * GIB)
        said = probe("init", "ctx", "info", f"fill:{kind}:64M", "free", "info", env=env)
        found[kind] = {"code": said["fill"][0], "bytes": said["fill"][1], "free_after": said["info"][1]}
    said = probe("init", "ctx", "fill:managed:64M:3G", env=grant("managed", 2 * GIB))
    found["managed, 2 GiB"] = said["fill"]
    said = probe("init", "ctx", "total", "fill:alloc:1M", env=grant("five", 5 * 10**9))
    found["5G"] = {"total": said["total"][1], "bytes": said["fill"][1]}
    if FRAMEWORKS["torch"]:
        for name, extra in (("torch", ""), ("torch async", "backend:cudaMallocAsync"), ("torch segments", "expandable_segments:True")):
            env = {**grant(name.replace(" ", "-"), 8 * GIB), **({"PYTORCH_CUDA_ALLOC_CONF": extra} if extra else {})}
            found[name] = python(GROW, env)
    return found

@step(5, "two halves at once")
def _():
    envs = [grant(name, HALF) for name in ("left", "right")]
    words = [WORK / "probe", "soname", "init", "ctx", "fill:alloc:64M", "ready"]
    both = [subprocess.Popen([str(w) for w in words], env={**os.environ, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for env in envs]
    try:
        got = []
        for process in both:
            for line in process.stdout:
                if line.startswith("fill"):
                    got.append([int(n) for n in line.split()[1:]])
                if line.startswith("ready"):
                    break
        card = smi("memory.used")
        shown = smi("memory.used", envs[0])
        listed = out("nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader")
        both[0].kill()
        both[0].wait()
        begun = time.monotonic()
        while int(smi("memory.used", envs[0])) and time.monotonic() - begun < 5:
            pass
        return {"limit": HALF, "filled": got, "card_used_mib": card, "left_sees_mib": shown, "apps": listed, "clear_after_kill_s": round(time.monotonic() - begun, 2)}
    finally:
        for process in both:
            process.kill()
            process.wait()

def paired(words, env, pairs=5):
    rows = {"bare": [], "shim": []}
    hami = os.environ.get("HAMI_LIB")
    if hami:
        rows["hami"] = []
    for _ in range(pairs):
        rows["bare"].append(float(out(*words)))
        rows["shim"].append(float(out(*words, env=env)))
        if hami:
            rows["hami"].append(float(out(*words, env={"LD_PRELOAD": hami, "CUDA_DEVICE_MEMORY_LIMIT": "8g", "LIBCUDA_LOG_LEVEL": "0"})))
    found = {name: round(statistics.median(values), 1) for name, values in rows.items()}
    found["over_percent"] = round(statistics.median(s / b - 1 for s, b in zip(rows["shim"], rows["bare"])) * 100, 2)
    return found

@step(6, "cost of allocation, ns")
def _():
    env = grant("cost", HALF)
    return {"4 KiB": paired([WORK / "worker", "malloc", 4096, 20000], env), "2 MiB": paired([WORK / "worker", "malloc", 2 * MIB, 2000], env)}

@step(7, "cost of a launch, ns")
def _():
    return {"empty kernel": paired([WORK / "worker", "launch", 300000], grant("launch", HALF, policy="fair"))}

MATMUL = """
import json, time, torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
for _ in range(20): a @ a
torch.cuda.synchronize(); t = time.perf_counter()
for _ in range(200): a @ a
torch.cuda.synchronize(); print(json.dumps(200 * 2 * 8192**3 / (time.perf_counter() - t) / 1e12))
"""

@step(8, "throughput alone, TFLOP/s")
def _():
    if not FRAMEWORKS["torch"]:
        return {"left_out": "no torch"}
    env, rows = grant("matmul", HALF, policy="fair"), []
    for _ in range(3):
        rows.append((python(MATMUL), python(MATMUL, env)))
    return {"bare": [round(b, 1) for b, _ in rows], "shim": [round(s, 1) for _, s in rows], "over_percent": round(statistics.median(b / s - 1 for b, s in rows) * 100, 2)}

def together(cases, policy, seconds=8):
    running = []
    for name, (weight, us, on, off) in cases.items():
        env = grant(f"turn-{policy}-{name}", 2 * GIB, weight, policy)
        words = [WORK / "worker", "spin", us, seconds, on, off]
        running.append(subprocess.Popen([str(w) for w in words], env={**os.environ, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    try:
        for process in running:
            process.stdout.readline()
        for process in running:
            process.stdin.write("\n")
            process.stdin.flush()
        said = [json.loads(process.communicate(timeout=seconds + 30)[0].splitlines()[-1]) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    total = sum(s["gpu_s"] for s in said) or 1
    return {name: {**s, "share": round(s["gpu_s"] / total, 4)} for name, s in zip(cases, said)}

@step(9, "compute shares")
def _():
    cases = {
        "halves": {"a": (500, 2000, 0, 0), "b": (500, 2000, 0, 0)},
        "a quarter": {"a": (250, 2000, 0, 0), "b": (750, 2000, 0, 0)},
        "half idle": {"a": (500, 2000, 100, 100), "b": (500, 2000, 0, 0)},
        "ten times longer": {"a": (500, 2000, 0, 0), "b": (500, 20000, 0, 0)},
    }
    found = {f"{name}, {policy}": together(case, policy) for policy in ("none", "fair") for name, case in cases.items()}
    found["a quarter, strict"] = together({"a": (250, 2000, 0, 0)}, "strict")
    return found

LIBRARIES = {
    "conv": "import torch; x = torch.randn(8, 64, 128, 128, device='cuda'); torch.nn.Conv2d(64, 64, 3).cuda()(x); torch.cuda.synchronize(); print('1')",
    "import": "import torch, numpy; torch.randn(512, 512) @ torch.randn(512, 512); print('1')",
    "loader": "import torch\nd = torch.utils.data.DataLoader(torch.arange(1000), batch_size=10, num_workers=4)\ntorch.zeros(1).cuda(); n = sum(int(b.cuda().sum()) for b in d); assert n == 499500; print('1')",
    "nccl": "import os, torch, torch.distributed as d\nos.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='29533', RANK='0', WORLD_SIZE='1')\nd.init_process_group('nccl'); t = torch.ones(4).cuda(); d.all_reduce(t); torch.cuda.synchronize(); d.destroy_process_group(); print('1')",
    "graph": "import torch\ns = torch.cuda.Stream()\nx = torch.ones(1024, 1024, device='cuda')\nwith torch.cuda.stream(s): y = x @ x\ntorch.cuda.synchronize(); g = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(g): z = x @ x\nfor _ in range(100): g.replay()\ntorch.cuda.synchronize(); print('1')",
}

@step(10, "real libraries")
def _():
    if not FRAMEWORKS["torch"]:
        return {"left_out": "no torch"}
    env, found = grant("real", HALF, policy="fair"), {}
    for name, code in LIBRARIES.items():
        try:
            done = run(sys.executable, "-c", code, env=env, timeout=60)
            found[name] = "ok" if done.returncode == 0 else f"exit {done.returncode}: {done.stderr.strip()[-300:]}"
        except subprocess.TimeoutExpired:
            found[name] = "hangs"
    return found

RESULTS["seconds"] = round(time.monotonic() - BEGUN, 1)
pathlib.Path(os.environ["RESULT"]).write_text(json.dumps(RESULTS, indent=1) + "\n")
print(f"{RESULTS['seconds']} s, written to {os.environ['RESULT']}")
PY
