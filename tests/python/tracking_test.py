"""redline.track: runs as Weights & Biases' and MLflow's own packages write and read them, without a network."""

import contextlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

from helper import need, redline as call, scratch

need("pandas", "sqlalchemy", "alembic")
wandb, mlflow = need("wandb", "mlflow")
package = str(pathlib.Path(__file__).parents[2] / "python")
sys.path.insert(0, package)
from mlflow.tracking import MlflowClient  # noqa: E402
from redline import Run, track as module  # noqa: E402
from wandb.proto import wandb_internal_pb2  # noqa: E402

os.environ["WANDB_ERROR_REPORTING"] = "false"


def tracked(*words, code=0):
    """What the command prints, or the reason that it ends with."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = module.main([str(word) for word in words])
    assert (status != 0) == (code != 0), f"{words}: {status}"
    return printed.getvalue() + str(status)


def records(file):
    """Those of a .wandb file: LevelDB's log format, blocks of 32 KiB in which a record may be cut into parts."""
    data, at, whole = file.read_bytes(), 7, b""
    while at < len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        part, at = data[at + 7 : at + 7 + size], at + 7 + size
        whole = part if kind in (1, 2) else whole + part
        if kind in (1, 4):
            yield wandb_internal_pb2.Record.FromString(whole)


def wandb_history(folder):
    """[(step, numbers)] over all runs of a folder as they were written, their ids, and the last one's config."""
    wandb.teardown()  # its process has written everything once it has ended
    history, ids, config = [], [], {}
    for file in sorted(pathlib.Path(folder).glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.parent.name):
        for record in records(file):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                ids.append(record.run.run_id)
                config = {one.key or one.nested_key[0]: json.loads(one.value_json) for one in record.run.config.update}
            if kind == "history":
                values = {(one.key or one.nested_key[0]): json.loads(one.value_json) for one in record.history.item}
                history.append((record.history.step.num, values))
    return history, ids, config


def mlflow_history(store, key):
    client = MlflowClient(tracking_uri=store)
    (run,) = client.search_runs([client.get_experiment_by_name("redline").experiment_id])
    return run, [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, key)]


def cut(run, folder, lines):
    """The run as it was when its metrics had that many lines."""
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns("checkpoints"))
    text = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(text[:lines]) + '{"kind":"st')


def expect(history, name, lines, kind):
    wanted = [(line["step"], line[name.removeprefix("val/")]) for line in lines if line.get("kind") == kind]
    assert history == wanted, f"{name}: {history} instead of {wanted}"


def check(run, place):
    """A run that is looked at while it goes on and when it has ended, in every store."""
    part = place / "part"
    lines = Run(run).lines
    evaluated = next(at for at, line in enumerate(lines) if line["kind"] == "evaluation")
    cut(run, part, evaluated)  # its last step's evaluation is still to come
    stores = [str(place / "files"), f"sqlite:///{place}/runs.db"]
    for store in stores:
        tracked("mlflow", part, "--to", store)
    tracked("wandb", part, "--to", place / "w")
    early, ids, config = wandb_history(place / "w")
    assert [step for step, _ in early] == [1, 2] and config["optimizer.lr"] == 0.01, (early, config)
    assert "nothing new" in tracked("wandb", part, "--to", place / "w")
    shutil.copy(run / "metrics.jsonl", part)
    for _ in range(2):
        for store in stores:
            tracked("mlflow", part, "--to", store)
        tracked("wandb", part, "--to", place / "w")
    history, ids, _ = wandb_history(place / "w")
    assert len(ids) == 2 and len(set(ids)) == 1, ids
    for name, kind in (("loss", "step"), ("val/top1", "evaluation")):
        expect([(step, row[name]) for step, row in history if name in row], name, lines, kind)
        for store in stores:
            found, values = mlflow_history(store, name)
            expect(values, name, lines, kind)
            assert found.info.status == "FINISHED" and found.data.params["optimizer.lr"] == "0.01", found
            assert found.info.run_name == "part" and found.data.params["run.model"] == "resnet18", found
    listed = subprocess.run([sys.executable, "-m", "wandb", "sync", "--dry-run", str(place / "w" / "wandb")],
                            capture_output=True, text=True, check=True)  # fmt: skip
    assert "2 run(s)" in listed.stdout + listed.stderr, listed


def check_followed(run, place):
    part = place / "part"
    cut(run, part, 3)
    following = threading.Thread(target=module.track, args=("mlflow", part, str(place / "files"), "redline", True, 0.1))
    following.start()
    until = time.monotonic() + 60
    while not list((place / "files").glob("*/*/metrics/loss")) and time.monotonic() < until:
        time.sleep(0.1)
    assert following.is_alive(), "it ended before the run"
    shutil.copy(run / "metrics.jsonl", part)
    following.join(60)
    assert not following.is_alive(), "it goes on after the run"
    expect(mlflow_history((place / "files").as_uri(), "loss")[1], "loss", Run(run).lines, "step")


def check_odd(run, place):
    """NaN, a run that failed, and what is not a run."""
    cut(run, place / "nan", 2)
    wrong = {"kind": "step", "step": 2, "loss": None, "loss_text": "nan", "elapsed": 1.0}
    end = {"kind": "end", "reason": "failed"}
    with open(place / "nan/metrics.jsonl", "a") as file:
        file.write("\n" + json.dumps(wrong) + "\n" + json.dumps(end) + "\n")
    tracked("mlflow", place / "nan", "--to", place / "files")
    found, values = mlflow_history((place / "files").as_uri(), "loss")
    assert found.info.status == "FAILED" and len(values) == 2 and values[1][1] != values[1][1], (found, values)
    assert "no config.toml" in tracked("mlflow", place, "--to", place / "files", code=1)
    (place / "nan/metrics.jsonl").write_text("")
    assert "no metrics yet" in tracked("wandb", place / "nan", "--to", place, code=1)
    assert "redline.track:" in tracked("mlflow", run, "--to", "nowhere://x", code=1)


with scratch() as name:
    root = pathlib.Path(name)
    call("data", "synth", root / "pics", "--classes", 3, "--train", 12, "--val", 6, "--size", 32)
    call("train", root / "pics", "--model", "resnet18", "--image-size", 32, "-b", 4, "-e", 2, "--lr", 0.01, "--threads", 1,
         "--checkpoint-every", "off", "--name", "a", "-o", root / "runs")  # fmt: skip
    for number, checked in enumerate((check, check_followed, check_odd)):
        (root / str(number)).mkdir()
        checked(root / "runs/a", root / str(number))
    print("both trackers hold what the run wrote, once")
