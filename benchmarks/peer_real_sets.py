"""A recipe of Redline's trained with PyTorch: the peer of real_sets.py.

    peer_real_sets.py arrays FOLDER FILE       decodes class folders, train/ and val/, into one file of bytes
    peer_real_sets.py train FILE --recipe recipes/tiny-imagenet.toml --model resnet18 --records FILE --state FILE

The whole set lies decoded on the device and is augmented there, so that no loader holds PyTorch up: mixed precision in
fp16, channels last, and torch.compile. One line of JSON for every epoch goes to --records. It stops at the end of an
epoch when another would not end before --until (seconds since 1970), and continues from --state when it is called again:
exit status 75 says that there is more to do. Times leave out compiling, and count training and evaluation.
"""
import argparse
import concurrent.futures
import contextlib
import json
import math
import os
import pathlib
import sys
import time
import tomllib

import numpy
import torch
import torch.nn.functional as F
import torchvision
from PIL import Image

EVALUATED = 500  # images at a time
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def decode(path):
    with Image.open(path) as image:
        return numpy.asarray(image.convert("RGB"))


def make_arrays(folder, target):
    classes = sorted(place.name for place in (folder / "train").iterdir())
    arrays = {"classes": len(classes)}
    with concurrent.futures.ProcessPoolExecutor() as pool:
        for part in ("train", "val"):
            files = [(file, label) for label, name in enumerate(classes) for file in sorted((folder / part / name).rglob("*"))
                     if file.is_file()]
            images = list(pool.map(decode, [file for file, _ in files], chunksize=256))
            if len({image.shape for image in images}) != 1:
                raise SystemExit(f"{folder / part}: the images have several sizes; this peer takes sets of one size")
            arrays[part] = torch.from_numpy(numpy.stack(images))
            arrays[part + "_labels"] = torch.tensor([label for _, label in files])
    partial = target.with_suffix(".partial")
    torch.save(arrays, partial)
    os.replace(partial, target)


def crop_and_flip(images, size, scale, ratio=(3 / 4, 4 / 3)):
    """torchvision's RandomResizedCrop and RandomHorizontalFlip, for a batch [n, 3, side, side] at once: the first of ten
    tries that fits, else the whole image. Enlarging needs no antialiasing."""
    n, side, device = len(images), images.shape[2], images.device
    area = side * side * torch.empty(10, n, device=device).uniform_(*scale)
    shape = torch.exp(torch.empty(10, n, device=device).uniform_(math.log(ratio[0]), math.log(ratio[1])))
    width, height = (area * shape).sqrt().round(), (area / shape).sqrt().round()
    fits = (width <= side) & (height <= side)
    first, each = fits.float().argmax(0), torch.arange(n, device=device)
    width = torch.where(fits.any(0), width[first, each], side)
    height = torch.where(fits.any(0), height[first, each], side)
    x = (torch.rand(n, device=device) * (side - width + 1)).floor()
    y = (torch.rand(n, device=device) * (side - height + 1)).floor()
    mirrored = torch.where(torch.rand(n, device=device) < 0.5, -1.0, 1.0)
    zero = torch.zeros_like(x)
    boxes = torch.stack([torch.stack([width / side * mirrored, zero, (2 * x + width) / side - 1], 1),
                         torch.stack([zero, height / side, (2 * y + height) / side - 1], 1)], 1)
    grid = F.affine_grid(boxes, (n, 3, size, size), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


class Training:
    def __init__(self, args, recipe, data):
        self.args, self.data, self.device = args, data, args.device
        self.size = args.size or recipe["model"]["image_size"]
        self.scale = recipe["augment"]["scale"]
        options, schedule = recipe["optimizer"], recipe["schedule"]
        self.batch = args.batch or options["batch_size"]
        self.epochs = args.epochs or schedule["epochs"]
        self.steps = len(data["train"]) // self.batch
        self.total = self.steps * self.epochs
        warm_up = schedule["warmup_epochs"] if args.warmup_epochs is None else args.warmup_epochs
        self.warm_up, self.lr = self.steps * warm_up, options["lr"]
        torch.manual_seed(args.seed)
        self.model = getattr(torchvision.models, args.model)(num_classes=data["classes"]).to(self.device).to(
            memory_format=torch.channels_last)
        decayed = [p for p in self.model.parameters() if p.ndim > 1]
        others = [p for p in self.model.parameters() if p.ndim <= 1]
        fused = {"fused": True} if self.device == "cuda" else {}
        self.optimizer = torch.optim.SGD(
            [{"params": decayed, "weight_decay": options["weight_decay"]}, {"params": others, "weight_decay": 0}],
            lr=self.lr, momentum=options["momentum"], nesterov=options["nesterov"], **fused)
        self.loss = torch.nn.CrossEntropyLoss(label_smoothing=options.get("label_smoothing", 0))
        self.amp = self.device == "cuda"
        # torch.amp has it since 2.3.
        self.scaler = (torch.amp if hasattr(torch.amp, "GradScaler") else torch.cuda.amp).GradScaler(enabled=self.amp)
        self.mean = torch.tensor(MEAN, device=self.device).view(1, 3, 1, 1) * 255
        self.std = torch.tensor(STD, device=self.device).view(1, 3, 1, 1) * 255
        compiled = self.amp and hasattr(torch, "compile")
        self.network = torch.compile(self.model) if compiled else self.model
        self.augment = torch.compile(self.augmented) if compiled else self.augmented
        self.how = "torch.compile" if compiled else "eager"

    def augmented(self, images):
        images = crop_and_flip(images.permute(0, 3, 1, 2).float(), self.size, self.scale)
        return ((images - self.mean) / self.std).contiguous(memory_format=torch.channels_last)

    def mixed(self):
        return torch.autocast("cuda", dtype=torch.float16) if self.amp else contextlib.nullcontext()

    def rate(self, step):
        if step < self.warm_up:
            return self.lr * (step + 1) / self.warm_up
        return self.lr * 0.5 * (1 + math.cos(math.pi * (step - self.warm_up) / (self.total - self.warm_up)))

    def gradients(self, images, labels):
        images = self.augment(images)
        with self.mixed():
            loss = self.loss(self.network(images), labels)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        return loss

    def prepare(self):
        """Compiles everything, and leaves the network as it was."""
        before = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.model.train()
        self.gradients(self.data["train"][:self.batch], self.data["train_labels"][:self.batch])
        self.evaluate()
        self.model.load_state_dict(before)
        self.optimizer.zero_grad(set_to_none=True)

    def epoch(self, number):
        self.model.train()
        order = torch.randperm(len(self.data["train"]), device=self.device)
        for step in range(self.steps):
            chosen = order[step * self.batch:(step + 1) * self.batch]
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate(number * self.steps + step)
            loss = self.gradients(self.data["train"][chosen], self.data["train_labels"][chosen])
            self.scaler.step(self.optimizer)
            self.scaler.update()
        return loss.item()  # waits for the device

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        images, labels = self.data["val"], self.data["val_labels"]
        right = torch.zeros(2, dtype=torch.long, device=self.device)
        for i in range(0, len(images), EVALUATED):
            part = F.interpolate(images[i:i + EVALUATED].permute(0, 3, 1, 2).float(), size=(self.size, self.size), mode="bilinear",
                                 align_corners=False)
            part = ((part - self.mean) / self.std).contiguous(memory_format=torch.channels_last)
            with self.mixed():
                best = self.network(part).topk(min(5, self.data["classes"]), 1).indices == labels[i:i + EVALUATED, None]
            right += torch.stack([best[:, 0].sum(), best.sum()])
        return [count / len(images) for count in right.tolist()]


def train(args):
    with open(args.recipe, "rb") as file:
        recipe = tomllib.load(file)
    data = {name: value.to(args.device) if torch.is_tensor(value) else value for name, value in torch.load(args.data).items()}
    torch.backends.cudnn.benchmark = True
    training = Training(args, recipe, data)
    begun, elapsed, trained = 0, 0.0, 0.0
    training.prepare()
    if args.state.exists():
        state = torch.load(args.state, map_location=args.device)
        training.model.load_state_dict(state["model"])
        training.optimizer.load_state_dict(state["optimizer"])
        training.scaler.load_state_dict(state["scaler"])
        begun, elapsed, trained = state["epochs"], state["elapsed"], state["trained"]
    # An epoch's random numbers follow from its number, so that a run that was stopped takes the same ones.
    longest = 0.0
    for number in range(begun, training.epochs):
        if args.until and longest > 0 and time.time() + 1.2 * longest > args.until:
            return 75
        torch.manual_seed(args.seed * 100003 + number)
        start = time.perf_counter()
        loss = training.epoch(number)
        middle = time.perf_counter()
        top1, top5 = training.evaluate()
        end = time.perf_counter()
        elapsed, trained, longest = elapsed + end - start, trained + middle - start, max(longest, end - start)
        record = {"epoch": number + 1, "loss": loss, "top1": top1, "top5": top5, "elapsed": elapsed,
                  "train_seconds": middle - start, "samples": training.steps * training.batch, "how": training.how,
                  "torch": torch.__version__, "torchvision": torchvision.__version__}
        partial = args.state.with_suffix(".partial")
        torch.save({"model": training.model.state_dict(), "optimizer": training.optimizer.state_dict(),
                    "scaler": training.scaler.state_dict(), "epochs": number + 1, "elapsed": elapsed, "trained": trained}, partial)
        with open(args.records, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        os.replace(partial, args.state)
    return 0


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = options.add_subparsers(dest="command", required=True)
    arrays = commands.add_parser("arrays")
    arrays.add_argument("folder", type=pathlib.Path)
    arrays.add_argument("target", type=pathlib.Path)
    training = commands.add_parser("train")
    training.add_argument("data", type=pathlib.Path)
    training.add_argument("--recipe", required=True)
    training.add_argument("--model", required=True)
    training.add_argument("--records", required=True, type=pathlib.Path)
    training.add_argument("--state", required=True, type=pathlib.Path)
    training.add_argument("--seed", type=int, default=0)
    training.add_argument("--until", type=float, default=0)
    training.add_argument("--device", default="cuda")
    for name in ("size", "batch", "epochs", "warmup-epochs"):
        training.add_argument(f"--{name}", type=int, help="instead of the recipe's")
    args = options.parse_args()
    if args.command == "arrays":
        make_arrays(args.folder, args.target)
        return 0
    return train(args)


if __name__ == "__main__":
    sys.exit(main())
