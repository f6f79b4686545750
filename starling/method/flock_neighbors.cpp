#include "starling/method/flock_neighbors.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/kernel/arithmetic.h"
#include "starling/kernel/copy.h"

namespace starling::method {

FlockNeighbors::FlockNeighbors(const Flock& flock, const std::string& name, const ChannelOptions& options)
    : flock_(flock), name_(name), schedule_(options.schedule), message_(options.message) {
  if (message_ != DType::float32) short_form_ = make_short_form(message_, options.ends);
  exchanger_ = flock_.neighbor_exchanger(schedule_, Name(name_ + "/mix"));
}

void FlockNeighbors::add_job(PendingExchange exchange, Pieces pieces, Pieces sent) {
  epoch_ = exchange.epoch();
  jobs_.push_back({std::move(exchange), std::move(pieces), std::move(sent)});
}

void FlockNeighbors::mix(Pieces pieces) {
  if (shortens(pieces)) {
    check_exact_if_lost(pieces);
    Shortened sent = shorten(pieces);
    add_job(exchanger_.start(sent.pieces, std::move(sent.memory)), std::move(pieces), sent.pieces);
  } else {
    add_job(exchanger_.start(pieces), pieces, pieces);
  }
}

void FlockNeighbors::mix(Outgoing written, Buffer out) {
  const Pieces pieces = {{written.buffer(out.dtype, out.count), out, 0}};
  add_job(exchanger_.start(pieces, std::move(written)), pieces, pieces);
}

void FlockNeighbors::differences(Piece piece) {
  piece.if_lost = IfLost::mutual;
  mix({piece});
  jobs_.back().differences = true;
}

SharedExchange FlockNeighbors::share(ConstBuffer x, Outgoing written) {
  Pieces pieces = {{x, {}, 0}};
  if (shortens(pieces)) {
    Shortened sent = shorten(pieces);
    shared_from_ = sent.pieces[0].in.address();
    shared_ = exchanger_.start(sent.pieces, std::move(sent.memory));
  } else {
    shared_ = exchanger_.start(std::move(pieces), std::move(written));
  }
  shared_arrived_ = false;
  epoch_ = shared_.epoch();
  return SharedExchange(*this);
}

std::span<const Term> FlockNeighbors::lent_terms(Buffer out) {
  if (shared_from_ == nullptr) return shared_.terms();
  around(out, out, shared_from_, shared_.terms());
  whole_ = {out, 1};
  return {&whole_, 1};
}

void FlockNeighbors::give_back() noexcept {
  shared_ = {};
  shared_from_ = nullptr;
}

Outgoing FlockNeighbors::outgoing(std::size_t bytes) {
  if (short_form_ || schedule_->mixing() == Mixing::two_block) return {};
  return flock_.outgoing_bytes(bytes);
}

bool FlockNeighbors::ready() {
  if (shared_ && !shared_arrived_ && !shared_.ready()) return false;
  for (Job& job : jobs_)
    if (!job.exchange.ready()) return false;
  return true;
}

void FlockNeighbors::await() {
  if (shared_ && !shared_arrived_) shared_.wait();
  for (Job& job : jobs_) job.exchange.wait();
}

void FlockNeighbors::finish() {
  if (shared_) {
    shared_.wait();
    shared_arrived_ = true;
  }
  std::vector<Job> jobs;
  std::swap(jobs, jobs_);
  for (Job& job : jobs) finish(job);
}

// A sender keeps its own share as it was sent, which is rounded.
void FlockNeighbors::check_exact_if_lost(const Pieces& pieces) const {
  if (flock_.loses_messages() &&
      std::ranges::any_of(pieces, [](const Piece& piece) { return piece.if_lost == IfLost::returned; }))
    throw InvalidArgument(fmt::format(
        "{}: the method keeps a sum, which {} messages would spoil where messages get lost; use float32",
        name_, name(message_)));
}

// Pieces that are not float32 (scalars) travel as they are.
FlockNeighbors::Shortened FlockNeighbors::shorten(const Pieces& pieces) {
  std::vector<Buffer> blocks;
  for (const Piece& piece : pieces) {
    const bool shorter = piece.in.dtype == DType::float32;
    const auto [dtype, count] = shorter ? short_form_->travelling(piece.in.count)
                                        : ShortForm::Travelling{piece.in.dtype, piece.in.count};
    blocks.push_back({dtype, nullptr, count});
  }
  Shortened sent{pieces_of(blocks), {}};
  sent.memory = flock_.outgoing_bytes(message_bytes(sent.pieces));
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const ConstBuffer& in = pieces[i].in;
    sent.pieces[i].if_lost = pieces[i].if_lost;
    std::byte* to = sent.memory.bytes().data() + sent.pieces[i].offset;
    if (in.dtype == DType::float32)
      short_form_->encode(in.host<float>(), in.count, to);
    else
      copy_bytes(to, in);
    sent.pieces[i].in = sent.pieces[i].in.at<const void>(to);
  }
  return sent;
}

// x + sum of weight * (theirs - own): x itself is not rounded, so the flock's mean stays the same.
void FlockNeighbors::around(Buffer out, ConstBuffer x, const void* own, std::span<const Term> terms) const {
  std::vector<Term> others;
  for (const Term& term : terms)
    if (term.data != own) others.push_back(term);
  if (short_form_ && out.dtype == DType::float32)
    short_form_->around(out.host<float>(), static_cast<const float*>(x.host_data()), own, others, out.count);
  else
    arithmetic_in(out.memory).combine_around(out.dtype, out, x, {out.at(own), 1}, others);
}

// Where a group's mean was passed on, no term is this rank's own: the difference is the average less x.
void FlockNeighbors::subtract_own(const Piece& piece, const void* sent, std::span<const Term> terms) const {
  const auto is_own = [&](const Term& term) { return term.data == sent; };
  if (std::any_of(terms.begin(), terms.end(), is_own)) {
    around(piece.out, {}, sent, terms);
    return;
  }
  const Arithmetic& arithmetic = arithmetic_in(piece.out.memory);
  arithmetic.combine(piece.out, terms);
  const Term difference[] = {{piece.out, 1}, {piece.in, -1}};
  arithmetic.combine(piece.out, difference);
}

void FlockNeighbors::finish(Job& job) {
  job.exchange.wait();
  for (std::size_t i = 0; i < job.pieces.size(); ++i) {
    const Piece& piece = job.pieces[i];
    const auto terms = job.exchange.terms(i);
    if (job.differences)
      subtract_own(piece, job.sent[i].in.address(), terms);
    else if (job.sent[i].in.dtype != piece.in.dtype)
      around(piece.out, piece.in, job.sent[i].in.address(), terms);
    else
      arithmetic_in(piece.out.memory).combine(piece.out, terms);
  }
}

}  // namespace starling::method
