#pragma once

// Namespaces follow folders. Like includes, names go down the floors only: each floor uses the namespace of
// the floor below, and through it all lower ones. Headers that declare public types also lift them into
// `starling`.
namespace starling::kernel {}
namespace starling::topology {
using namespace starling::kernel;
}
namespace starling::record {
using namespace starling::topology;
}
namespace starling::launch {
using namespace starling::record;
}
namespace starling::fabric {
using namespace starling::launch;
}
namespace starling::codec {
using namespace starling::fabric;
}
namespace starling::flock {
using namespace starling::codec;
}
namespace starling::method {
using namespace starling::flock;
}
namespace starling::data {
using namespace starling::method;
}
namespace starling::report {
using namespace starling::data;
}
namespace starling::simulate {
using namespace starling::report;
}
namespace starling::train {
using namespace starling::simulate;
}

// Programs and bindings on top of the library use all of it.
namespace starling::tool {
using namespace starling::train;
}
namespace starling::bench {
using namespace starling::tool;
}
namespace starling::python {
using namespace starling::train;
}
