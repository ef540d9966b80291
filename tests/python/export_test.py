"""What `redline export` writes, read by the programs it is for: safetensors' own package, torchvision's ResNets, which
must give Redline's accuracy and loss, and ONNX Runtime, which must give torchvision's logits; and back through --init."""

import csv
import json
import os

from helper import near, need, redline, scratch

numpy, torch, torchvision, Image = need("numpy", "torch", "torchvision", "PIL.Image")
onnxruntime, _, safetensors_torch = need("onnxruntime", "safetensors", "safetensors.torch")

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
    network = getattr(torchvision.models, model)(num_classes=CLASSES)
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
    network = getattr(torchvision.models, model)(num_classes=CLASSES)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.uniform_(-0.2, 0.2)
            module.running_var.uniform_(0.5, 1.5)
            torch.nn.init.uniform_(module.weight, 0.5, 1.0)
            torch.nn.init.uniform_(module.bias, -0.2, 0.2)
    safetensors_torch.save_file(network.state_dict(), file)


def check_model(folder, model, x, labels):
    given, exported = f"{folder}/{model}.safetensors", f"{folder}/{model}-out.safetensors"
    make_weights(given, model)
    expected = torchvision_logits(given, model, x)
    redline("export", given, "--to", exported)
    assert torch.equal(torchvision_logits(exported, model, x), expected)

    # Redline's own forward pass. Another order of summing is worth some 1e-6 a layer.
    scale = expected.abs().max().item()
    result = json.loads(redline("eval", exported, f"{folder}/data", "--image-size", SIZE, "--crop-pct", 1,
                                "--confusion", f"{folder}/confusion.csv", "--json", "-", "-q"))  # fmt: skip
    near(result["loss"], torch.nn.functional.cross_entropy(expected, labels).item(), 1e-4 * scale, f"{model}: loss")
    near(result["top1"], (expected.argmax(1) == labels).float().mean().item(), 1e-6, f"{model}: top-1")  # the mean is fp32
    assert result["samples"] == len(labels)
    with open(f"{folder}/confusion.csv", encoding="utf-8") as lines:
        rows = list(csv.reader(lines))
    for row, actual in zip(rows[1:], range(CLASSES)):
        predicted = expected.argmax(1)[labels == actual]
        assert [int(cell) for cell in row[1:]] == [(predicted == c).sum().item() for c in range(CLASSES)], row

    for fold in ([], ["--fold-bn"]):
        file = f"{folder}/{model}{len(fold)}.onnx"
        redline("export", given, "--to", file, "--image-size", SIZE, *fold)
        for batch in (1, len(x)):
            difference = (onnx_logits(file, x[:batch]) - expected[:batch]).abs().max().item()
            assert difference <= 2e-5 * max(1.0, scale), f"{file}: {difference} of {scale}"

    half = f"{folder}/{model}-half.safetensors"
    redline("export", given, "--to", half, "--dtype", "bf16")
    difference = (torchvision_logits(half, model, x) - expected).abs().max().item()
    assert 0 < difference <= 0.1 * scale, f"bf16: {difference} of {scale}"  # 8 bits of precision, fifty layers


def check_init(folder):
    """Training begins with the file's weights: its first step, on images left as they are, has torchvision's loss."""
    given = f"{folder}/resnet18.safetensors"
    out = redline("train", f"{folder}/data", "--model", "resnet18", "--image-size", SIZE, "-b", 4, "--steps", 1,
                  "--scale", 1, 1, "--ratio", 1, 1, "--hflip", 0, "--init", given, "-o", f"{folder}/runs",
                  "--name", "same")  # fmt: skip
    assert "weights from" in out, out
    with open(f"{folder}/runs/same/metrics.jsonl", encoding="utf-8") as lines:
        step = [r for r in map(json.loads, lines) if r["kind"] == "step"][0]
    network = torchvision.models.resnet18(num_classes=CLASSES)
    network.load_state_dict(safetensors_torch.load_file(given))
    x, labels = images(folder, "train")
    loss = torch.nn.functional.cross_entropy(network.train()(x), labels).item()
    near(step["loss"], loss, 1e-3, "the first loss")  # norms over few values: rounding is worth more
    many = f"{folder}/many.safetensors"
    tensors = safetensors_torch.load_file(given)
    tensors["fc.weight"], tensors["fc.bias"] = torch.zeros(7, 512), torch.zeros(7)
    safetensors_torch.save_file(tensors, many)
    out = redline("train", f"{folder}/data", "--model", "resnet18", "--image-size", SIZE, "-b", 4, "--steps", 1,
                  "--init", many, "-o", f"{folder}/runs", "--name", "tuned")  # fmt: skip
    assert "a new last layer for 4 classes in place of 7" in out, out
    del tensors["layer1.0.conv1.weight"]
    tensors["layer1.0.conv1.wait"] = torch.zeros(3)
    tensors["conv1.weight"] = torch.zeros(64, 3, 3, 3)
    safetensors_torch.save_file(tensors, many)
    out = redline("train", f"{folder}/data", "--model", "resnet18", "--image-size", SIZE, "-b", 4, "--steps", 1,
                  "--init", many, "-o", f"{folder}/runs", "--name", "wrong", code=65)  # fmt: skip
    for part in ("1 missing: layer1.0.conv1.weight", "1 not known: layer1.0.conv1.wait", "64x3x3x3"):
        assert part in out, out


with scratch() as folder:
    draw_images(folder)
    x, labels = images(folder)
    for model in ("resnet18", "resnet50"):
        check_model(folder, model, x, labels)
    check_init(folder)
    print("torchvision and ONNX Runtime agree with Redline")
