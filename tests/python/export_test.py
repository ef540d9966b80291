"""What `redline export` writes, read by the programs it is for: safetensors' own package, torchvision's ResNets, which
must give Redline's accuracy and loss, and ONNX Runtime, which must give torchvision's logits; and back through --init."""

import json

from helper import near, need, redline, scratch

torch, torchvision, safetensors_torch = need("torch", "torchvision", "safetensors.torch")

from exported import CLASSES, SIZE, check_eval, check_onnx, draw_images, images, make_weights, torchvision_logits  # noqa: E402


def check_model(folder, model, x, labels):
    given, exported = f"{folder}/{model}.safetensors", f"{folder}/{model}-out.safetensors"
    make_weights(given, model)
    expected = torchvision_logits(given, model, x)
    redline("export", given, "--to", exported)
    assert torch.equal(torchvision_logits(exported, model, x), expected)
    check_eval(folder, model, exported, expected, labels)

    for fold in ([], ["--fold-bn"]):
        check_onnx(folder, model, given, x, expected, fold)
    # An odd size: windows that the image's edge cuts off.
    odd = torch.nn.functional.interpolate(x, 97)
    check_onnx(folder, model, given, odd, torchvision_logits(given, model, odd), [])

    scale = expected.abs().max().item()
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
    assert "a new last layer for 4 classes instead of 7" in out, out
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
    for model in ("resnet18", "resnet50", "resnext50_32x4d", "resnet50d"):
        check_model(folder, model, x, labels)
    check_init(folder)
    print("torchvision and ONNX Runtime agree with Redline")
