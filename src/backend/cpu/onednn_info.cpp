#include "backend/cpu/onednn_info.h"

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.hpp>

namespace redline::backend {
namespace {

std::string name_of(dnnl::cpu_isa isa) {
  switch (isa) {
    case dnnl::cpu_isa::sse41:
      return "sse41";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
    // Later releases have more; the value is a set of bits, so they can still be distinguished.
    default:
      return fmt::format("isa {:#x}", static_cast<unsigned>(isa));
  }
}

}  // namespace

OneDnnInfo onednn_info() {
  const dnnl_version_t* version = dnnl_version();
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  const auto has = [isa](dnnl::cpu_isa wanted) {
    return (static_cast<unsigned>(isa) & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
  };
  return {fmt::format("{}.{}.{}", version->major, version->minor, version->patch), name_of(isa),
          has(dnnl::cpu_isa::avx512_core), has(dnnl::cpu_isa::avx512_core_bf16)};
}

}  // namespace redline::backend
