#include <algorithm>
#include <cstring>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/base/sha256.h"
#include "starling/method/registry.h"
#include "starling/record/log.h"
#include "starling/topology/registry.h"
#include "starling/train/trainer_state.h"

// Newcomers of a flock that trains: the others go on with them, and each gets a model.
namespace starling {
namespace {

using Text = std::vector<std::uint8_t>;

constexpr std::size_t kDigest = 64;  // letters

Text as_bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

void check_digest(const std::string& what, const std::string& here, const std::string& there, Rank rank,
                  Rank from) {
  if (here != there)
    throw Error(
        fmt::format("{} that rank {} got is not what rank {} has sent: SHA-256 {}... here, {}... there: "
                    "messages are damaged on the way",
                    what, rank, from, here.substr(0, 16), there.substr(0, 16)));
}

/// What one newcomer is sent, one after another.
class Parcel {
 public:
  Parcel(Flock& flock, const std::string& trainer, Rank newcomer)
      : flock_(flock), name_(fmt::format("{}/model for {}", trainer, newcomer)) {}

  void send_text(const std::string& text, Rank to) {
    flock_.send(std::vector<std::int64_t>{static_cast<std::int64_t>(text.size())}, to, Name(name_));
    flock_.send(as_bytes(sha256(as_bytes(text)) + text), to, Name(name_));
  }
  std::string receive_text(const std::string& what, Rank from) {
    std::vector<std::int64_t> length = {0};
    flock_.recv(length, from, Name(name_));
    Text bytes(kDigest + static_cast<std::size_t>(length[0]));
    flock_.recv(bytes, from, Name(name_));
    const Text text(bytes.begin() + kDigest, bytes.end());
    check_digest(what, sha256(text), std::string(bytes.begin(), bytes.begin() + kDigest), flock_.rank(),
                 from);
    return {text.begin(), text.end()};
  }
  void send(std::span<const StatePlace> places, Rank to) {
    Sha256 digest;
    for (const StatePlace& place : places) {
      digest.update(letters(place));
      flock_.start_send({DType::uint8, place.bytes.data(), place.bytes.size()}, to, Name(name_));
    }
    flock_.send(as_bytes(digest.finish()), to, Name(name_));
  }
  void receive(std::span<const StatePlace> places, Rank from) {
    Sha256 digest;
    for (const StatePlace& place : places) {
      flock_.start_recv({DType::uint8, place.bytes.data(), place.bytes.size()}, from, Name(name_)).wait();
      digest.update(letters(place));
    }
    Text there(kDigest);
    flock_.recv(there, from, Name(name_));
    check_digest("the model", digest.finish(), {there.begin(), there.end()}, flock_.rank(), from);
  }

 private:
  static std::span<const std::uint8_t> letters(const StatePlace& place) {
    return {reinterpret_cast<const std::uint8_t*>(place.bytes.data()), place.bytes.size()};
  }

  Flock& flock_;
  std::string name_;
};

std::string table_of(std::span<const StatePlace> places) {
  std::string table;
  for (const StatePlace& place : places)
    table += fmt::format("{}, {} bytes of {}\n", place.name, place.bytes.size(), place.type);
  return table;
}

// The optimizer's memory as it was, in that of another driver.
void copy_memory(std::span<Update* const> from, std::span<Update* const> to) {
  for (std::size_t b = 0; b < from.size(); ++b) {
    const auto before = from[b]->state();
    const auto after = to[b]->state();
    for (std::size_t i = 0; i < before.size(); ++i)
      std::memcpy(after[i].data.data, before[i].data.data, ConstBlock(before[i].data).bytes());
  }
}

}  // namespace

bool Company::somebody_goes_on() const {
  return std::any_of(steps.begin(), steps.end(), [](Step step) { return step != kNew; });
}

Rank Company::giver_of(Rank newcomer, const SchedulePtr& schedule) const {
  std::vector<Rank> givers;
  for (std::size_t r = 0; r < steps.size(); ++r)
    if (steps[r] != kNew) givers.push_back(static_cast<Rank>(r));
  if (schedule) {
    const Step step = steps[static_cast<std::size_t>(givers[0])];
    for (const auto& source : schedule->exchange(step, newcomer).sources)
      if (steps[static_cast<std::size_t>(source.rank)] != kNew) return source.rank;
  }
  return givers[static_cast<std::size_t>(newcomer) % givers.size()];
}

bool Trainer::State::welcome(const std::function<SchedulePtr(Rank size)>& schedule_of_flock) {
  const Stopwatch::Running running(inside);
  if (averaged)
    throw InvalidArgument(
        "welcome() while the parameters are the flock's average: revert it or keep it first");
  if (options.schedule)
    throw InvalidArgument(
        fmt::format("welcome(): the program's own schedule {} is for {} ranks only; give a topology by name",
                    options.schedule->name(), options.schedule->size()));
  if (backward_has_run() || (driver->begun() && !sent_ahead))
    throw InvalidArgument("welcome() in the middle of a step; its place is between step() and zero_grad()");
  Flock next = flock.welcome([&](Rank size) {
    SchedulePtr next_of_flock =
        schedule_of_flock ? schedule_of_flock(size) : make_schedule(flock.schedule()->name(), size);
    const Rank per_machine = flock.local_size();
    check_schedule({size, size % per_machine == 0 ? per_machine : 1}, next_of_flock);
    return next_of_flock;
  });
  if (next == flock) return false;
  go_on_with(std::move(next));
  return true;
}

void Trainer::State::go_on_with(Flock next) {
  const torch::NoGradGuard no_grad;
  if (!driver->begun()) {
    notice_changes();
    driver->settle();
  }
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const MutableBlock model = driver->method().model((*driver)[b]);
    const MutableBlock x = buckets[b].x_block();
    if (model.data != x.data) std::memcpy(x.data, model.data, buckets[b].x.nbytes());
  }
  driver->restart();  // what eager has sent is there, and nobody's message is in our memory any more
  waited_before += driver->waited();
  Driver before = std::move(*driver);
  std::vector<Update*> memory;
  for (std::size_t b = 0; b < before.size(); ++b) memory.push_back(before[b].local_update.get());
  flock = std::move(next);

  const MethodPtr method = make_method(options.method);
  const SchedulePtr schedule = find_schedule(*method);
  make_driver(method, schedule, message_type());
  copy_memory(memory, updates());
  driver->set_step(before.step());
  sent_ahead = false;
  for (const Bucket& bucket : buckets) bucket.publish_x();
  parameters_changed();
  goes_on = true;
  const Company company = agree(schedule);
  begin_watching();
  for (Rank r = 0; r < flock.size(); ++r)
    if (company.steps[static_cast<std::size_t>(r)] == Company::kNew &&
        company.giver_of(r, schedule) == flock.rank())
      give_model(r);
}

// Everything but the settings of the optimizer, which decide what there is.
std::vector<StatePlace> Trainer::State::luggage(SavedModel& model) {
  std::vector<StatePlace> places = model.places;
  const auto all = updates();
  for (std::size_t b = 0; b < all.size(); ++b)
    for (const NamedState& state : all[b]->state())
      places.push_back({fmt::format("block {}/{}", b, state.name),
                        name(state.data.dtype),
                        {static_cast<std::byte*>(state.data.data), ConstBlock(state.data).bytes()}});
  return places;
}

void Trainer::State::give_model(Rank to) {
  const torch::NoGradGuard no_grad;
  std::string optimizer;
  try {
    optimizer = local->saved(optimizer_remembers());
  } catch (const InvalidArgument& error) {
    log(LogLevel::normal, fmt::format("rank {} starts with its own optimizer: {}", to, error.what()));
  }
  SavedModel model(module);
  std::vector<StatePlace> places = luggage(model);
  double numbers[] = {static_cast<double>(driver->step()), loss_scale, static_cast<double>(good_steps),
                      static_cast<double>(epoch_left)};
  places.push_back({"numbers", "Double", std::as_writable_bytes(std::span(numbers))});
  Parcel parcel(flock, options.name, to);
  parcel.send_text(optimizer, to);
  parcel.send_text(table_of(places), to);
  parcel.send(places, to);
}

void Trainer::State::take_model(Rank from) {
  const torch::NoGradGuard no_grad;
  Parcel parcel(flock, options.name, flock.rank());
  const std::string optimizer = parcel.receive_text("the optimizer's state", from);
  if (!optimizer.empty()) {
    local->restore(optimizer, optimizer_remembers());
    local->read_settings();
  }
  SavedModel model(module);
  std::vector<StatePlace> places = luggage(model);
  double numbers[4] = {};
  places.push_back({"numbers", "Double", std::as_writable_bytes(std::span(numbers))});
  const std::string theirs = parcel.receive_text("the list of tensors", from);
  if (const std::string own = table_of(places); own != theirs) {
    const auto at = static_cast<std::size_t>(
        std::mismatch(own.begin(), own.end(), theirs.begin(), theirs.end()).first - own.begin());
    const auto line = [](const std::string& table, std::size_t near) {
      const std::size_t begin = near == 0 ? 0 : table.rfind('\n', near - 1) + 1;
      return table.substr(begin, table.find('\n', near) - begin);
    };
    throw Error(fmt::format("rank {} trains another model than rank {}: '{}' here, '{}' there", flock.rank(),
                            from, line(own, at), line(theirs, at)));
  }
  parcel.receive(places, from);
  model.written();
  driver->set_step(static_cast<Step>(numbers[0]));
  loss_scale = numbers[1];
  good_steps = static_cast<int>(numbers[2]);
  epoch_left = static_cast<std::int64_t>(numbers[3]);
  goes_on = true;
  log(LogLevel::info,
      fmt::format("rank {} starts at step {} with the model of rank {}", flock.rank(), driver->step(), from));
}

}  // namespace starling
