#include "starling/fabric/network/store/protocol.h"

#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/base/hmac.h"
#include "starling/base/os/system_random.h"

namespace starling::fabric::network {
namespace {

// Little-endian.
class StoreWriter {
 public:
  void number(std::uint64_t value, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) bytes_ += static_cast<char>(value >> (8 * i));
  }
  void text(const std::string& value) {
    number(value.size(), 4);
    bytes_ += value;
  }
  void texts(const std::vector<std::string>& values) {
    number(values.size(), 4);
    for (const std::string& value : values) text(value);
  }
  std::string finish() {
    const std::size_t size = bytes_.size();
    number(size, kLength);
    return bytes_.substr(size) + bytes_.substr(0, size);
  }

 private:
  std::string bytes_;
};

// Beyond the end it reads zeros and empty texts, and complete() is false.
class StoreReader {
 public:
  explicit StoreReader(std::string_view bytes) : rest_(bytes) {}

  std::uint64_t number(std::size_t bytes) {
    const std::string_view taken = take(bytes);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < taken.size(); ++i)
      value |= std::uint64_t{static_cast<unsigned char>(taken[i])} << (8 * i);
    return value;
  }
  std::string text() { return std::string(take(number(4))); }
  std::vector<std::string> texts() {
    std::vector<std::string> values;
    std::uint64_t left = number(4);
    good_ = good_ && left <= kMostKeys;
    for (; left > 0 && good_; --left) values.push_back(text());
    return values;
  }
  bool complete() const { return good_ && rest_.empty(); }

 private:
  std::string_view take(std::size_t bytes) {
    good_ = good_ && bytes <= rest_.size();
    const std::string_view taken = rest_.substr(0, good_ ? bytes : 0);
    rest_.remove_prefix(taken.size());
    return taken;
  }

  std::string_view rest_;
  bool good_ = true;
};

}  // namespace

void check_token(std::string_view token) {
  if (token.size() < kShortestToken)
    throw InvalidArgument(fmt::format(
        "the job's token (STARLING_JOB), which protects its store, has {} characters; it needs at least {} "
        "that cannot be guessed",
        token.size(), kShortestToken));
}

std::string random_nonce() {
  std::string nonce(kNonce, '\0');
  fill_random(std::as_writable_bytes(std::span(nonce)));
  return nonce;
}

std::string proof_of(std::string_view token, std::string_view role, std::string_view store_nonce,
                     std::string_view client_nonce) {
  std::string message(store_nonce);
  message.append(client_nonce).append(role);
  const Sha256::Digest digest = hmac_sha256(token, message);
  return {digest.begin(), digest.end()};
}

std::string encode(const StoreRequest& request) {
  StoreWriter writer;
  writer.number(static_cast<std::uint64_t>(request.operation), 1);
  writer.number(static_cast<std::uint64_t>(request.timeout.count()), 8);
  writer.number(static_cast<std::uint64_t>(request.number), 8);
  writer.texts(request.keys);
  writer.texts(request.values);
  return writer.finish();
}

std::string encode(const StoreAnswer& answer) {
  StoreWriter writer;
  writer.number(static_cast<std::uint64_t>(answer.status), 1);
  writer.number(static_cast<std::uint64_t>(answer.number), 8);
  writer.text(answer.value);
  return writer.finish();
}

std::size_t read_length(std::string_view bytes) {
  return StoreReader(bytes).number(kLength);
}

std::optional<StoreRequest> decode_request(std::string_view bytes) {
  StoreReader reader(bytes);
  StoreRequest request;
  const std::uint64_t operation = reader.number(1);
  request.operation = static_cast<StoreOperation>(operation);
  request.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(reader.number(8)));
  request.number = static_cast<std::int64_t>(reader.number(8));
  request.keys = reader.texts();
  request.values = reader.texts();
  if (!reader.complete() || operation > static_cast<std::uint64_t>(StoreOperation::count))
    return std::nullopt;
  return request;
}

std::optional<StoreAnswer> decode_answer(std::string_view bytes) {
  StoreReader reader(bytes);
  StoreAnswer answer;
  const std::uint64_t status = reader.number(1);
  answer.status = static_cast<StoreStatus>(status);
  answer.number = static_cast<std::int64_t>(reader.number(8));
  answer.value = reader.text();
  if (!reader.complete() || status > static_cast<std::uint64_t>(StoreStatus::failed)) return std::nullopt;
  return answer;
}

}  // namespace starling::fabric::network
