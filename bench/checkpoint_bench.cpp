#include <algorithm>
#include <benchmark/benchmark.h>
#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <stdexcept>
#include <unistd.h>

#include "starling/base/median.h"
#include "starling/base/stopwatch.h"
#include "starling/record/checkpoint_writer.h"

// A checkpoint beside a plain write() and fsync() of the same bytes to the same folder, alternating, because
// the speed of disks varies: `ratio` is the median of the ratios of neighboring measurements and must stay
// below 1.3. `stall` is the owner's wait in save(), as a fraction of the plain write.

namespace starling::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kBytes = 100'000'000;
constexpr std::size_t kParts = 20;

/// 100 MB of parts, and a folder in the working directory, because /tmp may be in memory.
class Work {
 public:
  Work() : folder(fs::current_path() / ("checkpoint-bench-" + std::to_string(getpid()))), state(kBytes / 4) {
    fs::create_directories(folder);
    for (std::size_t i = 0; i < state.size(); ++i) state[i] = static_cast<float>(i * 2654435761U % 65'536);
    const std::size_t length = state.size() / kParts;
    for (std::size_t i = 0; i < kParts; ++i)
      parts.push_back(
          state_part<float>("part " + std::to_string(i), std::span(state).subspan(i * length, length)));
  }
  ~Work() { fs::remove_all(folder); }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  /// The duration of writing and syncing a file and of removing the previous one, which counts only in
  /// `rotation`.
  struct Plain {
    double write = 0;
    double rotation = 0;
  };

  Plain plain_write() const {
    const auto path = folder / "plain";
    if (fs::exists(path)) fs::rename(path, folder / "old");
    const auto start = Clock::now();
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    auto bytes = std::as_bytes(std::span(state));
    while (!bytes.empty()) {
      const ssize_t count = write(file, bytes.data(), bytes.size());
      if (count <= 0) throw std::runtime_error("cannot write " + path.string());
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
    if (fsync(file) != 0) throw std::runtime_error("cannot sync " + path.string());
    close(file);
    Plain took{seconds_since(start), 0};
    fs::remove(folder / "old");
    took.rotation = seconds_since(start);
    return took;
  }

  fs::path folder;
  std::vector<float> state;
  std::vector<StatePart> parts;
};

void checkpoint_file(benchmark::State& bench) {
  const Work work;
  std::vector<double> ratios;
  bool plain_first = false;
  for (auto _ : bench) {
    plain_first = !plain_first;
    double plain = plain_first ? work.plain_write().write : 0;
    fs::remove(work.folder / "state");
    const auto start = Clock::now();
    write_checkpoint_file(work.folder / "state", {}, work.parts);
    const double checkpoint = seconds_since(start);
    if (!plain_first) plain = work.plain_write().write;
    ratios.push_back(checkpoint / plain);
    bench.SetIterationTime(checkpoint);
  }
  bench.counters["ratio"] = median(ratios);
  bench.SetBytesProcessed(bench.iterations() * static_cast<std::int64_t>(kBytes));
}

// A whole checkpoint: snapshot, file, manifest, and the removal of an old one, which the plain write then
// does, too.
void checkpoint_save(benchmark::State& bench) {
  const Work work;
  CheckpointWriter writer({work.folder / "ck", "bench", 1, 1, std::chrono::seconds(60), {}}, 0);
  const std::vector<Rank> members = {0};
  writer.save(0, {}, work.parts, members);  // allocates the memory
  writer.finish();
  std::vector<double> ratios;
  std::vector<double> stalls;
  Step step = 0;
  for (auto _ : bench) {
    const Work::Plain plain = work.plain_write();
    const auto start = Clock::now();
    writer.save(++step, {}, work.parts, members);
    stalls.push_back(seconds_since(start) / plain.write);
    writer.finish();
    const double whole = seconds_since(start);
    ratios.push_back(whole / plain.rotation);
    bench.SetIterationTime(whole);
  }
  if (const auto problem = writer.problem()) bench.SkipWithError(problem->c_str());
  bench.counters["ratio"] = median(ratios);
  bench.counters["stall"] = median(stalls);
  bench.SetBytesProcessed(bench.iterations() * static_cast<std::int64_t>(kBytes));
}

BENCHMARK(checkpoint_file)->UseManualTime()->Iterations(15)->Unit(benchmark::kMillisecond);
BENCHMARK(checkpoint_save)->UseManualTime()->Iterations(15)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace starling::bench
