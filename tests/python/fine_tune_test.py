"""Fine-tuning beside PyTorch: from the same weights, with a frozen trunk, rates of their own for layers and head, AdamW and
a clipped gradient, the losses of every step are PyTorch's, and what is frozen stays as it was to the last bit."""

import json
import os

from helper import near, need, redline, scratch

numpy, torch, torchvision, Image, safetensors_torch = need(
    "numpy", "torch", "torchvision", "PIL.Image", "safetensors.torch"
)

from exported import CLASSES, SIZE, images, make_weights  # noqa: E402

STEPS, RATE, HEAD_RATE, DECAY, LAYER_DECAY, CLIP = 8, 0.00004, 0.0003, 20, 0.75, 2.0
FROZEN = ("conv1", "bn1", "layer1", "layer2")
BLOCKS = 8  # of ResNet-18


def draw(folder):
    """One batch is all images, so that no order comes between: a colour for every class, under noise."""
    random = numpy.random.default_rng(5)
    for label in range(CLASSES):
        os.makedirs(f"{folder}/data/train/class{label}")
        for i in range(4):
            small = random.integers(0, 128, (8, 8, 3)) + 127 * numpy.array([label & 1, label >> 1, 0])
            picture = Image.fromarray(small.astype(numpy.uint8)).resize((SIZE, SIZE), Image.BICUBIC)
            picture.save(f"{folder}/data/train/class{label}/{i}.png")


def rate_of(name):
    """timm's layer decay: the head's rate is whole, and each block's is a share of the next one's."""
    if name.startswith("fc."):
        return HEAD_RATE
    stage, block = int(name[5]), int(name[7])
    return RATE * LAYER_DECAY ** (BLOCKS + 1 - (2 * (stage - 1) + block + 1))


def twin_losses(given, x, labels, epsilon=0.0):
    """epsilon: how far, relative to themselves, the weights are moved first."""
    network = torchvision.models.resnet18(num_classes=CLASSES)
    network.load_state_dict(safetensors_torch.load_file(given))
    torch.manual_seed(2)
    groups = []
    for name, parameter in network.named_parameters():
        parameter.data *= 1 + epsilon * torch.randn_like(parameter)
        parameter.requires_grad = not name.startswith(FROZEN)
        if parameter.requires_grad:
            groups.append({"params": [parameter], "lr": rate_of(name), "weight_decay": DECAY if parameter.dim() > 1 else 0})
    optimizer = torch.optim.AdamW(groups)
    network.train()
    for name in FROZEN:
        getattr(network, name).eval()  # its norms use the running statistics
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(x), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for p in network.parameters() if p.requires_grad], CLIP)
        optimizer.step()
        losses.append(loss.item())
    return losses


def train(folder, given, name, *options):
    redline("train", f"{folder}/data", "--model", "resnet18", "--image-size", SIZE, "-b", 4 * CLASSES, "--scale", 1, 1,
            "--ratio", 1, 1, "--hflip", 0, "--init", given, "--freeze", "stem,layer1,layer2", "--opt", "adamw", "--lr", RATE,
            "--head-lr", HEAD_RATE, "--layer-decay", LAYER_DECAY, "--weight-decay", DECAY, "--clip-norm", CLIP,
            "--checkpoint-every", 4, "-o", f"{folder}/runs", "--name", name, *options)  # fmt: skip
    with open(f"{folder}/runs/{name}/metrics.jsonl", encoding="utf-8") as lines:
        steps = [r for r in map(json.loads, lines) if r["kind"] == "step"]
    tensors = safetensors_torch.load_file(f"{folder}/runs/{name}/checkpoints/latest/model.safetensors")
    return steps, tensors


with scratch() as folder:
    draw(folder)
    given = f"{folder}/resnet18.safetensors"
    make_weights(given, "resnet18")
    x, labels = images(folder, "train")
    steps, tensors = train(folder, given, "whole", "--steps", STEPS)

    expected = twin_losses(given, x, labels)
    assert expected[-1] < 0.7 * expected[0], expected
    # Adam divides small gradients by themselves, so rounding shows: in PyTorch, weights that are moved by a rounding of
    # fp32 change a loss by up to this much. Twenty times that is allowed, and a hundredth of a percent.
    moved = twin_losses(given, x, labels, 2.0**-24)
    rounding = max(abs(a - b) for a, b in zip(expected, moved))
    for i, (step, loss) in enumerate(zip(steps, expected)):
        near(step["loss"], loss, 20 * rounding + 1e-4 * loss, f"loss of step {i + 1} (rounding is worth {rounding:.1e})")
    assert max(step["gradient_norm"] for step in steps) > CLIP, "no gradient was clipped"

    before = safetensors_torch.load_file(given)
    for name, tensor in before.items():
        if tensor.is_floating_point():
            assert torch.equal(tensor, tensors[name]) == name.startswith(FROZEN), name

    # Half of it, and then the rest: the moments and their count come back from the checkpoint.
    train(folder, given, "parts", "--steps", STEPS // 2)
    _, resumed = train(folder, given, "parts", "--steps", STEPS, "--resume")
    for name, tensor in tensors.items():
        assert torch.equal(tensor, resumed[name]), name
    print(f"losses {expected[0]:.3f} to {expected[-1]:.3f}, as PyTorch's")
