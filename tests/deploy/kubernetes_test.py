#!/usr/bin/env python3
"""deploy/kubernetes*.yaml against what the training operator and the image do: kubernetes_test.py <repository>.

The container's own command runs here with a redline that is made up, as the operator would run it. Exits with 77 where
PyYAML is not installed.
"""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

try:
    import yaml
except ImportError:
    print("skipped: PyYAML is not installed")
    sys.exit(77)

ROOT = pathlib.Path(sys.argv[1])
job = yaml.safe_load((ROOT / "deploy/kubernetes.yaml").read_text())
user = int(re.search(r"^USER (\d+):(\d+)$", (ROOT / "deploy/Dockerfile").read_text(), re.MULTILINE)[1])


def run(container, script, stop=False, program="redline"):
    """The exit code of the container's command, with `script` in the place of the program."""
    with tempfile.TemporaryDirectory() as folder:
        fake = pathlib.Path(folder, program)
        fake.write_text("#!/bin/sh\n" + script)
        fake.chmod(0o755)
        environment = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}")
        process = subprocess.Popen(container["command"] + container["args"], env=environment, cwd=folder, start_new_session=True)
        try:
            if stop:
                while not pathlib.Path(folder, "ready").exists():
                    time.sleep(0.02)
                process.send_signal(signal.SIGTERM)
            return process.wait(timeout=20)
        finally:
            with contextlib.suppress(ProcessLookupError):  # what it left behind
                os.killpg(process.pid, signal.SIGKILL)


def check_secret(pod):
    """The secret is root's, and of the group that the pod names."""
    context = pod["securityContext"]
    assert context["runAsUser"] == user and context["fsGroup"] == context["runAsGroup"]
    secret = next(v for v in pod["volumes"] if v["name"] == "token")["secret"]
    assert secret["defaultMode"] & 0o040, "the image's user cannot read the token"
    assert not secret["defaultMode"] & 0o007, "others can read the token"


for name, replica in job["spec"]["pytorchReplicaSpecs"].items():
    assert replica["restartPolicy"] == "ExitCode", name
    pod = replica["template"]["spec"]
    container = pod["containers"][0]
    assert container["name"] == "pytorch", "the operator looks at no other"
    # 128 and more is started again, 1 to 127 is not.
    assert run(container, "exit 0") == 0
    assert run(container, "exit 75") >= 128
    assert run(container, "kill -9 $$") >= 128
    for code in (64, 65, 69, 70, 74):
        assert run(container, f"exit {code}") == code
    assert run(container, '[ "$1 $2" = "train /data/imagenet" ] || exit 64') == 0
    # Stopped, it is given the time to write its checkpoint.
    slow = "trap 'sleep 1; exit 75' TERM\ntouch ready\nwhile :; do sleep 0.1; done"
    assert run(container, slow, stop=True) == 175
    # Also when it is stopped at the moment it begins.
    for _ in range(20):
        assert run(container, "trap 'exit 75' TERM\nkill -TERM $PPID\nwhile :; do sleep 0.1; done") == 175
    check_secret(pod)

# The elastic job. The fields are those of the operator's API, release 1.9.
elastic = yaml.safe_load((ROOT / "deploy/kubernetes-elastic.yaml").read_text())["spec"]
policy = elastic["elasticPolicy"]
known = {"minReplicas", "maxReplicas", "rdzvBackend", "rdzvPort", "rdzvHost", "rdzvId", "rdzvConf", "standalone", "nProcPerNode",
         "maxRestarts", "metrics"}
assert not set(policy) - known, set(policy) - known
assert policy["minReplicas"] <= elastic["pytorchReplicaSpecs"]["Worker"]["replicas"] <= policy["maxReplicas"]
assert list(elastic["pytorchReplicaSpecs"]) == ["Worker"], "agents meet at worker 0; a master would be another one"
pod = elastic["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
container = pod["containers"][0]
assert container["name"] == "pytorch"
assert container["resources"]["limits"]["nvidia.com/gpu"] == policy["nProcPerNode"]
asks = '[ "$1 $2 $3 $4" = "--no_python redline train /data/imagenet" ] || exit 64'
assert run(container, asks, program="torchrun") == 0
# The global batch can be divided among every number of ranks between the two.
flags = dict(zip(container["args"], container["args"][1:]))
for nodes in range(policy["minReplicas"], policy["maxReplicas"] + 1):
    assert int(flags["--global-batch"]) % (nodes * policy["nProcPerNode"]) == 0, nodes
assert "--resume" in container["args"] and "--name" in flags
check_secret(pod)
print("ok")
