// Tests starling/codec/codec.h, host_codec.h and wire_format.h with values and messages in device memory (a
// FakeDevice): the results have the same bits as on the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>

#include "base/test_name.h"
#include "blocks.h"
#include "kernel/device_block.h"
#include "kernel/fake_device.h"
#include "starling/codec/error_feedback.h"
#include "starling/codec/wire_format.h"

namespace starling::codec {
namespace {

using kernel::DeviceBlock;

constexpr std::size_t kDeviceCounts[] = {0,   1,   7,    63,   64,   65,   511,  512, 513,
                                         575, 640, 1000, 2047, 2048, 2049, 4097, 5001};

template <typename T>
std::vector<T> numbers_with(std::size_t count, bool strange) {
  std::vector<T> values = normal_numbers<T>(count, count + 3);
  if (!strange || count == 0) return values;
  values[count / 2] = std::numeric_limits<T>::quiet_NaN();
  values[count / 3] = -std::numeric_limits<T>::infinity();
  values[count - 1] = std::numeric_limits<T>::infinity();
  return values;
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Elements in host or device memory.
template <typename T>
class Either {
 public:
  Either(const std::vector<T>& values, MemoryKind memory) : host_(values) {
    if (memory == MemoryKind::cuda) device_ = std::make_unique<DeviceBlock<T>>(values);
  }
  Buffer buffer() { return device_ ? device_->buffer() : values_of(host_); }
  std::vector<T> values() const { return device_ ? device_->values() : host_; }

 private:
  std::vector<T> host_;
  std::unique_ptr<DeviceBlock<T>> device_;
};

struct Memories {
  MemoryKind values;
  MemoryKind message;
};

template <typename T>
void check_codec(const Codec& codec, const std::vector<T>& values, std::size_t rows, Memories in) {
  const CodecKey key{5, 6, 7};
  const std::size_t bytes = codec.encoded_bytes(dtype_of<T>, {values.size(), rows});
  const std::vector<std::uint8_t> unwritten(bytes, 0x5A);
  const std::vector<T> before = normal_numbers<T>(values.size(), 2);

  std::vector<std::uint8_t> message = unwritten;
  std::vector<T> decoded = before, sum = before;
  codec.encode(values_in(values), rows, key, values_of(message));
  codec.decode(values_of(message), rows, values_of(decoded));
  codec.decode_add(values_of(message), rows, -0.3, values_of(sum));

  Either<T> x(values, in.values), other(before, in.values), third(before, in.values);
  Either<std::uint8_t> there(unwritten, in.message);
  codec.encode(x.buffer(), rows, key, there.buffer());
  codec.decode(there.buffer(), rows, other.buffer());
  codec.decode_add(there.buffer(), rows, -0.3, third.buffer());
  ASSERT_EQ(there.values(), message) << codec.spec << ", " << values.size();
  ASSERT_TRUE(same_bits(other.values(), decoded)) << codec.spec << ", " << values.size();
  ASSERT_TRUE(same_bits(third.values(), sum)) << codec.spec << ", " << values.size();
}

class DeviceCodecTest : public testing::TestWithParam<std::string> {
 protected:
  DeviceCodecTest() { kernel::set_device(std::make_shared<kernel::FakeDevice>()); }
  ~DeviceCodecTest() override { kernel::set_device(nullptr); }
};

TEST_P(DeviceCodecTest, HasTheBitsOfTheHostInAnyMemory) {
  using enum MemoryKind;
  const CodecPtr codec = make_codec(GetParam());
  for (const Memories in : {Memories{cuda, cuda}, Memories{cuda, host}, Memories{host, cuda}})
    for (const std::size_t count : kDeviceCounts)
      for (const bool strange : {false, true}) {
        check_codec(*codec, numbers_with<float>(count, strange), 0, in);
        check_codec(*codec, numbers_with<double>(count, strange), 0, in);
      }
  check_codec(*codec, numbers_with<float>(1000, false), 25, {cuda, cuda});
}

TEST_P(DeviceCodecTest, KeepsAResidualOnTheDevice) {
  const CodecPtr codec = make_codec(GetParam());
  const std::vector<float> values = normal_numbers<float>(3000, 8);
  std::vector<float> residual(values.size());
  std::vector<std::uint8_t> message(codec->encoded_bytes(DType::float32, {values.size(), 0}));
  const DeviceBlock<float> in(values), left(values.size());
  const DeviceBlock<std::uint8_t> there(message.size());
  for (Step step = 0; step < 3; ++step) {
    encode_with_feedback(*codec, values_in(values), values_of(residual), 0, {1, 2, step}, values_of(message));
    encode_with_feedback(*codec, in.buffer(), left.buffer(), 0, {1, 2, step}, there.buffer());
    ASSERT_EQ(there.values(), message);
    ASSERT_TRUE(same_bits(left.values(), residual));
  }
}

TEST_P(DeviceCodecTest, RefusesBuffersThatDoNotFit) {
  const CodecPtr codec = make_codec(GetParam());
  const DeviceBlock<float> x(100);
  const DeviceBlock<std::uint8_t> message(codec->encoded_bytes(DType::float32, {100, 0}) - 1);
  EXPECT_THAT([&] { codec->encode(x.buffer(), 0, {}, message.buffer()); },
              testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("of 100 x float32 is ")));
}

std::vector<std::string> every_codec() {
  std::vector<std::string> all = {"uint8(chunk=64)",    "sign(chunk=64)",
                                  "sign(chunk=8192)",   "qsgd(levels=255)",
                                  "qsgd(levels=7)",     "qsgd(levels=1,chunk=64)",
                                  "qsgd(levels=32767)", "top-k(fraction=1)",
                                  "powersgd(rank=1)",   "random-k(fraction=0.5, unbiased=true)"};
  for (const CodecFamily& family : codec_families()) all.push_back(family.name);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Codecs, DeviceCodecTest, testing::ValuesIn(every_codec()),
                         [](const testing::TestParamInfo<std::string>& test) {
                           return test_name(test.param);
                         });

/// The same wire-format message, on the host and on the device.
struct TwinMessage {
  TwinMessage(const WireFormat& format, const std::vector<float>& values)
      : host(format.encoded_bytes(values.size())), device(host) {
    const DeviceBlock<float> there(values);
    format.encode(values_in(values), on_host(format));
    format.encode(there.buffer(), on_device(format));
  }
  Buffer of(const WireFormat& format, void* data, MemoryKind memory) const {
    return {format.dtype(), data, host.size() / size_of(format.dtype()), memory, nullptr};
  }
  Buffer on_host(const WireFormat& format) { return of(format, host.data(), MemoryKind::host); }
  Buffer on_device(const WireFormat& format) const {
    return of(format, device.buffer().address(), MemoryKind::cuda);
  }

  std::vector<std::uint8_t> host;
  DeviceBlock<std::uint8_t> device;
};

class DeviceWireFormatTest : public DeviceCodecTest {};

TEST_P(DeviceWireFormatTest, HasTheBitsOfTheHost) {
  for (const std::size_t count : kDeviceCounts) {
    const std::vector<std::size_t> cut = {count / 7, count / 7, count / 2, count};
    for (const auto& ends : {std::vector<std::size_t>{}, cut}) {
      const WireFormatPtr format = make_wire_format(GetParam(), ends);
      std::vector<float> x = normal_numbers<float>(count, 1);
      TwinMessage own(*format, x), second(*format, numbers_with<float>(count, count % 2 == 1)),
          third(*format, normal_numbers<float>(count, 9));
      ASSERT_EQ(third.device.values(), third.host) << count;
      ASSERT_EQ(second.device.values(), second.host) << count;

      std::vector<float> decoded(count);
      const DeviceBlock<float> decoded_there(count), sum_there(x);
      format->decode(second.on_host(*format), values_of(decoded));
      format->decode(second.on_device(*format), decoded_there.buffer());
      ASSERT_TRUE(same_bits(decoded_there.values(), decoded)) << count;

      for (const bool with_x : {true, false}) {
        const Term terms[] = {{ConstBuffer(second.on_host(*format)), 0.3},
                              {ConstBuffer(third.on_host(*format)), 0.2}};
        const Term terms_there[] = {{ConstBuffer(second.on_device(*format)), 0.3},
                                    {ConstBuffer(third.on_device(*format)), 0.2}};
        const ConstBuffer from = with_x ? values_in(x) : ConstBuffer();
        format->combine_around(values_of(x), from, own.on_host(*format), terms);
        format->combine_around(sum_there.buffer(), with_x ? ConstBuffer(sum_there.buffer()) : ConstBuffer(),
                               own.on_device(*format), terms_there);
        ASSERT_TRUE(same_bits(sum_there.values(), x)) << count;
      }
      format->combine_around(values_of(x), values_in(x), own.on_host(*format), {});
      format->combine_around(sum_there.buffer(), sum_there.buffer(), own.on_device(*format), {});
      ASSERT_TRUE(same_bits(sum_there.values(), x)) << count;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, DeviceWireFormatTest,
                         testing::Values("float32", "float16", "bfloat16", "int8"),
                         [](const testing::TestParamInfo<std::string>& test) { return test.param; });

}  // namespace
}  // namespace starling::codec
