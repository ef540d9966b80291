"""ResNet training with PyTorch on class folders: the peer of fine_tune.py. Prints one JSON object with the top-1.

The same transforms, optimizer and schedule as `redline train` with the options that fine_tune.py gives it.
"""
import argparse
import json
import math
import os

import safetensors.torch
import torch
import torchvision
from torchvision import transforms

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def loader(folder, train, args):
    steps = [transforms.RandomResizedCrop(args.size, scale=(args.scale, 1)), transforms.RandomHorizontalFlip()] if train else [
        transforms.Resize(args.size), transforms.CenterCrop(args.size)]
    data = torchvision.datasets.ImageFolder(folder, transforms.Compose(
        [*steps, transforms.ToTensor(), transforms.Normalize(MEAN, STD)]))
    return torch.utils.data.DataLoader(data, args.batch, shuffle=train, drop_last=train, num_workers=2), len(data.classes)


def accuracy(model, batches):
    model.eval()
    right = count = 0
    with torch.no_grad():
        for images, labels in batches:
            right += (model(images).argmax(1) == labels).sum().item()
            count += len(labels)
    model.train()
    return 100 * right / count


def main():
    options = argparse.ArgumentParser()
    options.add_argument("data")
    options.add_argument("--model", required=True)
    options.add_argument("--epochs", type=int, required=True)
    options.add_argument("--size", type=int, required=True)
    options.add_argument("--batch", type=int, required=True)
    options.add_argument("--scale", type=float, required=True, help="least share of the area that a crop takes")
    options.add_argument("--lr", type=float, required=True)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--init")
    options.add_argument("--save")
    args = options.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    train, classes = loader(f"{args.data}/train", True, args)
    val, _ = loader(f"{args.data}/val", False, args)
    model = getattr(torchvision.models, args.model)(num_classes=classes).to(memory_format=torch.channels_last)
    if args.init:
        weights = safetensors.torch.load_file(args.init)
        if len(weights["fc.bias"]) != classes:
            weights = {name: value for name, value in weights.items() if not name.startswith("fc.")}
        model.load_state_dict(weights, strict=False)
    # Weight decay on matrices and filters alone, as Redline has it.
    decayed = [p for p in model.parameters() if p.ndim > 1]
    spared = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.SGD([{"params": decayed, "weight_decay": 1e-4}, {"params": spared, "weight_decay": 0}],
                                lr=args.lr, momentum=0.9)
    total, step = args.epochs * len(train), 0
    for _ in range(args.epochs):
        for images, labels in train:
            for group in optimizer.param_groups:
                group["lr"] = args.lr * 0.5 * (1 + math.cos(math.pi * step / total))
            optimizer.zero_grad(set_to_none=True)
            torch.nn.functional.cross_entropy(model(images.to(memory_format=torch.channels_last)), labels).backward()
            optimizer.step()
            step += 1
    if args.save:
        safetensors.torch.save_file({k: v.contiguous() for k, v in model.state_dict().items()}, args.save)
    print(json.dumps({"top1": accuracy(model, val), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
