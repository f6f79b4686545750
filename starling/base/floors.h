#pragma once

// Namespaces follow folders. As an include goes down the floors and never up, so do names: each floor sees
// the floor beneath it, and through that one all others below, without naming them; the public nouns are
// lifted into `starling` by the headers that declare them.
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

// What stands on the library sees all of it.
namespace starling::tool {
using namespace starling::train;
}
namespace starling::bench {
using namespace starling::tool;
}
namespace starling::python {
using namespace starling::train;
}
