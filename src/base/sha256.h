// SHA-256 (FIPS 180-4) and HMAC with it (RFC 2104): to prove knowledge of a secret, and for digests that must
// not collide.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace redline {

class Sha256 {
 public:
  static constexpr std::size_t kBytes = 32, kBlock = 64;

  void update(std::string_view bytes);
  // The digest of everything added, kBytes long. The object cannot be used after it.
  std::string finish();

 private:
  void absorb(const unsigned char* block);

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, kBlock> pending_{};
  std::uint64_t bytes_ = 0;
};

std::string sha256(std::string_view bytes);
std::string hmac_sha256(std::string_view key, std::string_view message);

// Takes the same time no matter where they differ.
bool same_secret(std::string_view a, std::string_view b);

std::string hex(std::string_view bytes);

// From the system's generator. Throws IoError where there is none.
std::string random_bytes(std::size_t count);

}  // namespace redline
