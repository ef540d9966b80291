"""What the tests in Python share: packages that may be missing, the program, and a folder of the test's own."""

import contextlib
import importlib
import os
import shutil
import subprocess
import sys
import tempfile


def need(*names):
    """Imports the named packages and gives them; the test is skipped where one is missing."""
    found = []
    for name in names:
        try:
            found.append(importlib.import_module(name))
        except ImportError as error:
            print(f"skipped: {error}")
            sys.exit(77)
    return found if len(found) > 1 else found[0]


def redline(*arguments, code=0):
    """Runs the program and gives what it printed; its exit code must be `code`."""
    done = subprocess.run(
        [os.environ["REDLINE"], *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == code, f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@contextlib.contextmanager
def scratch():
    folder = tempfile.mkdtemp(prefix="redline-python-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def near(value, expected, tolerance, what):
    assert abs(value - expected) <= tolerance, f"{what}: {value}, where {expected} was expected"
