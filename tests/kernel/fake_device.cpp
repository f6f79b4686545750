#include "kernel/fake_device.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/random.h"
#include "starling/base/system_error.h"

namespace starling::kernel {

/// The operations of one stream, and the thread that runs them.
class FakeDevice::Queue {
 public:
  Queue(const FakeDeviceOptions& options, std::uint32_t number)
      : options_(options), delays_(options.seed, 0, number) {}

  void enqueue(std::function<void()> operation) {
    check_process();
    std::unique_lock lock(mutex_);
    throw_failure(enqueued_);
    Entry entry{std::move(operation), {}};
    if (!options_.inline_execution) return push(std::move(entry));
    ++enqueued_;
    run(entry, lock);
    throw_failure(enqueued_);
  }

  /// The number of operations that have been enqueued.
  std::uint64_t enqueued() {
    check_process();
    const std::lock_guard lock(mutex_);
    return enqueued_;
  }
  /// Waits until this number of operations has ended; throws if one of them failed.
  void finish(std::uint64_t operations) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ >= operations; });
    throw_failure(operations);
  }

  /// Whether this number of operations has ended; throws if one of them failed.
  bool finished(std::uint64_t operations) {
    const std::lock_guard lock(mutex_);
    if (ended_ < operations) return false;
    throw_failure(operations);
    return true;
  }
  /// The error of an operation that has ended; empty if none has failed.
  std::string failure() {
    const std::lock_guard lock(mutex_);
    return failure_.value_or("");
  }

  /// Keeps `memory` alive until the operations enqueued so far have ended.
  void keep(const std::shared_ptr<void>& memory) {
    const std::lock_guard lock(mutex_);
    if (ended_ < enqueued_ && !options_.inline_execution) push({{}, memory});
  }

  /// Lets the thread end when the queue is empty.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  /// Whether its thread belongs to the parent process, before a fork.
  bool left_behind() const {
    const pid_t process = process_.load(std::memory_order_relaxed);
    return process != 0 && process != getpid();
  }

 private:
  struct Entry {
    std::function<void()> operation;
    std::shared_ptr<void> memory;
  };

  void check_process() const {
    if (left_behind()) throw Error("this FakeDevice was used before fork(), which leaves its threads behind");
  }
  // Throws the error of one of the first `operations` operations, if any.
  void throw_failure(std::uint64_t operations) const {
    if (failure_ && failed_ <= operations)
      throw Error("an operation on this stream of the fake device has failed: " + *failure_);
  }

  void push(Entry entry) {
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { run_all(); });
      process_.store(getpid(), std::memory_order_relaxed);
    }
    entries_.push_back(std::move(entry));
    ++enqueued_;
    changed_.notify_all();
  }

  void run_all() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return closed_ || !entries_.empty(); });
      if (entries_.empty()) return;
      Entry entry = std::move(entries_.front());
      entries_.pop_front();
      run(entry, lock);
    }
  }
  // Runs an operation with the lock released. Its captures are destroyed before it counts as ended.
  void run(Entry& entry, std::unique_lock<std::mutex>& lock) {
    const bool dropped = failure_.has_value();
    const std::uint32_t delay = options_.seed != 0 && entry.operation && !dropped ? delays_.below(301) : 0;
    lock.unlock();
    std::optional<std::string> failure;
    try {
      if (delay > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay));
      if (entry.operation && !dropped) entry.operation();
    } catch (const std::exception& error) {
      failure = error.what();
    }
    entry = {};
    lock.lock();
    ++ended_;
    if (failure && !failure_) {
      failure_ = std::move(failure);
      failed_ = ended_;
    }
    changed_.notify_all();
  }

  const FakeDeviceOptions options_;
  std::atomic<pid_t> process_ = 0;  // the process that started the thread
  std::thread thread_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<Entry> entries_;
  std::uint64_t enqueued_ = 0;
  std::uint64_t ended_ = 0;
  std::optional<std::string> failure_;
  std::uint64_t failed_ = 0;  // number of the failed operation, from 1
  bool closed_ = false;
  Random delays_;
};

struct FakeDevice::FakeMoment {
  Queue* queue = nullptr;
  std::uint64_t operation = 0;  // the queue's operation at whose end the moment is set
  std::chrono::steady_clock::time_point when{};
};

/// All streams. Memory that is released after its FakeDevice is gone finds them expired.
class FakeDevice::Streams {
 public:
  explicit Streams(const FakeDeviceOptions& options) : options_(options) {
    for (int device = 0; device < options.devices; ++device) add({device, nullptr});
  }

  Stream add() {
    const std::lock_guard lock(mutex_);
    const int device = device_context().device;
    check_device(device);
    char* handle = handles_.emplace_back(std::make_unique<char>()).get();
    add({device, handle});
    return handle;
  }

  Queue& at(const DeviceContext& context) {
    const std::lock_guard lock(mutex_);
    check_device(context.device);
    const auto found = queues_.find({context.device, context.stream});
    if (found == queues_.end())
      throw InvalidArgument("this is no stream of device " + std::to_string(context.device) +
                            " of the fake device: take one of new_stream()");
    return *found->second;
  }
  Queue& current() { return at(device_context()); }

  void keep(const std::shared_ptr<void>& memory) {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, queue] : queues_) queue->keep(memory);
  }

  /// Waits until the flag has reached the number; throws if the device is being destroyed.
  void await(const Flag& flag, std::uint32_t number) const {
    while (flag.load(std::memory_order_acquire) < number) {
      if (stopping_.load(std::memory_order_relaxed)) throw Error("the fake device has been destroyed");
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  void stop() {
    stopping_.store(true, std::memory_order_relaxed);
    for (const auto& [key, queue] : queues_) queue->close();
    for (const auto& [key, queue] : queues_) queue->join();
  }
  bool left_behind() const {
    return std::any_of(queues_.begin(), queues_.end(),
                       [](const auto& entry) { return entry.second->left_behind(); });
  }

 private:
  void add(std::pair<int, Stream> key) {
    queues_.emplace(key, std::make_unique<Queue>(options_, static_cast<std::uint32_t>(queues_.size())));
  }
  void check_device(int device) const {
    if (device < 0 || device >= options_.devices)
      throw InvalidArgument("there is no device " + std::to_string(device) + ": the fake device has " +
                            std::to_string(options_.devices));
  }

  const FakeDeviceOptions options_;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;                            // guards the members below
  std::vector<std::unique_ptr<char>> handles_;  // their addresses serve as stream handles
  std::map<std::pair<int, Stream>, std::unique_ptr<Queue>> queues_;
};

/// The host's arithmetic, enqueued on a stream.
class FakeDevice::Operations final : public Arithmetic {
 public:
  explicit Operations(const FakeDevice& device) : device_(device) {}

  std::shared_ptr<void> allocate(std::size_t bytes) const override {
    std::shared_ptr<void> memory = host_.allocate(bytes);
    void* address = memory.get();
    const std::weak_ptr<Streams> streams = device_.streams_;
    return {address, [memory, streams](void*) mutable {
              // Enqueued operations may still use the memory.
              if (const auto all = streams.lock()) all->keep(memory);
              memory.reset();
            }};
  }

  void zero(Buffer out) const override {
    device_.enqueue([this, out = host(out)] { host_.zero(out); });
  }
  void copy(Buffer out, ConstBuffer in) const override {
    device_.enqueue([this, out = host(out), in = host(in)] { host_.copy(out, in); });
  }
  void copy_strided(Buffer out, std::size_t out_step, ConstBuffer in, std::size_t in_step) const override {
    device_.enqueue([this, out = host(out), out_step, in = host(in), in_step] {
      host_.copy_strided(out, out_step, in, in_step);
    });
  }
  void gather(Buffer out, std::span<const GatheredPart> parts) const override {
    device_.enqueue([this, out = host(out), parts = std::vector(parts.begin(), parts.end())] {
      host_.gather(out, parts);
    });
  }
  void swap(Buffer a, Buffer b) const override {  // NOLINT(bugprone-exception-escape)
    device_.enqueue([this, a = host(a), b = host(b)] { host_.swap(a, b); });
  }
  void combine(Buffer out, std::span<const Term> terms) const override {
    device_.enqueue([this, out = host(out), terms = take(terms)] { host_.combine(out, latch(terms)); });
  }
  void combine_around(DType message, Buffer out, ConstBuffer x, Term own,
                      std::span<const Term> others) const override {
    // A lost term contributes no difference: its weight goes to `own`, where it has no effect.
    std::vector<Term> all = {own};
    all.insert(all.end(), others.begin(), others.end());
    device_.enqueue([this, message, out = host(out), x = host(x), all = take(all)] {
      const std::vector<Term> terms = latch(all);
      host_.combine_around(message, out, x, terms.front(), std::span(terms).subspan(1));
    });
  }
  void reduce(Reduction reduction, Buffer accumulator, ConstBuffer in) const override {
    device_.enqueue([this, reduction, accumulator = host(accumulator), in = host(in)] {
      host_.reduce(reduction, accumulator, in);
    });
  }
  void scale(Buffer x, double factor) const override {
    device_.enqueue([this, x = host(x), factor] { host_.scale(x, factor); });
  }
  void divide(Buffer x, double number) const override {
    device_.enqueue([this, x = host(x), number] { host_.divide(x, number); });
  }
  double sum_of_squares(ConstBuffer x) const override {
    return result<double>([this, x = host(x)] { return host_.sum_of_squares(x); });
  }
  void add_squares(Buffer sum, ConstBuffer x, double factor) const override {
    device_.enqueue([this, sum = host(sum), x = host(x), factor] { host_.add_squares(sum, x, factor); });
  }
  void clip(Buffer x, double factor, ConstBuffer squares, double limit) const override {
    device_.enqueue([this, x = host(x), factor, squares = host(squares), limit] {
      host_.clip(x, factor, squares, limit);
    });
  }
  void divide_by(Buffer out, ConstBuffer in, ConstBuffer number) const override {
    device_.enqueue(
        [this, out = host(out), in = host(in), number = host(number)] { host_.divide_by(out, in, number); });
  }
  bool all_finite(ConstBuffer x) const override {
    return result<bool>([this, x = host(x)] { return host_.all_finite(x); });
  }

  void moments(const MomentRule& rule, ConstBuffer x, ConstBuffer gradient, Buffer m,
               Buffer v) const override {
    device_.enqueue([this, rule, x = host(x), gradient = host(gradient), m = host(m), v = host(v)] {
      host_.moments(rule, x, gradient, m, v);
    });
  }
  void moment_step(const MomentStepRule& rule, Buffer x, ConstBuffer m, ConstBuffer v) const override {
    device_.enqueue(
        [this, rule, x = host(x), m = host(m), v = host(v)] { host_.moment_step(rule, x, m, v); });
  }

  void sgd_update(const UpdatePass& pass, const SgdRule& rule, Buffer m, bool first) const override {
    update(pass, [this, rule, m = host(m), first](const UpdatePass& on_host) {
      host_.sgd_update(on_host, rule, m, first);
    });
  }
  void adam_update(const UpdatePass& pass, const AdamRule& rule, Buffer m, Buffer v, long t) const override {
    update(pass, [this, rule, m = host(m), v = host(v), t](const UpdatePass& on_host) {
      host_.adam_update(on_host, rule, m, v, t);
    });
  }
  void accum_adam_update(const UpdatePass& pass, const AdamRule& rule, Buffer m, Buffer v, Buffer sum, long t,
                         long s, bool fold) const override {
    update(pass,
           [this, rule, m = host(m), v = host(v), sum = host(sum), t, s, fold](const UpdatePass& on_host) {
             host_.accum_adam_update(on_host, rule, m, v, sum, t, s, fold);
           });
  }

  void multiply(Buffer p, ConstBuffer m, ConstBuffer q, std::size_t rank) const override {
    device_.enqueue([this, p = host(p), m = host(m), q = host(q), rank] { host_.multiply(p, m, q, rank); });
  }
  void multiply_transposed(Buffer q, ConstBuffer m, ConstBuffer p, std::size_t rank) const override {
    device_.enqueue(
        [this, q = host(q), m = host(m), p = host(p), rank] { host_.multiply_transposed(q, m, p, rank); });
  }
  void multiply_factors(Buffer m, ConstBuffer p, ConstBuffer q, std::size_t rank) const override {
    device_.enqueue(
        [this, m = host(m), p = host(p), q = host(q), rank] { host_.multiply_factors(m, p, q, rank); });
  }
  void orthonormalize(Buffer factor, std::size_t rank) const override {
    device_.enqueue([this, factor = host(factor), rank] { host_.orthonormalize(factor, rank); });
  }

  std::shared_ptr<bool> make_mark() const override {
    const std::shared_ptr<void> memory = allocate(sizeof(bool));
    return {memory, new (memory.get()) bool(false)};
  }

 private:
  static void check_on_device(MemoryKind memory, const void* address) {
    if (memory == MemoryKind::host && address != nullptr)
      throw InvalidArgument("the fake device was given elements in host memory");
  }
  // The same elements as host memory, for the host's arithmetic.
  template <typename Void>
  static BasicBuffer<Void> host(const BasicBuffer<Void>& buffer) {
    check_on_device(buffer.memory, buffer.address());
    return {buffer.dtype, buffer.address(), buffer.count, buffer.shape};
  }

  // The first term without a flag, which gets the weights of lost terms.
  static std::vector<Term>::iterator own_term(std::vector<Term>& terms) {
    return std::find_if(terms.begin(), terms.end(), [](const Term& term) { return term.flag == nullptr; });
  }

  // Copies the terms for latch().
  std::vector<Term> take(std::span<const Term> terms) const {
    std::vector<Term> taken(terms.begin(), terms.end());
    for (Term& term : taken) {
      check_on_device(term.memory, term.data);
      term.memory = MemoryKind::host;
      if (term.flag != nullptr) device_.check_flag(*term.flag, term.number);
    }
    const bool all_required = std::ranges::all_of(taken, &Term::required);
    if (!all_required && own_term(taken) == taken.end())
      throw InvalidArgument("all terms of a sum have flags: none could take the weights of lost ones");
    return taken;
  }
  // Waits for the messages. Each flag is then read once, which decides whether its term takes part.
  std::vector<Term> latch(const std::vector<Term>& taken) const {
    for (const Term& term : taken)
      if (term.flag != nullptr) device_.streams_->await(*term.flag, term.number);
    std::vector<Term> terms = taken;
    const auto own = own_term(terms);
    for (Term& term : terms) {
      if (term.flag == nullptr) continue;
      if (arrived(term.flag->load(std::memory_order_acquire), term.number))
        term.flag = nullptr;
      else if (term.required)
        return {{terms.front().data, std::numeric_limits<double>::quiet_NaN()}};
      else
        own->weight += term.weight;
    }
    std::erase_if(terms, [](const Term& term) { return term.flag != nullptr; });
    return terms;
  }

  template <typename Body>
  void update(const UpdatePass& pass, Body body) const {
    UpdatePass on_host = pass;
    on_host.from = {};
    on_host.gradient = host(pass.gradient);
    on_host.x = host(pass.x);
    on_host.copy = host(pass.copy);
    on_host.rounded = host(pass.rounded);
    // A lost message goes to this rank's own, where it has no effect.
    std::vector<Term> messages = {{pass.x.at(pass.messages.own), 1}};
    messages.insert(messages.end(), pass.messages.others.begin(), pass.messages.others.end());
    const std::vector<std::size_t> ends(pass.part.ends.begin(), pass.part.ends.end());
    device_.enqueue(
        [this, on_host, ends, from = take(pass.from), heard = take(messages), body = std::move(body)] {
          const std::vector<Term> terms = latch(from), latched = latch(heard);
          bool nonfinite = false;
          UpdatePass now = on_host;
          now.from = terms;
          now.messages.others = std::span(latched).subspan(1);
          now.part.ends = ends;
          now.nonfinite = &nonfinite;
          body(now);
          if (nonfinite && on_host.nonfinite != nullptr)
            std::atomic_ref<bool>(*on_host.nonfinite).store(true, std::memory_order_release);
        });
  }

  template <typename Result, typename Body>
  Result result(Body body) const {
    const auto found = std::make_shared<Result>();
    Queue& queue = device_.streams_->current();
    queue.enqueue([found, body = std::move(body)] { *found = body(); });
    queue.finish(queue.enqueued());
    return *found;
  }

  const FakeDevice& device_;
  const Arithmetic& host_ = arithmetic_in(MemoryKind::host);
};

FakeDevice::FakeDevice(const FakeDeviceOptions& options)
    : options_(options),
      streams_(std::make_shared<Streams>(options)),
      operations_(std::make_unique<Operations>(*this)) {}

FakeDevice::~FakeDevice() {
  // Threads that fork() left in the parent cannot be joined, and a condition on which they wait cannot be
  // destroyed.
  if (streams_->left_behind())
    new std::shared_ptr<Streams>(streams_);  // NOLINT(bugprone-unhandled-exception-at-new)
  else
    streams_->stop();
  for (const auto& [address, mapping] : mappings_) munmap(address, mapping.bytes);
}

Stream FakeDevice::new_stream() {
  return streams_->add();
}

std::vector<DeviceInfo> FakeDevice::devices() const {
  const std::lock_guard lock(mutex_);
  std::vector<DeviceInfo> all;
  for (int device = 0; device < options_.devices; ++device) {
    std::vector<std::string> peers;
    for (int peer = 0; peer < options_.devices; ++peer)
      if (peer != device) peers.push_back(std::to_string(peer));
    all.push_back({"fake", options_.memory, options_.memory - used_, join_words(peers)});
  }
  return all;
}

Device::SharedMemory FakeDevice::create_shared(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  const std::lock_guard lock(mutex_);
  const std::size_t free = options_.memory - used_;
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  if (const std::size_t needed = std::max(bytes, rounded); needed > free)
    throw Error("the fake device has too little memory: " + std::to_string(needed) + " bytes are needed, " +
                std::to_string(free) + " are free");
  Descriptor descriptor(memfd_create("starling-fake-device", MFD_CLOEXEC));
  if (!descriptor || ftruncate(descriptor.get(), static_cast<off_t>(rounded)) != 0)
    throw SystemError("cannot make the memory of a fake device", errno);
  void* address = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
  if (address == MAP_FAILED) throw SystemError("cannot map the memory of a fake device", errno);
  mappings_[address] = {rounded, true};
  used_ += rounded;
  return {address, rounded, std::move(descriptor)};
}

void* FakeDevice::map_shared(Descriptor descriptor, std::size_t bytes) {
  if (!options_.peer_access)
    throw Error("this fake device cannot read the memory of another one: there is no peer access");
  struct stat file {};
  if (fstat(descriptor.get(), &file) != 0)
    throw SystemError("cannot map the memory of another fake device", errno);
  if (std::cmp_not_equal(file.st_size, bytes))
    throw Error("cannot map " + std::to_string(bytes) + " bytes of another fake device's memory, which has " +
                std::to_string(file.st_size));
  void* address = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor.get(), 0);
  if (address == MAP_FAILED) throw SystemError("cannot map the memory of another fake device", errno);
  const std::lock_guard lock(mutex_);
  mappings_[address] = {bytes, false};
  return address;
}

void FakeDevice::release_shared(void* address, std::size_t bytes) noexcept {
  if (address == nullptr) return;
  const std::lock_guard lock(mutex_);
  const auto found = mappings_.find(address);
  if (found == mappings_.end() || found->second.bytes != bytes) {
    std::fprintf(stderr, "FakeDevice::release_shared: no mapping of %zu bytes begins at %p\n", bytes,
                 address);
    std::abort();
  }
  if (found->second.own) used_ -= bytes;
  mappings_.erase(found);
  munmap(address, bytes);
}

void FakeDevice::register_flags(void* memory, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::lock_guard lock(mutex_);
  for (const auto& [other, size] : flags_)
    if (begin < other + size && other < begin + bytes)
      throw InvalidArgument("register_flags: the range overlaps one that is registered already");
  flags_[begin] = bytes;
}

void FakeDevice::unregister_flags(void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  flags_.erase(reinterpret_cast<std::uintptr_t>(memory));
}

void FakeDevice::check_flag(const Flag& flag, std::uint32_t number) const {
  if (number >= kLost)
    throw InvalidArgument("a flag's numbers stay below kLost, and this is " + std::to_string(number));
  const auto begin = reinterpret_cast<std::uintptr_t>(&flag);
  const std::lock_guard lock(mutex_);
  for (const auto& [range, bytes] : flags_)
    if (range <= begin && begin + sizeof(Flag) <= range + bytes) return;
  throw InvalidArgument("this flag lies in no registered range: call register_flags() first");
}

void FakeDevice::wait(const Flag& flag, std::uint32_t number) {
  check_flag(flag, number);
  enqueue([this, &flag, number] { streams_->await(flag, number); });
}

void FakeDevice::write(Flag& flag, std::uint32_t number) {
  check_flag(flag, number);
  enqueue([&flag, number] { flag.store(number, std::memory_order_release); });
}

void FakeDevice::order_after(const DeviceContext& other) {
  Queue& before = streams_->at(other);
  Queue& after = streams_->current();
  if (&before == &after) return;
  after.enqueue([&before, operations = before.enqueued()] { before.finish(operations); });
}

void FakeDevice::synchronize() {
  Queue& queue = streams_->current();
  queue.finish(queue.enqueued());
}

std::string FakeDevice::failure() const {
  return streams_->current().failure();
}

void FakeDevice::crash(const std::string& why) const {
  enqueue([why] { throw Error(why); });
}

void FakeDevice::copy_to_host(void* host, const void* device, std::size_t bytes) {
  enqueue([host, device, bytes] {
    if (bytes > 0) std::memcpy(host, device, bytes);
  });
}

void FakeDevice::copy_to_device(void* device, const void* host, std::size_t bytes) {
  copy_to_host(device, host, bytes);
}

std::shared_ptr<std::byte> FakeDevice::allocate_pinned(std::size_t bytes) {
  const std::shared_ptr<std::byte[]> memory = std::make_shared_for_overwrite<std::byte[]>(bytes);
  return {memory, memory.get()};
}

Device::Moment FakeDevice::mark_moment() {
  Queue& queue = streams_->current();
  const auto moment = std::make_shared<FakeMoment>();
  queue.enqueue([moment] { moment->when = std::chrono::steady_clock::now(); });
  moment->queue = &queue;
  moment->operation = queue.enqueued();
  return moment;
}

bool FakeDevice::reached(const Moment& moment) {
  const auto& kept = *static_cast<const FakeMoment*>(moment.get());
  return kept.queue->finished(kept.operation);
}

double FakeDevice::seconds_between(const Moment& begin, const Moment& end) {
  const auto when = [](const Moment& moment) {
    const auto& kept = *static_cast<const FakeMoment*>(moment.get());
    kept.queue->finish(kept.operation);
    return kept.when;
  };
  const auto from = when(begin);
  return std::chrono::duration<double>(when(end) - from).count();
}

const Arithmetic& FakeDevice::arithmetic() const {
  return *operations_;
}

void FakeDevice::enqueue(std::function<void()> operation) const {
  streams_->current().enqueue(std::move(operation));
}

}  // namespace starling::kernel
