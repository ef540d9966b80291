#!/usr/bin/env python3
"""Writes what PyTorch computes for ResNets, for golden_test.cpp to compare with.

    pip install torch torchvision numpy
    python tests/golden/make_golden.py                   # writes resnet18.json and the others beside this file
    python tests/golden/make_golden.py resnext50_32x4d   # one of them

Everything is computed in float64, so the stored numbers are the true values of the model, not those of
PyTorch's fp32 kernels. Weights, images and labels are a hash of (name, index): golden_test.cpp makes the same
ones, bit for bit, so they are not stored. Running this again gives the same files up to the last printed digit.

What is stored: the logits of the first batch; for every parameter's gradient and every running statistic after
one step its L2 norm, its sum, two products with hash-made vectors and sampled entries; the losses and top-1/top-5
counts of ten training steps with SGD; the parameters, and the logits in evaluation mode, after them.
"""

import json
import math
import pathlib
import sys

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
import resnet_d  # noqa: E402

CLASSES = 12
BATCH = 4
SIZE = 64
BATCHES = 3  # distinct batches, used in turn
STEPS = 10
SMOOTHING = 0.1
SAMPLES = 24  # entries stored of each tensor
DIGITS = 9
MEAN = np.float32([0.485, 0.456, 0.406]).astype(np.float64)
STD = np.float32([0.229, 0.224, 0.225]).astype(np.float64)

# Learning rates are exact in fp32 and low enough for ten steps not to amplify rounding.
MODELS = {
    "resnet18": {"lr": 0.0078125, "momentum": 0.875, "weight_decay": 0.015625, "nesterov": True},
    "resnet50": {"lr": 0.0009765625, "momentum": 0.875, "weight_decay": 0.015625, "nesterov": False},
    "wide_resnet50_2": {"lr": 0.0009765625, "momentum": 0.875, "weight_decay": 0.015625, "nesterov": False},
    "resnext50_32x4d": {"lr": 0.0009765625, "momentum": 0.875, "weight_decay": 0.015625, "nesterov": False},
    "resnet50d": {"lr": 0.0009765625, "momentum": 0.875, "weight_decay": 0.015625, "nesterov": False},
    "wide_resnet101_2": {"lr": 0.0009765625, "momentum": 0.875, "weight_decay": 0.015625, "nesterov": False},
    "resnext101_32x8d": {"lr": 0.0009765625, "momentum": 0.875, "weight_decay": 0.015625, "nesterov": False},
    "resnext101_64x4d": {"lr": 0.0009765625, "momentum": 0.875, "weight_decay": 0.015625, "nesterov": False},
}


def fnv1a(name):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def hashes(name, count):
    """SplitMix64 of (name, 0), (name, 1), ..."""
    with np.errstate(over="ignore"):
        z = np.uint64(fnv1a(name)) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def symmetric(name, count):
    """Uniform in [-1, 1), multiples of 2^-23: exact in fp32."""
    return (hashes(name, count) >> np.uint64(40)).astype(np.float64) * 2.0**-23 - 1.0


def initial(name, shape, bottleneck):
    """A parameter's or statistic's value, rounded to fp32."""
    unit = symmetric(name, math.prod(shape))
    if name.endswith("running_var"):
        values = 1.0 + 0.5 * unit
    elif name.endswith("running_mean"):
        values = 0.125 * unit
    elif len(shape) == 4:  # keeps the variance of what passes through ReLU
        values = math.sqrt(6.0 / (shape[1] * shape[2] * shape[3])) * unit
    elif len(shape) == 2:
        values = math.sqrt(3.0 / shape[1]) * unit
    elif name.endswith(".weight"):
        # Small residual branches: the gradient of a deep network at random weights is otherwise so sensitive
        # that the rounding of fp32 shows in its first digits.
        branch_end = name.startswith("layer") and name.endswith("bn3.weight" if bottleneck else "bn2.weight")
        values = (0.25 if branch_end else 1.0) * (1.0 + 0.25 * unit)
    else:
        values = 0.125 * unit
    return values.astype(np.float32).astype(np.float64).reshape(shape)


def images(batch):
    """u8 [N,H,W,3]: coarse blocks of 8 pixels, different in every image, under fine noise."""
    n, y, x, c = np.meshgrid(np.arange(BATCH), np.arange(SIZE), np.arange(SIZE), np.arange(3), indexing="ij")
    blocks = SIZE // 8
    coarse = hashes(f"coarse{batch}", BATCH * blocks * blocks * 3) >> np.uint64(56)
    fine = hashes(f"fine{batch}", BATCH * SIZE * SIZE * 3) >> np.uint64(56)
    coarse = coarse[((n * blocks + y // 8) * blocks + x // 8) * 3 + c]
    fine = fine[((n * SIZE + y) * SIZE + x) * 3 + c]
    return ((np.uint64(3) * coarse + fine) >> np.uint64(2)).astype(np.uint8)


def labels(batch):
    """The last row of the second batch does not count."""
    values = (hashes(f"labels{batch}", BATCH) % np.uint64(CLASSES)).astype(np.int64)
    if batch == 1:
        values[-1] = -1
    return values


def tensors(batch):
    x = (images(batch).astype(np.float64) / 255.0 - MEAN) / STD
    return torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2))), torch.from_numpy(labels(batch))


def loss_of(logits, target):
    """The mean over rows that count of the cross-entropy with label smoothing, written out."""
    log_p = torch.log_softmax(logits, 1)[target >= 0]
    kept = target[target >= 0]
    nll = -log_p.gather(1, kept[:, None])[:, 0]
    loss = ((1 - SMOOTHING) * nll - SMOOTHING * log_p.mean(1)).mean()
    own = torch.nn.functional.cross_entropy(logits[target >= 0], kept, label_smoothing=SMOOTHING)
    assert torch.allclose(loss, own, rtol=1e-12), (loss, own)
    return loss


def correct_of(logits, target):
    """How many labels are the first, and among the first five, of their row."""
    found = logits.argsort(1, descending=True) == target[:, None]
    return [int(found[:, :1].sum()), int(found[:, :5].sum())]


def number(value):
    return float(f"{torch.as_tensor(value).item():.{DIGITS}g}")


def summary(name, tensor):
    """What is kept of a tensor: enough to notice any wrong, swapped or missing element."""
    values = tensor.detach().numpy().reshape(-1)
    count = len(values)
    picks = (hashes(name + "#samples", min(SAMPLES, count)) % np.uint64(count)).astype(np.int64)
    return {
        "name": name,
        "shape": list(tensor.shape),
        "norm": number(np.linalg.norm(values)),
        "sum": number(values.sum()),
        "products": [number(values @ symmetric(f"{name}#product{i}", count)) for i in range(2)],
        "samples": [number(v) for v in values[picks]],
    }


def build(name):
    model = resnet_d.build(name, CLASSES).double()
    state = {k: torch.from_numpy(initial(k, v.shape, name != "resnet18")) for k, v in model.state_dict().items()
             if not k.endswith("num_batches_tracked")}
    model.load_state_dict(state, strict=False)
    return model.train()


def optimizer_of(model, lr, momentum, weight_decay, nesterov):
    decayed = [p for p in model.parameters() if p.dim() > 1]
    spared = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": spared, "weight_decay": 0.0}]
    return torch.optim.SGD(groups, lr=lr, momentum=momentum, nesterov=nesterov)


def statistics_of(model):
    return {k: v for k, v in model.state_dict().items() if "running_" in k}


def golden(name, hyper):
    model = build(name)
    parameters = dict(model.named_parameters())
    result = {
        "model": name, "classes": CLASSES, "batch": BATCH, "size": SIZE, "batches": BATCHES,
        "smoothing": SMOOTHING, **hyper,
        "state_names": [k for k in model.state_dict() if not k.endswith("num_batches_tracked")],
    }
    optimizer = optimizer_of(model, **hyper)
    losses, correct = [], []
    for step in range(STEPS):
        x, target = tensors(step % BATCHES)
        optimizer.zero_grad()
        logits = model(x)
        loss = loss_of(logits, target)
        loss.backward()
        losses.append(number(loss))
        correct.append(correct_of(logits, target))
        if step == 0:
            result["logits"] = [number(v) for v in logits.detach().reshape(-1)]
            result["loss_sum"] = number(loss * BATCH)
            result["gradients"] = [summary(k, p.grad) for k, p in parameters.items()]
            result["statistics"] = [summary(k, v) for k, v in statistics_of(model).items()]
        optimizer.step()
    result["losses"] = losses
    result["correct"] = correct
    result["parameters"] = [summary(k, p) for k, p in parameters.items()]
    model.eval()
    with torch.no_grad():
        x, target = tensors(0)
        logits = model(x)
        result["eval_logits"] = [number(v) for v in logits.reshape(-1)]
        result["eval_correct"] = correct_of(logits, target)
    return result


def main():
    torch.manual_seed(0)
    here = pathlib.Path(__file__).parent
    for name in sys.argv[1:] or MODELS:
        hyper = MODELS[name]
        result = golden(name, hyper)
        lines = []
        for key, value in result.items():
            if key in ("gradients", "statistics", "parameters"):
                rows = ",\n".join("  " + json.dumps(row) for row in value)
                lines.append(f'"{key}": [\n{rows}\n]')
            else:
                lines.append(f'"{key}": {json.dumps(value)}')
        (here / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
        print(f"{name}: losses {result['losses'][0]:.4f} .. {result['losses'][-1]:.4f}")


if __name__ == "__main__":
    main()
