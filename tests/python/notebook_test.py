"""The package for notebooks, python/redline: runs as tables, a report inline, a run that is started and followed."""

import os
import pathlib
import sys
import threading
import warnings

from helper import need, redline as call, scratch

pandas = need("pandas")
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python"))
import redline  # noqa: E402

with scratch() as folder:
    call("data", "synth", f"{folder}/pics", "--classes", 3, "--train", 12, "--val", 6, "--size", 32)
    job = redline.train(f"{folder}/pics", "a", f"{folder}/runs", model="resnet18", image_size=32, batch_size=4, epochs=2,
                        lr=0.01, threads=1, checkpoint_every="1ep", telemetry="50ms", scale=(0.5, 1))  # fmt: skip
    kinds = [line["kind"] for line in job.follow()]
    assert kinds[0] == "run" and kinds[-1] == "end", kinds
    run = job.run
    assert kinds.count("step") == len(run.steps) == 6
    assert list(run.steps["step"]) == [1, 2, 3, 4, 5, 6] and run.steps["loss"].notna().all()
    assert len(run.evaluations) == 2 and run.evaluations["top1"].between(0, 1).all()
    assert set(run.checkpoints["name"]) == {"step-3", "step-6"}
    assert run.info["model"] == "resnet18" and run.end["reason"] == "finished"
    assert run.config["optimizer"]["batch_size"] == 4 and run.config["augment"]["scale"] == [0.5, 1.0]
    assert len(run.class_names) == 3 and run.info["class_names"] == run.class_names
    assert len(run.telemetry) > 0 and run.profile == {}
    assert "srcdoc=" in run.report()._repr_html_() and "resnet18" in run.report().page
    table = redline.table(f"{folder}/runs")
    assert list(table["name"]) == ["a"] and table["state"][0] == "finished" and table["steps"][0] == 6
    found = redline.predict(run.folder, f"{folder}/pics/val", top=2)
    assert len(found) == 12 and set(found["class"]) <= set(run.class_names) and set(found["rank"]) == {1, 2}
    # An image that cannot be read takes nothing from the others.
    broken = pathlib.Path(folder) / "broken.jpg"
    broken.write_text("broken")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(redline.predict(run.folder, f"{folder}/pics/val", broken, top=2)) == 12
    assert len(caught) == 1 and "1 of 7 images" in str(caught[0].message) and "broken.jpg" in str(caught[0].message), caught
    try:
        redline.predict(f"{folder}/pics", broken)
        raise AssertionError("not a network")
    except RuntimeError as error:
        assert "has no weights" in str(error), error

    # A resumed run is followed from where it goes on; a run that is stopped did not fail.
    again = redline.train(f"{folder}/pics", "a", f"{folder}/runs", resume=True, model="resnet18", image_size=32, batch_size=4,
                          epochs=1000, lr=0.01, threads=1, checkpoint_every="1ep", scale=(0.5, 1))  # fmt: skip
    lines = again.follow()
    assert [next(lines)["kind"], next(lines)["step"], next(lines)["step"]] == ["resume", 7, 8]
    assert run.end == {} and redline.table(f"{folder}/runs")["state"][0] == "going on"
    again.stop()
    assert again.wait().end["reason"] == "interrupted" and len(run.steps) >= 7

    # A program that warns at length is not held up by nobody reading that.
    talker = pathlib.Path(folder) / "talker"
    talker.write_text("#!/bin/sh\nseq 50000 >&2\nexit 64\n")
    talker.chmod(0o755)
    program, os.environ["REDLINE"] = os.environ["REDLINE"], str(talker)
    job = redline.train("pics", "c", folder)
    os.environ["REDLINE"] = program
    limit = threading.Timer(60, job.process.kill)
    limit.start()
    try:
        list(job.follow())
        raise AssertionError("it failed")
    except RuntimeError as error:
        assert "ended with 64" in str(error) and str(error).endswith("50000"), str(error)[:200]
    limit.cancel()
    failed = redline.train(f"{folder}/pics", "b", f"{folder}/runs", model="resnet5")
    try:
        list(failed.follow())
        raise AssertionError("a model that is not known")
    except RuntimeError as error:
        assert "64" in str(error) and "resnet5" in str(error), error
    try:
        redline.Run(folder)
        raise AssertionError("not a run")
    except FileNotFoundError:
        pass
    print("notebooks see what the files hold")
