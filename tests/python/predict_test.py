"""`redline predict` beside torchvision, on the same files and from every form of weights: safetensors, and what torch.save
writes, as trainers save it. The same logits, and the same top-1 on photographs."""

import json
import os

from helper import near, need, redline, scratch

numpy, torch, torchvision, Image = need("numpy", "torch", "torchvision", "PIL.Image")
safetensors_torch = need("safetensors.torch")

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLASSES, SIZE = 6, 64


def draw(folder, size, ending):
    """Smooth random patches."""
    random = numpy.random.default_rng(5)
    os.makedirs(folder)
    for i in range(5):
        small = Image.fromarray(random.integers(0, 256, (6, 6, 3), dtype=numpy.uint8))
        small.resize(size, Image.BICUBIC).save(f"{folder}/{i}.{ending}")
    return [f"{folder}/{i}.{ending}" for i in range(5)]


def network(model):
    torch.manual_seed(2)
    made = getattr(torchvision.models, model)(num_classes=CLASSES)
    for module in made.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.uniform_(-0.2, 0.2)
            module.running_var.uniform_(0.5, 1.5)
    return made.eval()


def expected(made, files, resize=None):
    steps = [torchvision.transforms.ToTensor(), torchvision.transforms.Normalize(MEAN, STD)]
    if resize:
        steps = [torchvision.transforms.Resize(resize), torchvision.transforms.CenterCrop(SIZE), *steps]
    transform = torchvision.transforms.Compose(steps)
    with torch.no_grad():
        return made(torch.stack([transform(Image.open(file).convert("RGB")) for file in files]))


def predicted(weights, files, *options):
    lines = redline("predict", weights, *files, "--image-size", SIZE, "--format", "jsonl", "--logits", "-q", *options)
    rows = [json.loads(line) for line in lines.splitlines()]
    assert [row["image"] for row in rows] == list(files)
    return rows, torch.tensor([row["logits"] for row in rows])


def check(weights, files, wanted):
    """PNGs of the network's size: the pixels are the same, so what is left is the order of sums in fp32."""
    rows, logits = predicted(weights, files, "--crop-pct", 1, "-b", 2)
    difference = (logits - wanted).abs().max().item()
    assert difference <= 1e-4 * max(1.0, wanted.abs().max().item()), f"{weights}: {difference}"
    for row, softmax in zip(rows, wanted.softmax(1)):
        assert row["predictions"][0]["label"] == softmax.argmax().item()
        near(row["predictions"][0]["probability"], softmax.max().item(), 1e-4, weights)


def forms(folder, made):
    """The weights as people have them."""
    state = made.state_dict()
    args = type("Namespace", (), {})  # a class that no other program has
    optimizer = torch.optim.SGD(made.parameters(), 0.1, momentum=0.9)
    channels_last = {k: v.to(memory_format=torch.channels_last) if v.dim() == 4 else v for k, v in state.items()}
    many = {
        "plain": state,
        "parallel": torch.nn.DataParallel(made).state_dict(),
        "compiled": {"_orig_mod." + name: value for name, value in state.items()},
        "lightning": {"epoch": 3, "state_dict": {"model." + name: value for name, value in state.items()}},
        "averaged": torch.optim.swa_utils.AveragedModel(made).state_dict(),
        "reference": {"model": state, "optimizer": optimizer.state_dict(), "epoch": 9, "args": args.__name__},
        "parameters": dict(made.named_parameters()) | dict(made.named_buffers()),
        "channels_last": channels_last,
        "views": {k: torch.stack([v, v])[1] if v.dim() else v for k, v in state.items()},
        "double": {k: v.double() if v.is_floating_point() else v for k, v in state.items()},
    }
    for name, content in many.items():
        torch.save(content, f"{folder}/{name}.pth")
        yield f"{folder}/{name}.pth"
    torch.save({"model": state, "optimizer": optimizer.state_dict()}, f"{folder}/old.pt",
               _use_new_zipfile_serialization=False)  # fmt: skip
    yield f"{folder}/old.pt"
    torch.save(state, f"{folder}/protocol4.pth", pickle_protocol=4)
    yield f"{folder}/protocol4.pth"
    safetensors_torch.save_file(state, f"{folder}/w.safetensors")
    yield f"{folder}/w.safetensors"


class Harmful:
    def __reduce__(self):
        return os.mkdir, (HARM,)


with scratch() as folder:
    HARM = f"{folder}/harm"
    files = draw(f"{folder}/png", (SIZE, SIZE), "png")
    photographs = draw(f"{folder}/jpg", (150, 110), "jpg")
    for model in ("resnet18", "resnet50"):
        os.makedirs(f"{folder}/{model}")
        made = network(model)
        wanted = expected(made, files)
        for weights in forms(f"{folder}/{model}", made) if model == "resnet18" else [f"{folder}/resnet50/w.pth"]:
            if model == "resnet50":
                torch.save(made.state_dict(), weights)
            check(weights, files, wanted)
        # Resized and cropped as evaluation does: pixels are Pillow's to the bit, and logits those of the same pixels.
        rows, logits = predicted(weights, photographs)
        wanted = expected(made, photographs, round(SIZE / 0.875))
        assert [row["predictions"][0]["label"] for row in rows] == wanted.argmax(1).tolist()
        assert (logits - wanted).abs().max() <= 1e-4 * max(1.0, wanted.abs().max()), (logits - wanted).abs().max()

    # The other commands read them too, and what they write is the same weights.
    weights, out = f"{folder}/resnet18/parallel.pth", f"{folder}/out.safetensors"
    made = network("resnet18")
    redline("export", weights, "--to", out)
    tensors = safetensors_torch.load_file(out)
    assert all(torch.equal(tensors[name], value) for name, value in made.state_dict().items() if value.dim())

    # Objects of Python are not made, whatever they would do.
    torch.save({"state_dict": made.state_dict(), "args": Harmful()}, f"{folder}/harmful.pth")
    check(f"{folder}/harmful.pth", files, expected(made, files))
    assert not os.path.exists(HARM)
    torch.save(made, f"{folder}/whole.pth")
    assert "state_dict()" in redline("predict", f"{folder}/whole.pth", files[0], code=65)
    state = made.state_dict()
    state["bn1.running_var"][3] = -1
    torch.save(state, f"{folder}/negative.pth")
    assert "bn1.running_var holds a variance of -1" in redline("eval", f"{folder}/negative.pth", folder, code=65)
    print("torchvision agrees with redline predict")
