// Memory of a module: zeroed pages that cost nothing until they are used.
#pragma once
#include <sys/mman.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace octavo {

// Zeroed pages, 2 MiB-aligned where that is worth it; touched only when used, given back when the object dies.
class Arena {
 public:
  explicit Arena(int64_t bytes) : bytes_(bytes) {
    constexpr int64_t kHuge = 2 << 20;
    constexpr int64_t kMost = int64_t{1} << 47;  // all addresses there are
    if (bytes <= 0 || bytes > kMost)
      throw std::invalid_argument("arena: asked for " + std::to_string(bytes) + " bytes; allowed are 1 to " + std::to_string(kMost));
    mapped_ = bytes + kHuge;
    base_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base_ == MAP_FAILED) throw std::runtime_error("arena: the system refused " + std::to_string(bytes) + " bytes");
    const auto at = reinterpret_cast<uintptr_t>(base_);
    start_ = reinterpret_cast<uint8_t*>((at + kHuge - 1) / kHuge * kHuge);
    if (bytes >= kHuge) madvise(start_, bytes, MADV_HUGEPAGE);
  }
  ~Arena() { munmap(base_, mapped_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  uint8_t* start() const { return start_; }
  int64_t bytes() const { return bytes_; }

 private:
  void* base_ = nullptr;
  uint8_t* start_ = nullptr;
  int64_t bytes_;
  int64_t mapped_ = 0;
};

}  // namespace octavo
