"""Images/s of torchvision's usual input pipeline: ImageFolder, Pillow, DataLoader workers. Run by data_loading.py."""
import argparse
import json
import time

import PIL
import torch
import torchvision
from torchvision import transforms
from torchvision.transforms import InterpolationMode

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def pipeline(train, normalise, size):
    if train:
        steps = [transforms.RandomResizedCrop(size, interpolation=InterpolationMode.BILINEAR),
                 transforms.RandomHorizontalFlip()]
    else:
        steps = [transforms.Resize(round(size / 0.875)), transforms.CenterCrop(size)]
    if normalise:
        return transforms.Compose([*steps, transforms.ToTensor(), transforms.Normalize(MEAN, STD)])
    return transforms.Compose([*steps, transforms.PILToTensor()])


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("data")
    options.add_argument("--workers", type=int, required=True)
    options.add_argument("--seconds", type=float, required=True)
    options.add_argument("--batch", type=int, default=64)
    options.add_argument("--size", type=int, default=224)
    options.add_argument("--eval", action="store_true")
    options.add_argument("--normalise", action="store_true", help="to normalised floats, as most recipes do it")
    args = options.parse_args()
    torch.set_num_threads(1)
    split = "val" if args.eval else "train"
    images = torchvision.datasets.ImageFolder(f"{args.data}/{split}", pipeline(not args.eval, args.normalise, args.size))
    loader = torch.utils.data.DataLoader(images, args.batch, shuffle=not args.eval, num_workers=args.workers,
                                         persistent_workers=True, drop_last=not args.eval)
    for _ in loader:  # starts the workers, and brings the files into the page cache
        pass
    count, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < args.seconds:
        for batch, _ in loader:
            count += len(batch)
    seconds = time.perf_counter() - begun
    print(json.dumps({"images_per_second": count / seconds, "torch": torch.__version__,
                      "torchvision": torchvision.__version__, "pillow": PIL.__version__}))


if __name__ == "__main__":
    main()
