#!/usr/bin/env python3
"""Writes tests/fuzz/corpus/: good and nasty inputs for each fuzzer, small enough to be read in an editor.

    pip install pillow
    python tests/fuzz/make_corpus.py

The files are kept in the repository, so that the tests need no Python; run this again after adding one here.
"""
import io
import pathlib
import random
import struct
import tarfile
import zipfile
import zlib

from PIL import Image

OUT = pathlib.Path(__file__).parent / "corpus"


def put(target, name, content):
    path = OUT / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def picture(mode="RGB", size=(37, 29)):
    rng = random.Random(3)
    image = Image.new("RGB", size)
    image.putdata([(7 * x % 256, 9 * y % 256, rng.randrange(256)) for y in range(size[1]) for x in range(size[0])])
    return image.convert(mode)


def saved(image, kind="JPEG", **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def segment(jpeg, marker):
    """Where a marker segment's length field is."""
    at = 2
    while jpeg[at + 1] != marker:
        at += 2 + struct.unpack(">H", jpeg[at + 2:at + 4])[0]
    return at + 2


def changed(data, at, new):
    return data[:at] + new + data[at + len(new):]


def images():
    for name, subsampling in (("444", 0), ("422", 1), ("420", 2)):
        put("image", f"{name}.jpg", saved(picture(), quality=80, subsampling=subsampling))
    put("image", "grey.jpg", saved(picture("L"), quality=80))
    put("image", "cmyk.jpg", saved(picture("CMYK"), quality=80))
    put("image", "progressive.jpg", saved(picture(), quality=80, progressive=True))
    put("image", "restarts.jpg", saved(picture(), quality=80, restart_marker_blocks=1))
    put("image", "narrow.jpg", saved(picture(size=(1, 70)), quality=80))
    put("image", "optimized.jpg", saved(picture(), quality=95, optimize=True))
    jpeg = saved(picture(), quality=80, subsampling=2)
    frame, codes, scan = segment(jpeg, 0xC0), segment(jpeg, 0xC4), segment(jpeg, 0xDA)
    put("image", "cut_in_header.jpg", jpeg[:frame + 5])
    put("image", "cut_in_codes.jpg", jpeg[:codes + 9])
    put("image", "cut_in_scan.jpg", jpeg[:scan + 60])
    put("image", "no_end_marker.jpg", jpeg[:-2])
    put("image", "end_marker_early.jpg", jpeg[:scan + 40] + b"\xff\xd9")
    put("image", "pixel_bomb.jpg", changed(jpeg, frame + 3, b"\xff\xdc\xff\xdc"))
    put("image", "no_height.jpg", changed(jpeg, frame + 3, b"\0\0"))
    put("image", "twelve_bits.jpg", changed(jpeg, frame + 2, b"\x0c"))
    put("image", "arithmetic.jpg", changed(jpeg, frame - 1, b"\xc9"))
    put("image", "lossless.jpg", changed(jpeg, frame - 1, b"\xc3"))
    put("image", "odd_sampling.jpg", changed(jpeg, frame + 9, b"\x41"))
    put("image", "no_such_table.jpg", changed(jpeg, scan + 4, b"\x33"))
    put("image", "crowded_codes.jpg", changed(jpeg, codes + 3, b"\x03" + b"\0" * 15))
    put("image", "long_codes_only.jpg", changed(jpeg, codes + 3, b"\0" * 15 + b"\x0c"))
    put("image", "steps_missing.jpg", changed(jpeg, frame + 10, b"\x02"))
    put("image", "two_frames.jpg", jpeg[:frame - 2] + jpeg[frame - 2:frame + 17] + jpeg[frame - 2:])
    put("image", "strange_restarts.jpg", jpeg[:scan - 2] + b"\xff\xdd\0\x04\0\x01" + jpeg[scan - 2:])
    put("image", "scan_of_ones.jpg", jpeg[:scan + 12] + b"\xff\0" * 400 + b"\xff\xd9")
    put("image", "scan_of_zeros.jpg", jpeg[:scan + 12] + b"\0" * 400 + b"\xff\xd9")
    put("image", "segment_too_long.jpg", changed(jpeg, codes, b"\xff\xff"))
    put("image", "segment_too_short.jpg", changed(jpeg, codes, b"\0\0"))
    put("image", "many_scans.jpg", jpeg[:-2] + jpeg[scan - 2:-2] * 3 + b"\xff\xd9")
    png = saved(picture("RGBA"), "PNG")
    put("image", "alpha.png", png)
    put("image", "palette.png", saved(picture().quantize(7), "PNG"))
    put("image", "grey16.png", saved(Image.new("I;16", (9, 5), 40000), "PNG"))
    put("image", "cut.png", png[:90])
    put("image", "bad_checksum.png", changed(png, 29, b"\0\0\0\0"))
    header = b"IHDR" + struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    put("image", "pixel_bomb.png", png[:12] + header + struct.pack(">I", zlib.crc32(header)) + png[33:])
    put("image", "empty", b"")
    put("image", "magic_only.jpg", b"\xff\xd8")
    put("image", "text.jpg", "<html>not found</html>")
    put("image", "gif.jpg", saved(picture(), "GIF"))
    bitmaps()
    webps()
    tiffs()
    gifs()


def bitmap(bits, data, size=(5, 3), compression=0, colors=b"", header=b""):
    offset = 14 + 40 + len(header) + len(colors)
    return (b"BM" + struct.pack("<IIIIiiHHIIiiII", offset + len(data), 0, offset, 40, *size, 1, bits, compression, len(data),
                                0, 0, len(colors) // 4, 0) + header + colors + data)  # fmt: skip


def bitmaps():
    good = saved(picture(), "BMP")
    put("image", "plain.bmp", good)
    put("image", "palette.bmp", saved(picture().quantize(200), "BMP"))
    put("image", "one_bit.bmp", saved(picture("1"), "BMP"))
    put("image", "alpha.bmp", saved(picture("RGBA"), "BMP"))
    four = bytes(7 * i % 256 for i in range(64))
    put("image", "four_bits.bmp", bitmap(4, b"\x12\x34\x50\0" * 3, colors=four))
    put("image", "top_down.bmp", bitmap(24, bytes(range(48)), (5, -3)))
    put("image", "sixteen_bits.bmp", bitmap(16, bytes(range(36))))
    put("image", "masks.bmp", bitmap(16, bytes(range(36)), compression=3, header=struct.pack("<III", 0xf800, 0x7e0, 0x1f)))
    put("image", "zero_mask.bmp", bitmap(32, bytes(60), compression=3, header=struct.pack("<III", 0, 0xffffffff, 0xa5)))
    put("image", "runs8.bmp", bitmap(8, b"\x03\x01\x02\x02\0\0\0\x03\x04\x05\x06\0\0\0\x05\x07\0\x01", compression=1, colors=four))
    put("image", "runs4.bmp", bitmap(4, b"\x05\x12\0\0\0\x04\x34\x56\x01\x70\0\0\x05\x89\0\x01", compression=2, colors=four))
    put("image", "runs_move.bmp", bitmap(8, b"\x01\x05\0\x02\x01\x01\x02\x06\0\x01", compression=1, colors=four))
    put("image", "runs_off_the_edge.bmp", bitmap(8, b"\xff\x01" * 9 + b"\0\x02\xff\xff", compression=1, colors=four))
    put("image", "runs_cut.bmp", bitmap(8, b"\x03", compression=1, colors=four))
    put("image", "core.bmp", b"BM" + struct.pack("<IIIIHHHH", 26 + 48, 0, 26, 12, 5, 3, 1, 24) + bytes(range(48)))
    put("image", "cut.bmp", good[:700])
    put("image", "cut_in_header.bmp", good[:40])
    put("image", "pixel_bomb.bmp", changed(good, 18, struct.pack("<ii", 60000, 60000)))
    put("image", "lowest_height.bmp", changed(good, 22, struct.pack("<i", -2**31)))
    put("image", "data_beyond.bmp", changed(good, 10, b"\xff\xff\xff\xff"))
    put("image", "colors_for_screens.bmp", changed(good, 46, b"\xff\xff\xff\xff"))
    put("image", "many_colors.bmp", changed(saved(picture("L"), "BMP"), 46, b"\xff\xff\xff\xff"))


def webps():
    good = saved(picture(), "WEBP", quality=80)
    put("image", "lossy.webp", good)
    put("image", "lossless.webp", saved(picture(), "WEBP", lossless=True))
    put("image", "alpha.webp", saved(picture("RGBA"), "WEBP", quality=80))
    frames = [picture(), picture().transpose(Image.FLIP_LEFT_RIGHT)]
    moving = saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    put("image", "moving.webp", moving)
    put("image", "cut.webp", good[: len(good) // 2])
    put("image", "cut_in_header.webp", good[:24])
    put("image", "moving_cut.webp", moving[: len(moving) // 3])
    put("image", "pixel_bomb.webp", changed(moving, 24, b"\xff\xff\xff\xff\xff\xff"))
    put("image", "small_canvas.webp", changed(moving, 24, b"\x01\0\0\x01\0\0"))
    put("image", "bad_size.webp", changed(good, 4, b"\xff\xff\xff\xff"))


def tag_at(tiff, tag):
    """Where a tag's value lies in the first directory of a little-endian file."""
    at = struct.unpack("<I", tiff[4:8])[0]
    for i in range(struct.unpack("<H", tiff[at : at + 2])[0]):
        if struct.unpack("<H", tiff[at + 2 + 12 * i : at + 4 + 12 * i])[0] == tag:
            return at + 2 + 12 * i + 8
    raise KeyError(tag)


def tiffs():
    good = saved(picture(), "TIFF")
    put("image", "plain.tif", good)
    for kind in ("tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg"):
        put("image", f"{kind}.tif", saved(picture(), "TIFF", compression=kind))
    put("image", "alpha.tif", saved(picture("RGBA"), "TIFF"))
    put("image", "grey.tif", saved(picture("L"), "TIFF"))
    put("image", "palette.tif", saved(picture().quantize(60), "TIFF"))
    put("image", "fax.tif", saved(picture("1"), "TIFF", compression="group4"))
    put("image", "float.tif", saved(picture("F"), "TIFF"))
    put("image", "cut.tif", good[: len(good) // 2])
    put("image", "cut_in_header.tif", good[:6])
    put("image", "directory_beyond.tif", changed(good, 4, b"\xff\xff\xff\x7f"))
    put("image", "directory_in_circles.tif", changed(good, 4, b"\x04\0\0\0"))
    packed = saved(picture(), "TIFF", compression="tiff_adobe_deflate")
    big = struct.pack("<I", 60000)
    put("image", "pixel_bomb.tif", changed(changed(packed, tag_at(packed, 256), big), tag_at(packed, 257), big))
    put("image", "strip_bomb.tif", changed(packed, tag_at(packed, 257), struct.pack("<I", 20000)))
    put("image", "no_width.tif", changed(good, tag_at(good, 256), bytes(4)))
    put("image", "strange_samples.tif", changed(good, tag_at(good, 277), b"\xff\xff\0\0"))


def gifs():
    good = saved(picture().quantize(30), "GIF")
    put("image", "plain.gif", good)
    put("image", "straight.gif", saved(picture().quantize(30), "GIF", interlace=0))
    put("image", "clear.gif", saved(picture().quantize(30), "GIF", transparency=3))
    frames = [picture().quantize(30), picture("L").quantize(9)]
    put("image", "moving.gif", saved(frames[0], "GIF", save_all=True, append_images=frames[1:]))
    put("image", "cut.gif", good[: len(good) // 2])
    put("image", "cut_in_header.gif", good[:9])
    put("image", "wide_screen.gif", changed(good, 6, b"\x40\0\x30\0"))
    put("image", "outside.gif", changed(good, 6, b"\x05\0\x05\0"))
    put("image", "pixel_bomb.gif", changed(good, 6, b"\xff\xff\xff\xff"))
    put("image", "no_picture.gif", good[:13] + b";")
    put("image", "no_palette.gif", good[:10] + b"\0\0\0" + b",\0\0\0\0\x02\0\x02\0\0\x02\x02\x4c\x01\0;")


BOX = """<annotation>
 <folder>n01440764</folder><filename>n01440764_10040</filename>
 <size><width>{width}</width><height>{height}</height><depth>3</depth></size>
 <object><name>n01440764</name><bndbox><xmin>{xmin}</xmin><ymin>9</ymin><xmax>{xmax}</xmax><ymax>250</ymax></bndbox></object>
</annotation>
"""


def boxes():
    good = BOX.format(width=500, height=375, xmin=9, xmax=320)
    put("boxes", "good.xml", good)
    put("boxes", "reversed.xml", BOX.format(width=500, height=375, xmin=320, xmax=9))
    put("boxes", "outside.xml", BOX.format(width=500, height=375, xmin=600, xmax=700))
    put("boxes", "no_area.xml", BOX.format(width=500, height=375, xmin=9, xmax=9))
    put("boxes", "no_size.xml", BOX.format(width=0, height=0, xmin=9, xmax=320))
    for name, value in (("nan", "nan"), ("infinite", "1e999"), ("negative", "-1e300"), ("words", "nine")):
        put("boxes", f"{name}.xml", BOX.format(width=500, height=375, xmin=value, xmax=320))
    put("boxes", "corner_missing.xml", good.replace("<ymin>9</ymin>", ""))
    put("boxes", "outer_objects.xml", "<annotation><bndbox><xmin>1</xmin></bndbox></annotation>")
    put("boxes", "cut.xml", good[:200])
    put("boxes", "other_root.xml", "<svg width='1'/>")
    put("boxes", "deep.xml", "<annotation>" + "<object>" * 60)
    put("boxes", "long_text.xml", good.replace("n01440764</name>", "n" * 4000 + "</name>"))
    laughs = "".join(f'<!ENTITY l{i + 1} "{"&l%d;" % i * 10}">' for i in range(9))
    put("boxes", "entities.xml", f'<!DOCTYPE a [<!ENTITY l0 "ha">{laughs}]>' + good.replace("n01440764</name>", "&l9;</name>"))
    put("boxes", "file_entity.xml", '<!DOCTYPE a [<!ENTITY f SYSTEM "file:///etc/passwd">]>' + good.replace("n01440764</name>", "&f;</name>"))
    put("boxes", "wide_characters.xml", good.encode("utf-16"))
    put("boxes", "strange_encoding.xml", '<?xml version="1.0" encoding="cp-nonsense"?>' + good)
    put("boxes", "zeros.xml", b"\0" * 64)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    return crc ^ 0xFFFFFFFF


def framed(data, length=None):
    mask = lambda crc: ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    head = struct.pack("<Q", len(data) if length is None else length)
    return head + struct.pack("<I", mask(crc32c(head))) + data + struct.pack("<I", mask(crc32c(data)))


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def feature(name, kind, data):
    return field(1, field(1, name.encode()) + field(2, field(kind, field(1, data))))


def records():
    two = framed(b"first") + framed(b"the second record")
    put("records", "good", two)
    put("records", "empty_record", framed(b"") + framed(b"x"))
    put("records", "cut_in_length", two[:30])
    put("records", "cut_in_data", two[:-6])
    put("records", "bad_length_checksum", changed(two, 9, b"\0"))
    put("records", "bad_data_checksum", changed(two, 12, b"X"))
    put("records", "endless", framed(b"abc", 2**64 - 1))
    put("records", "just_too_long", framed(b"abc", 4))
    put("records", "index", "0 21\n21 33\n")
    put("records", "index_overlap", "0 21\n5 33\n")
    put("records", "index_words", "zero one\n")
    put("records", "index_huge", "18446744073709551615 18446744073709551615\n")
    put("records", "index_negative", "-1 -1\n")
    put("records", "index_no_newline", "0 16")
    good = field(1, feature("image/encoded", 1, b"\xff\xd8") + feature("image/class/label", 3, varint(7)) +
                 feature("image/object/bbox/xmin", 2, struct.pack("<f", 0.5)))
    put("example", "good", good)
    put("example", "no_label", field(1, feature("image/encoded", 1, b"\xff\xd8")))
    put("example", "cut", good[:-3])
    put("example", "length_past_end", field(1, b"")[:-1] + b"\xff\xff\xff\xff\x0f")
    put("example", "endless_varint", b"\x0a" + b"\xff" * 20)
    put("example", "groups", b"\x0b\x0b\x0b\x0c\x0c\x0c")
    put("example", "wire_type_seven", b"\x0f\x01")
    put("example", "twice", good + good)


def tars():
    def archive(members, kind=tarfile.USTAR_FORMAT):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=kind) as tar:
            for name, size, type_, link in members:
                info = tarfile.TarInfo(name)
                info.size, info.type, info.linkname = size, type_, link
                tar.addfile(info, io.BytesIO(b"x" * size))
        return out.getvalue()[:4096]
    plain = archive([("n01440764/a.JPEG", 20, tarfile.REGTYPE, ""), ("b.JPEG", 600, tarfile.REGTYPE, "")])
    put("tar", "plain.tar", plain)
    put("tar", "gnu_long_name.tar", archive([("d/" * 80 + "a.JPEG", 3, tarfile.REGTYPE, "")], tarfile.GNU_FORMAT))
    put("tar", "pax_name.tar", archive([("ü" * 90 + ".JPEG", 3, tarfile.REGTYPE, "")], tarfile.PAX_FORMAT))
    put("tar", "climbs.tar", archive([("../../a.JPEG", 3, tarfile.REGTYPE, "")]))
    put("tar", "absolute.tar", archive([("x/a.JPEG", 3, tarfile.REGTYPE, "")]).replace(b"x/a.JPEG", b"/etc/abc", 1))
    put("tar", "link.tar", archive([("a.JPEG", 0, tarfile.SYMTYPE, "/etc/passwd")]))
    put("tar", "hard_link.tar", archive([("a.JPEG", 0, tarfile.LNKTYPE, "b")]))
    put("tar", "device.tar", archive([("a", 0, tarfile.CHRTYPE, "")]))
    put("tar", "bad_checksum.tar", changed(plain, 148, b"000000"))
    put("tar", "cut_in_header.tar", plain[:300])
    put("tar", "cut_in_content.tar", plain[:700])

    def resized(text):
        head = bytearray(changed(plain, 124, text)[:512])
        head[148:156] = b" " * 8
        head[148:156] = b"%06o\0 " % sum(head)
        return bytes(head) + plain[512:1024]
    put("tar", "huge_octal.tar", resized(b"77777777777\0"))
    put("tar", "huge_binary.tar", resized(b"\x80" + b"\xff" * 11))
    put("tar", "negative_size.tar", resized(b"\xff" * 12))
    put("tar", "zeros.tar", b"\0" * 1024)


def zips():
    def archive(members, method=zipfile.ZIP_DEFLATED, comment=b""):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as file:
            file.comment = comment
            for name, content in members:
                file.writestr(zipfile.ZipInfo(name), content, method)
        return out.getvalue()
    plain = archive([("train/n01/a.JPEG", b"abc" * 50), ("val/", b""), ("val/b.JPEG", b"")])
    put("zip", "plain.zip", plain)
    put("zip", "stored.zip", archive([("a", b"abc"), ("b", b"d")], zipfile.ZIP_STORED))
    put("zip", "comment.zip", archive([("a", b"abc")], comment=b"PK\5\6" + b"x" * 30))
    put("zip", "climbs.zip", archive([("../../a", b"abc")]))
    put("zip", "bzip2.zip", archive([("a", b"abc")], zipfile.ZIP_BZIP2))
    put("zip", "bomb.zip", archive([("a", b"\0" * (2 << 20))]))
    put("zip", "cut.zip", plain[:len(plain) - 30])
    put("zip", "empty.zip", archive([]))
    entry = plain.find(b"PK\1\2")
    put("zip", "encrypted.zip", changed(plain, entry + 8, b"\x01"))
    put("zip", "lies_about_size.zip", changed(plain, entry + 24, struct.pack("<I", 100000)))
    put("zip", "zip64_without_extra.zip", changed(plain, entry + 20, b"\xff" * 8))
    put("zip", "past_end.zip", changed(plain, entry + 42, struct.pack("<I", 1 << 20)))
    second = plain.find(b"PK\1\2", entry + 4)
    put("zip", "shared.zip", changed(plain, plain.find(b"PK\1\2", second + 4) + 42, struct.pack("<I", 0)))
    end = plain.find(b"PK\5\6")
    put("zip", "many_entries.zip", changed(plain, end + 10, b"\xfe\xff"))
    put("zip", "huge_directory.zip", changed(plain, end + 12, b"\xf0\xff\xff\xff"))


def texts():
    put("class_list", "good.txt", "n02\nn01\n10\n")
    put("class_list", "windows.txt", "cat\r\ndog")
    put("class_list", "climbs.txt", "cat\n../dog\n")
    put("class_list", "twice.txt", "cat\ncat\n")
    put("class_list", "gap.txt", "cat\n\ndog\n")
    put("class_list", "zeros.txt", b"cat\0\n")
    put("class_list", "solution.csv", "ImageId,PredictionString\nILSVRC2012_val_00000001,n02 1 2 3 4 \nb,n01\n")
    put("class_list", "no_class.csv", "a,\n,n01\n")
    put("val_annotations", "good.txt", "val_0.JPEG\tn01443537\t0\t32\t44\t62\nval_1.JPEG\tn01629819\t52\t55\t57\t59\n")
    put("val_annotations", "windows.txt", "val_0.JPEG\tn01443537\t0\t32\t44\t62\r\n\r\n")
    put("val_annotations", "no_box.txt", "val_0.JPEG\tn01443537")
    put("val_annotations", "no_class.txt", "val_0.JPEG\n")
    put("val_annotations", "empty_class.txt", "val_0.JPEG\t\t1\n")
    put("val_annotations", "climbs.txt", "../../val_0.JPEG\tn01443537\n")
    put("val_annotations", "hidden.txt", ".JPEG\tn01443537\n")
    put("val_annotations", "zeros.txt", b"\0\0\t\0\n\t\t\t\n")
    put("val_annotations", "words.txt", "n01443537\tgoldfish, Carassius auratus\nn01629819\tsalamander\textra\nn0\n")
    for name, text in (("good", "490\n361\n171\n"), ("windows", "490\r\n361\r\n"), ("words", "one\n"), ("zero", "0\n"),
                       ("negative", "-4\n"), ("huge", "99999999999999999999\n"), ("gap", "1\n\n2\n"), ("no_newline", "12")):
        put("ground_truth", f"{name}.txt", text)


def mats():
    golden = (OUT.parent.parent / "data" / "golden" / "meta.mat").read_bytes()
    put("mat5", "cut.mat", golden[:len(golden) // 2])
    put("mat5", "header_only.mat", golden[:128])
    start = golden[:128]
    put("mat5", "endless_element.mat", start + struct.pack("<II", 14, 0xFFFFFFF0) + b"\0" * 32)
    put("mat5", "nested.mat", start + b"".join(struct.pack("<II", 14, 8 * (40 - i)) for i in range(40)))
    bomb = zlib.compress(struct.pack("<II", 14, 1 << 20) + b"\0" * (1 << 20), 9)
    put("mat5", "bomb.mat", start + struct.pack("<II", 15, len(bomb)) + bomb)
    bad = zlib.compress(b"not an array")[:-4]
    put("mat5", "bad_compression.mat", start + struct.pack("<II", 15, len(bad)) + bad)
    put("mat5", "other_order.mat", start[:124] + b"\x01\x00IM"[::-1] + struct.pack(">II", 14, 8) + b"\0" * 8)


def safetensors():
    def header(text, data=64):
        return struct.pack("<H", data) + text.encode()
    put("safetensors", "good", header('{"a":{"dtype":"F32","shape":[4,4],"data_offsets":[0,64]}}'))
    put("safetensors", "hole", header('{"a":{"dtype":"F32","shape":[1],"data_offsets":[60,64]}}'))
    put("safetensors", "past_end", header('{"a":{"dtype":"F32","shape":[32],"data_offsets":[0,128]}}'))
    put("safetensors", "huge_shape", header('{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,64]}}'))
    put("safetensors", "twice", header('{"a":{"dtype":"U8","shape":[64],"data_offsets":[0,64]},"a":1}'))
    put("safetensors", "negative", header('{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,-4]}}'))
    put("safetensors", "deep", header('{"a":' + "[" * 500))


def pickles():
    """What torch.save writes, by hand: the same whatever PyTorch is installed, or none."""

    def text(value):
        return b"X" + struct.pack("<I", len(value)) + value.encode()

    def tensor(key="0", elements=6, offset=0, shape=(2, 3), strides=(3, 1), kind="FloatStorage"):
        numbers = lambda values: b"(" + b"".join(b"J" + struct.pack("<i", value) for value in values) + b"t"
        return (b"ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + f"ctorch\n{kind}\n".encode() + text(key)
                + text("cpu") + b"J" + struct.pack("<i", elements) + b"tQJ" + struct.pack("<i", offset)
                + numbers(shape) + numbers(strides) + b"\x89ccollections\nOrderedDict\n)RtR")  # fmt: skip

    def pickle(body):
        return b"\x80\x02" + body + b"."

    def state_dict(**tensors):
        items = b"".join(text(name) + value for name, value in tensors.items())
        return pickle(b"ccollections\nOrderedDict\n)R(" + items + b"u}b")

    def archive(members):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
            for name, content in members.items():
                file.writestr(zipfile.ZipInfo(name), content)
        return buffer.getvalue()

    good = state_dict(a=tensor(), b=tensor(offset=1, shape=(2, 2), strides=(1, 3)))
    put("pickle", "good", good)
    put("pickle", "nested", pickle(b"}(" + text("epoch") + b"K\x03" + text("state_dict") + good[2:-1] + b"u"))
    put("pickle", "system", pickle(b"cos\nsystem\n(" + text("id") + b"tR"))
    put("pickle", "instance", pickle(b"(ios\nsystem\n"))
    put("pickle", "protocol4", b"\x80\x04\x95" + struct.pack("<Q", 9) + b"}\x94\x8c\x01a\x94K\x01s.")
    put("pickle", "unknown", b"\x80\x02\xff.")
    put("pickle", "deep", pickle(b")" + b"\x85" * 5000))
    put("pickle", "laughs", pickle(b"]q\x00" + b"(" + b"h\x00" * 9 + b"e" + b"h\x00a"))
    put("pickle", "vast", state_dict(a=tensor(shape=(2000000000, 2000000000), strides=(0, 0))))
    put("pickle", "outside", state_dict(a=tensor(offset=4)))
    put("pickle", "negative", state_dict(a=tensor(elements=-1, shape=(-1, 3))))
    put("pickle", "long_text", pickle(b"\x8d" + b"\xff" * 8))
    storage = struct.pack("<6f", *range(6))
    members = {"w/data.pkl": good, "w/byteorder": "little", "w/data/0": storage}
    whole = archive(members)
    put("pytorch", "good", whole)
    put("pytorch", "short_storage", archive(members | {"w/data/0": storage[:-4]}))
    put("pytorch", "no_storage", archive({"w/data.pkl": good}))
    put("pytorch", "overlapping", changed(whole, whole.rfind(b"PK\x01\x02") + 42, bytes(4)))
    put("pytorch", "huge_member", changed(whole, whole.rfind(b"PK\x01\x02") + 20, b"\xfe\xff\xff\xff" * 2))
    magic = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
    stream = magic + pickle(b"M\xe9\x03") + pickle(b"}") + good + pickle(b"](" + text("0") + b"e")
    put("pytorch", "stream", stream + struct.pack("<Q", 6) + storage)
    put("pytorch", "stream_huge", stream + struct.pack("<Q", 1 << 62) + storage)
    put("pytorch", "stream_keys", magic + pickle(b"N") * 2 + good + pickle(b"](" + text("9") * 50 + b"e"))


def messages():
    # CBOR by hand: a map has the major type 0xa0, an array 0x80, a text 0x60, each with its length in the low bits.
    def text(word):
        return bytes([0x60 + len(word)]) + word.encode()
    hello = bytes([0xa4]) + text("kind") + text("hello") + text("redline") + b"\x01" + text("rank") + b"\x01"
    put("message", "good", hello + text("facts") + bytes([0xa1]) + text("version") + text("0.1.0"))
    put("message", "cut", hello)
    put("message", "array", bytes([0x82]) + text("kind") + text("hello"))
    put("message", "number_as_key", b"\xa1\x01\x02")
    put("message", "open_map", b"\xbf" + text("kind") + text("bye") + b"\xff")
    put("message", "bytes", bytes([0xa1]) + text("value") + b"\x44\0\1\2\3")
    put("message", "tag", b"\xa1" + text("t") + b"\xc1\x1a\x65\0\0\0")
    endless = struct.pack(">Q", (1 << 63) - 1)
    for name, start in (("array", b"\x9b"), ("map", b"\xbb"), ("text", b"\x7b"), ("binary", b"\x5b")):
        put("message", f"endless_{name}", b"\xa1" + text("x") + start + endless + b"\0")
    put("message", "deep", b"\xa1" + text("x") + b"\x81" * 4000 + b"\0")


if __name__ == "__main__":
    images()
    boxes()
    records()
    tars()
    zips()
    texts()
    mats()
    safetensors()
    pickles()
    messages()
