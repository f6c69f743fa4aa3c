// Products of transformed patches and weights with registers of pairs. The including file defines `Register`,
// `add_pairs`, `kVectors`, `largest_rows` and the loads and stores.

constexpr std::ptrdiff_t kLine = 32;  // elements of a cache line

// Two lines of weights at `ahead` elements after the current ones are prefetched per step.
template <int Rows, int Vectors>
void multiply_tile(const std::int16_t* v, std::ptrdiff_t pitch, const std::int16_t* u, std::ptrdiff_t ahead, int pairs,
                   std::int32_t* m, std::ptrdiff_t m_pitch) {
  constexpr std::ptrdiff_t kStep = 2 * Vectors * kLanes;
  Register sums[Rows][Vectors];
  const std::int16_t* end[Rows];
  unroll<Rows>(UNROLLED(row) {
    end[row.value] = v + row.value * pitch + 2 * std::ptrdiff_t{pairs};
    unroll<Vectors>(UNROLLED(i) { sums[row.value][i.value] = zero(); });
  });
  for (std::ptrdiff_t at = -2 * std::ptrdiff_t{pairs}; at != 0; at += 2, u += kStep) {
    Register weights[Vectors];
    __builtin_prefetch(u + ahead, 0, 2);
    if constexpr (kStep > kLine) __builtin_prefetch(u + ahead + kLine, 0, 2);
    unroll<Vectors>(UNROLLED(i) { weights[i.value] = load_weights(u + 2 * kLanes * i.value); });
    unroll<Rows>(UNROLLED(row) {
      const Register x = broadcast(end[row.value] + at);
      unroll<Vectors>(UNROLLED(i) { add_pairs(sums[row.value][i.value], x, weights[i.value]); });
    });
  }
  unroll<Rows>(UNROLLED(row) {
    unroll<Vectors>(UNROLLED(i) { store_sums(m + row.value * m_pitch + kLanes * i.value, sums[row.value][i.value]); });
  });
}

template <int Vectors, int Rows>
void multiply_rows(int rows, const ProductTask& task, int tile, std::ptrdiff_t ahead) {
  if constexpr (Rows > 1) {
    if (rows < Rows) return multiply_rows<Vectors, Rows - 1>(rows, task, tile, ahead);
  }
  multiply_tile<Rows, Vectors>(task.v + tile * task.v_pitch, task.v_pitch, task.u, ahead, task.pairs,
                               task.m + tile * task.m_pitch, task.m_pitch);
}

template <int Vectors>
void multiply_panel(const ProductTask& task) {
  constexpr int kMost = largest_rows(Vectors);
  // Heights differ by at most one, so that no group has few tiles.
  const int groups = (task.tiles + kMost - 1) / kMost;
  for (int group = 0; group < groups; ++group) {
    const int first = task.tiles * group / groups, last = task.tiles * (group + 1) / groups;
    // The first groups prefetch all lines of the later weights.
    const std::ptrdiff_t offset = 2 * kLine * group;
    const bool prefetches = task.ahead != 0 && offset < std::ptrdiff_t{2} * Vectors * kLanes;
    multiply_rows<Vectors, kMost>(last - first, task, first, prefetches ? task.ahead + offset : 0);
  }
}

template <int Vectors = kVectors>
void multiply_vectors(const ProductTask& task) {
  if constexpr (Vectors > 1) {
    if (task.vectors < Vectors) return multiply_vectors<Vectors - 1>(task);
  }
  multiply_panel<Vectors>(task);
}

void multiply(const ProductTask& task) { multiply_vectors(task); }
