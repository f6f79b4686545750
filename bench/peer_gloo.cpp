// The gloo peer of `starling bench comm`: gloo's all-reduce over TCP on the loopback device, as torch uses it
// on one host. Starts its own ranks and prints the seconds of every batch, for the slowest rank.

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "bench/ranks.h"
#include "bench/work.h"

namespace starling::bench {
namespace {

/// The folder in which the ranks meet.
class MeetingFolder {
 public:
  MeetingFolder() {
    path_ = (std::filesystem::temp_directory_path() / "starling_gloo_XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make a temporary folder");
  }
  ~MeetingFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  MeetingFolder(const MeetingFolder&) = delete;
  MeetingFolder& operator=(const MeetingFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// gloo's ring: faster than its halving-doubling, chunked ring and bcube with 2 and 4 ranks on 2 cores. Each
// rank has a thread for its sockets, so ranks are not pinned.
std::vector<double> measure(const Work& work, int rank, const std::string& folder,
                            const std::function<void()>& meet) {
  take_place(work, rank, /*own_core=*/false);
  gloo::transport::tcp::attr loopback("127.0.0.1");
  auto device = gloo::transport::tcp::CreateDevice(loopback);
  gloo::rendezvous::FileStore store(folder);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, work.ranks);
  context->connectFullMesh(store, device);

  std::vector<float> x(work.elements, start_value(rank));
  const auto operate = [&] {
    gloo::AllreduceOptions options(context);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(x.data(), x.size());
    options.setReduceFunction([](void* out, const void* a, const void* b, std::size_t count) {
      gloo::sum<float>(out, a, b, count);
    });
    gloo::allreduce(options);
  };
  operate();
  check_first(work, rank, x);
  const auto barrier = [&] {
    gloo::BarrierOptions options(context);
    gloo::barrier(options);
  };
  std::vector<double> seconds = time_batches(work, barrier, operate);
  meet();  // a rank that disconnects early makes the others fail
  return seconds;
}

void run(const std::vector<std::string>& arguments) {
  const Work work = from_arguments(arguments);
  if (work.operation != Operation::allreduce) throw std::invalid_argument("gloo serves allreduce only");
  const MeetingFolder folder;
  constexpr std::chrono::minutes kLimit{5};
  const auto by_rank =
      run_ranks(work.ranks, static_cast<std::size_t>(work.batches), kLimit,
                [&](int rank, const auto& meet) { return measure(work, rank, folder.path(), meet); });
  for (const double batch : slowest(by_rank)) std::printf("%.9g\n", batch);
}

}  // namespace
}  // namespace starling::bench

int main(int argc, char** argv) {
  try {
    starling::bench::run({argv + 1, argv + argc});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "starling_peer_gloo: %s\n", error.what());
    return 2;
  }
}
