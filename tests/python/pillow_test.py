"""Pillow decodes, crops and resizes the same pictures: Redline's pixels are within a level of its on average."""

import glob
import io
import os
import subprocess

from helper import need, redline, scratch

Image, numpy = need("PIL.Image", "numpy")


def probe(*arguments):
    """What the pipeline makes of a file, and what it printed about it."""
    done = subprocess.run([os.environ["DATA_PROBE"], *map(str, arguments)], capture_output=True, check=True)
    head, pixels = done.stdout.split(b"\n", 1)
    width, height = map(int, head.split())
    return numpy.frombuffer(pixels, numpy.uint8).reshape(height, width, 3).astype(int), done.stderr.decode()


def off(ours, image):
    """Mean difference in levels."""
    theirs = numpy.asarray(image.convert("RGB")).astype(int)
    assert theirs.shape == ours.shape, (theirs.shape, ours.shape)
    return numpy.abs(ours - theirs).mean()


def evaluation(image, size):
    """torchvision's Resize and CenterCrop."""
    width, height = image.size
    shorter = round(size / 0.875)
    new = (shorter, shorter * height // width) if width <= height else (shorter * width // height, shorter)
    left, top = round((new[0] - size) / 2), round((new[1] - size) / 2)
    return image.resize(new, Image.BILINEAR).crop((left, top, left + size, top + size))


def variants(path, folder):
    """The picture as encoders other than ours write it."""
    image = Image.open(path).convert("RGB")
    for name, mode, options in (("420", "RGB", {"subsampling": 2}), ("422", "RGB", {"subsampling": 1}),
                                ("444", "RGB", {"subsampling": 0}), ("grey", "L", {}),
                                ("progressive", "RGB", {"progressive": True}), ("optimized", "RGB", {"optimize": True})):
        file = f"{folder}/{name}.jpg"
        image.convert(mode).save(file, quality=92, **options)
        yield file
    image.save(f"{folder}/plain.png")
    yield f"{folder}/plain.png"


with scratch() as folder:
    redline("data", "synth", f"{folder}/in", "--classes", 2, "--train", 4, "--val", 0, "--size", "500x375", "--quality", 95)
    files = sorted(glob.glob(f"{folder}/in/train/*/*.jpg"))
    assert len(files) == 4
    for file in files + list(variants(files[0], folder)):
        image = Image.open(io.BytesIO(open(file, "rb").read()))
        whole, _ = probe("whole", file)
        # Both use libjpeg; where Pillow brings its own, its IDCT and upsampling may round differently.
        assert off(whole, image) <= 0.5, (file, off(whole, image))
        for size in (64, 224):
            shown, _ = probe("eval", size, file)
            assert off(shown, evaluation(image.convert("RGB"), size)) <= 1.0, (file, size)
            distances = []
            for seed in range(6):
                crop, told = probe("train", size, seed, file)
                x, y, width, height, flip = map(int, told.split())
                part = image.convert("RGB").crop((x, y, x + width, y + height)).resize((size, size), Image.BILINEAR)
                if flip:
                    part = part.transpose(Image.FLIP_LEFT_RIGHT)
                distances.append(off(crop, part))
            assert numpy.mean(distances) <= 1.0, (file, size, distances)
