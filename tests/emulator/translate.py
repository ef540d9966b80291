#!/usr/bin/env python3
"""Makes a C++ compiler understand a kernel's source: translate.py <from.cu> <to.cpp>

Launches become calls, dynamic shared memory a pointer, and the few instructions that are written as PTX outside hopper.cuh
functions of device.h.
"""
import pathlib
import re
import sys

INSTRUCTIONS = [
    (r'asm volatile\("mov\.u64 %0, %globaltimer;" : "=l"\((\w+)\)\);', r"\1 = redline_emulator_nanoseconds();"),
    (
        r'asm\("prmt\.b32 %0, %1, 0, %2;" : "=r"\((\w+)\) : "r"\((\w+)\), "n"\((\w+)\)\);',
        r"\1 = redline_emulator_prmt(\2, 0, \3);",
    ),
]


def opening(text, end, pair):
    """Where the bracket begins that ends at `end`."""
    depth = 0
    for at in range(end, -1, -1):
        depth += {pair[1]: 1, pair[0]: -1}.get(text[at], 0)
        if depth == 0:
            return at
    raise ValueError("unbalanced brackets before a launch")


def closing(text, begin, pair):
    depth = 0
    for at in range(begin, len(text)):
        depth += {pair[0]: 1, pair[1]: -1}.get(text[at], 0)
        if depth == 0:
            return at
    raise ValueError("unbalanced brackets after a launch")


def with_launches(text):
    """kernel<T><<<how>>>(arguments) -> launch({how}, [=] { kernel<T>(arguments); })"""
    while (mark := text.find("<<<")) >= 0:
        end = len(text[:mark].rstrip()) - 1
        begin = opening(text, end, "<>") if text[end] == ">" else end + 1
        begin = re.search(r"\w+$", text[:begin])
        begin = begin.start()
        how_end = text.index(">>>", mark)
        arguments = text.index("(", how_end)
        arguments_end = closing(text, arguments, "()")
        kernel = text[begin:mark].rstrip()
        text = (
            f"{text[:begin]}::redline::emulator::launch(::redline::emulator::Launch({text[mark + 3 : how_end]}), "
            f"[=] {{ {kernel}{text[arguments : arguments_end + 1]}; }}){text[arguments_end + 1 :]}"
        )
    return text


def main():
    source = pathlib.Path(sys.argv[1])
    text = source.read_text()
    for pattern, replacement in INSTRUCTIONS:
        text = re.sub(pattern, replacement, text)
    text = re.sub(
        r"extern __shared__ (?:__align__\(\d+\) )?std::byte (\w+)\[\];",
        r"std::byte* const \1 = ::redline::emulator::dynamic_shared();",
        text,
    )
    text = with_launches(text)
    pathlib.Path(sys.argv[2]).write_text(f'#include "device.h"\n#line 1 "{source}"\n{text}')


main()
