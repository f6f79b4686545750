#include "starling/fabric/network/store/watch.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/base/forks.h"

namespace starling::fabric::network {

StoreWatch::StoreWatch(std::shared_ptr<const StoreClient> client,
                       std::function<void(const std::string&)> gone)
    : forks_(forks_so_far()) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error(fmt::format("cannot create a pipe: {}", std::strerror(errno)));
  end_ = Descriptor(ends[1]);
  auto end = std::make_shared<Descriptor>(ends[0]);
  thread_ = std::thread([client = std::move(client), gone = std::move(gone), end] {
    if (const std::string why = client->wait_for_end(end->get()); !why.empty()) gone(why);
  });
}

// The thread does not exist in a forked child.
StoreWatch::~StoreWatch() {
  end_.reset();
  forks_so_far() == forks_ ? thread_.join() : thread_.detach();
}

}  // namespace starling::fabric::network
