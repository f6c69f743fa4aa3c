// The transforms of the Winograd convolution for a vector type; winograd.h contains the matrices. The including file
// defines `Words` (16-bit lanes), `Integers` (32-bit lanes) and the functions of both.

// B^T d along one axis.
inline __attribute__((always_inline)) void transform_patch(Words* d) {
  const Words a = d[0], b = d[1], c = d[2], e = d[3], f = d[4], g = d[5];
  const Words outer = subtract(f, shifted<2>(c)), inner = subtract(e, shifted<2>(b));
  const Words even = subtract(f, c), odd = shifted<1>(subtract(e, b));
  d[0] = subtract(add(shifted<2>(a), f), add(shifted<2>(c), c));
  d[1] = add(outer, inner);
  d[2] = subtract(outer, inner);
  d[3] = add(even, odd);
  d[4] = subtract(even, odd);
  d[5] = subtract(add(shifted<2>(b), g), add(shifted<2>(e), e));
}

// A^T diag(6, 4, 4, 1, 1, 24) m along one axis, modulo 2^32.
inline __attribute__((always_inline)) void transform_products(const Integers* m, Integers* y) {
  const Integers first = add(shifted<2>(m[0]), shifted<1>(m[0]));
  const Integers last = add(shifted<4>(m[5]), shifted<3>(m[5]));
  const Integers p = shifted<2>(add(m[1], m[2])), q = shifted<2>(subtract(m[1], m[2]));
  const Integers r = add(m[3], m[4]), s = subtract(m[3], m[4]);
  y[0] = add(add(first, p), r);
  y[1] = add(q, shifted<1>(s));
  y[2] = add(p, shifted<2>(r));
  y[3] = add(add(q, shifted<3>(s)), last);
}

void transform_input(const InputTask& task) {
  for (int channel = 0; channel < task.channels; channel += kWords) {
    const int count = task.channels - channel < kWords ? task.channels - channel : kWords;
    Words d[kPatch][kPatch];
    for (int i = 0; i < kPatch; ++i) {
      for (int j = 0; j < kPatch; ++j) d[i][j] = load_bytes(task.pixels[i * kPatch + j] + channel, count);
      transform_patch(d[i]);
    }
    for (int j = 0; j < kPatch; ++j) {
      Words column[kPatch];
      for (int i = 0; i < kPatch; ++i) column[i] = d[i][j];
      transform_patch(column);
      for (int i = 0; i < kPatch; ++i) store(task.v + (i * kPatch + j) * task.stride + channel, column[i]);
    }
  }
}

void transform_output(const OutputTask& task) {
  const int columns = task.vectors * kLanes;
  for (int column = 0; column < columns; column += kLanes) {
    Integers half[kPatch][kTile];
    for (int i = 0; i < kPatch; ++i) {
      Integers m[kPatch];
      for (int j = 0; j < kPatch; ++j) m[j] = load(task.m + (i * kPatch + j) * task.stride + column);
      transform_products(m, half[i]);
    }
    const Integers bias = load(task.bias + column);
    for (int x = 0; x < kTile; ++x) {
      Integers m[kPatch], y[kTile];
      for (int i = 0; i < kPatch; ++i) m[i] = half[i][x];
      transform_products(m, y);
      for (int i = 0; i < kTile; ++i) store(task.sums + (i * kTile + x) * columns + column, add(divided(y[i]), bias));
    }
  }
}
