"""benchmarks/real_sets.py in miniature: it stops in time and continues, both sides learn the recipe's way, and the result has
every piece."""

import json
import os
import pathlib
import subprocess
import sys

from helper import near, need, redline, scratch

need("torch", "torchvision", "PIL.Image", "numpy", "tomllib")
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BENCH, PEER = ROOT / "benchmarks" / "real_sets.py", ROOT / "benchmarks" / "peer_real_sets.py"


def run(*command):
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, timeout=250, check=False)
    return done.returncode, done.stdout + done.stderr


with scratch() as folder:
    redline("data", "synth", f"{folder}/set", "--classes", 3, "--train", 72, "--val", 30, "--size", 32, "--quiet")
    os.rename(f"{folder}/set/val", f"{folder}/set/test")  # as CIFAR's images come
    work = pathlib.Path(folder) / "work"
    bench = [BENCH, "--work", work, "--cifar", f"{folder}/set", "--redline", os.environ["REDLINE"], "--device", "cpu", "--trial",
             "--seeds", 1]
    status, text = run(*bench, "--minutes", 0.02)
    assert status == 75 and "call again" in text, (status, text)
    status, text = run(*bench)
    assert status == 0, text
    result = json.loads(next(work.glob("real_sets-*.json")).read_text())
    assert result["missing"] == [] and len(result["pieces"]) == 3, result["pieces"].keys()
    for side in ("redline", "torch"):
        piece = result["pieces"][f"train cifar resnet18 {side} 0"]
        assert list(piece["curve"]) == ["1", "2"] and piece["images_per_second"] > 0, piece
        times = [elapsed for _, elapsed in piece["curve"].values()]
        assert 0 < times[0] < times[1], times
    page = next(work.glob("real_sets-*.md")).read_text()
    assert "| cifar | resnet18 | Redline | 1 |" in page and "| cifar | resnet18 | PyTorch, eager | 1 |" in page, page
    status, text = run(*bench)
    assert status == 0 and "train" not in text, text  # all is done

    # Another folder, which may be on another machine, takes the trainings over, and nothing else.
    other = [*bench, "--earlier", next(work.glob("real_sets-*.json"))]
    other[other.index(work)] = pathlib.Path(folder) / "other"
    status, text = run(*other)
    assert status == 0 and "prepare cifar" in text and " train " not in text, text
    taken = next((pathlib.Path(folder) / "other").glob("real_sets-*.json"))
    assert json.loads(taken.read_text())["pieces"]["train cifar resnet18 redline 0"] == result["pieces"]["train cifar resnet18 redline 0"]
    assert "2 trainings are from earlier results" in taken.with_suffix(".md").read_text()
    status, text = run(*[part for part in other if part != "--trial"])
    assert status == 1 and "measured with --trial" in text, (status, text)

    # The peer stopped after an epoch ends up where it does without a stop.
    train = [PEER, "train", work / "cifar" / "arrays.pt", "--recipe", ROOT / "recipes" / "cifar-like.toml", "--model", "resnet18",
             "--device", "cpu", "--size", 32, "--batch", 8, "--epochs", 2, "--warmup-epochs", 1]
    rows = {}
    for name, until in (("whole", [0]), ("parts", [1, 0])):
        for i, at in enumerate(until):
            status, text = run(*train, "--until", at, "--records", f"{folder}/{name}.jsonl", "--state", f"{folder}/{name}.state")
            assert status == (75 if i + 1 < len(until) else 0), (status, text)
        rows[name] = [json.loads(line) for line in pathlib.Path(f"{folder}/{name}.jsonl").read_text().splitlines()]
        assert [row["epoch"] for row in rows[name]] == [1, 2], rows[name]
    near(rows["parts"][1]["loss"], rows["whole"][1]["loss"], 1e-3, "loss after a stop")
    print("done, stopped and continued")
