// Memory of a module: zeroed pages that cost nothing until they are used.
#pragma once
#if defined(_WIN32)
#include <windows.h>
#else
#include <sys/mman.h>
#endif

#include <cstdint>
#include <stdexcept>
#include <string>

namespace octavo {

#if defined(_WIN32)

inline void* new_pages(int64_t bytes) { return VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE); }
inline void free_pages(void* base, int64_t) { VirtualFree(base, 0, MEM_RELEASE); }
inline void wish_huge(void*, int64_t) {}

#else

// Null: the system refuses.
inline void* new_pages(int64_t bytes) {
#if defined(MAP_NORESERVE)
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
#else
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
#endif
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  return base == MAP_FAILED ? nullptr : base;
}
inline void free_pages(void* base, int64_t bytes) { munmap(base, bytes); }
inline void wish_huge([[maybe_unused]] void* start, [[maybe_unused]] int64_t bytes) {
#if defined(MADV_HUGEPAGE)
  madvise(start, bytes, MADV_HUGEPAGE);
#endif
}

#endif

// Zeroed pages, 2 MiB-aligned where that is worth it; touched only when used, given back when the object dies.
class Arena {
 public:
  explicit Arena(int64_t bytes) : bytes_(bytes) {
    constexpr int64_t kHuge = 2 << 20;
    constexpr int64_t kMost = int64_t{1} << 47;  // all addresses there are
    if (bytes <= 0 || bytes > kMost)
      throw std::invalid_argument("arena: asked for " + std::to_string(bytes) + " bytes; allowed are 1 to " + std::to_string(kMost));
    mapped_ = bytes + kHuge;
    base_ = new_pages(mapped_);
    if (base_ == nullptr) throw std::runtime_error("arena: the system refused " + std::to_string(bytes) + " bytes");
    const auto at = reinterpret_cast<uintptr_t>(base_);
    start_ = reinterpret_cast<uint8_t*>((at + kHuge - 1) / kHuge * kHuge);
    if (bytes >= kHuge) wish_huge(start_, bytes);
  }
  ~Arena() { free_pages(base_, mapped_); }
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
