// What CUDA C++ means on the emulated device: threads of a block run one after the other, those of
// kernels with barriers as fibers that switch at barriers and warp exchanges (runtime.cpp).
#pragma once
#include <math.h>
#include <string.h>

#define EMULATED 1
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
// All shared memory of a library lies in one section, so that it can be filled with garbage.
#define __shared__ static __attribute__((section("emulated_shared")))
#define __align__(n) __attribute__((aligned(n)))

struct dim3 { unsigned x, y, z; };
extern "C" dim3 threadIdx, blockIdx, blockDim, gridDim;
extern "C" void emulated_barrier(int kind);
extern "C" void emulated_misaligned(const void *at);
extern "C" unsigned long long emulated_exchange(unsigned long long bits, int lane);
extern "C" char __start_emulated_shared[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_emulated_shared[] __attribute__((weak, visibility("hidden")));

static inline void __syncthreads() { emulated_barrier(1); }
static inline int emulated_lane() { return (int)(threadIdx.x & 31); }

template <class T> static inline T emulated_swap(T value, int lane) {
  unsigned long long bits = 0;
  memcpy(&bits, &value, sizeof(T));
  bits = emulated_exchange(bits, lane);
  memcpy(&value, &bits, sizeof(T));
  return value;
}
template <class T> static inline T __shfl_xor_sync(unsigned, T value, int mask) {
  return emulated_swap(value, emulated_lane() ^ mask);
}
template <class T> static inline T __shfl_sync(unsigned, T value, int lane) {
  return emulated_swap(value, lane & 31);
}
// Copies that go on meanwhile: in even blocks they are made when their group is waited for, in odd
// blocks at once, so that both a missing wait and a buffer that is still read show.
struct emulated_copying { void *to; const void *from; int bytes, size; long long group; };
static struct {
  emulated_copying all[64];
  int count;
  long long group;
} emulated_copies[1024];
static bool emulated_copied;
// A launch that failed may have left some.
static inline void emulated_forget() {
  if (emulated_copied)
    for (auto &own : emulated_copies) own.count = 0;
  emulated_copied = false;
}
static inline void emulated_make(const emulated_copying &c) {
  memcpy(c.to, c.from, (size_t)c.bytes);
  memset((char *)c.to + c.bytes, 0, (size_t)(c.size - c.bytes));
}
static inline void emulated_wait_groups(int last) {
  auto &own = emulated_copies[threadIdx.x];
  int kept = 0;
  for (int i = 0; i < own.count; i++) {
    if (own.all[i].group < own.group - last) emulated_make(own.all[i]);
    else own.all[kept++] = own.all[i];
  }
  own.count = kept;
}
static inline void emulated_copy(void *to, const void *from, int bytes, int size) {
  emulated_copied = true;
  auto &own = emulated_copies[threadIdx.x];
  emulated_copying c = {to, from, bytes, size, own.group};
  if (((unsigned long long)to | (unsigned long long)from) & (unsigned)(size - 1))
    emulated_misaligned(from);
  if ((blockIdx.x + blockIdx.y + blockIdx.z) & 1 || own.count == 64) emulated_make(c);
  else own.all[own.count++] = c;
}
static inline void emulated_end_group() { emulated_copies[threadIdx.x].group++; }
template <class T> static inline T atomicAdd(T *at, T value) {
  T old = *at;
  *at = old + value;
  return old;
}
template <class T> static inline T atomicExch(T *at, T value) {
  T old = *at;
  *at = value;
  return old;
}
template <class T> static inline T atomicMax(T *at, T value) {
  T old = *at;
  if (value > old) *at = value;
  return old;
}

static inline float __int_as_float(int bits) { float x; memcpy(&x, &bits, 4); return x; }
static inline int __float_as_int(float x) { int bits; memcpy(&bits, &x, 4); return bits; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)((unsigned long long)a * b >> 32);
}
// CUDA's conversions: toward zero or nearest, saturated; NaN gives 0.
static inline int __float2int_rz(float x) {
  return x != x ? 0 : x >= 2147483648.f ? 2147483647 : x <= -2147483648.f ? (-2147483647 - 1) : (int)x;
}
static inline int __float2int_rn(float x) { return __float2int_rz(rintf(x)); }

// Inverse error functions, which C has not: Newton steps on erf from Winitzki's estimate.
static inline double emulated_erfinv(double y) {
  if (!(y > -1 && y < 1)) return y == 1 ? INFINITY : y == -1 ? -INFINITY : NAN;
  double l = log1p(-y * y), h = 2 / (M_PI * 0.147) + 0.5 * l;
  double x = copysign(sqrt(sqrt(h * h - l / 0.147) - h), y);
  for (int k = 0; k < 4; k++) {
    double r = y > 0 ? (1 - y) - erfc(x) : erfc(-x) - (1 + y);
    double s = r * exp(x * x) * 0.88622692545275801365;
    x -= s / (1 + x * s);
  }
  return x;
}
static inline double emulated_erfcinv(double y) {
  if (!(y > 0 && y < 2)) return y == 0 ? INFINITY : y == 2 ? -INFINITY : NAN;
  double l = log(y) + log(2 - y), h = 2 / (M_PI * 0.147) + 0.5 * l;
  double x = copysign(sqrt(sqrt(h * h - l / 0.147) - h), 1 - y);
  for (int k = 0; k < 5; k++) {
    double r = y - erfc(x);
    double s = r * exp(x * x) * 0.88622692545275801365;
    x -= s / (1 + x * s);
  }
  return x;
}
static inline float erfinvf(float y) { return (float)emulated_erfinv(y); }
static inline float erfcinvf(float y) { return (float)emulated_erfcinv(y); }
static inline float rsqrtf(float x) { return 1.f / sqrtf(x); }

// Half precision by bits: exact widening, rounding to nearest even.
static inline float emulated_from_half(unsigned short h) {
  unsigned sign = (unsigned)(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
  if (exponent == 31) return __int_as_float((int)(sign | 0x7f800000u | mantissa << 13));
  if (exponent) return __int_as_float((int)(sign | (exponent + 112) << 23 | mantissa << 13));
  float x = ldexpf((float)mantissa, -24);
  return sign ? -x : x;
}
static inline unsigned short emulated_to_half(float x) {
  unsigned bits = (unsigned)__float_as_int(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return (unsigned short)(sign | 0x7e00);
  if (rest >= 0x477ff000u) return (unsigned short)(sign | 0x7c00);
  if (rest < 0x38800000u) return (unsigned short)(sign | (unsigned)rintf(ldexpf(fabsf(x), 24)));
  rest -= 112u << 23;
  unsigned low = rest & 0x1fff, half = rest >> 13;
  if (low > 0x1000 || (low == 0x1000 && (half & 1))) half++;
  return (unsigned short)(sign | half);
}

// A launch of a kernel with any signature from an array of pointers to its arguments.
template <int... I> struct emulated_list {};
template <int N, int... I> struct emulated_range : emulated_range<N - 1, N - 1, I...> {};
template <int... I> struct emulated_range<0, I...> { typedef emulated_list<I...> type; };
template <class... A, int... I>
static inline void emulated_apply(void (*f)(A...), void **a, emulated_list<I...>) {
  f(*(A *)a[I]...);
}
template <class... A> static inline void emulated_call(void (*f)(A...), void **a) {
  emulated_apply(f, a, typename emulated_range<sizeof...(A)>::type());
}
extern "C" int emulated_run(void (*body)(void **), void **args, const unsigned *shape, int fibers,
                            char *shared, char *shared_end, unsigned long long *fault);
#define EMULATED_ENTRY(name)                                                                      \
  static void emulated_body_##name(void **a) { emulated_call(name, a); }                          \
  extern "C" int emulated_launch_##name(void **a, const unsigned *s, int f, unsigned long long *e) { \
    emulated_forget();                                                                            \
    return emulated_run(emulated_body_##name, a, s, f, __start_emulated_shared,                   \
                        __stop_emulated_shared, e);                                               \
  }
