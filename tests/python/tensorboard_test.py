"""TensorBoard's own data server reads what a run wrote, over HTTP: every number of metrics.jsonl is there."""

import glob
import io
import json
import shutil
import time
import urllib.parse
import urllib.request

from helper import near, need, redline, scratch

_, Image = need("tensorboard", "PIL.Image")
from tensorboard import program  # noqa: E402


def get(address, path, **query):
    url = f"{address}data/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read()


def records_of(folder, run):
    with open(f"{folder}/runs/{run}/metrics.jsonl", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def check_scalars(address, run, evaluated, records):
    steps = [r for r in records if r["kind"] == "step"]
    evaluations = [r for r in records if r["kind"] == "evaluation" and r["weights"] == "model"]
    wanted = {
        "Loss/train": [(r["step"], r["loss"]) for r in steps],
        "acc1/train": [(r["step"], 100 * r["top1"]) for r in steps],
        "acc5/train": [(r["step"], 100 * r["top5"]) for r in steps],
        "lr": [(r["step"], r["lr"]) for r in steps],
        "images_per_second": [(r["step"], r["images_per_second"]) for r in steps],
        "data_wait": [(r["step"], 100 * r.get("data_seconds", 0) / (r["seconds"] + r["gap_seconds"] - r.get("evaluation_seconds", 0))) for r in steps],
        "loss_scale": [(r["step"], r["loss_scale"]) for r in steps],
        "grad_norm": [(r["step"], r["gradient_norm"]) for r in steps],
        "Loss/val": [(r["step"], r["loss"]) for r in evaluations],
        "acc1/val": [(r["step"], 100 * r["top1"]) for r in evaluations],
        "acc5/val": [(r["step"], 100 * r["top5"]) for r in evaluations],
        "epoch_time": [(2 * e, sum(r["seconds"] + r["gap_seconds"] - r.get("evaluation_seconds", 0) for r in steps if r["epoch"] == e - 1)) for e in (1, 2)],
    }
    assert [r["step"] for r in steps] == [1, 2, 3, 4] and [r["step"] for r in evaluations] == evaluated
    for tag, points in wanted.items():
        found = json.loads(get(address, "plugin/scalars/scalars", run=run, tag=tag))
        assert [p[1] for p in found] == [step for step, _ in points], f"{tag}: {found}"
        for point, (step, value) in zip(found, points):
            near(point[2], value, 1e-6 * abs(value) + 1e-12, f"{tag} at step {step}")  # stored as fp32
    assert json.loads(get(address, "plugin/scalars/scalars", run=run, tag="Loss/val_ema"))


def check_pages(address):
    text = json.loads(get(address, "plugin/text/text", run="first", tag="config"))
    assert "image_size = 32" in text[0]["text"], text
    images = json.loads(get(address, "plugin/images/images", run="first", tag="inputs", sample=0))
    png = get(address, "plugin/images/individualImage", **dict(urllib.parse.parse_qsl(images[0]["query"])))
    assert Image.open(io.BytesIO(png)).size == (66, 66)  # 4 of 32 pixels, 2 between
    histogram = json.loads(get(address, "plugin/histograms/histograms", run="first", tag="weights/fc.weight"))
    assert [h[1] for h in histogram] == [2, 4], histogram
    assert sum(bucket[2] for bucket in histogram[0][2]) == 4 * 512
    gradients = json.loads(get(address, "plugin/histograms/histograms", run="first", tag="gradients/conv1.weight"))
    assert sum(bucket[2] for bucket in gradients[0][2]) == 64 * 3 * 49
    layout = json.loads(get(address, "plugin/custom_scalars/layout"))
    assert "^Loss/val$" in layout["category"][0]["chart"][0]["multiline"]["tag"], layout


def check_hparams(address, runs, records):
    body = json.dumps({"experimentName": ""}).encode()
    request = urllib.request.Request(
        f"{address}data/plugin/hparams/experiment", body, {"Content-Type": "application/json"}
    )
    experiment = json.loads(urllib.request.urlopen(request, timeout=30).read())
    assert any(h["name"] == "optimizer.lr" for h in experiment["hparamInfos"]), experiment
    body = json.dumps(
        {
            "experimentName": "",
            "allowedStatuses": ["STATUS_SUCCESS"],
            "colParams": [
                {"hparam": "optimizer.lr", "includeInResult": True},
                {"metric": {"tag": "acc1/val", "group": ""}, "includeInResult": True},
            ],
            "startIndex": 0,
            "sliceSize": 10,
        }
    ).encode()
    request = urllib.request.Request(
        f"{address}data/plugin/hparams/session_groups", body, {"Content-Type": "application/json"}
    )
    groups = json.loads(urllib.request.urlopen(request, timeout=30).read())["sessionGroups"]
    assert len(groups) == runs and groups[0]["hparams"] == {"optimizer.lr": 0.01}, groups
    last = [r for r in records if r["kind"] == "evaluation" and r["weights"] == "model"][-1]
    near(groups[0]["metricValues"][0]["value"], 100 * last["top1"], 1e-5, "the final accuracy")


with scratch() as folder:
    redline("data", "synth", f"{folder}/data", "--classes", 4, "--train", 8, "--val", 4, "--size", 48)
    train = ["train", f"{folder}/data", "--model", "resnet18", "--image-size", 32, "-b", 4, "--lr", 0.01, "--model-ema",
             "--histograms-every", 2, "-o", f"{folder}/runs"]  # fmt: skip
    redline(*train, "-e", 2, "--name", "first")
    assert len(glob.glob(f"{folder}/runs/first/events.out.tfevents.*")) == 1
    # A run that goes on in the middle of an epoch, and once more as if it had been killed before its last checkpoint.
    redline(*train, "--steps", 3, "--name", "second")
    for _ in range(2):
        shutil.rmtree(f"{folder}/runs/second/checkpoints/step-4", ignore_errors=True)
        assert "after step 3" in redline(*train, "-e", 2, "--name", "second", "--resume")
    assert len(glob.glob(f"{folder}/runs/second/events.out.tfevents.*")) == 3
    board = program.TensorBoard()
    board.configure(argv=["", "--logdir", f"{folder}/runs", "--host", "127.0.0.1", "--port", "0", "--reload_interval", "1"])
    address = board.launch()
    patience = time.monotonic() + 60
    while len(json.loads(get(address, "runs"))) < 2 and time.monotonic() < patience:
        time.sleep(0.2)
    time.sleep(1)
    check_scalars(address, "first", [2, 4], records_of(folder, "first"))
    check_scalars(address, "second", [2, 3, 4], records_of(folder, "second"))
    check_pages(address)
    check_hparams(address, 2, records_of(folder, "first"))
    print("TensorBoard shows all of it")
