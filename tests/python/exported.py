"""Networks as files, beside torchvision's: what the tests of export and of the larger models share."""

import csv
import json
import os

from helper import near, need, redline

numpy, torch, torchvision, Image = need("numpy", "torch", "torchvision", "PIL.Image")
onnxruntime, _, safetensors_torch = need("onnxruntime", "safetensors", "safetensors.torch")

import resnet_d  # noqa: E402, what it needs is there

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLASSES, SIZE = 4, 64


def draw_images(folder):
    """PNGs, so that no decoder's rounding comes between: smooth random patches."""
    random = numpy.random.default_rng(3)
    for split, count in (("train", 1), ("val", 3)):
        for label in range(CLASSES):
            os.makedirs(f"{folder}/data/{split}/class{label}")
            for i in range(count):
                small = Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=numpy.uint8))
                small.resize((SIZE, SIZE), Image.BICUBIC).save(f"{folder}/data/{split}/class{label}/{i}.png")


def images(folder, split="val"):
    """The images of a split as Redline sees them, at full size: [N,3,H,W], normalised, and their labels."""
    data = torchvision.datasets.ImageFolder(
        f"{folder}/data/{split}",
        torchvision.transforms.Compose(
            [torchvision.transforms.ToTensor(), torchvision.transforms.Normalize(MEAN, STD)]
        ),
    )
    return torch.stack([image for image, _ in data]), torch.tensor([label for _, label in data])


def torchvision_logits(file, model, x):
    tensors = safetensors_torch.load_file(file)
    network = resnet_d.build(model, CLASSES)
    assert set(tensors) == set(network.state_dict()), set(tensors) ^ set(network.state_dict())
    network.load_state_dict({name: tensor.float() if tensor.is_floating_point() else tensor
                             for name, tensor in tensors.items()})  # fmt: skip
    with torch.no_grad():
        return network.eval()(x)


def onnx_logits(file, x):
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    assert session.get_modelmeta().custom_metadata_map["redline.mean"] == "0.485 0.456 0.406"
    return torch.from_numpy(session.run(["logits"], {"images": x.numpy()})[0])


def make_weights(file, model):
    """Weights that a stranger made, with norms that are far from their initial values."""
    torch.manual_seed(1)
    network = resnet_d.build(model, CLASSES)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.uniform_(-0.2, 0.2)
            module.running_var.uniform_(0.5, 1.5)
            torch.nn.init.uniform_(module.weight, 0.5, 1.0)
            torch.nn.init.uniform_(module.bias, -0.2, 0.2)
    safetensors_torch.save_file(network.state_dict(), file)


def check_eval(folder, model, file, expected, labels):
    """Redline's own forward pass. Another order of summing is worth some 1e-6 a layer."""
    scale = expected.abs().max().item()
    result = json.loads(redline("eval", file, f"{folder}/data", "--image-size", SIZE, "--crop-pct", 1,
                                "--confusion", f"{folder}/confusion.csv", "--json", "-", "-q"))  # fmt: skip
    near(result["loss"], torch.nn.functional.cross_entropy(expected, labels).item(), 1e-4 * scale, f"{model}: loss")
    near(result["top1"], (expected.argmax(1) == labels).float().mean().item(), 1e-6, f"{model}: top-1")  # the mean is fp32
    assert result["samples"] == len(labels)
    with open(f"{folder}/confusion.csv", encoding="utf-8") as lines:
        rows = list(csv.reader(lines))
    for row, actual in zip(rows[1:], range(CLASSES)):
        predicted = expected.argmax(1)[labels == actual]
        assert [int(cell) for cell in row[1:]] == [(predicted == c).sum().item() for c in range(CLASSES)], row


def check_onnx(folder, model, given, x, expected, options):
    scale = expected.abs().max().item()
    file = f"{folder}/{model}{len(options)}.onnx"
    redline("export", given, "--to", file, "--image-size", x.shape[-1], *options)
    for batch in (1, len(x)):
        difference = (onnx_logits(file, x[:batch]) - expected[:batch]).abs().max().item()
        assert difference <= 2e-5 * max(1.0, scale), f"{file}: {difference} of {scale}"
    os.remove(file)
