#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The protocol between a store and its clients: first both prove that they know the job's token, without
// revealing it; then the client sends requests and the store answers them, one at a time.

namespace starling::fabric::network {

/// The store sends kStoreGreeting and a nonce; the client answers with a nonce and its proof; the store
/// replies with one byte, kAccepted or kRefused, and its own proof.
inline constexpr std::string_view kStoreGreeting = "starling-store/1";
inline constexpr std::size_t kNonce = 32;
inline constexpr std::size_t kProof = 32;
inline constexpr char kAccepted = 'w';
inline constexpr char kRefused = 'r';

/// Throws InvalidArgument if the token is so short that it could be guessed.
inline constexpr std::size_t kShortestToken = 16;
void check_token(std::string_view token);

std::string random_nonce();

/// A proof of knowing the token. It covers both nonces, so that it cannot be replayed, and the role, so that
/// it cannot be reflected.
std::string proof_of(std::string_view token, std::string_view role, std::string_view store_nonce,
                     std::string_view client_nonce);
inline constexpr std::string_view kClientRole = "client of the store";
inline constexpr std::string_view kStoreRole = "the store itself";

enum class StoreOperation : std::uint8_t { set, get, wait, add, compare_set, check, remove, count };

inline constexpr std::size_t kMostKeys = 1 << 16;  // per request

struct StoreRequest {
  StoreOperation operation = StoreOperation::count;
  std::chrono::milliseconds timeout{0};  // of get and wait
  std::int64_t number = 0;               // of add
  std::vector<std::string> keys{};
  std::vector<std::string> values{};
};

enum class StoreStatus : std::uint8_t { done, timed_out, failed };

struct StoreAnswer {
  StoreStatus status = StoreStatus::done;
  std::int64_t number = 0;
  std::string value;  // or the reason of a failure
};

/// Encodes with the length in front, see read_length.
std::string encode(const StoreRequest& request);
std::string encode(const StoreAnswer& answer);

/// The length of the message that follows, from its first kLength bytes.
inline constexpr std::size_t kLength = 4;
std::size_t read_length(std::string_view bytes);

/// Decodes a message without its length; empty if it is malformed.
std::optional<StoreRequest> decode_request(std::string_view bytes);
std::optional<StoreAnswer> decode_answer(std::string_view bytes);

}  // namespace starling::fabric::network
