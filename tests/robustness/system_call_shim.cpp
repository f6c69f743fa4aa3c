// Preloaded into a Python process: lets the n-th system call fail that changes or writes below a folder, or kills the
// process there. Reads and calls elsewhere are not counted.
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace {

char folder[PATH_MAX];
std::size_t folder_size = 0;
long count = 0, failing = 0, failed = 0;
int error = 0;  // 0 kills

template <class F>
F next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

bool is_below(const char* path) { return folder_size && path && std::strncmp(path, folder, folder_size) == 0; }

bool is_below(int descriptor) {
  if (!folder_size) return false;
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const auto size = readlink(link, path, sizeof path - 1);
  if (size < 0) return false;
  path[size] = 0;
  return is_below(path);
}

// A relative name is below the folder if the folder that its descriptor names is.
bool is_below(int directory, const char* path) {
  return path && path[0] != '/' && directory != AT_FDCWD ? is_below(directory) : is_below(path);
}

bool must_fail() {
  if (++count != failing) return false;
  ++failed;
  if (!error) kill(getpid(), SIGKILL);
  errno = error;
  return true;
}

}  // namespace

extern "C" {

void shim_arm(const char* below, long number, int with_error) {
  std::snprintf(folder, sizeof folder, "%s", below);
  folder_size = std::strlen(folder);
  count = failed = 0;
  failing = number;
  error = with_error;
}

long shim_disarm(long* has_failed) {
  folder_size = 0;
  if (has_failed) *has_failed = failed;
  return count;
}

#define REPLACED(result, name, parameters, arguments, below)             \
  result name parameters {                                               \
    if ((below) && must_fail()) return static_cast<result>(-1);          \
    static const auto original = next<result(*) parameters>(#name);      \
    return original arguments;                                           \
  }

REPLACED(ssize_t, write, (int fd, const void* data, std::size_t size), (fd, data, size), is_below(fd))
REPLACED(ssize_t, writev, (int fd, const iovec* parts, int many), (fd, parts, many), is_below(fd))
REPLACED(ssize_t, pwrite, (int fd, const void* data, std::size_t size, off_t at), (fd, data, size, at), is_below(fd))
REPLACED(ssize_t, pwrite64, (int fd, const void* data, std::size_t size, off64_t at), (fd, data, size, at), is_below(fd))
REPLACED(int, ftruncate, (int fd, off_t size), (fd, size), is_below(fd))
REPLACED(int, ftruncate64, (int fd, off64_t size), (fd, size), is_below(fd))
REPLACED(int, posix_fallocate, (int fd, off_t at, off_t size), (fd, at, size), is_below(fd))
REPLACED(int, fsync, (int fd), (fd), is_below(fd))
REPLACED(int, fchmod, (int fd, mode_t mode), (fd, mode), is_below(fd))
REPLACED(int, chmod, (const char* path, mode_t mode), (path, mode), is_below(path))
REPLACED(int, mkdir, (const char* path, mode_t mode), (path, mode), is_below(path))
REPLACED(int, mkdirat, (int at, const char* path, mode_t mode), (at, path, mode), is_below(at, path))
REPLACED(int, rename, (const char* from, const char* to), (from, to), is_below(to))
REPLACED(int, renameat, (int at, const char* from, int other, const char* to), (at, from, other, to), is_below(other, to))
REPLACED(int, link, (const char* from, const char* to), (from, to), is_below(to))
REPLACED(int, symlink, (const char* from, const char* to), (from, to), is_below(to))

// The mode is an argument only where a file may be made; reading it from any call is harmless on Linux.
#define OPENING(name)                                                                     \
  int name(const char* path, int flags, ...) {                                            \
    va_list rest;                                                                         \
    va_start(rest, flags);                                                                \
    const auto mode = va_arg(rest, mode_t);                                               \
    va_end(rest);                                                                         \
    if ((flags & (O_CREAT | O_WRONLY | O_RDWR)) && is_below(path) && must_fail()) return -1; \
    static const auto original = next<int (*)(const char*, int, ...)>(#name);             \
    return original(path, flags, mode);                                                   \
  }

OPENING(open)
OPENING(open64)
}
