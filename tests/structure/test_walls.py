#!/usr/bin/env python3
"""Tests walls.py on small trees with one fault each, and on one without."""

import pathlib
import tempfile
import unittest

from walls import Walls

FLOORS = """#pragma once
namespace starling::kernel {}
namespace starling::fabric {
using namespace starling::kernel;
}
namespace starling::flock {
using namespace starling::fabric;
}
namespace starling::tool {
using namespace starling::flock;
}
"""
GOOD = {
    "starling/base/floors.h": FLOORS,
    "starling/base/error.h": '#include "starling/base/floors.h"\nnamespace starling {\nclass Error {};\n}\n',
    "starling/kernel/sum.h": '#include "starling/base/error.h"\nnamespace starling::kernel {\nstruct Term { int x; };\n}\n'
                             "namespace starling {\nusing kernel::Term;\n}\n",
    "starling/fabric/fabric.h": '#include "starling/kernel/sum.h"\nnamespace starling::flock {\nclass Flock;\n}\n'
                                "namespace starling::fabric {\nclass Fabric;\nenum class Kind : int { a };\n}\n",
    "starling/fabric/local/local.h": '#include "starling/fabric/fabric.h"\nnamespace starling::fabric::local {\nclass Region {};\n}\n',
    "starling/fabric/network/transport.h": '#include "starling/fabric/fabric.h"\nnamespace starling::fabric::network {\nclass Region {};\n}\n',
    "starling/fabric/hybrid/hybrid.h": '#include "starling/fabric/local/local.h"\n#include "starling/fabric/network/transport.h"\n'
                                       "namespace starling::fabric {\nclass Hybrid {};\n}\n",
    "starling/fabric/mpi/mpi.h": '#include "starling/fabric/network/transport.h"\nnamespace starling::fabric {\nclass Mpi {};\n}\n',
    "starling/flock/flock.cpp": '#include "starling/fabric/fabric.h"\n// #include "tool/main.h" is only said here\n'
                                "namespace starling::flock {\nnamespace {\nclass Region {};\n}\nclass Flock {};\n}\n",
    "include/starling/starling.h": '#pragma once\n#include "starling/fabric/fabric.h"\n',
    "README.md": "```cpp\n#include <starling/starling.h>\n#include <starling/version.h>\n```\n",
    "examples/hello.cpp": "#include <starling/starling.h>\n",
    "tool/main.h": '#include "starling/fabric/fabric.h"\nnamespace starling::tool {\nstruct Command {};\n}\n',
    "bench/bench.cpp": '#include "tool/main.h"\nnamespace starling::bench {\nstruct Case {};\n}\n',
    "tests/flock/flock_test.cpp": '#include "starling/fabric/fabric.h"\nnamespace starling::flock {\nstruct Fixture {};\n}\n',
}


class WallsTest(unittest.TestCase):
    def problems(self, changes):
        with tempfile.TemporaryDirectory() as folder:
            for path, text in {**GOOD, **changes}.items():
                file = pathlib.Path(folder, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            return Walls(folder).check()

    def expect(self, changes, *words):
        """Expects exactly one problem, which contains all of these words."""
        found = self.problems(changes)
        self.assertEqual(len(found), 1, found)
        for word in words:
            self.assertIn(word, found[0])

    def test_a_good_tree_has_no_problem(self):
        self.assertEqual(self.problems({}), [])

    def test_an_include_that_climbs(self):
        found = self.problems({"starling/kernel/sum.h": '#include "starling/flock/flock.h"\nnamespace starling::kernel {\nint x();\n}\n'})
        self.assertTrue(any(p.startswith("starling/kernel/sum.h:1: ") and "a floor above" in p and "base kernel" in p for p in found), found)

    def test_the_library_includes_the_tool(self):
        found = self.problems({"starling/flock/x.h": '\n#include "tool/main.h"\nnamespace starling::flock {\n}\n'})
        self.assertTrue(any(p.startswith("starling/flock/x.h:2: the library includes tool/main.h") for p in found), found)

    def test_the_tool_includes_a_benchmark(self):
        self.expect({"tool/x.cpp": '#include "bench/work.h"\n', "bench/bench.cpp": ""}, "tool/x.cpp:1: ", "bench/work.h")

    def test_a_fabric_includes_one_that_it_is_not_built_on(self):
        self.expect({"starling/fabric/mpi/mpi_transport.cpp": '#include "starling/fabric/hybrid/hybrid.h"\n'},
                    "starling/fabric/mpi/mpi_transport.cpp:1: ", "may include fabric/network/")

    def test_a_method_includes_a_kernel(self):
        floors = FLOORS.replace("namespace starling::tool {\nusing namespace starling::flock;",
                                "namespace starling::method {\nusing namespace starling::flock;\n}\n"
                                "namespace starling::tool {\nusing namespace starling::method;")
        self.assertIn("starling::method", floors)
        block = {"starling/base/floors.h": floors, "starling/method/block.h": '#include "starling/kernel/sum.h"\n'}
        self.assertEqual(self.problems(block), [])
        self.expect({**block, "starling/method/family/mine.cpp": '#include "starling/method/block.h"\n#include "starling/kernel/sum.h"\n'},
                    "starling/method/family/mine.cpp:2: ", "starling/kernel/sum.h", "block")

    def test_folders_in_a_cycle(self):
        self.expect({"starling/flock/one/a.h": '#include "starling/flock/two/b.h"\n',
                     "starling/flock/two/b.h": '#include "starling/flock/one/a.h"\n'},
                    "cycle", "starling/flock/one -> starling/flock/two -> starling/flock/one")

    def test_two_types_of_one_name(self):
        self.expect({"starling/flock/window.cpp": "namespace starling::flock {\nstruct Flock final : Other {\n};\n}\n"},
                    "starling/flock/window.cpp:2: defines starling::flock::Flock", "starling/flock/flock.cpp:7")

    def test_two_enumerations_of_one_name(self):
        self.expect({"starling/fabric/local/kind.h": "namespace starling::fabric {\nenum class Kind : int { b };\n}\n"},
                    "defines starling::fabric::Kind")

    def test_a_namespace_that_is_not_the_folders(self):
        self.expect({"starling/flock/x.h": "namespace starling {\nint x();\n}\n"},
                    "starling/flock/x.h:1: opens namespace starling;", "starling::flock")
        self.expect({"starling/flock/x.h": "namespace starling::fabric {\nint x();\n}\n"}, "opens namespace starling::fabric")
        self.expect({"starling/base/x.h": "namespace starling::flock {\nint x();\n}\n"}, "opens namespace starling::flock")
        self.expect({"tests/flock/x_test.cpp": "namespace starling {\nnamespace {\nint x();\n}\n}\n"}, "this folder's is starling::flock")
        self.expect({"tool/x.cpp": "namespace starling {\nint x();\n}\n"}, "this folder's is starling::tool")

    def test_what_users_read_includes_public_headers_only(self):
        self.expect({"docs/api.md": "```cpp\n#include <starling/fabric/fabric.h>\n```\n"},
                    "docs/api.md:2: includes <starling/fabric/fabric.h>", "<starling/starling.h> <starling/version.h>")
        self.expect({"docs/tutorial/one.md": "#include <starling/kernel/sum.h>\n"}, "docs/tutorial/one.md:1: ")
        self.expect({"README.md": "#include <starling/nowhere.h>\n"}, "README.md:1: ")
        self.expect({"examples/hello.cpp": '#include "starling/starling.h"\n'}, 'examples/hello.cpp:1: includes "starling/starling.h"')
        self.expect({"examples/extension/own.cpp": "#include <starling/kernel/sum.h>\n"}, "examples/extension/own.cpp:1: ")
        self.expect({"tests/package/consumer/main.cpp": "\n#include <starling/kernel/sum.h>\n"}, "tests/package/consumer/main.cpp:2: ")
        self.expect({"tests/tool/extension/own.cpp": "#include <starling/kernel/sum.h>\n"}, "tests/tool/extension/own.cpp:1: ")

    def test_the_library_includes_a_public_header(self):
        self.expect({"starling/flock/x.h": '#include "starling/starling.h"\nnamespace starling::flock {\n}\n'},
                    "starling/flock/x.h:1: the library includes starling/starling.h", "users")

    def test_a_folder_that_is_no_floor(self):
        self.expect({"starling/cellar/x.h": ""}, "floors.h", "cellar")

    def test_the_guide_to_a_training_step(self):
        page = ("# Design\n\n## Follow one training step\n\nThe flock is `starling/flock/flock.cpp`:\n\n      class Flock {};\n\n"
                "1. `starling/fabric/step.cpp`: `Step::begin()` and `Last::end()`.\n\n## Next\n\n`starling/nowhere.cpp`\n")
        tree = {"docs/design.md": page, "starling/fabric/step.cpp": "namespace starling::fabric {\nvoid Step::begin() {}\n"
                                                                    "class Last {\n void end() {}\n};\n}\n"}
        self.assertEqual(self.problems(tree), [])
        self.expect({**tree, "docs/design.md": page.replace("step.cpp", "steps.cpp")}, "docs/design.md:9: starling/fabric/steps.cpp does not exist")
        self.expect({**tree, "docs/design.md": page.replace("Step::begin", "Step::start")}, "docs/design.md:9: ", "Step::start()")
        self.expect({**tree, "docs/design.md": page.replace("Last::end", "Last::begins")}, "docs/design.md:9: ", "Last::begins()")
        self.expect({**tree, "docs/design.md": page.replace("Flock {}", "Flock { int x; }")}, "docs/design.md:7: ", "does not have the line")
        many = page.replace("1. `", "1. `starling/fabric/step.cpp`\n" * 8 + "9. `")
        self.expect({**tree, "docs/design.md": many}, "followed in 9 files")
        self.expect({**tree, "docs/design.md": "# Design\n"}, "has no section")


if __name__ == "__main__":
    unittest.main()
