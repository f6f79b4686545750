#include "starling/kernel/cuda/folds.cuh"
#include "starling/kernel/cuda/kernels.h"
#include "starling/kernel/cuda/tables.cuh"
#include "starling/kernel/sum_plan.h"

// Codecs whose messages hold all elements in order (codec/chunked.h): first the headers of all chunks, then
// the elements, each part padded to a multiple of 8 bytes.

namespace starling::kernel::cuda {
namespace {

using Kind = DeviceCode::Kind;

/// The chunk that the calling thread block works on.
template <typename T>
struct Chunk {
  __device__ __forceinline__ Chunk(const T* all, std::size_t total, std::size_t chunk)
      : first(blockIdx.x * chunk),
        count(first + chunk < total ? chunk : total - first),
        last(first + count == total),
        in(all + first) {}

  /// The number of elements from `i` on, at most `most`.
  __device__ __forceinline__ unsigned left(std::size_t i, unsigned most) const {
    return i >= count ? 0 : i + most <= count ? most : static_cast<unsigned>(count - i);
  }

  std::size_t first;
  std::size_t count;
  bool last;
  const T* in;
};

// Stores a header of four bytes; an odd number of headers is followed by four empty bytes.
template <typename T>
__device__ __forceinline__ void put_header(float* headers, const Chunk<T>& chunk, float header) {
  headers[blockIdx.x] = header;
  if (chunk.last && blockIdx.x % 2 == 0) headers[blockIdx.x + 1] = 0;
}

template <typename T>
__global__ void __launch_bounds__(kBlock)
    encode_uint8_kernel(const T* in, std::size_t count, std::size_t chunk_size, ValueRange* headers,
                        std::uint8_t* payload) {
  const Chunk<T> chunk(in, count, chunk_size);
  const ValueRange range = block_range(chunk.in, chunk.count);
  const Uint8Steps steps(range);
  const bool has_codes = rules::has_uint8_codes(range, steps);
  each_thread([&] {
    if (threadIdx.x == 0) headers[blockIdx.x] = range;
    for (std::size_t i = 8 * threadIdx.x; i < chunk.count; i += 8 * kBlock) {
      std::uint8_t codes[8] = {};
      const unsigned n = chunk.left(i, 8);
#pragma unroll
      for (unsigned k = 0; k < 8; ++k)
        if (k < n)
          codes[k] =
              has_codes ? rules::uint8_code(steps, rules::narrowed(chunk.in[i + k])) : std::uint8_t{255};
      uint2 word;
      memcpy(&word, codes, sizeof word);
      *reinterpret_cast<uint2*>(payload + chunk.first + i) = word;
    }
  });
}

// The signs of `n` elements, at most eight.
template <typename T>
__device__ __forceinline__ std::uint8_t signs_of(const T* in, unsigned n) {
  unsigned bits = 0;
#pragma unroll
  for (unsigned k = 0; k < 8; ++k)
    if (k < n && rules::narrowed(in[k]) < 0) bits |= 1U << k;
  return static_cast<std::uint8_t>(bits);
}

constexpr std::size_t sign_bytes(std::size_t count) {
  return (count + 63) / 64 * 8;
}

template <typename T>
__global__ void __launch_bounds__(kBlock)
    encode_sign_kernel(const T* in, std::size_t count, std::size_t chunk_size, float* headers,
                       std::uint8_t* payload) {
  const Chunk<T> chunk(in, count, chunk_size);
  const float scale = rules::sign_scale(block_magnitudes(chunk.in, chunk.count), chunk.count);
  each_thread([&] {
    if (threadIdx.x == 0) put_header(headers, chunk, scale);
    for (std::size_t byte = threadIdx.x; byte < sign_bytes(chunk.count); byte += kBlock)
      payload[chunk.first / 8 + byte] = signs_of(chunk.in + 8 * byte, chunk.left(8 * byte, 8));
  });
}

template <typename T>
__global__ void __launch_bounds__(kBlock)
    encode_vote_kernel(const T* in, std::size_t count, std::uint8_t* message) {
  const std::size_t byte = static_cast<std::size_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (byte >= sign_bytes(count)) return;
  const std::size_t i = 8 * byte;
  const unsigned n = i >= count ? 0 : i + 8 <= count ? 8 : static_cast<unsigned>(count - i);
  message[byte] = signs_of(in + i, n);
}

// The word with bits 64 * word .. of a row of codes of `bits` bits.
__device__ __forceinline__ std::uint64_t packed_word(const std::int16_t* codes, unsigned bits,
                                                     unsigned word) {
  const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
  const unsigned begin = 64 * word;
  std::uint64_t packed = 0;
  for (unsigned e = begin / bits; e * bits < begin + 64; ++e) {
    const std::uint64_t code = static_cast<std::uint64_t>(codes[e]) & mask;
    packed |= e * bits < begin ? code >> (begin - e * bits) : code << (e * bits - begin);
  }
  return packed;
}

// The code of element i.
__device__ __forceinline__ std::int16_t unpacked_code(const std::uint64_t* words, unsigned bits,
                                                      std::size_t i) {
  const std::size_t begin = i * bits, word = begin / 64;
  const auto shift = static_cast<unsigned>(begin % 64);
  std::uint64_t code = words[word] >> shift;
  if (shift + bits > 64) code |= words[word + 1] << (64 - shift);
  return static_cast<std::int16_t>(static_cast<std::int64_t>(code << (64 - bits)) >> (64 - bits));
}

template <typename T>
__global__ void __launch_bounds__(kBlock)
    encode_levels_kernel(const T* in, std::size_t count, std::size_t chunk_size, int levels,
                         std::uint64_t draws, float* headers, std::uint64_t* payload) {
  constexpr unsigned kTile = 4 * kBlock;  // elements that random numbers are drawn for at a time
  __shared__ std::int16_t codes[kTile];
  const Chunk<T> chunk(in, count, chunk_size);
  const unsigned bits = rules::level_bits(levels);
  const rules::LevelScale scale = rules::level_scale(block_squares(chunk.in, chunk.count), levels);
  for (std::size_t tile = 0; tile < chunk.count; tile += kTile) {
    each_thread([&] {
      if (threadIdx.x == 0 && tile == 0) put_header(headers, chunk, scale.norm);
      const unsigned group = threadIdx.x / 16, pair = threadIdx.x % 16;
      const auto random = random_four(draws, (chunk.first + tile) / 64 + group, pair);
#pragma unroll
      for (unsigned k = 0; k < 4; ++k) {
        const unsigned e = 64 * group + 2 * pair + k % 2 + k / 2 * 32;
        const bool is_there = scale.factor != 0 && chunk.left(tile + e, 1) > 0;
        codes[e] =
            is_there ? rules::level_code(rules::narrowed(chunk.in[tile + e]), random[k], scale.factor, levels)
                     : std::int16_t{0};
      }
    });
    each_thread([&] {
      const unsigned words = (chunk.left(tile, kTile) * bits + 63) / 64;
      for (unsigned word = threadIdx.x; word < words; word += kBlock)
        payload[(chunk.first + tile) / 64 * bits + word] = packed_word(codes, bits, word);
    });
  }
}

template <typename E, typename T>
__device__ __forceinline__ E encoded(T x) {
  if constexpr (std::is_same_v<E, T>)
    return x;
  else
    return element_of<E>(rules::narrowed(x));
}

/// Copies elements, rounded to E, and clears the padding after them (up to 8 bytes).
template <typename T, typename E>
__global__ void __launch_bounds__(kBlock) encode_elements_kernel(const T* in, std::size_t count, E* message) {
  constexpr std::size_t kOfWord = 8 / sizeof(E);
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (i < count)
    message[i] = encoded<E>(in[i]);
  else if (i < (count + kOfWord - 1) / kOfWord * kOfWord)
    message[i] = element_of<E>(0);
}

// The decoders: prepare() reads what a chunk's elements share, value() decodes one element.

struct Uint8Decoder {
  using Value = float;
  const ValueRange* headers;
  const std::uint8_t* payload;
  __device__ __forceinline__ Uint8Steps prepare(std::size_t chunk) const {
    return Uint8Steps(headers[chunk]);
  }
  __device__ __forceinline__ float value(const Uint8Steps& steps, std::size_t i) const {
    return rules::uint8_value(steps, payload[i]);
  }
};

struct SignDecoder {
  using Value = float;
  const float* headers;  // null: the scale is 1
  const std::uint8_t* payload;
  __device__ __forceinline__ float prepare(std::size_t chunk) const {
    return headers != nullptr ? headers[chunk] : 1.0F;
  }
  __device__ __forceinline__ float value(float scale, std::size_t i) const {
    return (payload[i / 8] >> (i % 8) & 1) == 0 ? scale : -scale;
  }
};

struct LevelDecoder {
  using Value = float;
  const float* headers;
  const std::uint64_t* payload;
  int levels;
  unsigned bits;
  __device__ __forceinline__ float prepare(std::size_t chunk) const { return headers[chunk]; }
  __device__ __forceinline__ float value(float norm, std::size_t i) const {
    return rules::level_value(norm, levels, unpacked_code(payload, bits, i));
  }
};

template <typename E>
struct ElementDecoder {
  using Value = Computed<E>;
  const E* elements;
  __device__ __forceinline__ int prepare(std::size_t) const { return 0; }
  __device__ __forceinline__ Value value(int, std::size_t i) const { return number_of(elements[i]); }
};

/// The sum of two terms that decoding adds up.
template <typename T>
struct Adding {
  SumForm form;
  T own;
  T weight;
};

// Several thread blocks work on each chunk.
inline constexpr std::size_t kOfDecodeBlock = 8 * kBlock;

template <typename T, bool kAdds, typename Decoder>
__global__ void __launch_bounds__(kBlock)
    decode_kernel(const __grid_constant__ Decoder decoder, T* out, std::size_t count, std::size_t chunk,
                  unsigned blocks_of_chunk, const __grid_constant__ Adding<T> adding) {
  const unsigned number = blockIdx.x / blocks_of_chunk;
  const std::size_t first = number * chunk;
  const std::size_t end = first + chunk < count ? first + chunk : count;
  const std::size_t begin = first + blockIdx.x % blocks_of_chunk * kOfDecodeBlock;
  const auto prepared = decoder.prepare(number);
#pragma unroll
  for (unsigned k = 0; k < kOfDecodeBlock / kBlock; ++k) {
    const std::size_t i = begin + k * kBlock + threadIdx.x;
    if (i >= end) return;
    const auto value = static_cast<T>(decoder.value(prepared, i));
    if constexpr (kAdds) {
      RunningSum<T> sum(adding.form, adding.own, out[i]);
      sum.add(adding.weight, value);
      out[i] = sum.result(2);
    } else {
      out[i] = value;
    }
  }
}

template <typename T, typename Decoder>
void decode_with(const OnDevice& here, const Decoder& decoder, std::size_t chunk, const double* weight,
                 T* out, std::size_t count) {
  const auto blocks_of_chunk =
      static_cast<unsigned>((std::min(chunk, count) + kOfDecodeBlock - 1) / kOfDecodeBlock);
  const auto blocks = static_cast<unsigned>((count + chunk - 1) / chunk * blocks_of_chunk);
  Adding<T> adding{};
  if (weight != nullptr) {
    GivenSum given{};
    given.count = 2;
    given.dtype = dtype_of<T>;
    given.weight[0] = 1;
    given.weight[1] = *weight;
    PlannedSum<T> plan{};
    plan_sum(given, 0, plan);
    adding = {plan.form, plan.weight[0], plan.weight[1]};
  }
  const auto kernel =
      weight != nullptr ? &decode_kernel<T, true, Decoder> : &decode_kernel<T, false, Decoder>;
  here.launch(kernel, blocks, decoder, out, count, chunk, blocks_of_chunk, adding);
}

constexpr std::size_t in_words(std::size_t bytes) {
  return (bytes + 7) / 8 * 8;
}
template <typename T, typename E>
void encode_elements(const OnDevice& here, const T* in, std::size_t count, void* message) {
  const std::size_t elements = in_words(count * sizeof(E)) / sizeof(E);
  here.launch(encode_elements_kernel<T, E>, blocks_for(elements), in, count, static_cast<E*>(message));
}

template <typename T>
void encode_as(const OnDevice& here, const DeviceCode& code, const T* in, std::size_t count,
               std::uint64_t draws, void* message) {
  const std::size_t chunks = code.chunk > 0 ? (count + code.chunk - 1) / code.chunk : 0;
  const auto blocks = static_cast<unsigned>(chunks);
  auto* bytes = static_cast<std::uint8_t*>(message);
  std::uint8_t* after_floats = bytes + in_words(chunks * sizeof(float));
  switch (code.kind) {
    case Kind::identity:
      return encode_elements<T, T>(here, in, count, message);
    case Kind::float16:
      return encode_elements<T, Half>(here, in, count, message);
    case Kind::bfloat16:
      return encode_elements<T, BFloat16>(here, in, count, message);
    case Kind::uint8:
      return here.launch(encode_uint8_kernel<T>, blocks, in, count, code.chunk,
                         static_cast<ValueRange*>(message), bytes + chunks * sizeof(ValueRange));
    case Kind::sign:
      return here.launch(encode_sign_kernel<T>, blocks, in, count, code.chunk, static_cast<float*>(message),
                         after_floats);
    case Kind::vote:
      return here.launch(encode_vote_kernel<T>, blocks_for(sign_bytes(count)), in, count, bytes);
    case Kind::qsgd:
      return here.launch(encode_levels_kernel<T>, blocks, in, count, code.chunk, code.levels, draws,
                         static_cast<float*>(message), reinterpret_cast<std::uint64_t*>(after_floats));
    case Kind::top_k:
    case Kind::random_k:
      return;
  }
}

template <typename T>
void decode_as(const OnDevice& here, const DeviceCode& code, const void* message, const double* weight,
               T* out, std::size_t count) {
  const auto* bytes = static_cast<const std::uint8_t*>(message);
  const std::size_t chunks = code.chunk > 0 ? (count + code.chunk - 1) / code.chunk : 0;
  const std::uint8_t* after_floats = bytes + in_words(chunks * sizeof(float));
  const auto* floats = static_cast<const float*>(message);
  const auto decode = [&](const auto& decoder, std::size_t chunk) {
    decode_with(here, decoder, chunk, weight, out, count);
  };
  constexpr std::size_t kPiece = kOfDecodeBlock;  // elements per piece, which do not depend on each other
  switch (code.kind) {
    case Kind::identity:
      return decode(ElementDecoder<T>{static_cast<const T*>(message)}, kPiece);
    case Kind::float16:
      return decode(ElementDecoder<Half>{static_cast<const Half*>(message)}, kPiece);
    case Kind::bfloat16:
      return decode(ElementDecoder<BFloat16>{static_cast<const BFloat16*>(message)}, kPiece);
    case Kind::uint8:
      return decode(
          Uint8Decoder{static_cast<const ValueRange*>(message), bytes + chunks * sizeof(ValueRange)},
          code.chunk);
    case Kind::sign:
      return decode(SignDecoder{floats, after_floats}, code.chunk);
    case Kind::vote:
      return decode(SignDecoder{nullptr, bytes}, kPiece);
    case Kind::qsgd:
      return decode(LevelDecoder{floats, reinterpret_cast<const std::uint64_t*>(after_floats), code.levels,
                                 rules::level_bits(code.levels)},
                    code.chunk);
    case Kind::top_k:
    case Kind::random_k:
      return;
  }
}

template <typename T, typename Decoder>
void load_decoder() {
  load(decode_kernel<T, true, Decoder>);
  load(decode_kernel<T, false, Decoder>);
}

}  // namespace

void encode(const OnDevice& here, const DeviceCode& code, DType dtype, const void* in, std::size_t count,
            std::uint64_t draws, void* message) {
  as_parameters(
      dtype, [&]<typename T>(T) { encode_as(here, code, static_cast<const T*>(in), count, draws, message); });
}

void decode(const OnDevice& here, const DeviceCode& code, const void* message, const double* weight,
            DType dtype, void* out, std::size_t count) {
  as_parameters(dtype,
                [&]<typename T>(T) { decode_as(here, code, message, weight, static_cast<T*>(out), count); });
}

void load_code_kernels() {
  for (const DType dtype : {DType::float64, DType::float32})
    as_parameters(dtype, []<typename T>(T) {
      load(encode_elements_kernel<T, T>);
      load(encode_elements_kernel<T, Half>);
      load(encode_elements_kernel<T, BFloat16>);
      load(encode_uint8_kernel<T>);
      load(encode_sign_kernel<T>);
      load(encode_vote_kernel<T>);
      load(encode_levels_kernel<T>);
      load_decoder<T, ElementDecoder<T>>();
      load_decoder<T, ElementDecoder<Half>>();
      load_decoder<T, ElementDecoder<BFloat16>>();
      load_decoder<T, Uint8Decoder>();
      load_decoder<T, SignDecoder>();
      load_decoder<T, LevelDecoder>();
    });
}

}  // namespace starling::kernel::cuda
