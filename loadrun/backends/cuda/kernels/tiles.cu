// Parts of `tile.cu`: shared memory in chunks of 16 bytes, copies to it that go on meanwhile, and two
// engines that multiply what lies there: scalar float32, and tensor cores.
//
// Rows of an operand have their inner dimension next to each other: $CH chunks a row and slice. A
// chunk's place is changed with its row, so that the eight rows that are read or written at a time
// lie in different banks.
// Source: PTX ISA 8.7, sections on mma (fragments), ldmatrix and cp.async.
template <class T> struct __align__(16) chunk { T v[16 / sizeof(T)]; };
template <class T, int N> struct __align__(N * sizeof(T)) run { T v[N]; };

template <int CH> __device__ __forceinline__ int swizzle(int row) {
  return CH == 4 ? row >> 1 & 3 : row & 7;
}
template <int CH> __device__ __forceinline__ int place(int row, int c) {
  return row * CH + (c ^ swizzle<CH>(row));
}

#if !defined(EMULATED) && __CUDA_ARCH__ >= 800
#define TENSOR_CORES
__device__ __forceinline__ u32 shared_address(const void *at) {
  return (u32)__cvta_generic_to_shared(at);
}
#endif

// 16 bytes to shared memory, or zeros; there after the wait for its group and a barrier.
__device__ __forceinline__ void copy_chunk(void *to, const void *from, bool valid) {
#if defined(EMULATED)
  emulated_copy(to, from, valid ? 16 : 0, 16);
#elif defined(TENSOR_CORES)
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
#else
  chunk<u32> none = {};
  *reinterpret_cast<chunk<u32> *>(to) = valid ? *reinterpret_cast<const chunk<u32> *>(from) : none;
#endif
}
// The copies since the last call are a group.
__device__ __forceinline__ void end_group() {
#if defined(EMULATED)
  emulated_end_group();
#elif defined(TENSOR_CORES)
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits for all groups of this thread but the last N.
template <int N> __device__ __forceinline__ void wait_groups() {
#if defined(EMULATED)
  emulated_wait_groups(N);
#elif defined(TENSOR_CORES)
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

// Nearest number with 10 bits of fraction, ties away from zero.
__device__ __forceinline__ float as_tf32(float x) {
#ifdef TENSOR_CORES
  u32 rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
  return __int_as_float((int)rounded);
#else
  u32 word = (u32)__float_as_int(x);
  bool finite = (word & 0x7f800000u) != 0x7f800000u;
  return finite ? __int_as_float((int)((word + 0x1000u) & ~0x1fffu)) : x;
#endif
}

// Scalar float32: a warp's threads are 4 by 8, a thread has TM x TN sums, 4 rows and 8 columns apart.
template <int BM, int BN, int CH, int TM, int TN> struct Scalar {
  typedef float Sum;
  static constexpr int ROWS = TM, COLUMNS = TN;
  float sums[TM][TN];
  int m, n;

  __device__ __forceinline__ Scalar(int tid) {
    constexpr int ACROSS = BN / (8 * TN);
    int warp = tid / 32, lane = tid % 32;
    m = warp / ACROSS * (4 * TM) + lane / 8;
    n = warp % ACROSS * (8 * TN) + lane % 8;
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
      for (int j = 0; j < TN; j++) sums[i][j] = 0;
  }
  __device__ __forceinline__ void step(const chunk<u32> *left, const chunk<u32> *right) {
    const chunk<float> *a = reinterpret_cast<const chunk<float> *>(left) + m * CH;
    const chunk<float> *b = reinterpret_cast<const chunk<float> *>(right) + n * CH;
    const int sm = swizzle<CH>(m), sn = swizzle<CH>(n);
#pragma unroll
    for (int c = 0; c < CH; c++) {
      chunk<float> row[TM];
#pragma unroll
      for (int i = 0; i < TM; i++) row[i] = a[4 * i * CH + (c ^ swizzle<CH>(4 * i) ^ sm)];
#pragma unroll
      for (int j = 0; j < TN; j++) {
        chunk<float> column = b[8 * j * CH + (c ^ sn)];
#pragma unroll
        for (int e = 0; e < 4; e++)
#pragma unroll
          for (int i = 0; i < TM; i++) sums[i][j] = fmaf(row[i].v[e], column.v[e], sums[i][j]);
      }
    }
  }
  __device__ __forceinline__ void finish(int, int, int) {}
  __device__ __forceinline__ int row(int i) const { return m + 4 * i; }
  __device__ __forceinline__ int column(int j) const { return n + 8 * j; }
  __device__ __forceinline__ float sum(int i, int j) const { return sums[i][j]; }
};

// Kinds of products: `dot` is what two words of a fragment add to a sum, `instruction` the PTX.
#define TENSOR_INSTRUCTION(TEXT, LETTER)                                                          \
  asm("mma.sync.aligned." TEXT " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
               : "+" LETTER(c[0]), "+" LETTER(c[1]), "+" LETTER(c[2]), "+" LETTER(c[3])           \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

struct Halves {
  typedef float Sum;
  static __device__ __forceinline__ float dot(float sum, u32 a, u32 b) {
    sum = fmaf(from_half((u16)a), from_half((u16)b), sum);
    return fmaf(from_half((u16)(a >> 16)), from_half((u16)(b >> 16)), sum);
  }
  static __device__ __forceinline__ u32 prepared(u32 word) { return word; }
#ifdef TENSOR_CORES
  static __device__ __forceinline__ void instruction(float *c, const u32 *a, const u32 *b) {
    TENSOR_INSTRUCTION("m16n8k16.row.col.f32.f16.f16.f32", "f");
  }
#endif
};
struct Bfloats {
  typedef float Sum;
  static __device__ __forceinline__ float dot(float sum, u32 a, u32 b) {
    sum = fmaf(__int_as_float((int)(a << 16)), __int_as_float((int)(b << 16)), sum);
    return fmaf(__int_as_float((int)(a & 0xffff0000u)), __int_as_float((int)(b & 0xffff0000u)), sum);
  }
  static __device__ __forceinline__ u32 prepared(u32 word) { return word; }
#ifdef TENSOR_CORES
  static __device__ __forceinline__ void instruction(float *c, const u32 *a, const u32 *b) {
    TENSOR_INSTRUCTION("m16n8k16.row.col.f32.bf16.bf16.f32", "f");
  }
#endif
};
// Float32 with 10 bits of fraction.
struct Tf32 {
  typedef float Sum;
  static __device__ __forceinline__ float dot(float sum, u32 a, u32 b) {
    return fmaf(__int_as_float((int)a), __int_as_float((int)b), sum);
  }
  static __device__ __forceinline__ u32 prepared(u32 word) {
    return (u32)__float_as_int(as_tf32(__int_as_float((int)word)));
  }
#ifdef TENSOR_CORES
  static __device__ __forceinline__ void instruction(float *c, const u32 *a, const u32 *b) {
    TENSOR_INSTRUCTION("m16n8k8.row.col.f32.tf32.tf32.f32", "f");
  }
#endif
};
// Bytes of the types A (left) and B (right), with sums modulo 2^32.
template <class T> struct is_signed_byte { static constexpr bool value = false; };
template <> struct is_signed_byte<i8> { static constexpr bool value = true; };
template <class A, class B> struct Bytes {
  typedef int Sum;
  static __device__ __forceinline__ int dot(int sum, u32 a, u32 b) {
    u32 total = (u32)sum;
#pragma unroll
    for (int e = 0; e < 4; e++)
      total += (u32)((int)(A)(u8)(a >> 8 * e) * (int)(B)(u8)(b >> 8 * e));
    return (int)total;
  }
  static __device__ __forceinline__ u32 prepared(u32 word) { return word; }
#ifdef TENSOR_CORES
  static __device__ __forceinline__ void instruction(int *c, const u32 *a, const u32 *b) {
    constexpr bool SA = is_signed_byte<A>::value, SB = is_signed_byte<B>::value;
    if (SA && SB) {
      TENSOR_INSTRUCTION("m16n8k32.row.col.s32.s8.s8.s32", "r");
    } else if (SA) {
      TENSOR_INSTRUCTION("m16n8k32.row.col.s32.s8.u8.s32", "r");
    } else if (SB) {
      TENSOR_INSTRUCTION("m16n8k32.row.col.s32.u8.s8.s32", "r");
    } else {
      TENSOR_INSTRUCTION("m16n8k32.row.col.s32.u8.u8.s32", "r");
    }
  }
#endif
};

// A warp's product of 16 rows and 8 columns, 32 bytes deep. A thread's words are: of the left
// rows g and g + 8 with word t of the first 16 bytes, then of the second; of the right column g the
// same; sums of rows g, g + 8 and columns 2t, 2t + 1, where g = lane / 4, t = lane % 4.
template <class Kind, class Sum>
__device__ __forceinline__ void warp_product(Sum (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#ifdef TENSOR_CORES
  Kind::instruction(c, a, b);
#else
  int lane = (int)threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll 1
  for (int s = 0; s < 4; s++) {
    u64 low = __shfl_sync(0xffffffffu, (u64)a[1] << 32 | a[0], 4 * g + s);
    u64 high = __shfl_sync(0xffffffffu, (u64)a[3] << 32 | a[2], 4 * g + s);
    for (int q = 0; q < 2; q++) {
      u64 right = __shfl_sync(0xffffffffu, (u64)b[1] << 32 | b[0], 4 * (2 * t + q) + s);
      c[q] = Kind::dot(Kind::dot(c[q], (u32)low, (u32)right), (u32)high, (u32)(right >> 32));
      c[2 + q] = Kind::dot(Kind::dot(c[2 + q], (u32)(low >> 32), (u32)right), (u32)(high >> 32),
                           (u32)(right >> 32));
    }
  }
#endif
}
// Four blocks of 8 rows of 16 bytes: lane 8 i + r names row r of block i; word t of row g of each
// block is the thread's.
__device__ __forceinline__ void load_blocks(u32 (&words)[4], const chunk<u32> *at) {
#ifdef TENSOR_CORES
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared_address(at))
               : "memory");
#else
  int lane = (int)threadIdx.x & 31;
  for (int i = 0; i < 4; i++) {
    u64 row = __shfl_sync(0xffffffffu, (u64)at, 8 * i + lane / 4);
    words[i] = reinterpret_cast<const chunk<u32> *>(row)->v[lane % 4];
  }
#endif
}

// Tensor cores: a warp computes WM x WN. LEFT and RIGHT: whether operands still have to be prepared.
// ZX and ZW: zero points of the right and left codes; what they add to the sums is taken off in the
// end, from products with ones.
template <class Kind, int BM, int BN, int CH, int WM, int WN, bool LEFT, bool RIGHT, bool ZX, bool ZW>
struct Tensor {
  typedef typename Kind::Sum Sum;
  static constexpr int MI = WM / 16, NI = WN / 8, ROWS = 2 * MI, COLUMNS = 2 * NI;
  Sum c[MI][NI][4], left[ZX ? MI : 1][4], right[ZW ? NI : 1][4];
  int lane, m, n;

  __device__ __forceinline__ Tensor(int tid) {
    constexpr int ACROSS = BN / WN;
    lane = tid % 32;
    m = tid / 32 / ACROSS * WM;
    n = tid / 32 % ACROSS * WN;
#pragma unroll
    for (int q = 0; q < 4; q++) {
#pragma unroll
      for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < NI; j++) c[i][j][q] = 0;
#pragma unroll
      for (int i = 0; i < (ZX ? MI : 1); i++) left[i][q] = 0;
#pragma unroll
      for (int j = 0; j < (ZW ? NI : 1); j++) right[j][q] = 0;
    }
  }
  __device__ __forceinline__ void step(const chunk<u32> *as, const chunk<u32> *bs) {
    const int ra = lane & 15, rb = (lane >> 4) * 8 + (lane & 7);
    const int sa = swizzle<CH>(ra), sb = swizzle<CH>(rb);
    const chunk<u32> *arow = as + (m + ra) * CH, *brow = bs + (n + rb) * CH;
#pragma unroll
    for (int k = 0; k < CH; k += 2) {
      u32 a[MI][4], b[NI][2];
#pragma unroll
      for (int i = 0; i < MI; i++) {
        load_blocks(a[i], arow + 16 * i * CH + ((k + (lane >> 4)) ^ sa));
#pragma unroll
        for (int q = 0; q < 4; q++)
          if (LEFT) a[i][q] = Kind::prepared(a[i][q]);
      }
#pragma unroll
      for (int j = 0; j < NI; j += 2) {
        u32 two[4];
        load_blocks(two, brow + 8 * j * CH + ((k + (lane >> 3 & 1)) ^ sb));
#pragma unroll
        for (int q = 0; q < 4; q++) b[j + q / 2][q % 2] = RIGHT ? Kind::prepared(two[q]) : two[q];
      }
#pragma unroll
      for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < NI; j++) warp_product<Kind>(c[i][j], a[i], b[j]);
      const u32 one = 0x01010101u, ones[4] = {one, one, one, one}, pair[2] = {one, one};
      if (ZX)
#pragma unroll
        for (int i = 0; i < MI; i++) warp_product<Kind>(left[ZX ? i : 0], a[i], pair);
      if (ZW)
#pragma unroll
        for (int j = 0; j < NI; j++) warp_product<Kind>(right[ZW ? j : 0], ones, b[j]);
    }
  }
  // (x - zx)(w - zw) from sums of x w, w and x over `count` products.
  __device__ __forceinline__ void finish(int zx, int zw, int count) {
    if (!ZX && !ZW) return;
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
      for (int j = 0; j < NI; j++)
#pragma unroll
        for (int q = 0; q < 4; q++) {
          u32 total = (u32)c[i][j][q] + (u32)count * (u32)zx * (u32)zw;
          if (ZX) total -= (u32)zx * (u32)left[ZX ? i : 0][q];
          if (ZW) total -= (u32)zw * (u32)right[ZW ? j : 0][q];
          c[i][j][q] = (Sum)(int)total;
        }
  }
  __device__ __forceinline__ int row(int i) const { return m + i / 2 * 16 + i % 2 * 8 + lane / 4; }
  __device__ __forceinline__ int column(int j) const { return n + j / 2 * 8 + lane % 4 * 2 + j % 2; }
  __device__ __forceinline__ Sum sum(int i, int j) const { return c[i / 2][j / 2][i % 2 * 2 + j % 2]; }
};
