#!/usr/bin/env python3
"""walls.py finds what it is for: small trees with one fault each, and one without."""

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
        """One problem, with all of these words."""
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

    def test_folders_in_a_circle(self):
        self.expect({"starling/flock/one/a.h": '#include "starling/flock/two/b.h"\n',
                     "starling/flock/two/b.h": '#include "starling/flock/one/a.h"\n'},
                    "circle", "starling/flock/one -> starling/flock/two -> starling/flock/one")

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

    def test_a_folder_that_is_no_floor(self):
        self.expect({"starling/cellar/x.h": ""}, "floors.h", "cellar")


if __name__ == "__main__":
    unittest.main()
