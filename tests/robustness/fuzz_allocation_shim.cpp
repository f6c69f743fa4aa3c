// Preloaded into a Python process: makes the n-th allocation of chosen modules fail. Allocations are counted by the
// address of their caller, so that only those of the engine and of the C++ library on its behalf fail.
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);
}

namespace {

constexpr int kMostRanges = 16;
std::uintptr_t starts[kMostRanges], ends[kMostRanges];
int ranges = 0;
std::atomic<bool> is_armed{false};
std::atomic<long> count{0}, failing{0}, failed{0};

bool must_fail(const void* caller) {
  if (!is_armed.load(std::memory_order_relaxed)) return false;
  const auto address = reinterpret_cast<std::uintptr_t>(caller);
  for (int index = 0; index < ranges; ++index) {
    if (address < starts[index] || address >= ends[index]) continue;
    if (++count != failing) return false;
    ++failed;
    return true;
  }
  return false;
}

void* make(std::size_t size, std::size_t alignment, const void* caller) {
  void* memory = nullptr;
  if (!must_fail(caller)) memory = alignment == 0 ? __libc_malloc(size ? size : 1) : __libc_memalign(alignment, size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

#define CALLER __builtin_return_address(0)

extern "C" {

void shim_add_range(std::uintptr_t start, std::uintptr_t end) {
  if (ranges == kMostRanges) __builtin_trap();
  starts[ranges] = start;
  ends[ranges++] = end;
}

// Lets the allocation number `number` fail, counted from now on; 0 lets none fail and counts.
void shim_arm(long number) {
  count = 0;
  failed = 0;
  failing = number;
  is_armed = true;
}

// Returns the number of allocations since shim_arm(). `was_failing` is set to the number of those that failed.
long shim_disarm(long* was_failing) {
  is_armed = false;
  *was_failing = failed;
  return count;
}

void* malloc(std::size_t size) {
  if (must_fail(CALLER)) return errno = ENOMEM, nullptr;
  return __libc_malloc(size);
}
void* calloc(std::size_t number, std::size_t size) {
  if (must_fail(CALLER)) return errno = ENOMEM, nullptr;
  return __libc_calloc(number, size);
}
void* realloc(void* memory, std::size_t size) {
  if (must_fail(CALLER)) return errno = ENOMEM, nullptr;
  return __libc_realloc(memory, size);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
  if (must_fail(CALLER)) return ENOMEM;
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  if (must_fail(CALLER)) return errno = ENOMEM, nullptr;
  return __libc_memalign(alignment, size);
}
}

void* operator new(std::size_t size) { return make(size, 0, CALLER); }
void* operator new[](std::size_t size) { return make(size, 0, CALLER); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return make(size, static_cast<std::size_t>(alignment), CALLER);
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return make(size, static_cast<std::size_t>(alignment), CALLER);
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return must_fail(CALLER) ? nullptr : __libc_malloc(size ? size : 1);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return must_fail(CALLER) ? nullptr : __libc_malloc(size ? size : 1);
}
void operator delete(void* memory) noexcept { __libc_free(memory); }
void operator delete[](void* memory) noexcept { __libc_free(memory); }
void operator delete(void* memory, std::size_t) noexcept { __libc_free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { __libc_free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { __libc_free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { __libc_free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { __libc_free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { __libc_free(memory); }
