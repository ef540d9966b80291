"""`.ci/check-source` on small trees: it must see what it is there to see, and nothing else."""

import os
import pathlib
import subprocess
import sys
import tempfile

CHECK = pathlib.Path(__file__).parents[2] / ".ci/check-source"
README = "**low** has plain things.\n\n**high** uses low. **other** words in bold are no module.\n"


def check(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {"README.md": README, **files}.items():
            path = pathlib.Path(folder, "src", name)
            os.makedirs(path.parent, exist_ok=True)
            path.write_text(text)
        ran = subprocess.run([sys.executable, CHECK, folder], capture_output=True, text=True)
        return ran.returncode, ran.stderr.replace(folder + "/", "")


def function(lines, head="void f(int a)"):
    return f"{head} {{\n" + "  g(\"}\");  // }\n" * (lines - 2) + "}\n"


def expect(found, wanted):
    assert found == wanted, f"{found!r} instead of {wanted!r}"


expect(check({"high/a.cpp": '#include "low/b.h"\n#include "high/a.h"\n#include "elsewhere/c.h"\n'}), (0, ""))
expect(
    check({"low/a.h": '#include <vector>\n\n#include "high/b.h"\n'}),
    (1, "src/low/a.h:3: low includes high/b.h, and high comes after it in src/README.md\n"),
)
expect(
    check({"third/a.h": ""}), (1, "src/third/a.h: src/README.md does not say where the module third stands\n")
)

TOO_LONG = "f has 81 lines, more than 80: give its parts names of their own\n"
expect(check({"low/a.cpp": function(80)}), (0, ""))
expect(check({"low/a.cpp": "int x;\n\n" + function(81)}), (1, f"src/low/a.cpp:3: {TOO_LONG}"))
expect(check({"low/a.cpp": "namespace a {\nnamespace {\n" + function(81) + "}\n}\n"}), (1, f"src/low/a.cpp:3: {TOO_LONG}"))
expect(check({"low/a.h": "class C final : public B {\n public:\n" + function(81) + "};\n"}), (1, f"src/low/a.h:3: {TOO_LONG}"))
expect(
    check({"low/a.cpp": function(81, "C::C(int a)\n    : a_{a},\n      b_(2)")}),
    (1, "src/low/a.cpp:1: C::C has 83 lines, more than 80: give its parts names of their own\n"),
)
expect(check({"low/a.cpp": "const T kTable[] = {\n" + "  {1, f(2)},\n" * 100 + "};\n"}), (0, ""))
expect(check({"low/kernels/a.cu": function(81)}), (1, f"src/low/kernels/a.cu:1: {TOO_LONG}"))
