"""ResNet training with PyTorch on class folders: the peer of fine_tune.py. Prints one JSON object with the top-1.

The same transforms, optimizer and schedule as `redline train` with the options that fine_tune.py gives it. From random
weights, the rate rises over the first fifth, and residual branches begin at zero. With --head-lr, the front of the
network is frozen, its norms included, and AdamW trains the rest.
"""
import argparse
import json
import math
import os
import struct

import numpy
import torch
import torchvision
from torchvision import transforms

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TYPES = {"F32": numpy.float32, "I64": numpy.int64}


def read_safetensors(path):
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(size)), file.read()
    header.pop("__metadata__", None)
    return {
        name: torch.from_numpy(
            numpy.frombuffer(data[slice(*entry["data_offsets"])], TYPES[entry["dtype"]]).reshape(entry["shape"]).copy())
        for name, entry in header.items()
    }


def write_safetensors(path, tensors):
    header, parts, at = {}, [], 0
    for name, tensor in tensors.items():
        values = tensor.cpu().contiguous().numpy()
        dtype = next(name for name, kind in TYPES.items() if kind == values.dtype)
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [at, at + values.nbytes]}
        parts.append(values.tobytes())
        at += values.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


def loader(folder, train, args):
    crop = transforms.RandomResizedCrop(args.size, scale=(args.scale, 1))
    steps = [crop, transforms.RandomHorizontalFlip()] if train else [
        transforms.Resize(args.size), transforms.CenterCrop(args.size)]
    data = torchvision.datasets.ImageFolder(folder, transforms.Compose(
        [*steps, transforms.ToTensor(), transforms.Normalize(MEAN, STD)]))
    workers = min(4, len(os.sched_getaffinity(0)))
    batches = torch.utils.data.DataLoader(data, args.batch, shuffle=train, drop_last=train, num_workers=workers)
    return batches, len(data.classes)


def accuracy(model, batches):
    model.eval()
    right = count = 0
    with torch.no_grad():
        for images, labels in batches:
            right += (model(images.to(DEVICE)).argmax(1).cpu() == labels).sum().item()
            count += len(labels)
    model.train()
    return 100 * right / count


FROZEN = ("conv1", "bn1", "layer1", "layer2")


def make_optimizer(model, args):
    """Weight decay on matrices and filters alone, as Redline has it."""
    groups = []
    for name, parameter in model.named_parameters():
        if args.head_lr and name.startswith(FROZEN):
            parameter.requires_grad = False
            continue
        rate = args.head_lr if args.head_lr and name.startswith("fc.") else args.lr
        groups.append({"params": [parameter], "lr": rate, "peak": rate,
                       "weight_decay": args.decay if parameter.ndim > 1 else 0})
    return torch.optim.AdamW(groups) if args.head_lr else torch.optim.SGD(groups, lr=args.lr, momentum=0.9)


def set_training(model, args):
    model.train()
    for name in FROZEN if args.head_lr else ():
        getattr(model, name).eval()


def main():
    options = argparse.ArgumentParser()
    options.add_argument("data")
    options.add_argument("--model", required=True)
    options.add_argument("--epochs", type=int, required=True)
    options.add_argument("--size", type=int, required=True)
    options.add_argument("--batch", type=int, required=True)
    options.add_argument("--scale", type=float, required=True, help="least share of the area that a crop takes")
    options.add_argument("--lr", type=float, required=True)
    options.add_argument("--head-lr", type=float, help="of the last layer; freezes the front of the network")
    options.add_argument("--decay", type=float, default=1e-4)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--init")
    options.add_argument("--save")
    args = options.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    train, classes = loader(f"{args.data}/train", True, args)
    val, _ = loader(f"{args.data}/val", False, args)
    model = getattr(torchvision.models, args.model)(num_classes=classes, zero_init_residual=not args.init)
    model = model.to(DEVICE, memory_format=torch.channels_last)
    if args.init:
        weights = read_safetensors(args.init)
        if len(weights["fc.bias"]) != classes:
            weights = {name: value for name, value in weights.items() if not name.startswith("fc.")}
        model.load_state_dict(weights, strict=False)
    optimizer = make_optimizer(model, args)
    set_training(model, args)
    total, step = args.epochs * len(train), 0
    warmup = 0 if args.init else total // 5
    for _ in range(args.epochs):
        for images, labels in train:
            for group in optimizer.param_groups:
                done = (step - warmup) / (total - warmup)
                share = (step + 1) / warmup if step < warmup else 0.5 * (1 + math.cos(math.pi * done))
                group["lr"] = group["peak"] * share
            optimizer.zero_grad(set_to_none=True)
            logits = model(images.to(DEVICE, memory_format=torch.channels_last))
            torch.nn.functional.cross_entropy(logits, labels.to(DEVICE)).backward()
            optimizer.step()
            step += 1
    if args.save:
        write_safetensors(args.save, model.state_dict())
    device = torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU"
    print(json.dumps({"top1": accuracy(model, val), "torch": torch.__version__, "device": device}))


if __name__ == "__main__":
    main()
