#include <algorithm>
#include <fmt/format.h>

#include "starling/flock/flock.h"
#include "starling/flock/flock_state.h"
#include "starling/record/log.h"
#include "starling/topology/registry.h"

namespace starling::flock {
namespace {

/// A rank's part of the gather: its rank and, from the rank that invited them, the waiting newcomers.
std::vector<std::int64_t> encode_reply(Rank rank, const AdmissionRound& round) {
  std::vector<std::int64_t> words = {rank, static_cast<std::int64_t>(round.number),
                                     static_cast<std::int64_t>(round.newcomers.size())};
  for (const std::uint64_t ticket : round.newcomers) words.push_back(static_cast<std::int64_t>(ticket));
  return words;
}

/// All ranks' parts: the ranks that took part, and the round of the rank that invited newcomers.
struct AdmissionReply {
  std::vector<Rank> members;
  AdmissionRound round;
};

AdmissionReply decode_replies(const std::vector<std::int64_t>& words) {
  AdmissionReply reply;
  for (std::size_t at = 0; at < words.size();) {
    reply.members.push_back(static_cast<Rank>(words[at]));
    AdmissionRound round{static_cast<std::uint64_t>(words[at + 1]), {}};
    const std::size_t end = at + 3 + static_cast<std::size_t>(words[at + 2]);
    for (at += 3; at < end; ++at) round.newcomers.push_back(static_cast<std::uint64_t>(words[at]));
    if (reply.round.number == 0) reply.round = round;
  }
  return reply;
}

void check_admission(const Fabric& fabric, const Admission* admission, Rank size) {
  if (admission == nullptr)
    throw InvalidArgument(
        "admit: the fabric does not admit newcomers; c10d and hybrid(c10d) do, unless their groups are "
        "adopted "
        "from torch.distributed or have injected faults");
  if (size != fabric.size())
    throw InvalidArgument(fmt::format(
        "admit: call it on the whole flock of {} ranks, not on a sub-flock of {}", fabric.size(), size));
}

}  // namespace

// All ranks that took part in the gather are members, and the new fabric is used only if all of them have
// formed it. A death in the meantime is handled like any other, in this flock or in the new one.
Flock Flock::admit(const std::function<SchedulePtr(Rank size)>& next) {
  Admission* admission = state_->fabric->admission();
  check_admission(*state_->fabric, admission, size());
  const bool leads = view().members.front() == rank();
  const AdmissionReply reply = decode_replies(
      allgather(encode_reply(rank(), leads ? admission->invite() : AdmissionRound()), "admit"));
  const AdmissionRound& round = reply.round;
  if (round.number == 0) return *this;

  const auto members = static_cast<Rank>(reply.members.size());
  const Rank next_size = members + static_cast<Rank>(round.newcomers.size());
  SchedulePtr next_schedule;
  try {
    next_schedule = next ? next(next_size) : make_schedule(schedule()->name(), next_size);
  } catch (const InvalidArgument& error) {
    if (leads && state_->refusal != error.what())
      log(LogLevel::normal, fmt::format("{} newcomers keep waiting: no schedule for {} ranks: {}",
                                        round.newcomers.size(), next_size, error.what()));
    state_->refusal = error.what();
    return *this;
  }

  const auto next_rank = static_cast<Rank>(std::find(reply.members.begin(), reply.members.end(), rank()) -
                                           reply.members.begin());
  std::shared_ptr<Fabric> fabric;
  std::string problem = "another rank could not connect to the newcomers";
  try {
    fabric = admission->form_fabric(round, next_rank, members);
    if (next_rank == 0 && !admission->all_joined(round)) throw Error("not all newcomers have joined");
  } catch (const std::exception& error) {
    fabric.reset();
    problem = error.what();
    problem.erase(std::min(problem.find('\n'), problem.size()));  // torch appends its stack trace
  }
  std::vector<std::int32_t> good = {fabric ? 1 : 0};
  allreduce(good, Reduction::min, "admit/good");
  admission->conclude(round, good[0] == 1);
  if (good[0] != 1) {
    if (next_rank == 0)
      log(LogLevel::normal, fmt::format("admission failed, continuing without the newcomers: {}", problem));
    return *this;
  }
  if (next_rank == 0)
    log(LogLevel::info, fmt::format("{} of {} ranks continue and {} newcomers joined: {} ranks", members,
                                    size(), round.newcomers.size(), next_size));
  Flock larger(std::move(fabric));
  larger.state_->follow(*state_, next_schedule);
  larger.replace(*this);
  return larger;
}

}  // namespace starling::flock
