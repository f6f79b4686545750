#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// What travels between a store and its clients: first both prove that they know the job's token, without
// telling it; then a client asks and the store answers, one question at a time.

namespace starling::network {

/// The store greets with kStoreGreeting and a nonce; the client answers with a nonce and its proof; the store
/// with one byte, kWelcome or kRefused, and its proof.
inline constexpr std::string_view kStoreGreeting = "starling-store/1";
inline constexpr std::size_t kNonce = 32;
inline constexpr std::size_t kProof = 32;
inline constexpr char kWelcome = 'w';
inline constexpr char kRefused = 'r';

/// A token that is shorter could be guessed: throws InvalidArgument, which says how long it must be.
inline constexpr std::size_t kShortestToken = 16;
void check_token(std::string_view token);

std::string random_nonce();

/// Only who knows the token can compute it, and nobody can use it again: both nonces are part of it, and so
/// is the role, so that a proof cannot be sent back to where it came from.
std::string proof_of(std::string_view token, std::string_view role, std::string_view store_nonce,
                     std::string_view client_nonce);
inline constexpr std::string_view kClientRole = "client of the store";
inline constexpr std::string_view kStoreRole = "the store itself";

enum class StoreOperation : std::uint8_t { set, get, wait, add, compare_set, check, remove, count };

inline constexpr std::size_t kMostKeys = 1 << 16;  // of a request

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
  std::string value;  // or why it failed
};

/// With their length in front, as read_length reads it.
std::string encode(const StoreRequest& request);
std::string encode(const StoreAnswer& answer);

/// Of what follows; `bytes` are kLength.
inline constexpr std::size_t kLength = 4;
std::size_t read_length(std::string_view bytes);

/// Nothing when the bytes, without their length, are no such thing.
std::optional<StoreRequest> decode_request(std::string_view bytes);
std::optional<StoreAnswer> decode_answer(std::string_view bytes);

}  // namespace starling::network
