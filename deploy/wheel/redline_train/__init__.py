"""Redline, the program that trains ResNets: this package holds it, and starts it as the command `redline`."""

import os
import sys

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "redline")


def main():
    """Becomes the program, with the arguments of this process."""
    os.environ.setdefault("REDLINE_COMMAND", "redline")  # what it calls itself in the commands it suggests
    try:
        os.execv(PROGRAM, [PROGRAM, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"redline: error: {PROGRAM}: {error.strerror}; install the package redline-train again")
