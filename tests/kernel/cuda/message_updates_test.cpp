// Tests starling/kernel/cuda/message_updates.cu: passes with messages of fewer bits have the bits of
// combine_around(), a pass and the message's encoder on the host, one after another.
#include <array>
#include <functional>
#include <gtest/gtest.h>
#include <memory>

#include "starling/codec/wire_format.h"
#include "starling/kernel/flag.h"
#include "starling/kernel/int8_messages.h"
#include "twins.h"

namespace starling::kernel::cuda {
namespace {

using codec::WireFormatPtr;

/// A message in the format, with the same bytes on the host and on the device.
struct Message {
  Message(const WireFormatPtr& its_format, const std::vector<float>& values)
      : format(its_format),
        elements(format->encoded_count(values.size())),
        bytes(encoded(*format, values, elements), 0) {}
  static std::vector<std::uint8_t> encoded(const codec::WireFormat& format, std::vector<float> values,
                                           std::size_t elements) {
    std::vector<std::uint8_t> message(elements * size_of(format.dtype()));
    format.encode({DType::float32, values.data(), values.size()}, {format.dtype(), message.data(), elements});
    return message;
  }
  Buffer host() { return {format->dtype(), bytes.host().address(), elements}; }
  Buffer device() { return {format->dtype(), bytes.device().address(), elements, MemoryKind::cuda, nullptr}; }
  std::uint8_t* begin() { return static_cast<std::uint8_t*>(bytes.host().address()); }

  WireFormatPtr format;
  std::size_t elements;
  Twin<std::uint8_t> bytes;
};

/// Whether two messages have the same elements. NaNs of 16 bits may have other bits on a device.
testing::AssertionResult same_messages(Message& message) {
  if (message.format->dtype() == DType::int8) return message.bytes.same();
  return dispatch(message.format->dtype(), [&]<typename E>(std::type_identity<E>) {
    const auto elements = [](const Buffer& buffer) {
      const auto* first = static_cast<const E*>(buffer.address());
      return std::vector<E>(first, first + buffer.count);
    };
    return same_blocks(elements(message.device()), elements(message.host()));
  });
}

/// Numbers of which some are odd, but not in every run.
std::vector<float> numbers(std::size_t count, std::uint64_t seed) {
  std::vector<float> values = odd_numbers<float>(count, seed);
  for (std::size_t i = 0; i < count; ++i)
    if (i / 512 % 3 != 2) values[i] = static_cast<float>(static_cast<double>((i * 7919 + seed) % 1000) - 400);
  return values;
}

struct Sizes {
  std::vector<std::size_t> ends;
  std::size_t begin, count;  // of the part
};

using Rule = std::function<void(const Arithmetic&, const UpdatePass&, Buffer m, Buffer v, Buffer sum)>;

class MessageUpdatesTest : public testing::Test {
 protected:
  MessageUpdatesTest() { set_device({std::shared_ptr<void>(), &test_gpu()}); }
  ~MessageUpdatesTest() override { set_device(nullptr); }
};

// `others` neighbors' messages; without any, and unless `averages`, the pass only sends.
void check(const std::string& name, const Sizes& sizes, std::size_t others, bool averages, Layout layout,
           const Rule& rule) {
  const WireFormatPtr format = codec::make_wire_format(name, sizes.ends);
  const std::size_t block = sizes.ends.back(), count = sizes.count;
  std::vector<float> whole = numbers(block, 1);
  std::vector<Message> messages;
  for (std::size_t i = 0; i <= others; ++i)
    messages.emplace_back(format, i == 0 ? whole : numbers(block, 10 + i));
  Message sent(format, numbers(block, 5));
  std::vector<Twin<float>> vectors;  // x, gradient, m, v, sum
  const std::vector<float> x(whole.begin() + static_cast<std::ptrdiff_t>(sizes.begin),
                             whole.begin() + static_cast<std::ptrdiff_t>(sizes.begin + count));
  for (std::size_t i = 0; i < 5; ++i)
    vectors.emplace_back(i == 0 ? x : numbers(count, 20 + i), offset_in(layout, i));
  Twin<BFloat16> rounded(std::vector<BFloat16>(count), offset_in(layout, 3));
  const bool int8 = format->dtype() == DType::int8;
  const std::size_t shift = int8 ? 0 : sizes.begin * size_of(format->dtype());
  const auto at = [&](Buffer message) { return static_cast<std::byte*>(message.address()) + shift; };
  const std::shared_ptr<bool> device_mark = on_gpu().make_mark();
  bool host_mark = false;
  const auto run = [&](const Arithmetic& arithmetic, bool* mark, auto&& buffer) {
    std::vector<Term> terms;
    for (std::size_t i = 1; i <= others; ++i)
      terms.push_back({buffer(messages[i]).at(static_cast<const void*>(at(buffer(messages[i])))),
                       1 / static_cast<double>(others + 2)});
    const Buffer out = buffer(vectors[0]);
    const Term own{ConstBuffer(out), 1};
    UpdatePass pass{{&own, 1}, buffer(vectors[1]), 0.75, out, {}, mark, buffer(rounded)};
    pass.part = {sizes.ends, sizes.begin};
    pass.copy = int8 ? buffer(sent) : buffer(sent).part(sizes.begin, count);
    if (averages) pass.messages = {format->dtype(), at(buffer(messages[0])), terms};
    rule(arithmetic, pass, buffer(vectors[2]), buffer(vectors[3]), buffer(vectors[4]));
  };
  run(on_gpu(), device_mark.get(), [](auto& one) { return one.device(); });
  // On the host, one step after another.
  run(on_host(), &host_mark, [](auto& one) { return one.host(); });
  finish();
  for (Twin<float>& vector : vectors) ASSERT_TRUE(vector.same()) << name << ", " << others << " others";
  ASSERT_TRUE(rounded.same());
  ASSERT_TRUE(same_messages(sent)) << name << ", " << others << " others of " << count;
  ASSERT_EQ(*device_mark, host_mark);
}

// What the fused host pass computes is compared with the separate calls.
void check_host(const std::string& name, const Sizes& sizes, std::size_t others) {
  const WireFormatPtr format = codec::make_wire_format(name, sizes.ends);
  const std::size_t block = sizes.ends.back();
  std::vector<float> x = numbers(block, 1), gradient = numbers(block, 2), m = numbers(block, 3);
  const auto over = [&](std::vector<float>& values) { return Buffer(DType::float32, values.data(), block); };
  std::vector<Message> messages;
  std::vector<Term> terms;
  for (std::size_t i = 0; i <= others; ++i)
    messages.emplace_back(format, i == 0 ? x : numbers(block, 10 + i));
  for (std::size_t i = 1; i <= others; ++i)
    terms.push_back({ConstBuffer(messages[i].host()), 1 / static_cast<double>(others + 2)});
  Message fused(format, gradient), separate(format, gradient);
  std::vector<float> y = x, y_m = m;
  const SgdRule rule{0.05, 0.9, 0, 0.1, true};
  const Term own{ConstBuffer(over(x)), 1}, own_y{ConstBuffer(over(y)), 1};
  UpdatePass pass{{&own, 1}, over(gradient), 0.75, over(x), fused.host()};
  pass.part = {sizes.ends, 0};
  pass.messages = {format->dtype(), messages[0].host().address(), terms};
  on_host().sgd_update(pass, rule, over(m), false);
  format->combine_around(over(y), over(y), messages[0].host(), terms);
  on_host().sgd_update({{&own_y, 1}, over(gradient), 0.75, over(y)}, rule, over(y_m), false);
  format->encode(over(y), separate.host());
  ASSERT_TRUE(same_blocks(x, y));
  ASSERT_TRUE(same_blocks(m, y_m));
  const std::size_t bytes = fused.bytes.host().count;
  ASSERT_TRUE(same_blocks(std::vector<std::uint8_t>(fused.begin(), fused.begin() + bytes),
                          std::vector<std::uint8_t>(separate.begin(), separate.begin() + bytes)));
}

std::vector<Sizes> all_sizes() {
  std::vector<Sizes> all;
  for (const std::size_t count : {1, 7, 511, 512, 513, 1003, 5000}) all.push_back({{count}, 0, count});
  all.push_back({{40, 1064, 3112, 3113}, 0, 3113});
  all.push_back({{48, 1072, 3120, 3121}, 48, 3072});          // some parameters
  all.push_back({{48, 1072, 3120, 3121}, 1072 + 512, 1537});  // from the middle of one to the end
  std::vector<std::size_t> many;                              // more than one launch handles
  for (std::size_t i = 1; i <= 210; ++i) many.push_back(i * 16 + (i >= 100 ? 2000 : 0));
  all.push_back({many, 0, many.back()});
  return all;
}

const char* const kFormats[] = {"int8", "bfloat16", "float16"};

TEST_F(MessageUpdatesTest, SgdHasTheBitsOfTheHost) {
  for (const SgdRule& rule : {SgdRule{0.1, 0, 0, 0.05, false}, SgdRule{0.05, 0.9, 0.25, 0.1, true}})
    for (const std::string name : kFormats)
      for (const Sizes& sizes : all_sizes())
        for (const std::size_t others : {0, 1, 2, 3, 4, 6})
          for (const Layout layout : kLayouts)
            check(name, sizes, others, true, layout,
                  [&](const Arithmetic& arithmetic, const UpdatePass& pass, Buffer m, Buffer, Buffer) {
                    arithmetic.sgd_update(pass, rule, m, false);
                  });
}

TEST_F(MessageUpdatesTest, AdamHasTheBitsOfTheHost) {
  for (const AdamRule& rule :
       {AdamRule{0.1, 0.8, 0.95, 1e-3, 0.1, false}, AdamRule{0.1, 0.7, 0.9, 1e-8, 0.2, true}})
    for (const std::string name : kFormats)
      for (const Sizes& sizes : all_sizes())
        for (const std::size_t others : {1, 5})
          check(name, sizes, others, true, Layout::aligned,
                [&](const Arithmetic& arithmetic, const UpdatePass& pass, Buffer m, Buffer v, Buffer) {
                  arithmetic.adam_update(pass, rule, m, v, 3);
                });
}

TEST_F(MessageUpdatesTest, AccumAdamHasTheBitsOfTheHost) {
  for (const bool fold : {false, true})
    for (const std::string name : kFormats)
      for (const Sizes& sizes : all_sizes())
        check(name, sizes, 2, true, Layout::aligned,
              [&](const Arithmetic& arithmetic, const UpdatePass& pass, Buffer m, Buffer v, Buffer sum) {
                arithmetic.accum_adam_update(pass, {.weight_decay = 0.1}, m, v, sum, 3, 4, fold);
              });
}

TEST_F(MessageUpdatesTest, SendsWithoutAnAverage) {
  for (const Sizes& sizes : all_sizes())
    for (const Layout layout : kLayouts)
      check("int8", sizes, 0, false, layout,
            [](const Arithmetic& arithmetic, const UpdatePass& pass, Buffer m, Buffer, Buffer) {
              arithmetic.sgd_update(pass, {.momentum = 0.9}, m, false);
            });
}

TEST_F(MessageUpdatesTest, TheHostsPassHasTheBitsOfSeparateCalls) {
  for (const std::string name : kFormats)
    for (const Sizes& sizes : all_sizes())
      for (const std::size_t others : {0, 1, 3}) check_host(name, sizes, others);
}

TEST_F(MessageUpdatesTest, LostMessagesAreLeftOut) {
  for (const std::string name : kFormats) {
    constexpr std::size_t kCount = 1700;
    std::array<Flag, 2> flags{};
    test_gpu().register_flags(flags.data(), sizeof flags);
    const WireFormatPtr format = codec::make_wire_format(name);
    Twin<float> x(numbers(kCount, 1), 0), gradient(numbers(kCount, 2), 0);
    Message own(format, numbers(kCount, 1)), second(format, numbers(kCount, 3)),
        third(format, numbers(kCount, 4));
    Term there{ConstBuffer(second.device()), 0.3}, lost{ConstBuffer(third.device()), 0.3};
    there.flag = &flags[0], there.number = 4;
    lost.flag = &flags[1], lost.number = 4;
    const std::vector<Term> device = {lost, there}, host = {{ConstBuffer(second.host()), 0.3}};
    const std::size_t ends[] = {kCount};
    const auto run = [&](const Arithmetic& arithmetic, std::span<const Term> terms, auto&& buffer) {
      const Term start{ConstBuffer(buffer(x)), 1};
      UpdatePass pass{{&start, 1}, buffer(gradient), 1, buffer(x)};
      pass.messages = {format->dtype(), buffer(own).address(), terms};
      pass.part = {ends, 0};
      arithmetic.sgd_update(pass, {}, {}, true);
    };
    run(on_gpu(), device, [](auto& one) { return one.device(); });
    run(on_host(), host, [](auto& one) { return one.host(); });
    flags[0] = 4;
    flags[1] = kLost | 3;
    finish();
    EXPECT_TRUE(x.same()) << name;
    test_gpu().unregister_flags(flags.data());
  }
}

}  // namespace
}  // namespace starling::kernel::cuda
