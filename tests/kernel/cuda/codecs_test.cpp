// Tests starling/kernel/cuda/codes.cu, sparse.cu, int8.cu and cuda_codec_kernels.h: compares every codec with
// kernels, and int8 messages, with the host.
#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cstring>
#include <gmock/gmock.h>
#include <memory>
#include <string>
#include <type_traits>

#include "starling/base/error.h"
#include "starling/codec/registry.h"
#include "starling/codec/wire_format.h"
#include "starling/kernel/flag.h"
#include "twins.h"

namespace starling::kernel::cuda {
namespace {

using codec::make_wire_format;
using codec::WireFormat;
using codec::WireFormatPtr;

// Lengths around the borders of words, chunks, blocks and tiles.
constexpr std::size_t kLengths[] = {1,    2,    7,    8,    9,    31,   63,   64,   65,
                                    127,  128,  129,  511,  512,  513,  1000, 1024, 1025,
                                    2047, 2048, 2049, 4095, 4096, 4097, 5001, 9000};

enum class Content { numbers, strange, equal, zeros, tiny, huge };
constexpr Content kContents[] = {Content::numbers, Content::strange, Content::equal,
                                 Content::zeros,   Content::tiny,    Content::huge};

template <typename T>
std::vector<T> content(Content what, std::size_t count) {
  Random random(count, 5, 0);
  std::vector<T> values(count);
  for (T& value : values) {
    value = static_cast<T>(random.normal());
    if (what == Content::equal) value = static_cast<T>(random.below(2) == 0 ? 0.5 : -0.5);
    if (what == Content::zeros) value = static_cast<T>(random.below(2) == 0 ? 0.0 : -0.0);
    if (what == Content::tiny) value = static_cast<T>(static_cast<double>(value) * 1e-42);
    if (what == Content::huge) value = static_cast<T>(static_cast<double>(value) * 1e38);
  }
  if (what == Content::strange) {
    using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
    values[count / 5] = std::bit_cast<T>(static_cast<Bits>(0xFFF8'1234'5678'9ABC >> (64 - 8 * sizeof(T))));
    values[count / 2] = std::numeric_limits<T>::quiet_NaN();
    values[count / 3] = -std::numeric_limits<T>::infinity();
    values[count - 1] = std::numeric_limits<T>::infinity();
  }
  return values;
}

std::vector<std::uint8_t> unwritten(std::size_t bytes) {
  return std::vector<std::uint8_t>(bytes, 0x5A);
}

class CudaCodecTest : public testing::TestWithParam<const char*> {
 protected:
  CudaCodecTest() { set_device({std::shared_ptr<void>(), &test_gpu()}); }
  ~CudaCodecTest() override { set_device(nullptr); }
};

template <typename T>
void check_codec(const Codec& codec, const std::vector<T>& values, std::size_t offset) {
  const CodecKey key{5, 6, static_cast<Step>(values.size())};
  Twin<T> in(values, offset);
  Twin<std::uint8_t> message(unwritten(codec.encoded_bytes(dtype_of<T>, {values.size(), 0})), 0);
  const std::vector<T> before = odd_numbers<T>(values.size(), 7);
  Twin<T> out(before, offset), sum(before, offset), same_sum(before, offset);
  const auto run = [&](auto&& buffer) {
    codec.encode(buffer(in), 0, key, buffer(message));
    codec.decode(buffer(message), 0, buffer(out));
    codec.decode_add(buffer(message), 0, -0.3, buffer(sum));
    codec.decode_add(buffer(message), 0, 0, buffer(same_sum));
  };
  run([](auto& twin) { return twin.host(); });
  run([](auto& twin) { return twin.device(); });
  finish();
  ASSERT_TRUE(message.same()) << codec.spec;
  ASSERT_TRUE(in.same() && out.same()) << codec.spec;
  ASSERT_TRUE(sum.same() && same_sum.same()) << codec.spec;
}

TEST_P(CudaCodecTest, HasTheBitsOfTheHost) {
  const CodecPtr codec = make_codec(GetParam());
  for (const std::size_t count : kLengths)
    for (const Content what : kContents) {
      SCOPED_TRACE(testing::Message() << count << " elements, content " << static_cast<int>(what));
      check_codec(*codec, content<float>(what, count), 0);
      check_codec(*codec, content<double>(what, count), 0);
      if (HasFatalFailure()) return;
    }
  check_codec(*codec, content<float>(Content::numbers, 3000), 3);
  check_codec(*codec, content<double>(Content::numbers, 3000), 1);
}

#ifndef STARLING_TEST_ON_GPU  // on a GPU, enqueued work may already have run
TEST_P(CudaCodecTest, IsEnqueued) {
  const CodecPtr codec = make_codec(GetParam());
  Twin<float> in(content<float>(Content::numbers, 3000), 0);
  Twin<std::uint8_t> message(unwritten(codec->encoded_bytes(DType::float32, {3000, 0})), 0);
  finish();
  codec->encode(in.device(), 0, {}, message.device());
  codec->decode_add(message.device(), 0, 1, in.device());
  EXPECT_GT(fake_cuda::pending(), 0U);
  finish();
}
#endif

TEST_P(CudaCodecTest, TakesMessagesInHostMemory) {
  const CodecPtr codec = make_codec(GetParam());
  const std::vector<float> values = content<float>(Content::numbers, 3000);
  Twin<float> in(values, 0), out(values, 0), sum(values, 0);
  Twin<std::uint8_t> message(unwritten(codec->encoded_bytes(DType::float32, {3000, 0})), 0);
  std::vector<std::uint8_t> here = unwritten(message.host().count);
  const Buffer bytes(DType::uint8, here.data(), here.size());
  codec->encode(in.host(), 0, {1, 2, 3}, message.host());
  codec->encode(in.device(), 0, {1, 2, 3}, bytes);
  EXPECT_EQ(std::memcmp(here.data(), message.host().host_data(), here.size()), 0);
  codec->decode(bytes, 0, out.device());
  codec->decode_add(bytes, 0, 2, sum.device());
  codec->decode(bytes, 0, out.host());
  codec->decode_add(bytes, 0, 2, sum.host());
  finish();
  EXPECT_TRUE(out.same() && sum.same());
}

std::string name_of(const testing::TestParamInfo<const char*>& test) {
  std::string name;
  for (const char c : std::string(test.param))
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
  return name;
}

INSTANTIATE_TEST_SUITE_P(Codecs, CudaCodecTest,
                         testing::Values("identity", "float16", "bfloat16", "uint8", "uint8(chunk=64)",
                                         "sign", "sign(chunk=64)", "sign(chunk=8192)", "vote", "qsgd",
                                         "qsgd(chunk=2048)", "qsgd(levels=255)", "qsgd(levels=7)",
                                         "qsgd(levels=1,chunk=64)", "qsgd(levels=32767)", "top-k",
                                         "top-k(fraction=0.3)", "top-k(fraction=1)", "random-k",
                                         "random-k(fraction=0.5,unbiased=true)"),
                         name_of);

using CudaCodecsTest = CudaCodecTest;

// More than one row of tiles, of a fold's chunks and of pieces.
TEST_F(CudaCodecsTest, LongParametersHaveTheBitsOfTheHost) {
  const std::vector<float> values = content<float>(Content::numbers, 300'007);
  for (const char* spec :
       {"uint8(chunk=131072)", "sign(chunk=131072)", "qsgd(chunk=131072)", "top-k", "random-k"})
    check_codec(*make_codec(spec), values, 0);
  check_codec(*make_codec("top-k(fraction=0.4)"), content<float>(Content::equal, 300'007), 0);
  check_codec(*make_codec("qsgd(chunk=1048576)"), content<float>(Content::numbers, (1U << 20) + 70), 0);
}

TEST_F(CudaCodecsTest, TopKLeavesOutIndicesThatAreNotThere) {
  const CodecPtr codec = make_codec("top-k(fraction=1)");
  DeviceVector<std::uint32_t> words = {1, 7, 0, 0};
  const float values[] = {2, 3};
  std::memcpy(&words[2], values, sizeof values);
  Twin<float> out({5, 5}, 0);
  codec->decode({DType::uint8, words.data(), 16, MemoryKind::cuda, nullptr}, 0, out.device());
  finish();
  const float* found = static_cast<const float*>(out.device().address());
  EXPECT_EQ(std::vector<float>(found, found + 2), (std::vector<float>{0, 2}));
}

TEST_F(CudaCodecsTest, PowerSgdGoesThroughTheHost) {
  check_codec(*make_codec("powersgd"), content<float>(Content::numbers, 1000), 0);
}

struct Int8Message {
  Int8Message(const WireFormat& format, const std::vector<float>& values)
      : in(values, 0), message(unwritten(format.encoded_bytes(values.size())), 0) {
    format.encode(in.host(), host());
    format.encode(in.device(), device());
    finish();
  }
  Buffer host() { return {DType::int8, message.host().address(), message.host().count}; }
  Buffer device() {
    return {DType::int8, message.device().address(), message.device().count, MemoryKind::cuda, nullptr};
  }
  Twin<float> in;
  Twin<std::uint8_t> message;
};

void check_int8(const std::vector<std::size_t>& ends, Content what) {
  const std::size_t count = ends.back();
  const WireFormatPtr format = make_wire_format("int8", ends);
  Int8Message own(*format, content<float>(Content::numbers, count)),
      second(*format, content<float>(what, count)), third(*format, content<float>(Content::huge, count));
  ASSERT_TRUE(own.message.same() && second.message.same() && third.message.same());
  Twin<float> out(odd_numbers<float>(count, 3), 0), sum(odd_numbers<float>(count, 4), 0),
      bare(odd_numbers<float>(count, 3), 0), lone(odd_numbers<float>(count, 4), 0);
  const auto run = [&](auto&& buffer, auto&& elements) {
    format->decode(buffer(second), elements(out));
    const Term others[] = {{ConstBuffer(buffer(second)), 0.3}, {ConstBuffer(buffer(third)), 0.2}};
    format->combine_around(elements(sum), elements(sum), buffer(own), others);
    format->combine_around(elements(bare), {}, buffer(own), std::span(others).first(1));
    format->combine_around(elements(lone), elements(lone), buffer(own), {});
  };
  run([](auto& one) { return one.host(); }, [](auto& twin) { return twin.host(); });
  run([](auto& one) { return one.device(); }, [](auto& twin) { return twin.device(); });
  finish();
  ASSERT_TRUE(out.same() && sum.same() && bare.same() && lone.same());
}

TEST_F(CudaCodecsTest, MessagesOfInt8HaveTheBitsOfTheHost) {
  for (const std::size_t count : kLengths)
    for (const Content what : kContents) {
      check_int8({count}, what);
      check_int8({count / 9, count / 9, count / 4, count, count}, what);
    }
  std::vector<std::size_t> many;  // more than one launch handles
  for (std::size_t i = 1; i <= 250; ++i) many.push_back(many.size() * 13 + 700 * (i % 7 == 0 ? i : 0) + 1);
  std::ranges::sort(many);
  check_int8(many, Content::numbers);
}

TEST_F(CudaCodecsTest, LostMessagesOfInt8AreLeftOut) {
  std::array<Flag, 2> flags{};
  test_gpu().register_flags(flags.data(), sizeof flags);
  const WireFormatPtr format = make_wire_format("int8");
  const std::vector<float> values = content<float>(Content::numbers, 700);
  Int8Message own(*format, values), second(*format, content<float>(Content::equal, 700)),
      third(*format, values);
  Twin<float> sum(values, 0);
  Term there{ConstBuffer(second.device()), 0.3}, lost{ConstBuffer(third.device()), 0.3};
  there.flag = &flags[0], there.number = 4;
  lost.flag = &flags[1], lost.number = 4;
  format->combine_around(sum.device(), sum.device(), own.device(), std::vector<Term>{lost, there});
  const Term of_host{ConstBuffer(second.host()), 0.3};
  format->combine_around(sum.host(), sum.host(), own.host(), {&of_host, 1});
  flags[0] = 4;
  flags[1] = kLost | 3;
  finish();
  EXPECT_TRUE(sum.same());
  test_gpu().unregister_flags(flags.data());
}

TEST_F(CudaCodecsTest, RefusesHostMemory) {
  std::vector<float> x(4);
  std::vector<std::uint8_t> message(64);
  const Buffer host(DType::float32, x.data(), 4),
      there(DType::uint8, message.data(), 64, MemoryKind::cuda, nullptr);
  EXPECT_THAT([&] { test_gpu().codec_kernels()->encode({.kind = DeviceCode::Kind::vote}, host, 0, there); },
              testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("elements in host memory")));
  EXPECT_THAT([&] { test_gpu().codec_kernels()->decode_int8({}, there, host); },
              testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("elements in host memory")));
}

}  // namespace
}  // namespace starling::kernel::cuda
