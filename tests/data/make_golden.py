#!/usr/bin/env python3
"""Writes tests/data/golden/: what Pillow and torchvision make of a few small images, and SciPy of a class list.

    pip install pillow scipy torch torchvision
    python tests/data/make_golden.py

The tests compare Redline's decoder, resizer and transforms with these files and need no Python.
"""
import math
import pathlib
import random

import numpy
import scipy.io
import torch
from PIL import Image, ImageDraw
from torchvision import transforms
from torchvision.transforms import InterpolationMode, autoaugment
from torchvision.transforms import functional

OUT = pathlib.Path(__file__).parent / "golden"


def picture(width, height, seed, mode="RGB"):
    """Gradients, sharp shapes and noise: what decoders and filters get wrong shows up in one of them."""
    rng = random.Random(seed)
    image = Image.new("RGB", (width, height))
    pixels = image.load()
    for y in range(height):
        for x in range(width):
            pixels[x, y] = (255 * x // width, 255 * y // height, 128 + int(100 * math.sin(x * y / 200)))
    draw = ImageDraw.Draw(image)
    for _ in range(8):
        x, y = rng.randrange(width), rng.randrange(height)
        box = (x, y, x + rng.randrange(4, width // 2), y + rng.randrange(4, height // 2))
        draw.ellipse(box, fill=tuple(rng.randrange(256) for _ in range(3)))
    for y in range(height):
        for x in range(width):
            pixels[x, y] = tuple(max(0, min(255, v + rng.randrange(-12, 13))) for v in pixels[x, y])
    return image.convert(mode)


def resize_cases(source):
    lines = []
    cases = [
        ("bilinear", (0, 0, 67, 53), (32, 32)),
        ("bilinear", (0, 0, 67, 53), (129, 101)),
        ("bilinear", (10, 5, 50, 30), (24, 24)),
        ("bilinear", (10, 5, 50, 30), (7, 5)),
        ("bilinear", (3, 40, 13, 45), (31, 17)),
        ("bilinear", (0, 0, 67, 53), (1, 1)),
        ("bicubic", (0, 0, 67, 53), (32, 32)),
        ("bicubic", (10, 5, 50, 30), (48, 48)),
        ("bicubic", (0, 0, 67, 53), (9, 11)),
    ]
    for index, (name, box, size) in enumerate(cases):
        kind = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}[name]
        source.crop(box).resize(size, kind).save(OUT / f"resize_{index}.png")
        left, top, right, bottom = box
        lines.append(f"{name} {left} {top} {right - left} {bottom - top} {size[0]} {size[1]} resize_{index}.png")
    (OUT / "resize.txt").write_text("\n".join(lines) + "\n")


def jpeg_cases():
    image = picture(150, 109, 2)
    image.save(OUT / "420.jpg", quality=85, subsampling=2)
    image.save(OUT / "422.jpg", quality=85, subsampling=1)
    image.save(OUT / "444.jpg", quality=85, subsampling=0)
    image.save(OUT / "progressive.jpg", quality=85, progressive=True)
    image.convert("L").save(OUT / "grey.jpg", quality=85)
    image.convert("CMYK").save(OUT / "cmyk.jpg", quality=85)
    for name in ("420", "422", "444", "progressive", "grey", "cmyk"):
        Image.open(OUT / f"{name}.jpg").convert("RGB").save(OUT / f"{name}.png")
    palette = picture(40, 30, 3).quantize(16)
    palette.save(OUT / "palette.png")
    palette.convert("RGB").save(OUT / "palette_rgb.png")
    alpha = picture(40, 30, 4)
    alpha.putalpha(alpha.convert("L"))
    alpha.save(OUT / "alpha.png")
    alpha.convert("RGB").save(OUT / "alpha_rgb.png")


def evaluation_cases():
    lines = []
    for index, (name, size, filter_name) in enumerate(
            [("420", 64, "bilinear"), ("444", 32, "bilinear"), ("420", 112, "bicubic"), ("grey", 57, "bilinear")]):
        mode = InterpolationMode(filter_name)
        transform = transforms.Compose([transforms.Resize(round(size / 0.875), mode), transforms.CenterCrop(size)])
        transform(Image.open(OUT / f"{name}.jpg").convert("RGB")).save(OUT / f"eval_{index}.png")
        lines.append(f"{name}.jpg {size} {filter_name} eval_{index}.png")
    (OUT / "eval.txt").write_text("\n".join(lines) + "\n")


def crop_statistics():
    """Means and standard deviations of what RandomResizedCrop draws, over many draws."""
    torch.manual_seed(0)
    lines = ["# width height scale_min scale_max  then mean and deviation of: area share, log ratio, centre x, centre y"]
    for width, height, low, high in [(500, 375, 0.08, 1.0), (100, 400, 0.08, 1.0), (64, 64, 0.35, 1.0)]:
        image = Image.new("RGB", (width, height))
        values = []
        for _ in range(50000):
            top, left, h, w = transforms.RandomResizedCrop.get_params(image, (low, high), (3 / 4, 4 / 3))
            values.append((w * h / (width * height), math.log(w / h), (left + w / 2) / width, (top + h / 2) / height))
        table = torch.tensor(values, dtype=torch.float64)
        numbers = torch.stack([table.mean(0), table.std(0)], 1).flatten().tolist()
        lines.append(f"{width} {height} {low} {high} " + " ".join(f"{n:.6f}" for n in numbers))
    (OUT / "crops.txt").write_text("\n".join(lines) + "\n")


def operation_cases():
    """What each operation of augmentation makes of one picture, one below the other in ops.png."""
    source = picture(41, 31, 5)
    source.save(OUT / "ops_source.png")
    names = {"shear_x": "ShearX", "shear_y": "ShearY", "translate_x": "TranslateX", "translate_y": "TranslateY",
             "rotate": "Rotate", "brightness": "Brightness", "color": "Color", "contrast": "Contrast",
             "sharpness": "Sharpness", "posterize": "Posterize", "solarize": "Solarize",
             "autocontrast": "AutoContrast", "equalize": "Equalize", "identity": "Identity"}
    cases = [("identity", 0), ("shear_x", 0.27), ("shear_x", -0.9), ("shear_y", 0.09), ("shear_y", -0.3),
             ("translate_x", 7), ("translate_x", -19), ("translate_y", 5), ("translate_y", -12), ("rotate", 9),
             ("rotate", -30), ("rotate", 127.5), ("brightness", 0.27), ("brightness", -0.81), ("color", 0.9),
             ("color", -0.33), ("contrast", 0.6), ("contrast", -0.6), ("sharpness", 0.9), ("sharpness", -0.9),
             ("posterize", 8), ("posterize", 5), ("posterize", 2), ("solarize", 178.5), ("solarize", 0),
             ("solarize", 255), ("autocontrast", 0), ("equalize", 0)]
    sheet, lines = [], []
    for name, amount in cases:
        # A narrower range of levels gives autocontrast and equalize something to do.
        image = source.point(lambda v: 40 + v // 2) if name in ("autocontrast", "equalize") else source
        sheet.append(autoaugment._apply_op(image, names[name], amount, InterpolationMode.BILINEAR, None))
        lines.append(f"{name} {amount}")
    for turn in (0.1, -0.1, 0.5, -0.37):
        sheet.append(functional.adjust_hue(source, turn))
        lines.append(f"hue {turn}")
    whole = Image.new("RGB", (source.width, source.height * len(sheet)))
    for index, image in enumerate(sheet):
        whole.paste(image, (0, index * source.height))
    whole.save(OUT / "ops.png", optimize=True)
    (OUT / "ops.txt").write_text("\n".join(lines) + "\n")


def policy_magnitudes():
    """The operations of RandAugment and TrivialAugmentWide, and what their magnitudes stand for at 224 pixels."""
    lines = ["# policy, operation in the policy's order, signed, amounts of magnitudes 0, 5, 9, 17, 30"]
    for name, space in (("ra", autoaugment.RandAugment()._augmentation_space(31, (224, 224))),
                        ("ta_wide", autoaugment.TrivialAugmentWide()._augmentation_space(31))):
        for operation, (amounts, signed) in space.items():
            values = [float(amounts[i]) if amounts.ndim else 0.0 for i in (0, 5, 9, 17, 30)]
            if operation.startswith("Translate"):
                values = [int(v) for v in values]  # as its use rounds it
            lines.append(f"{name} {operation} {int(signed)} " + " ".join(f"{v:.6g}" for v in values))
    (OUT / "policies.txt").write_text("\n".join(lines) + "\n")


def erasing_statistics():
    """Means and standard deviations of what RandomErasing draws, over many draws."""
    torch.manual_seed(1)
    lines = ["# side, scale, ratio, then mean and deviation of: area share, log of height/width, centre x, centre y"]
    for side, scale, ratio in [(224, (0.02, 0.33), (0.3, 3.3)), (32, (0.1, 0.2), (1.0, 2.0))]:
        image = torch.zeros(3, side, side)
        values = []
        for _ in range(50000):
            top, left, h, w, _ = transforms.RandomErasing.get_params(image, scale, ratio, [0.0])
            values.append((w * h / side**2, math.log(h / w), (left + w / 2) / side, (top + h / 2) / side))
        table = torch.tensor(values, dtype=torch.float64)
        numbers = torch.stack([table.mean(0), table.std(0)], 1).flatten().tolist()
        lines.append(f"{side} {scale[0]} {scale[1]} {ratio[0]} {ratio[1]} " + " ".join(f"{n:.6f}" for n in numbers))
    (OUT / "erasing.txt").write_text("\n".join(lines) + "\n")


def pixel_bomb():
    """A small file that would need 346 MiB as RGB."""
    Image.new("1", (11000, 11000)).save(OUT / "bomb.png", optimize=True)


def class_list():
    """A struct array laid out as in ImageNet's meta.mat, with two classes and a group of them."""
    fields = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("gloss", "O"), ("num_children", "O"),
              ("children", "O"), ("wordnet_height", "O"), ("num_train_images", "O")]
    synsets = numpy.zeros((3, 1), dtype=fields)
    rows = [(1.0, "n02119789", "kit fox, Vulpes macrotis", "small grey fox", 0.0, numpy.zeros((1, 0)), 0.0, 1300.0),
            (2.0, "n02100735", "English setter", "an English breed", 0.0, numpy.zeros((1, 0)), 0.0, 1300.0),
            (1001.0, "n00001740", "entity", "that which is", 2.0, numpy.array([[1.0, 2.0]]), 19.0, 0.0)]
    for i, row in enumerate(rows):
        synsets[i, 0] = row
    scipy.io.savemat(OUT / "meta.mat", {"synsets": synsets}, do_compression=True)


def main():
    OUT.mkdir(exist_ok=True)
    source = picture(67, 53, 1)
    source.save(OUT / "source.png")
    resize_cases(source)
    jpeg_cases()
    evaluation_cases()
    crop_statistics()
    operation_cases()
    policy_magnitudes()
    erasing_statistics()
    pixel_bomb()
    class_list()


if __name__ == "__main__":
    main()
