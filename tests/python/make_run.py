"""Run folders made up for tests: of any length, with telemetry and a profile, and as hostile as wanted.

python3 make_run.py FOLDER [STEPS]"""

import json
import math
import os
import random
import sys

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\"'`${alert(3)}\u2028 " + "very long " * 60


def make_run(folder, steps=2000, speed=1.0, seed=0, name=None, hostile=False, end=True, telemetry=True, profile=True, ranks=1, smoothing=0.0):
    """Writes config.toml, metrics.jsonl and profile/ as a run on a GPU would; gives the folder."""
    chance = random.Random(seed)
    os.makedirs(os.path.join(folder, "profile"), exist_ok=True)
    text = HOSTILE if hostile else ""
    write_config(folder, text, seed, smoothing)
    lines = [{"schema": "redline.metrics", "version": 2, "kind": "run", "name": name or os.path.basename(folder), "started": "2026-01-31T08:15:00Z",
              "program": {"version": "0.1.0", "commit": "0123456789ab"}, "model": "resnet50" + text, "data": "flowers" + text, "device": "NVIDIA H200" + text,
              "dtype": "bf16", "optimizer": "sgd", "classes": 102, "image_size": 224, "batch_size": 256, "accumulate": 1, "parameters": 25557032,
              "train_samples": 1281167, "val_samples": 50000, "steps_per_epoch": max(1, steps // 4), "total_steps": steps, "seed": seed, "ranks": ranks}]
    elapsed = 0.0
    with open(os.path.join(folder, "metrics.jsonl"), "w", encoding="utf-8") as out:
        for line in lines:
            out.write(json.dumps(line) + "\n")
        for step in range(1, steps + 1):
            part = step / steps
            seconds = (0.062 + 0.004 * chance.random() + (0.2 if step == 1 else 0) + (0.15 if step % 977 == 0 else 0)) / speed
            gap = {"data_seconds": round(0.0005 * chance.random(), 6), "host_seconds": 0.0001}
            if step % max(1, steps // 4) == 1 and step > 1:
                gap.update(evaluation_seconds=20.5, checkpoint_seconds=0.011)
            elapsed += seconds + sum(gap.values())
            record = {"kind": "step", "step": step, "epoch": int(4 * (step - 1) / steps), "step_in_epoch": 0,
                      "loss": round(6.9 * math.exp(-3 * part) + 0.9 + 0.25 * chance.gauss(0, 1) * math.exp(-part) + (5 if step == steps // 3 else 0), 5),
                      "top1": round(min(1, max(0, 0.8 * (1 - math.exp(-4 * part)) + 0.03 * chance.gauss(0, 1))), 5), "top5": round(1 - math.exp(-6 * part), 5),
                      "lr": 0.1 * 0.5 * (1 + math.cos(math.pi * part)), "gradient_norm": round(1 + 0.4 * chance.random(), 5), "loss_scale": 65536.0,
                      "samples": 256, "seconds": round(seconds, 6), "gap_seconds": round(sum(gap.values()), 6), **gap,
                      "images_per_second": round(256 / seconds, 2), "elapsed": round(elapsed, 4)}
            if ranks > 1:
                record.update(communication_seconds=0.004 * chance.random(), slowest_rank=chance.randrange(ranks), slowest_seconds=seconds)
            out.write(json.dumps(record, separators=(",", ":")) + "\n")
            if step % max(1, steps // 4) == 0:
                top1 = 0.78 * (1 - math.exp(-3 * part))
                out.write(json.dumps({"kind": "evaluation", "step": step, "epoch": round(4 * part), "weights": "model", "loss": 1.2 + 5 * math.exp(-3 * part), "top1": top1,
                                      "top5": min(1, top1 + 0.15), "samples": 50000, "seconds": 20.5, "elapsed": elapsed}) + "\n")
                out.write(json.dumps({"kind": "checkpoint", "step": step, "name": f"step-{step}", "bytes": 204800000, "best": True, "stall_seconds": 0.011,
                                      "interval_seconds": 100.0, "write_seconds": 0.8, "elapsed": elapsed}) + "\n")
        out.write(json.dumps({"kind": "notice", "step": steps // 3, "what": "loss_spike", "text": "the loss jumped to 9.1, from a median of 3.4" + text}) + "\n")
        if end:
            out.write(json.dumps({"kind": "end", "reason": "finished", "steps": steps, "samples": 256 * steps, "skipped_steps": 0, "seconds": elapsed + 20.5,
                                  "step_seconds": elapsed - 63, "gap_seconds": 83.5, "data_seconds": 1.0, "host_seconds": 0.5, "evaluation_seconds": 82.0}) + "\n")
    for rank in range(ranks if telemetry else 0):
        write_telemetry(folder, elapsed, chance, rank)
    if profile:
        write_profile(folder, text)
    return folder


def write_config(folder, text, seed, smoothing):
    quoted = json.dumps(text, ensure_ascii=True)
    with open(os.path.join(folder, "config.toml"), "w", encoding="utf-8") as out:
        out.write(f'[model]\nname = "resnet50"\nimage_size = 224\n[data]\npath = {quoted}\n[optimizer]\nbatch_size = 256\nlr = 0.1\nlabel_smoothing = {smoothing}\n[run]\nseed = {seed}\n'
                  f'[record]\nname = "made"\ncommand = "redline train flowers"\nversion = "0.1.0"\ncommit = "0123456789ab"\ndevice = "NVIDIA H200"\n'
                  f'hostname = "node-c{seed % 3}-{seed}"\nos = "Debian GNU/Linux 12 (bookworm)"\ncpu = "AMD EPYC 9654"\ncores = "16"\nmemory = "128 GiB"\nnote = {quoted}\n')


def write_telemetry(folder, elapsed, chance, rank):
    names = ("unix_seconds,seconds,gpu_sm_clock_mhz,gpu_memory_clock_mhz,gpu_power_mw,gpu_power_limit_mw,gpu_temperature_c,gpu_throttle,gpu_use_pct,"
             "gpu_memory_use_pct,gpu_memory_used_bytes,gpu_energy_mj,pcie_received_kb_s,pcie_sent_kb_s,cpu_clock_mhz,cpu_power_mw,cpu_temperature_c,cpu_use,"
             "memory_resident_bytes,cpu_instructions,cpu_cycles,cpu_cache_misses,rank,host,device")
    with open(os.path.join(folder, "profile", f"telemetry-rank{rank}.csv" if rank else "telemetry.csv"), "w", encoding="utf-8") as out:
        out.write(names + "\n")
        count = min(20000, int(elapsed / 0.05) + 2)
        for i in range(count):
            hot = count * 0.6 < i < count * 0.7
            out.write(f"{1.7e9 + i * 0.05:.3f},{i * 0.05:.3f},{1980 - (300 if hot else 0) + chance.randint(-15, 15)},3201,{(640 if hot else 580) * 1000 + chance.randint(-9000, 9000)},"
                      f"700000,{40 + 25 * (1 - math.exp(-i / 600)):.0f},{'sw_power_cap' if hot else 'none'},{chance.randint(95, 99)},{chance.randint(40, 60)},"
                      f"{60 << 30},{i * 29500},{chance.randint(9000, 12000)},{chance.randint(200, 900)},3400,,,{3 + chance.random():.3f},{5 << 30},,,,{rank},node{rank // 2},0000:1{rank % 2}:00.0\n")


def write_profile(folder, text):
    def part(name, seconds, flops, count=10, kind="conv"):
        return {"name": name + text, "count": count, "seconds": seconds, "kind": kind + text, "flops": flops, "bytes": seconds * 2.4e12, "least_seconds": seconds * 0.7, "bound": "memory"}

    kinds = ["conv", "conv_grad_weight", "batch_norm"]
    layers = [part(f"layer{i}.{j}", 0.001 * (5 - i) + 0.0003 * j, 1e11 * i) for i in range(1, 5) for j in range(3)]
    ops = [part(f"conv layer{i}.{j}.conv{k}", 0.0004 * (5 - i) + 0.0001 * k, 4e10 * i * k, kind=kinds[k - 1]) for i in range(1, 5) for j in range(3) for k in range(1, 4)]
    summary = {"first_step": 20, "steps": 10, "steps_left_out": 0, "records_lost": 0, "iteration_seconds": [0.064] * 10, "elapsed_seconds": 0.64, "busy_seconds": 0.61,
               "utilisation": 0.953, "named_share": 0.99, "tracing": {"untraced_step_seconds": 0.063, "traced_step_seconds": 0.064, "overhead": 0.016},
               "ceilings": {"flops_per_second": 8e14, "bytes_per_second": 4.2e12}, "gap_seconds": {"input": 0.001, "launch": 0.004, "communication": 0.0, "host": 0.002},
               "threads_computing": [], "counters": {"fma_pct": 4.5, "fp16_pct": 0.0, "tensor_pct": 61.25, "sfu_pct": 0.5}, "kinds": [part("conv", 0.04, 2e12, 160), part("batch norm", 0.012, 1e9, 106, "norm")], "layers": layers, "ops": ops,
               "kernels": [{"name": "sm90_xmma_fprop_implicit_gemm_bf16" + text, "count": 40, "seconds": 0.02}, {"name": "bn_relu_kernel", "count": 50, "seconds": 0.011}],
               "losses": [{"what": "The norms of layer1 move 2.1 GB a step" + text, "seconds": 0.006, "try": "fuse them into the convolutions"}]}
    with open(os.path.join(folder, "profile", "summary.json"), "w", encoding="utf-8") as out:
        json.dump(summary, out)


if __name__ == "__main__":
    make_run(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2000)
