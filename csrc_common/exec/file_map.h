// A file mapped read-only at a 2 MiB-aligned address, whose parts can move to huge pages while others read them.
//
// The alignment lets newer systems (large folios: Linux 6.16 for ext4, 5.18 for XFS) map whole huge pages of the page cache.
// Older ones map small pages: a kernel that streams through a gigabyte of them misses the TLB all the time, and in a virtual
// machine pays for each miss twice. `settle` copies a part to memory of its own on huge pages and puts that where the part was
// (mremap replaces a mapping in one go: a thread that reads meanwhile waits, then finds the same bytes at the same address).
// The file must not be changed or cut while it is mapped.
#pragma once
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

namespace octavo {

class FileMap {
 public:
  static constexpr int64_t kHuge = 2 << 20;

  FileMap(int fd, int64_t bytes) : bytes_(bytes), reserved_(bytes + kHuge) {
    if (bytes <= 0) throw std::invalid_argument("file map: asked for " + std::to_string(bytes) + " bytes; 1 is the least");
    base_ = mmap(nullptr, reserved_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base_ == MAP_FAILED) throw std::runtime_error("file map: the system refused " + std::to_string(bytes) + " bytes");
    start_ = aligned(base_);
    if (mmap(start_, bytes_, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED) {
      munmap(base_, reserved_);
      throw std::runtime_error("file map: the system does not map this file");
    }
  }
  ~FileMap() { munmap(base_, reserved_); }
  FileMap(const FileMap&) = delete;
  FileMap& operator=(const FileMap&) = delete;

  const uint8_t* start() const { return start_; }
  int64_t bytes() const { return bytes_; }

  // Moves the whole huge pages of [at, at + bytes) that lie inside the file; `at` is a multiple of kHuge. Returns the bytes
  // moved: 0 at the end of the file, or when the system gives no memory.
  int64_t settle(int64_t at, int64_t bytes) {
    if (at < 0 || at % kHuge != 0) throw std::invalid_argument("file map: parts begin at multiples of 2 MiB");
    if (bytes > bytes_ - at) bytes = bytes_ - at;
    bytes = bytes > 0 ? bytes / kHuge * kHuge : 0;
    if (bytes == 0) return 0;
    void* base = mmap(nullptr, bytes + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return 0;
    uint8_t* copy = aligned(base);
    madvise(copy, bytes, MADV_HUGEPAGE);
    std::memcpy(copy, start_ + at, bytes);
    const bool is_moved = mprotect(copy, bytes, PROT_READ) == 0 &&
                          mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, start_ + at) != MAP_FAILED;
    munmap(base, bytes + kHuge);  // what is left around the part, or all of it
    return is_moved ? bytes : 0;
  }

 private:
  static uint8_t* aligned(void* base) {
    return reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(base) + kHuge - 1) / kHuge * kHuge);
  }

  int64_t bytes_, reserved_;
  void* base_ = nullptr;
  uint8_t* start_ = nullptr;
};

}  // namespace octavo
