// Covers the shapes that callers pass to starling/flock/byte_operations.h.
#include "flock/reference.h"
#include "starling/flock/pending.h"

// Callers that know shapes pass a number for each: ranks with different numbers get an error even if their
// counts agree.

namespace starling::flock {
namespace {

Pieces shaped(std::vector<float>& x, std::uint32_t shape) {
  return {{{DType::float32, x.data(), x.size(), shape}, buffer_of(x), 0}};
}

Room into(std::vector<float>& x) {
  return [&x](std::size_t count) {
    x.resize(count);
    return buffer_of(x);
  };
}

using Start = std::function<Pending(Flock& flock, std::vector<float>& x, std::vector<float>& out,
                                    std::uint32_t shape, const char* name)>;

const std::vector<std::pair<std::string, Start>> kOperations = {
    {"allreduce",
     [](Flock& flock, auto& x, auto&, std::uint32_t shape, const char* name) {
       return ByteOperations(flock).allreduce(shaped(x, shape), Reduction::sum, name);
     }},
    {"broadcast",
     [](Flock& flock, auto& x, auto&, std::uint32_t shape, const char* name) {
       return ByteOperations(flock).broadcast(shaped(x, shape), 0, name);
     }},
    {"allgather",
     [](Flock& flock, auto& x, auto& out, std::uint32_t rows, const char* name) {
       return ByteOperations(flock).allgather({DType::float32, x.data(), x.size(), rows}, into(out), name);
     }},
    {"neighbor_allgather",
     [](Flock& flock, auto& x, auto& out, std::uint32_t rows, const char* name) {
       return ByteOperations(flock).neighbor_allgather({DType::float32, x.data(), x.size(), rows}, into(out),
                                                       name);
     }},
    {"neighbor_allreduce",
     [](Flock& flock, auto& x, auto&, std::uint32_t shape, const char* name) {
       return ByteOperations(flock).neighbor_allreduce(shaped(x, shape), {}, name);
     }},
    {"with weights",
     [](Flock& flock, auto& x, auto&, std::uint32_t shape, const char* name) {
       const Rank other = 1 - flock.rank();
       return ByteOperations(flock).neighbor_allreduce(shaped(x, shape), {},
                                                       Weighted{0.5, {{{other, 0.5}}}, {{{other, 1}}}}, name);
     }},
};

class ShapeTest : public FlockTest {};

TEST_P(ShapeTest, DifferentShapesThrowAndEqualOnesPass) {
  for (const std::size_t count : {std::size_t{6}, std::size_t{300'000}})  // as a whole, and in parts
    run([count](Flock& flock) {
      for (const auto& [called, start] : kOperations) {
        const std::string equal = called + " equal";
        const std::string different = called + " different";
        std::vector<float> x(count, 1.0F);
        std::vector<float> out;
        start(flock, x, out, 77, equal.c_str()).wait();
        const std::string text = message_of<Mismatch>(
            [&] { start(flock, x, out, flock.rank() == 0 ? 77U : 78U, different.c_str()).wait(); });
        require(text.find(different) != std::string::npos && text.find("other sh") != std::string::npos,
                called + ": " + text);
        flock.barrier();
      }
    });
}

TEST_P(ShapeTest, RootsAndReductionsAreStillNamed) {
  run([](Flock& flock) {
    std::vector<float> x(6, 1.0F);
    const auto rank = static_cast<std::uint32_t>(flock.rank());
    std::string text = message_of<Mismatch>(
        [&] { ByteOperations(flock).broadcast(shaped(x, 77), flock.rank(), "roots").wait(); });
    require(text.find("root 0") != text.npos && text.find("root 1") != text.npos, text);
    require(text.find("shape") == text.npos, text);
    flock.barrier();
    text = message_of<Mismatch>([&] {
      ByteOperations(flock)
          .allreduce(shaped(x, 77 + rank), rank == 0 ? Reduction::sum : Reduction::max, "kinds")
          .wait();
    });
    const std::string sent = rank == 0 ? "max, another shape, but" : "sum, another shape, but";
    require(text.find("sent 6 x float32, " + sent) != text.npos, text);
    flock.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, ShapeTest, testing::ValuesIn(launches({2}, false)), launch_name);

}  // namespace
}  // namespace starling::flock
