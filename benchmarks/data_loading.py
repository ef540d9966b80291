#!/usr/bin/env python3
"""JPEGs to batches on a CPU: Redline's loader beside torchvision's, in one run on one machine.

    ./benchmarks/data_loading.py [--rounds 3] [--images 1500] [--quick]

Draws ImageNet-like JPEGs (around 500 x 375 pixels, 90 to 110 KiB), then measures both in turn with the same number of
threads or workers, several rounds, and takes medians. The peer is measured as most recipes use it, ending in
normalised floats, and ending in bytes as Redline does, which normalises on the device. It also shows Redline's memory
with 16 threads over a short and a long run, and how busy conversion keeps the cores. Installs torch and torchvision
from PyPI into build/peer on its first run. Leave the machine alone while it runs.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import resource
import statistics
import sys
import tempfile
import time

from cpu_training import ROOT, cpu_name, peer_python, run


def time_torchvision(data, workers, seconds, evaluate, normalise):
    command = [peer_python(), ROOT / "benchmarks" / "peer_torchvision.py", data, "--workers", workers, "--seconds", seconds]
    return json.loads(run(command + ["--eval"] * evaluate + ["--normalise"] * normalise))


def bench_data(data, threads, seconds, *more):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "data.json"
        run([ROOT / "redline", "bench", "data", data, "--threads", ",".join(map(str, threads)), "--seconds", seconds,
             "--json", file, *more])
        return json.loads(file.read_text())


def time_redline(data, threads, seconds, evaluate):
    result = bench_data(data, [threads], seconds, "--warm-only")
    name = "evaluation" if evaluate else "training"
    return next(timing for timing in result["timings"] if timing["transform"] == name), result


def time_conversion(data, target):
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    run([ROOT / "redline", "data", "convert", data, target, "--train-shards", 16, "--val-shards", 4])
    seconds = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    size = sum(file.stat().st_size for file in pathlib.Path(target).iterdir())
    return {"seconds": seconds, "bytes_per_second": size / seconds,
            "cores_busy": busy / seconds / len(os.sched_getaffinity(0))}


def compare(data, threads, rounds, seconds):
    rows = []
    for evaluate in (False, True):
        ours, floats, plain, versions = [], [], [], {}
        for _ in range(rounds):
            versions = time_torchvision(data, threads, seconds, evaluate, True)
            floats.append(versions["images_per_second"])
            plain.append(time_torchvision(data, threads, seconds, evaluate, False)["images_per_second"])
            timing, _ = time_redline(data, threads, seconds, evaluate)
            ours.append(timing["images_per_second"])
        row = {"transform": "evaluation" if evaluate else "training", "threads": threads,
               "redline": statistics.median(ours), "torchvision_floats": statistics.median(floats),
               "torchvision_bytes": statistics.median(plain), "redline_rounds": ours,
               "torchvision_floats_rounds": floats, "torchvision_bytes_rounds": plain}
        rows.append(row)
        print(f"{row['transform']}, {threads} threads: {row['redline']:.0f} images/s beside torchvision's "
              f"{row['torchvision_bytes']:.0f} (bytes) and {row['torchvision_floats']:.0f} (floats): "
              f"{row['redline'] / row['torchvision_bytes']:.2f}x and {row['redline'] / row['torchvision_floats']:.2f}x", flush=True)
    return rows, versions


def report(result):
    short, long = result["memory"]
    convert = result["conversion"]
    text = [f"# Data loading on {result['cores']} cores of {result['cpu']}, {result['date']}", "",
            f"`{result['command'].strip()}`; Redline {result['redline']['version']} ({result['redline']['commit']}); "
            f"torchvision {result['versions']['torchvision']}, torch {result['versions']['torch']}, Pillow "
            f"{result['versions']['pillow']}; {result['data']['train_images']} + {result['data']['val_images']} JPEGs of "
            f"{result['data']['mean_bytes'] / 1024:.0f} KiB on average, in the page cache, to batches of 64 at 224 px; "
            f"medians of {result['rounds']} rounds.", "",
            "| transform | threads or workers | Redline images/s | torchvision, bytes | ratio | torchvision, floats | ratio |",
            "| --- | --- | --- | --- | --- | --- | --- |"]
    for row in result["rows"]:
        text.append(f"| {row['transform']} | {row['threads']} | {row['redline']:.0f} | {row['torchvision_bytes']:.0f} | "
                    f"{row['redline'] / row['torchvision_bytes']:.2f}x | {row['torchvision_floats']:.0f} | "
                    f"{row['redline'] / row['torchvision_floats']:.2f}x |")
    text += ["", "Redline's batches are bytes: normalisation is part of the step on the device. Torchvision's end in bytes "
             "(`PILToTensor`) for the like-for-like ratio, and in normalised floats (`ToTensor`, `Normalize`) as most recipes have it.",
             "", "## Where the time of a thread goes, milliseconds an image", "",
             "| transform | cache | threads | images/s | read | decode | resize | hand over |", "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for timing in result["stages"]["timings"]:
        stage = {name: f"{1e3 * value:.3f}" for name, value in timing["seconds_an_image"].items()}
        text.append(f"| {timing['transform']} | {timing['cache']} | {timing['threads']} | {timing['images_per_second']:.0f} | "
                    f"{stage['read']} | {stage['decode']} | {stage['resize']} | {stage['hand_over']} |")
    text += ["", f"Memory with 16 threads, batches of 256: {short['peak'] / 2**20:.0f} MiB resident at most over "
             f"{short['images']} images, {long['peak'] / 2**20:.0f} MiB over {long['images']}.", "",
             f"Conversion to TFRecord: {convert['bytes_per_second'] / 1e6:.0f} MB/s, {100 * convert['cores_busy']:.0f}% of the "
             "cores' time busy."]
    return "\n".join(text) + "\n"


def memory(data, seconds):
    result = bench_data(data, [16], seconds, "--warm-only", "--batch", 256)
    return {"seconds": seconds, "images": sum(timing["images"] for timing in result["timings"]),
            "peak": result["peak_memory_bytes"]}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3, help="how often each side is measured, in turn")
    options.add_argument("--images", type=int, default=1500, help="training images to draw")
    options.add_argument("--seconds", type=float, default=5, help="of each measurement")
    options.add_argument("--quick", action="store_true", help="one short round; nothing is recorded")
    args = options.parse_args()
    if args.quick:
        args.rounds, args.seconds = 1, 2
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "images"
        run([ROOT / "redline", "data", "synth", data, "--size", "imagenet", "--classes", 10, "--train", args.images,
             "--val", max(64, args.images // 4)])
        rows, versions = [], {}
        for threads in sorted({1, cores}):
            more, versions = compare(data, threads, args.rounds, args.seconds)
            rows += more
        stages = bench_data(data, sorted({1, cores}), args.seconds)
        used = [memory(data, args.seconds), memory(data, 4 * args.seconds)]
        conversion = time_conversion(data, pathlib.Path(folder) / "records")
    result = {"benchmark": "data_loading", "date": datetime.date.today().isoformat(), "cpu": cpu_name(), "cores": cores,
              "kernel": platform.release(), "redline": stages["redline"], "versions": versions, "rounds": args.rounds,
              "command": "benchmarks/data_loading.py " + " ".join(sys.argv[1:]), "rows": rows, "stages": stages,
              "data": {name: stages[name] for name in ("train_images", "val_images", "mean_bytes")}, "memory": used,
              "conversion": conversion}
    text = report(result)
    print("\n" + text)
    if not args.quick:
        name = f"data_loading-{result['date']}"
        (ROOT / "benchmarks" / "results" / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        (ROOT / "benchmarks" / "results" / f"{name}.md").write_text(text)


if __name__ == "__main__":
    main()
