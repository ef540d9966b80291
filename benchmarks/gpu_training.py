#!/usr/bin/env python3
"""ResNet training on a GPU: Redline beside PyTorch, in one run on one machine.

    python3 benchmarks/gpu_training.py [speed] [curve] [jpeg] [accuracy] [--rounds 3] [--redline path/to/redline]
                                       [--output folder]

Run it with a Python that has torch and torchvision for CUDA, and timm for resnet50d. `speed --only
wide_resnet,resnext,resnet50d` measures the family around ResNet-50. Its parts, all of them unless named:
speed     for every setting all sides take turns, several rounds: PyTorch eager, torch.compile and, at small batches,
          its mode "reduce-overhead", which replays CUDA graphs, as processes that stay alive; Redline as `redline train
          synthetic` anew each round. Redline counts with its median round, a peer with its best: fp16 in PyTorch waits
          for the host, so a slow round of its is no measure of ours
curve     Redline and PyTorch train 200 steps in fp16 from the same weights on the same batches; their losses are
          compared with what PyTorch itself gives on other orders of the same data
jpeg      Redline on ImageNet-like JPEGs of TFRecord shards in the page cache, beside synthetic images
accuracy  Redline on the GPU in fp16, with three seeds, and on the CPU learns the same generated image set
A part takes one to eight minutes. Writes gpu_training-<date>.md and .json into the output folder.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEER = ROOT / "benchmarks" / "peer_torch_gpu.py"

# model, batch, dtype, peers
SETTINGS = [("resnet50", batch, "fp16", ["eager", "graphs"]) for batch in (1, 8, 32)]
SETTINGS += [("resnet50", 64, "fp16", ["compile", "graphs"])]
SETTINGS += [("resnet50", 256, "fp16", ["eager", "compile"]), ("resnet50", 256, "bf16", ["eager", "compile"])]
SETTINGS += [(model, 256, "fp16", ["compile"]) for model in ("resnet18", "resnet34", "resnet101", "resnet152")]
# The family around ResNet-50; torchvision's but for ResNet-D, which is timm's.
FAMILY = ("wide_resnet50_2", "wide_resnet101_2", "resnext50_32x4d", "resnext101_32x8d", "resnext101_64x4d", "resnet50d")
SETTINGS += [(model, 256, "fp16", ["compile"]) for model in FAMILY]
PEERS = {"eager": "PyTorch eager", "compile": "torch.compile", "graphs": "torch.compile with CUDA graphs"}


class PeerEnded(Exception):
    pass


class Peer:
    """A PyTorch process that answers one line of JSON with another."""

    def __init__(self, *flags):
        self.process = subprocess.Popen([sys.executable, str(PEER), *map(str, flags)], text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise PeerEnded("the PyTorch process ended: see above")
        return json.loads(line)

    def ask(self, **question):
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.wait()


def run_redline(redline, *flags):
    """The records of metrics.jsonl of a run."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([str(redline), "train", *map(str, flags), "--quiet", "-o", folder, "--name", "run"], check=True,
                       stdout=subprocess.PIPE)
        with open(pathlib.Path(folder) / "run" / "metrics.jsonl") as lines:
            return [json.loads(line) for line in lines]


def time_redline(redline, model, batch, dtype, steps, *flags):
    warm_up = 10
    records = run_redline(redline, "synthetic", "--model", model, "--classes", 1000, "--image-size", 224, "-b", batch,
                          "--dtype", dtype, "--steps", steps + warm_up, "--lr", 0.01, "--label-smoothing", 0.1,
                          "--device", "cuda", *flags)
    elapsed = [record["elapsed"] for record in records if record["kind"] == "step"]
    return batch * steps / (elapsed[-1] - elapsed[warm_up - 1]), records[0]


def dry_run_peak(redline, model, batch, dtype):
    text = subprocess.run([str(redline), "train", "synthetic", "--model", model, "-b", str(batch), "--dtype", dtype,
                           "--device", "cuda", "--dry-run"], check=True, text=True, stdout=subprocess.PIPE).stdout
    for line in text.splitlines():
        words = line.split()
        if words[:2] == ["device", "peak"]:
            return float(words[2]) * {"MiB": 2**20, "GiB": 2**30}[words[3]]
    return 0.0


def measure_one(programs, setting, rounds, tune):
    """A row, the header of Redline's metrics, and the peers' versions."""
    model, batch, dtype, peers = setting
    steps = max(30, min(200, 8000 // batch))
    versions, memory = {}, {}
    speeds = {name: [] for name in [*programs, *peers]}
    alive = {name: Peer("--model", model, "--batch", batch, "--dtype", dtype, "--how", name) for name in peers}
    try:
        for peer in alive.values():
            versions = peer.answer()
        for program in programs.values():
            time_redline(program, model, batch, dtype, 5, *["--tune"] * tune)  # chooses its kernels, once
        for _ in range(rounds):
            for name, peer in alive.items():
                answer = peer.ask(do="time", steps=steps)
                speeds[name].append(answer["images_per_second"])
                memory[name] = answer["peak_bytes"]
            for name, program in reversed(programs.items()):
                speed, header = time_redline(program, model, batch, dtype, steps)
                speeds[name].append(speed)
    finally:
        for peer in alive.values():
            peer.close()
    found = {name: max(speeds[name]) for name in peers}
    for name, program in programs.items():
        memory[name] = dry_run_peak(program, model, batch, dtype)
        found[name] = statistics.median(speeds[name])
    print(f"{model} batch {batch} {dtype}: " + ", ".join(
        f"{name} {found[name]:.0f}" + ("" if name in programs else f" ({found['redline'] / found[name]:.2f}x)")
        for name in found), flush=True)
    row = {"model": model, "batch": batch, "dtype": dtype, "images_per_second": found, "rounds": speeds,
           "peak_bytes": memory}
    return row, header, versions


def measure(programs, settings, rounds, tune, keep):
    """programs: name -> path; the first is the one that peers are compared with. Calls keep() after every setting, so that
    a run which is cut short has the settings before; one that fails is left out, by name."""
    rows, header, versions = [], {}, {}
    for setting in settings:
        try:
            row, header, versions = measure_one(programs, setting, rounds, tune)
        except (PeerEnded, subprocess.CalledProcessError) as reason:
            print(f"{setting[0]} batch {setting[1]} {setting[2]} is left out: {reason}", file=sys.stderr, flush=True)
            continue
        rows.append(row)
        keep(rows, header, versions)
    return rows, header, versions


# The order in which Redline's sampler hands out samples: Philox4x32-10 keyed by seed and epoch, Fisher-Yates from the end.
MASK32, MASK64 = 2**32 - 1, 2**64 - 1


def philox(counter, key):
    counter, key = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & MASK32, (a >> 32) ^ counter[3] ^ key[1], a & MASK32]
        key = [(key[0] + 0x9E3779B9) & MASK32, (key[1] + 0xBB67AE85) & MASK32]
    return counter


def mix(a, b):
    z = (a + 0x9E3779B97F4A7C15) & MASK64
    for addend in (b, 0):
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
        z = ((z ^ (z >> 31)) + addend) & MASK64
    return z


def sample_order(samples, seed, epoch):
    stream = mix(0x6F726465, epoch)
    words, block = [], 0

    def next_u64():
        nonlocal block
        if len(words) < 2:
            words.extend(philox([block & MASK32, block >> 32, stream & MASK32, stream >> 32],
                                [seed & MASK32, seed >> 32]))
            block += 1
        low, high = words.pop(0), words.pop(0)
        return low | high << 32

    def below(n):
        threshold = (2**64 - n) % n
        while True:
            word = next_u64()
            if word >= threshold:
                return word % n

    order = list(range(samples))
    for i in range(samples, 1, -1):
        j = below(i)
        order[i - 1], order[j] = order[j], order[i - 1]
    return order


def batches_of(samples, batch, steps, seed):
    batches, epoch = [], 0
    while len(batches) < steps:
        order = sample_order(samples, seed, epoch)
        batches += [order[i:i + batch] for i in range(0, samples - batch + 1, batch)]
        epoch += 1
    return batches[:steps]


def write_safetensors(tensors, path):
    """name -> fp32 tensor, in the plain layout of the format: a header of JSON, then the bytes."""
    header, blobs, offset = {}, [], 0
    for name, tensor in tensors.items():
        data = tensor.contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
        blobs.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))


def smooth(values, width=10):
    return [statistics.mean(values[max(0, i - width + 1):i + 1]) for i in range(len(values))]


def compare_curves(redline, steps, batch=128, lr=0.01, samples=2560, classes=10):
    """Losses of Redline and PyTorch, fp16, from the same weights and batches, and PyTorch's on other orders."""
    import torch
    import torchvision
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([str(redline), "data", "synth", str(folder / "set"), "--train", str(samples), "--val", "10",
                        "--classes", str(classes)], check=True, stdout=subprocess.PIPE)
        files, labels = [], []
        for label, place in enumerate(sorted((folder / "set" / "train").iterdir())):
            for file in sorted(place.iterdir()):
                files.append(file)
                labels.append(label)
        images = torch.stack([torchvision.io.read_image(str(file)).permute(1, 2, 0) for file in files])
        torch.save({"images": images, "labels": torch.tensor(labels)}, folder / "data.pt")
        torch.manual_seed(1)
        weights = torchvision.models.resnet50(num_classes=classes).state_dict()
        torch.save(weights, folder / "weights.pt")
        write_safetensors({key: value for key, value in weights.items() if value.dtype == torch.float32},
                          folder / "weights.safetensors")
        records = run_redline(redline, folder / "set", "--model", "resnet50", "--image-size", images.shape[1], "-b", batch,
                              "--steps", steps, "--lr", lr, "--weight-decay", 1e-4, "--label-smoothing", 0.1, "--dtype",
                              "fp16", "--device", "cuda", "--init", folder / "weights.safetensors", "--scale", 1, 1,
                              "--ratio", 1, 1, "--hflip", 0, "--lr-step-size", 1000000, "--seed", 0, "--eval-every", 0,
                              "--decode", "cpu")  # as torchvision decodes
        ours = [record["loss"] for record in records if record["kind"] == "step"]
        peer = Peer("--dtype", "fp16", "--lr", lr)
        curves = [peer.ask(do="curve", classes=classes, weights=str(folder / "weights.pt"), data=str(folder / "data.pt"),
                           batches=batches_of(len(files), batch, steps, seed))["losses"] for seed in range(4)]
        peer.close()
    theirs, others = smooth(curves[0]), [smooth(curve) for curve in curves[1:]]
    mine = smooth(ours)
    spread = [max(abs(curve[i] - theirs[i]) for curve in others) for i in range(steps)]
    apart = [abs(mine[i] - theirs[i]) for i in range(steps)]
    result = {"steps": steps, "redline": ours, "torch": curves[0], "torch_other_orders": curves[1:],
              "mean_difference": statistics.mean(apart), "mean_spread": statistics.mean(spread),
              "first_difference": abs(ours[0] - curves[0][0])}
    print(f"fp16 loss over {steps} steps: Redline and PyTorch differ by {result['mean_difference']:.4f} on average, "
          f"PyTorch's own orders by up to {result['mean_spread']:.4f}", flush=True)
    return result


def steady_speed(records, batch, skip):
    elapsed = [record["elapsed"] for record in records if record["kind"] == "step"]
    return batch * (len(elapsed) - skip) / (elapsed[-1] - elapsed[skip - 1])


def time_jpegs(redline, rounds, batch=256, images=4096, steps=150, warm_up=40):
    """Images/s on real JPEGs, decoded by the card and by the CPU, and on synthetic images, in turn."""
    with tempfile.TemporaryDirectory() as name:
        data = pathlib.Path(name) / "set"
        subprocess.run([str(redline), "data", "synth", str(data), "--size", "imagenet", "--format", "tfrecord", "--classes",
                        "1000", "--train", str(images), "--val", "1000"], check=True, stdout=subprocess.PIPE)
        size = sum(file.stat().st_size for file in data.rglob("train-*") if file.suffix != ".idx") / images
        common = ["--model", "resnet50", "--dtype", "fp16", "-b", batch, "--steps", steps, "--device", "cuda", "--eval-every",
                  0, "--lr", 0.1]
        runs = {"synthetic": ["synthetic", "--image-size", 224, "--classes", 1000],
                "card": [data, "--decode", "gpu"], "cpu": [data, "--decode", "cpu"], "auto": [data]}
        run_redline(redline, data, *common)  # chooses kernels, fills the page cache
        speeds = {kind: [] for kind in runs}
        for _ in range(rounds):
            for kind, flags in runs.items():
                speeds[kind].append(steady_speed(run_redline(redline, *flags, *common), batch, warm_up))
    medians = {kind: statistics.median(values) for kind, values in speeds.items()}
    print(f"JPEGs of {size / 1024:.0f} KiB, images/s: " + ", ".join(f"{kind} {value:.0f}" for kind, value in medians.items()),
          flush=True)
    return {"batch": batch, "images": images, "bytes_per_image": size, "images_per_second": medians, "rounds": speeds,
            "cores": len(os.sched_getaffinity(0))}


def compare_accuracy(redline, epochs=8, batch=64, seeds=(0, 1, 2)):
    """Top-1 on held-out images after the same training: several seeds on the GPU, one on the CPU."""
    with tempfile.TemporaryDirectory() as name:
        data = pathlib.Path(name) / "set"
        subprocess.run([str(redline), "data", "synth", str(data), "--train", "4000", "--val", "1000"], check=True,
                       stdout=subprocess.PIPE)

        def top1(device, dtype, seed):
            records = run_redline(redline, data, "--model", "resnet18", "--image-size", 64, "-b", batch, "--epochs", epochs,
                                  "--lr", 0.01, "--device", device, "--dtype", dtype, "--seed", seed)
            return [record["top1"] for record in records if record["kind"] == "evaluation"][-1]

        gpu = {seed: top1("cuda", "fp16", seed) for seed in seeds}
        cpu = {seeds[0]: top1("cpu", "fp32", seeds[0])}
    mean, deviation = statistics.mean(gpu.values()), statistics.stdev(gpu.values())
    # Were the CPU's run one more of the GPU's, it would lie above this once in twenty times (Student's t, 2 degrees of
    # freedom).
    bound = mean + 2.920 * deviation * (1 + 1 / len(seeds)) ** 0.5
    result = {"model": "resnet18", "epochs": epochs, "learning_rate": 0.01, "top1": {"cuda": gpu, "cpu": cpu},
              "cuda_mean": mean, "cuda_deviation": deviation, "bound": bound, "reached": cpu[seeds[0]] <= bound}
    print("top-1 on held-out images: " + accuracy_text(result), flush=True)
    return result


def accuracy_text(accuracy):
    def listed(values):
        return ", ".join(f"{value:.3f}" for value in values.values())

    top1 = accuracy["top1"]
    return (f"{listed(top1['cuda'])} on the GPU in fp16 with seeds {', '.join(map(str, top1['cuda']))} (mean "
            f"{accuracy['cuda_mean']:.3f}, standard deviation {accuracy['cuda_deviation']:.3f}), {listed(top1['cpu'])} on the "
            f"CPU in fp32 with seed {', '.join(map(str, top1['cpu']))}. The GPU "
            f"{'reaches' if accuracy['reached'] else 'does not reach'} the CPU's accuracy: one more run of it would be at or "
            f"under {accuracy['bound']:.3f} with a probability of 95%.")


def report(result):
    program = result["redline"]
    text = [f"# ResNet training on {result['torch'].get('gpu', result['device'])}, {result['date']}", "",
            f"`{result['command']}`; Redline {program.get('version')} ({program.get('commit')}), {result['device']}; "
            f"{result['cores']} CPU cores."]
    if result["rows"]:
        text += ["", "## Speed", "",
                 f"PyTorch {result['torch']['torch']} with cuDNN {result['torch']['cudnn']}, channels_last; synthetic images "
                 f"of 224 px; {result['rounds']} rounds in turn, images/s: Redline's median, each peer's best.", "",
                 "| model | batch | dtype | Redline | PyTorch | its images/s | ratio | Redline's memory | PyTorch's |",
                 "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for row in result["rows"]:
        speeds, memory = row["images_per_second"], row["peak_bytes"]
        for program in [name for name in speeds if name not in PEERS]:
            of_program = "" if program == "redline" else f" ({program})"
            for peer in [name for name in speeds if name in PEERS]:
                cells = [row["model"], row["batch"], row["dtype"], f"{speeds[program]:.0f}{of_program}", PEERS[peer],
                         f"{speeds[peer]:.0f}", f"{speeds[program] / speeds[peer]:.2f}x",
                         f"{memory[program] / 2**30:.1f} GiB", f"{memory[peer] / 2**30:.1f} GiB"]
                text.append("| " + " | ".join(map(str, cells)) + " |")
    if result["rows"]:
        text += ["", "Memory: the device peak that Redline's --dry-run tells; what PyTorch's allocator reserves at most."]
    jpeg = result.get("jpeg")
    if jpeg:
        speeds = jpeg["images_per_second"]
        text += ["", "## Real JPEGs", "",
                 f"ResNet-50, fp16, batch {jpeg['batch']}, {jpeg['images']} generated JPEGs of "
                 f"{jpeg['bytes_per_image'] / 1024:.0f} KiB and around 500x375 pixels from TFRecord shards in the page cache, "
                 f"{jpeg['cores']} CPU cores; images/s once under way.", "",
                 "| synthetic | decoded by the card | by the CPU | as chosen by --decode auto |", "| --- | --- | --- | --- |",
                 f"| {speeds['synthetic']:.0f} | {speeds['card']:.0f} | {speeds['cpu']:.0f} | {speeds['auto']:.0f} |"]
    accuracy = result.get("accuracy")
    if accuracy:
        text += ["", "## Accuracy", "",
                 f"{accuracy['model']}, {accuracy['epochs']} epochs of the generated image set of ten classes at a learning "
                 f"rate of {accuracy['learning_rate']}, top-1 on its held-out images: {accuracy_text(accuracy)}"]
    curve = result.get("curve")
    if curve:
        text += ["", "## fp16 loss from the same weights and batches", "",
                 f"ResNet-50, {curve['steps']} steps, running means of 10: Redline and PyTorch AMP differ by "
                 f"{curve['mean_difference']:.4f} on average; PyTorch's runs on three other orders of the same data differ from "
                 f"its first by up to {curve['mean_spread']:.4f}. The first loss differs by {curve['first_difference']:.5f}.", "",
                 "| step | Redline | PyTorch | PyTorch, other orders |", "| --- | --- | --- | --- |"]
        mine, theirs = smooth(curve["redline"]), smooth(curve["torch"])
        others = [smooth(values) for values in curve["torch_other_orders"]]
        for i in range(19, curve["steps"], 20):
            text.append(f"| {i + 1} | {mine[i]:.4f} | {theirs[i]:.4f} | " + ", ".join(f"{o[i]:.4f}" for o in others) + " |")
    return "\n".join(text) + "\n"


def result_of(args, rows, header, versions):
    return {"benchmark": "gpu_training", "date": datetime.date.today().isoformat(), "kernel": platform.release(),
            "cores": len(os.sched_getaffinity(0)), "redline": header.get("program", {}), "device": header.get("device"),
            "torch": versions, "rounds": args.rounds, "command": "benchmarks/gpu_training.py " + " ".join(sys.argv[1:]),
            "rows": rows}


def save(args, result):
    args.output.mkdir(parents=True, exist_ok=True)
    name = f"gpu_training-{result['date']}" + "".join(f"-{part}" for part in args.parts)
    (args.output / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    page = args.output / f"{name}.md"
    page.write_text(report(result))
    return page


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ["speed", "curve", "jpeg", "accuracy"]
    options.add_argument("parts", nargs="*", help="what to measure: " + ", ".join(parts))
    options.add_argument("--rounds", type=int, default=3, help="how often each side is measured, in turn")
    options.add_argument("--only", default="", help="of speed: settings that contain one of these, as 'resnet50 256,resnet18'")
    options.add_argument("--redline", type=pathlib.Path, default=ROOT / "redline", help="the program to measure")
    options.add_argument("--beside", action="append", default=[], metavar="NAME=PATH",
                         help="of speed: another build to measure too, such as one for older GPUs")
    options.add_argument("--tune", action="store_true",
                         help="of speed: let Redline choose its kernels with --tune before it is measured (minutes a setting)")
    options.add_argument("--output", type=pathlib.Path, default=ROOT / "benchmarks" / "results", help="folder of the result")
    args = options.parse_args()
    unknown = set(args.parts) - set(parts)
    if unknown:
        options.error(f"there is no part {', '.join(sorted(unknown))}")
    wanted = args.parts or parts
    rows, header, versions = [], {}, {}
    if "speed" in wanted:
        settings = [s for s in SETTINGS if any(word in f"{s[0]} {s[1]} {s[2]}" for word in args.only.split(","))]
        programs = {"redline": args.redline, **dict(each.split("=", 1) for each in args.beside)}
        rows, header, versions = measure(programs, settings, args.rounds, args.tune,
                                         lambda *found: save(args, result_of(args, *found)))
    if not header:
        header = run_redline(args.redline, "synthetic", "--model", "resnet18", "-b", 2, "--steps", 1, "--device", "cuda")[0]
    result = result_of(args, rows, header, versions)
    if "jpeg" in wanted:
        result["jpeg"] = time_jpegs(args.redline, args.rounds)
    if "accuracy" in wanted:
        result["accuracy"] = compare_accuracy(args.redline)
    if "curve" in wanted:
        result["curve"] = compare_curves(args.redline, 200)
    print(f"written to {save(args, result)}")


if __name__ == "__main__":
    main()
