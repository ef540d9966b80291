"""The tfrecord package reads the shards that Redline writes: the same images and labels, boxes, and index offsets."""

import glob
import os

from helper import need, redline, scratch

need("tfrecord", "numpy")
from tfrecord.reader import tfrecord_loader  # noqa: E402

BOX = """<annotation><size><width>100</width><height>50</height></size><object><name>{name}</name>
<bndbox><xmin>10</xmin><ymin>10</ymin><xmax>60</xmax><ymax>40</ymax></bndbox></object></annotation>"""


def images_of(folder):
    """By name: content and label, counted from 1 by the names of the classes."""
    found = {}
    for split in ("train", "val"):
        for label, name in enumerate(sorted(os.listdir(f"{folder}/train")), start=1):
            for file in os.listdir(f"{folder}/{split}/{name}"):
                with open(f"{folder}/{split}/{name}/{file}", "rb") as image:
                    found[split, name, file] = (image.read(), label)
    return found


def text(value):
    return bytes(value).decode()


with scratch() as folder:
    redline("data", "synth", f"{folder}/in", "--classes", 3, "--train", 21, "--val", 9, "--size", "40x30")
    first = sorted(os.listdir(f"{folder}/in/train"))[0]
    os.mkdir(f"{folder}/boxes")
    with open(f"{folder}/boxes/000002.xml", "w") as file:
        file.write(BOX.format(name=first))
    with open(f"{folder}/in/words.txt", "w") as file:
        file.write(f"{first}\tthe first, in words\n")
    redline("data", "convert", f"{folder}/in", f"{folder}/out", "--train-shards", 3, "--val-shards", 2, "--boxes",
            f"{folder}/boxes")
    wanted = images_of(f"{folder}/in")
    boxed = 0
    for shard in sorted(glob.glob(f"{folder}/out/*-of-000??")):
        split = "train" if os.path.basename(shard).startswith("train") else "val"
        records = list(tfrecord_loader(shard, None))
        offsets = [tuple(map(int, line.split())) for line in open(shard + ".idx")]
        assert len(records) == len(offsets) > 0
        assert offsets[0][0] == 0 and sum(offsets[-1]) == os.path.getsize(shard), offsets
        # By the index, one record at a time: the package seeks to the offset that the index gives.
        for number in range(len(records)):
            (alone,) = tfrecord_loader(shard, shard + ".idx", shard=(number, len(records)))
            assert text(alone["image/filename"]) == text(records[number]["image/filename"])
        for record in records:
            name, file = text(record["image/class/synset"]), text(record["image/filename"])
            content, label = wanted.pop((split, name, file))
            assert bytes(record["image/encoded"]) == content
            assert list(record["image/class/label"]) == [label], (name, record["image/class/label"])
            assert (record["image/width"][0], record["image/height"][0], record["image/channels"][0]) == (40, 30, 3)
            assert (text(record["image/format"]), text(record["image/colorspace"])) == ("JPEG", "RGB")
            if name == first:
                assert text(record["image/class/text"]) == "the first, in words"
            if file == "000002.jpg" and name == first:
                boxed += 1
                corners = [record[f"image/object/bbox/{side}"][0] for side in ("xmin", "ymin", "xmax", "ymax")]
                assert all(abs(a - b) < 1e-6 for a, b in zip(corners, (0.1, 0.2, 0.6, 0.8))), corners
                assert list(record["image/object/bbox/label"]) == [label]
    assert not wanted, f"not in the shards: {sorted(wanted)}"
    assert boxed == 2, boxed  # one of train, one of val

    # And back: the same files.
    redline("data", "convert", f"{folder}/out", f"{folder}/back", "--format", "folders")
    assert images_of(f"{folder}/back") == images_of(f"{folder}/in")
    assert open(f"{folder}/back/words.txt").read() == f"{first}\tthe first, in words\n"
