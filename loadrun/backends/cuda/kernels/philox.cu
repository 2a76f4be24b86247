// Counter-based random numbers, Philox 4x32-10: words of a counter (element, draw, run, 0) under a
// key. Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
__device__ __forceinline__ void philox_$NAME(u32 *c, u32 key0, u32 key1) {
#pragma unroll
  for (int round = 0; round < 10; round++) {
    u64 p = (u64)0xD2511F53u * c[0], q = (u64)0xCD9E8D57u * c[2];
    u32 a = (u32)(q >> 32) ^ c[1] ^ key0, b = (u32)(p >> 32) ^ c[3] ^ key1;
    c[0] = a, c[1] = (u32)q, c[2] = b, c[3] = (u32)p;
    key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
  }
}
struct Random_$NAME {
  u32 key0, key1, element, run, draw, words[4];
  int left;
  __device__ __forceinline__ Random_$NAME(int low, int high, int at, int turn)
      : key0((u32)low), key1((u32)high), element((u32)at), run((u32)turn), draw(0), left(0) {}
  __device__ __forceinline__ u32 word() {
    if (left == 0) {
      words[0] = element, words[1] = draw++, words[2] = run, words[3] = 0;
      philox_$NAME(words, key0, key1);
      left = 4;
    }
    left--;
    return left == 3 ? words[0] : left == 2 ? words[1] : left == 1 ? words[2] : words[3];
  }
  // 53 bits, in (0, 1).
  __device__ __forceinline__ double uniform() {
    u64 bits = (u64)word() << 32;
    bits |= word();
    return ((double)(bits >> 11) + 0.5) * 1.1102230246251565e-16;
  }
  // Box and Muller.
  __device__ __forceinline__ double normal() {
    double radius = sqrt(-2.0 * log(uniform()));
    return radius * cos(6.283185307179586 * uniform());
  }
  // Logarithm of a number of the gamma distribution. Source: Marsaglia and Tsang, "A simple method
  // for generating gamma variables" (2000); a rejection has a probability below 5 %.
  __device__ __forceinline__ double log_gamma(double shape) {
    double lift = shape < 1.0 ? log(uniform()) / shape : 0.0;
    double d = (shape < 1.0 ? shape + 1.0 : shape) - 1.0 / 3.0, c = 1.0 / sqrt(9.0 * d);
    for (int tries = 0; tries < 256; tries++) {
      double x = normal(), v = 1.0 + c * x;
      if (v <= 0.0) continue;
      v = v * v * v;
      if (log(uniform()) < 0.5 * x * x + d * (1.0 - v + log(v))) return log(d) + log(v) + lift;
    }
    return log(d) + lift;
  }
  // Source: Hoermann, "The transformed rejection method for generating Poisson random variables"
  // (1993), PTRS, for 10 and more; below by products of uniform numbers.
  __device__ __forceinline__ double poisson(double rate) {
    if (rate < 10.0) {
      double floor_ = exp(-rate), product = uniform();
      int count = 0;
      for (; product > floor_ && count < 256; count++) product *= uniform();
      return count;
    }
    double root = sqrt(rate), b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b;
    double alpha = 1.1239 + 1.1328 / (b - 3.4), quick = 0.9277 - 3.6224 / (b - 2.0);
    for (int tries = 0; tries < 256; tries++) {
      double u = uniform() - 0.5, v = uniform(), us = 0.5 - fabs(u);
      double k = floor((2.0 * a / us + b) * u + rate + 0.43);
      if (us >= 0.07 && v <= quick) return k;
      if (k < 0.0 || (us < 0.013 && v > us)) continue;
      if (log(v * alpha / (a / (us * us) + b)) <= k * log(rate) - rate - lgamma(k + 1.0)) return k;
    }
    return floor(rate);
  }
};
