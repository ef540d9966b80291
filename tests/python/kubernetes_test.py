"""deploy/kubernetes.yaml against the schemas of what reads it: Kubernetes' own for the pods, and the training operator's
models for the job around them."""

import os

from helper import need

need("kubernetes_validate", "kubeflow.training")
import kubernetes_validate  # noqa: E402
import yaml  # noqa: E402
from kubeflow.training import models  # noqa: E402

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def check_fields(value, model, where):
    """Every field is one that the operator's model has."""
    known = {model.attribute_map[name]: kind for name, kind in model.openapi_types.items()}
    unknown = sorted(set(value) - set(known))
    assert not unknown, f"{where} has no {unknown}"
    for field, item in value.items():
        inner = getattr(models, known[field], None)
        if inner is not None:
            check_fields(item, inner, f"{where}.{field}")
        elif known[field].startswith("dict(str, KubeflowOrg"):
            for name, one in item.items():
                check_fields(one, getattr(models, known[field][len("dict(str, "):-1]), f"{where}.{field}.{name}")


with open(f"{REPOSITORY}/deploy/kubernetes.yaml") as file:
    jobs = list(yaml.safe_load_all(file))
assert len(jobs) == 1 and jobs[0]["apiVersion"] == "kubeflow.org/v1" and jobs[0]["kind"] == "PyTorchJob", jobs
check_fields(jobs[0], models.KubeflowOrgV1PyTorchJob, "PyTorchJob")
replicas = jobs[0]["spec"]["pytorchReplicaSpecs"]
assert sorted(replicas) == ["Master", "Worker"], replicas.keys()
for name, replica in replicas.items():
    assert replica["restartPolicy"] in ("Always", "OnFailure", "Never", "ExitCode"), replica["restartPolicy"]
    # As the operator makes them; ExitCode is its own word, for which a pod gets Never.
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name.lower()}, **replica["template"]}
    pod["spec"] = {**pod["spec"], "restartPolicy": "Never"}
    kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
    assert any(c["name"] == "pytorch" for c in pod["spec"]["containers"]), f"{name} has no container 'pytorch'"
print("the pods and the job are what Kubernetes and its training operator know")
