#include "starling/base/sha256.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace starling {
namespace {

std::vector<std::uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

// The examples of FIPS 180-4 and of NIST's validation suite.
TEST(Sha256Test, KnownAnswers) {
  EXPECT_EQ(sha256({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256(bytes_of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(bytes_of("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                            "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu")),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(sha256(std::vector<std::uint8_t>{0xbd}),
            "68325720aabd7c82f30f554b313d0570c95accbb7dc4b5aae11204c08ffe732b");
  EXPECT_EQ(sha256(std::vector<std::uint8_t>(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// NIST's examples of zeros around the places where the padding takes another block.
TEST(Sha256Test, PaddingAroundTheEndOfABlock) {
  const std::vector<std::uint8_t> zeros(64, 0);
  EXPECT_EQ(sha256(std::span(zeros).first(55)),
            "02779466cdec163811d078815c633f21901413081449002f24aa3e80f0b88ef7");
  EXPECT_EQ(sha256(std::span(zeros).first(56)),
            "d4817aa5497628e7c77e6b606107042bbba3130888c5f47a375e6179be789fbb");
  EXPECT_EQ(sha256(std::span(zeros).first(57)),
            "65a16cb7861335d5ace3c60718b5052e44660726da4cd13bb745381b235a1785");
  EXPECT_EQ(sha256(zeros), "f5a5fd42d16a20302798ef6ed309979b43003d2320d9f0e8ea9831a92759fb4b");
}

TEST(Sha256Test, PiecesDoNotMatter) {
  std::vector<std::uint8_t> bytes(1000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 7 + i / 64);
  const std::string whole = sha256(bytes);
  for (const std::size_t piece : {1u, 3u, 63u, 64u, 65u, 127u, 999u}) {
    Sha256 digest;
    for (std::size_t begin = 0; begin < bytes.size(); begin += piece)
      digest.update(std::span(bytes).subspan(begin, std::min(piece, bytes.size() - begin)));
    EXPECT_EQ(digest.finish(), whole) << piece;
  }
}

}  // namespace
}  // namespace starling
