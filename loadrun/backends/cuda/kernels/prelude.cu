// What all kernels share: element types, conversions as the operators define them, exact sums.
#ifndef EMULATED
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#endif
#ifndef M_SQRT1_2
#define M_SQRT1_2 0.70710678118654752440
#endif
typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
template <class T> struct __align__(4 * sizeof(T)) four { T v[4]; };

__device__ __forceinline__ float from_half(u16 bits) {
#ifdef EMULATED
  return emulated_from_half(bits);
#else
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
#endif
}
// Nearest float16, ties away from zero: the lowest bit moves ties, and nothing else, over the middle.
__device__ __forceinline__ u16 to_half(float x) {
  int bits = __float_as_int(x);
  if ((bits & 0x7f800000) != 0x7f800000) x = __int_as_float(bits | 1);
#ifdef EMULATED
  return emulated_to_half(x);
#else
  u16 half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
  return half;
#endif
}
// Nearest bfloat16, ties to even; NaN stays a quiet NaN.
__device__ __forceinline__ u16 to_bfloat(float x) {
  u32 bits = (u32)__float_as_int(x);
  if (x != x) return (u16)(bits >> 16 | 0x40);
  return (u16)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
// An element as it is computed with: float for every floating type, the integer otherwise.
__device__ __forceinline__ float widen(f16 x) { return from_half(x.bits); }
__device__ __forceinline__ float widen(bf16 x) { return __int_as_float((int)((u32)x.bits << 16)); }
__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ int widen(i8 x) { return x; }
__device__ __forceinline__ int widen(u8 x) { return x; }
__device__ __forceinline__ int widen(i16 x) { return x; }
__device__ __forceinline__ int widen(u16 x) { return x; }
__device__ __forceinline__ int widen(int x) { return x; }
__device__ __forceinline__ void narrow(f16 &y, float x) { y.bits = to_half(x); }
__device__ __forceinline__ void narrow(bf16 &y, float x) { y.bits = to_bfloat(x); }
__device__ __forceinline__ void narrow(float &y, float x) { y = x; }
__device__ __forceinline__ void narrow(i8 &y, int x) { y = (i8)x; }
__device__ __forceinline__ void narrow(u8 &y, int x) { y = (u8)x; }
__device__ __forceinline__ void narrow(i16 &y, int x) { y = (i16)x; }
__device__ __forceinline__ void narrow(u16 &y, int x) { y = (u16)x; }
__device__ __forceinline__ void narrow(int &y, int x) { y = x; }
__device__ __forceinline__ float as_half(float x) { return from_half(to_half(x)); }
__device__ __forceinline__ float as_bfloat(float x) {
  return __int_as_float((int)((u32)to_bfloat(x) << 16));
}

// Round half away from zero, clamp; NaN gives the lowest.
__device__ __forceinline__ int saturate(float x, int low, int high) {
  return x >= (float)high ? high : x > (float)low ? (int)x : low;
}
__device__ __forceinline__ int saturate64(double x, int low, int high) {
  return x >= (double)high ? high : x > (double)low ? (int)x : low;
}
__device__ __forceinline__ int clamp64(i64 x, int low, int high) {
  return x > high ? high : x < low ? low : (int)x;
}
__device__ __forceinline__ int quantize(float x, float scale, int zero, int low, int high) {
  float steps = roundf(x / scale);
  if (zero) steps = steps + (float)zero;
  return saturate(steps, low, high);
}
// As x86 converts: what does not fit an int becomes the lowest.
__device__ __forceinline__ int truncate(float x) {
  return x > -2147483904.f && x < 2147483648.f ? (int)x : (-2147483647 - 1);
}

// As numpy's minimum and maximum: NaN wins.
__device__ __forceinline__ float lesser(float x, float y) { return x < y || x != x ? x : y; }
__device__ __forceinline__ float greater(float x, float y) { return x > y || x != x ? x : y; }
__device__ __forceinline__ float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }
__device__ __forceinline__ float softplus(float x) {
  return log1pf(expf(-fabsf(x))) + (x > 0.f || x != x ? x : 0.f);
}
__device__ __forceinline__ float clip(float x, float low, float high) {
  return x < low ? low : x > high ? high : x;
}
__device__ __forceinline__ float hard_swish(float x) { return x * clip(x + 3.f, 0.f, 6.f) / 6.f; }
__device__ __forceinline__ double normal_cdf(float x) { return 0.5 * erfc(-M_SQRT1_2 * x); }
__device__ __forceinline__ float log_sum_exp(float x, float y) {
  float low = x < y || x != x ? x : y, high = x < y || y != y ? y : x;
  if (x != x) high = x;
  return high + log1pf(expf(low == high ? 0.f : low - high));
}
__device__ __forceinline__ float silu_grad(float x, float y) {
  float s = sigmoid(x);
  return y * s * (1.f + x * (1.f - s));
}
__device__ __forceinline__ float gelu_grad(float x, float y) {
  double w = x;
  return (float)(y * (normal_cdf(x) + w * (exp(-0.5 * w * w) / sqrt(2.0 * 3.14159265358979323846))));
}
__device__ __forceinline__ float fast_tanh(float x) {
  float s = x * x;
  return x * (27.f + s) / (27.f + 9.f * s);
}
__device__ __forceinline__ float fast_tanh_grad(float x, float y) {
  float s = x * x, below = 3.f + s;
  return ((-48.f * s) / below + 27.f + s) / (below * 9.f) * y;
}
__device__ __forceinline__ i64 rounding_mulh(i64 x, i64 y, int drop, i64 low, i64 high) {
  i64 z = (x * y + ((i64)1 << (drop - 1))) >> drop;
  return z < low ? low : z > high ? high : z;
}
__device__ __forceinline__ i64 shift_rounded(i64 x, int k) {
  i64 mask = ((i64)1 << k) - 1;
  return (x >> k) + ((x & mask) > (mask >> 1) + (x < 0));
}
__device__ __forceinline__ int floor_mod(int x, int y) {
  int r = y == -1 ? 0 : x % y;
  return r && (r ^ y) < 0 ? r + y : r;
}
__device__ __forceinline__ int floor_div(int x, int y) {
  if (y == -1) return (int)(0u - (u32)x);
  int q = x / y;
  return q * y != x && (x ^ y) < 0 ? q - 1 : q;
}
// Sum over the 256 threads of a block, in a fixed order; `sums` is shared. Wait before the next one.
__device__ __forceinline__ double block_total(double total, double *sums) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2) total += __shfl_xor_sync(0xffffffffu, total, other);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = total;
  __syncthreads();
  total = 0;
  for (int k = 0; k < 8; k++) total += sums[k];
  return total;
}
