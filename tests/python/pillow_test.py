"""Pillow and torchvision decode, crop and resize the same pictures. Evaluation shows what torchvision's transforms show, to the
bit where both decode alike; training takes shortcuts, and is about a level off on average at most.

The pictures are drawn, with what matters of photographs: their sizes, their spectrum (which falls with the frequency), edges,
noise, and the ways in which cameras and editors write JPEGs."""

import os
import pathlib
import subprocess

from helper import need, scratch

Image, numpy, transforms = need("PIL.Image", "numpy", "torchvision.transforms")
from torchvision.transforms import functional  # noqa: E402

CORPUS = os.path.join(os.path.dirname(__file__), "..", "fuzz", "corpus", "image")
ORIENTATION = 0x0112  # of Exif's tags


def probe(*arguments):
    """The pictures that the pipeline makes of a file, and what it printed about them, a line each."""
    done = subprocess.run([os.environ["DATA_PROBE"], *map(str, arguments)], capture_output=True, check=True)
    found, rest = [], done.stdout
    while rest:
        head, rest = rest.split(b"\n", 1)
        width, height = map(int, head.split())
        size = width * height * 3
        found.append(numpy.frombuffer(rest[:size], numpy.uint8).reshape(height, width, 3).astype(int))
        rest = rest[size:]
    return found, done.stderr.decode().splitlines()


def off(ours, image):
    """Difference in levels: on average, and the most of any pixel."""
    theirs = numpy.asarray(image.convert("RGB")).astype(int)
    assert theirs.shape == ours.shape, (theirs.shape, ours.shape)
    distance = numpy.abs(ours - theirs)
    return distance.mean(), distance.max()


def photograph(width, height, seed):
    """Clouds whose amplitude falls with the frequency, as in photographs, before which things with sharp edges lie; and noise."""
    rng = numpy.random.default_rng(seed)
    fy, fx = numpy.fft.fftfreq(height)[:, None], numpy.fft.rfftfreq(width)[None, :]
    fall = 1 / numpy.maximum(numpy.hypot(fy, fx), 1 / max(width, height)) ** 1.1

    def clouds():
        spectrum = fall * (rng.normal(size=fall.shape) + 1j * rng.normal(size=fall.shape))
        field = numpy.fft.irfft2(spectrum, s=(height, width))
        return (field - field.mean()) / field.std()

    light = clouds()
    pixels = 120 + 45 * light[..., None] + 18 * numpy.stack([clouds() for _ in range(3)], axis=-1)
    y, x = numpy.mgrid[0:height, 0:width]
    for _ in range(6):
        cx, cy, rx, ry = rng.uniform(0, width), rng.uniform(0, height), rng.uniform(0.04, 0.3) * width, rng.uniform(0.04, 0.3) * height
        inside = ((x - cx) / rx) ** 2 + ((y - cy) / ry) ** 2 < 1
        pixels[inside] = 0.5 * pixels[inside] + rng.uniform(0, 128, size=3)
    pixels += rng.normal(scale=4, size=pixels.shape)
    return Image.fromarray(numpy.clip(pixels, 0, 255).astype(numpy.uint8))


def turned():
    exif = Image.Exif()
    exif[ORIENTATION] = 6  # stored on its side
    return exif


def pictures(folder):
    """Files, each with a word for what it is."""
    usual = photograph(500, 375, 0)
    for name, mode, options in (("420", "RGB", {"subsampling": 2}), ("422", "RGB", {"subsampling": 1}), ("444", "RGB", {"subsampling": 0}),
                                ("grey", "L", {}), ("cmyk", "CMYK", {}), ("progressive", "RGB", {"progressive": True}),
                                ("optimized", "RGB", {"optimize": True}), ("exif", "RGB", {"exif": turned()}),
                                ("fine", "RGB", {"quality": 98}), ("coarse", "RGB", {"quality": 40})):
        usual.convert(mode).save(f"{folder}/{name}.jpg", **{"quality": 92, **options})
        yield f"{folder}/{name}.jpg"
    usual.save(f"{folder}/plain.png")
    yield f"{folder}/plain.png"
    for width, height in ((375, 500), (333, 500), (500, 281), (1600, 1200), (1024, 683), (226, 226), (64, 64), (97, 33)):
        photograph(width, height, width).save(f"{folder}/{width}x{height}.jpg", quality=90)
        yield f"{folder}/{width}x{height}.jpg"
    yield os.path.join(CORPUS, "restarts.jpg")


def check(file, seeds=6):
    """How far the file is off: decoded whole and as a training crop on average, and the most of a pixel in evaluation."""
    image = Image.open(file)
    colours = image.convert("RGB")
    name = os.path.basename(file)
    # Both use libjpeg; where Pillow brings its own, its IDCT and upsampling may round differently.
    whole, _ = off(probe("whole", file)[0][0], image)
    assert whole <= 0.5, (name, whole)
    evaluation, training = [], []
    for size in (64, 224):
        see = transforms.Compose([transforms.Resize(round(size / 0.875)), transforms.CenterCrop(size)])
        mean, most = off(probe("eval", size, file)[0][0], see(colours))
        assert most <= (0 if whole == 0 else 1), (name, size, mean, most)
        evaluation.append(most)
        distances = []
        for crop, told in zip(*probe("train", size, seeds, file), strict=True):
            x, y, width, height, flip = map(int, told.split())
            part = functional.resized_crop(colours, y, x, height, width, [size, size])
            distances.append(off(crop, functional.hflip(part) if flip else part)[0])
        training.append(numpy.mean(distances))
    return whole, max(evaluation), training


with scratch() as folder:
    for file in pictures(folder):
        # 0.2 to 0.8 as stored, and up to 1.2 where the JPEG is shrunk by its decoder; a picture of noise more.
        _, _, training = check(file)
        assert max(training) <= (2.0 if file.startswith(CORPUS) else 1.3), (os.path.basename(file), training)

# Real ones, which cannot be shipped: REDLINE_PICTURES is a folder of JPEGs. Pictures of hair or grass are as noise.
if os.environ.get("REDLINE_PICTURES"):
    files = sorted(str(file) for file in pathlib.Path(os.environ["REDLINE_PICTURES"]).rglob("*.[jJ][pP]*[gG]"))
    found = [check(file, 2) for file in files]
    training = numpy.array([distances for _, _, distances in found])
    print(f"{len(files)} files: decoded whole {max(whole for whole, _, _ in found):.3f} levels off on average at most; evaluation "
          f"{max(most for _, most, _ in found)} at most; training crops {training[:, 0].mean():.2f} at 64 pixels and "
          f"{training[:, 1].mean():.2f} at 224 on average, {training.max():.2f} at most")
    assert training.mean() <= 1.3, training.mean()
