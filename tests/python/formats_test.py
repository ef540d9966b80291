"""Pillow and Redline read the same pixels from BMP, WebP, TIFF and GIF; data sets of them are trained on, predicted and
converted; and hostile files are refused."""

import os
import pathlib
import subprocess

from helper import need, redline, scratch

Image, numpy = need("PIL.Image", "numpy")
CORPUS = pathlib.Path(__file__).parent.parent / "fuzz" / "corpus" / "image"
READ = {
    "bmp": "plain palette one_bit alpha four_bits top_down sixteen_bits masks runs8 runs4 core colors_for_screens",
    "webp": "lossy lossless alpha moving",
    "tif": "plain tiff_lzw tiff_adobe_deflate packbits jpeg alpha grey palette fax",
    "gif": "plain straight clear moving",
}
REFUSED = {
    "bmp": "runs_cut cut cut_in_header pixel_bomb lowest_height data_beyond",
    "webp": "cut cut_in_header moving_cut pixel_bomb",
    "tif": "float cut cut_in_header directory_beyond directory_in_circles pixel_bomb strip_bomb no_width strange_samples",
    "gif": "cut cut_in_header outside pixel_bomb no_picture no_palette",
}


def ours(file):
    done = subprocess.run([os.environ["DATA_PROBE"], "whole", str(file)], capture_output=True, check=False, timeout=60)
    if done.returncode != 0:
        return None, done.stderr.decode()
    head, rest = done.stdout.split(b"\n", 1)
    width, height = map(int, head.split())
    return numpy.frombuffer(rest, numpy.uint8).reshape(height, width, 3).astype(int), ""


def theirs(file):
    image = Image.open(file)
    # Alpha is dropped, not blended.
    return numpy.asarray(image.convert("RGBA" if "A" in image.mode else "RGB"))[..., :3].astype(int)


for ending, names in READ.items():
    for name in names.split():
        file = CORPUS / f"{name}.{ending}"
        found, wrong = ours(file)
        assert found is not None, (file.name, wrong)
        expected = theirs(file)
        assert found.shape == expected.shape, (file.name, found.shape, expected.shape)
        most = numpy.abs(found - expected).max()
        # libtiff's own conversion of YCbCr rounds differently from libjpeg's, which Pillow asks for.
        assert most <= (2 if name == "jpeg" else 0), (file.name, most)
# A move, which Pillow gets wrong: one pixel, then two more, one row up and one column on; all else is the first colour.
palette = numpy.array([7 * i % 256 for i in range(64)]).reshape(16, 4)[:, 2::-1]
moved = numpy.zeros((3, 5), int)
moved[2, 0], moved[1, 2:4] = 5, 6
assert (ours(CORPUS / "runs_move.bmp")[0] == palette[moved]).all()
for ending, names in REFUSED.items():
    for name in names.split():
        found, wrong = ours(CORPUS / f"{name}.{ending}")
        assert found is None and wrong.strip() and "internal" not in wrong, (ending, name, wrong)

with scratch() as folder:
    rng = numpy.random.default_rng(0)
    for split, count in (("train", 4), ("val", 2)):
        for number, name in enumerate(("red", "blue")):
            place = pathlib.Path(folder) / "pics" / split / name
            place.mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 90, size=(32, 40, 3), dtype=numpy.uint8)
                pixels[..., 2 * number] += 120
                image = Image.fromarray(pixels)
                image.save(place / f"{i}.{['BMP', 'webp', 'tiff', 'gif'][i]}")
    info = redline("data", "info", f"{folder}/pics")
    for name in ("BMP", "WebP", "TIFF", "GIF"):
        assert name in info, info
    redline("data", "verify", f"{folder}/pics")
    redline("data", "show", f"{folder}/pics", "--page", f"{folder}/pics.html")
    redline("train", f"{folder}/pics", "--model", "resnet18", "--image-size", 32, "-b", 4, "-e", 1, "--threads", 1, "--name", "a",
            "-o", f"{folder}/runs")  # fmt: skip
    told = redline("predict", f"{folder}/runs/a", f"{folder}/pics/val", "--format", "csv")
    assert told.count(".webp") >= 2 and told.count(".BMP") >= 2, told
    # Records are what other programs read too: PNG, with the same pixels.
    redline("data", "convert", f"{folder}/pics", f"{folder}/records")
    redline("data", "convert", f"{folder}/records", f"{folder}/back")
    for file in pathlib.Path(folder, "pics").rglob("*.*"):
        back = pathlib.Path(str(file).replace("/pics/", "/back/")).with_suffix(".png")
        assert Image.open(back).format == "PNG", back
        assert (theirs(back) == ours(file)[0]).all(), back
print("the same pixels as Pillow's")
