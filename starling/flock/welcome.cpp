#include <algorithm>
#include <fmt/format.h>

#include "starling/flock/flock.h"
#include "starling/flock/flock_state.h"
#include "starling/record/log.h"
#include "starling/topology/registry.h"

namespace starling::flock {
namespace {

/// What a rank tells the others: its rank and, where it has called them, the newcomers that wait.
std::vector<std::int64_t> words_of(Rank rank, const AdmissionRound& opening) {
  std::vector<std::int64_t> words = {rank, static_cast<std::int64_t>(opening.number),
                                     static_cast<std::int64_t>(opening.newcomers.size())};
  for (const std::uint64_t ticket : opening.newcomers) words.push_back(static_cast<std::int64_t>(ticket));
  return words;
}

struct Meeting {
  std::vector<Rank> members;
  AdmissionRound opening;
};

Meeting read_words(const std::vector<std::int64_t>& words) {
  Meeting meeting;
  for (std::size_t at = 0; at < words.size();) {
    meeting.members.push_back(static_cast<Rank>(words[at]));
    AdmissionRound opening{static_cast<std::uint64_t>(words[at + 1]), {}};
    const std::size_t end = at + 3 + static_cast<std::size_t>(words[at + 2]);
    for (at += 3; at < end; ++at) opening.newcomers.push_back(static_cast<std::uint64_t>(words[at]));
    if (meeting.opening.number == 0) meeting.opening = opening;
  }
  return meeting;
}

void check_admission(const Fabric& fabric, const Admission* admission, Rank size) {
  if (admission == nullptr)
    throw InvalidArgument(
        "welcome: newcomers find no door here: only jobs over the fabrics c10d and hybrid(c10d) have one, "
        "and neither groups adopted from torch.distributed nor faulty ones");
  if (size != fabric.size())
    throw InvalidArgument(
        fmt::format("welcome: newcomers come into the whole flock of {} ranks, not into a part of {}",
                    fabric.size(), size));
}

}  // namespace

// The old flock agrees: all ranks that took part in the gather are members, and the new fabric is used where
// all of them have it. A death meanwhile is a death like any other, in this flock or in the next.
Flock Flock::welcome(const std::function<SchedulePtr(Rank size)>& next) {
  Admission* admission = state_->fabric->admission();
  check_admission(*state_->fabric, admission, size());
  const bool leads = view().members.front() == rank();
  const Meeting meeting =
      read_words(allgather(words_of(rank(), leads ? admission->invite() : AdmissionRound()), "welcome"));
  const AdmissionRound& opening = meeting.opening;
  if (opening.number == 0) return *this;

  const auto members = static_cast<Rank>(meeting.members.size());
  const Rank next_size = members + static_cast<Rank>(opening.newcomers.size());
  SchedulePtr next_schedule;
  try {
    next_schedule = next ? next(next_size) : make_schedule(schedule()->name(), next_size);
  } catch (const InvalidArgument& error) {
    if (leads && state_->refusal != error.what())
      log(LogLevel::normal,
          fmt::format("{} newcomers wait on, since there is no way to go on with {} ranks: {}",
                      opening.newcomers.size(), next_size, error.what()));
    state_->refusal = error.what();
    return *this;
  }

  const auto place = static_cast<Rank>(std::find(meeting.members.begin(), meeting.members.end(), rank()) -
                                       meeting.members.begin());
  std::shared_ptr<Fabric> fabric;
  std::string problem = "another rank has not met the newcomers";
  try {
    fabric = admission->form_fabric(opening, place, members);
    if (place == 0 && !admission->all_joined(opening)) throw Error("not all newcomers have come in");
  } catch (const std::exception& error) {
    fabric.reset();
    problem = error.what();
    problem.erase(std::min(problem.find('\n'), problem.size()));  // torch adds its stack
  }
  std::vector<std::int32_t> good = {fabric ? 1 : 0};
  allreduce(good, Reduction::min, "welcome/good");
  admission->conclude(opening, good[0] == 1);
  if (good[0] != 1) {
    if (place == 0)
      log(LogLevel::normal,
          fmt::format("newcomers did not come in, the flock goes on as it was: {}", problem));
    return *this;
  }
  if (place == 0)
    log(LogLevel::info, fmt::format("{} of {} ranks go on, and {} have come in: a flock of {}", members,
                                    size(), opening.newcomers.size(), next_size));
  Flock larger(std::move(fabric));
  larger.state_->follow(*state_, next_schedule);
  larger.replace(*this);
  return larger;
}

}  // namespace starling::flock
