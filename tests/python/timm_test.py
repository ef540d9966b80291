"""Weights of timm's own networks, as its state dicts name them: the same logits from `redline predict` as from timm."""

import json

from helper import need, redline, scratch

torch, timm, numpy, Image = need("torch", "timm", "numpy", "PIL.Image")
MEAN, DEVIATION = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


def network(name):
    """With statistics and affines that differ from channel to channel, so that none can be mistaken for another."""
    torch.manual_seed(0)
    made = timm.create_model(name, num_classes=10)
    for part in made.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.running_mean.uniform_(-0.1, 0.1)
            part.running_var.uniform_(0.5, 1.5)
            part.weight.data.uniform_(0.5, 1)
            part.bias.data.uniform_(-0.1, 0.1)
    return made.eval()


with scratch() as folder:
    pixels = numpy.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=numpy.uint8)
    Image.fromarray(pixels).save(f"{folder}/a.png")
    seen = ((torch.tensor(pixels) / 255 - MEAN) / DEVIATION).permute(2, 0, 1)[None]
    for name in ("resnet18", "resnet50d", "resnext50_32x4d", "wide_resnet50_2"):
        twin = network(name)
        torch.save(twin.state_dict(), f"{folder}/{name}.pth")
        with torch.no_grad():
            expected = twin(seen)[0].numpy()
        answer = redline("predict", f"{folder}/{name}.pth", f"{folder}/a.png", "--format", "jsonl", "--logits", "--image-size", 64,
                         "--crop-pct", 1, "-q")  # fmt: skip
        found = numpy.array(json.loads(answer)["logits"])
        # Sums in another order; logits are of the order of one.
        assert numpy.abs(found - expected).max() < 1e-4, (name, found, expected)
        print(name, numpy.abs(found - expected).max())
