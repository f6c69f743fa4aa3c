/* The interface of native kernels of custom operators: one C function in a shared library.
 *
 * A kernel gets the operands and the memory for the results, all contiguous in C order with the shapes that the
 * operator's infer() gave, and the operator's parameters by name. It returns 0, or another number after writing why
 * into `message`. It may be called by several threads at a time, keeps nothing between calls, and writes nowhere else.
 *
 * Plain C99, no other header of tpuconvert, and no library to link with.
 */
#ifndef TPUCONVERT_CUSTOM_H
#define TPUCONVERT_CUSTOM_H

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef _WIN32
#define TPUCONVERT_KERNEL __declspec(dllexport)
#else
#define TPUCONVERT_KERNEL __attribute__((visibility("default")))
#endif

/* Element types, numbered as in the model file. */
enum {
  TPUCONVERT_ABSENT = 0, /* an optional operand that is not there: no data, no shape */
  TPUCONVERT_FLOAT32 = 1,
  TPUCONVERT_FLOAT16 = 2,
  TPUCONVERT_INT32 = 3,
  TPUCONVERT_UINT32 = 4,
  TPUCONVERT_INT16 = 5,
  TPUCONVERT_UINT16 = 6,
  TPUCONVERT_INT8 = 7,
  TPUCONVERT_UINT8 = 8
};

typedef struct {
  int32_t dtype;
  int32_t rank;
  const int64_t *shape; /* `rank` extents */
  int64_t elements;     /* their product */
  void *data;           /* not to be written to in operands */
} tpuconvert_tensor;

enum {
  TPUCONVERT_NONE = 0,
  TPUCONVERT_INTEGER = 1, /* also booleans, members of enumerations, and data types by their number above */
  TPUCONVERT_REAL = 2,
  TPUCONVERT_TEXT = 3,
  TPUCONVERT_INTEGERS = 4,
  TPUCONVERT_REALS = 5
};

/* One parameter of the operator: the fields of its definition, in their order. */
typedef struct {
  const char *name;
  int32_t kind;
  int64_t integer;
  double real;
  const char *text; /* UTF-8 */
  const int64_t *integers;
  const double *reals;
  int64_t count; /* of `integers` or `reals` */
} tpuconvert_parameter;

typedef int (*tpuconvert_kernel)(const tpuconvert_tensor *operands, int32_t operand_count,
                                 const tpuconvert_tensor *results, int32_t result_count,
                                 const tpuconvert_parameter *parameters, int32_t parameter_count, char *message,
                                 int64_t message_size);

/* The parameter of that name, or NULL. */
static inline const tpuconvert_parameter *tpuconvert_find(const tpuconvert_parameter *parameters, int32_t count,
                                                          const char *name) {
  int32_t i;
  for (i = 0; i < count; ++i)
    if (strcmp(parameters[i].name, name) == 0) return &parameters[i];
  return 0;
}

/* Say why a kernel gives up; for `return tpuconvert_fail(message, message_size, "...")`. */
static inline int tpuconvert_fail(char *message, int64_t message_size, const char *why) {
  if (message_size > 0) {
    strncpy(message, why, (size_t)(message_size - 1));
    message[message_size - 1] = 0;
  }
  return 1;
}

#ifdef __cplusplus
}
#endif

#endif /* TPUCONVERT_CUSTOM_H */
