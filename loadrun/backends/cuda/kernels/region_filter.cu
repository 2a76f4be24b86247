// Gradient of a region-restricted convolution by its filter: a warp an element, in float64.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, const $XT *__restrict__ diff, const $RT *__restrict__ rin,
      const $ST *__restrict__ rout, $YT *__restrict__ y, int items,
      CONVOLUTION_2D, int batch) {
  int i = (int)(blockIdx.x * 8 + threadIdx.x / 32), lane = (int)(threadIdx.x % 32);
  bool valid = i < items;
  if (!valid) i = 0;
  int taps = KH * KW, q = i / taps, tap = i - q * taps, channel = q / I, c = q - channel * I;
  if (flip) tap = taps - 1 - tap;
  int ky = tap / KW, kx = tap - ky * KW, g = channel / O, o = channel - g * O;
  double acc = 0;
  for (int k = lane; k < batch * OH * OW; k += 32) {
    int r = k / OW, ox = k - r * OW, n = r / OH, oy = r - n * OH;
    int iy = tap_reads(oy, sh, ph, ky, dh), ix = tap_reads(ox, sw, pw, kx, dw);
    if (!within(iy, H) || !within(ix, W)) continue;
    i64 part = (i64)n * groups + g;
    float v = widen(x[((part * I + c) * H + iy) * W + ix]);
    v *= widen(rin[((i64)n * H + iy) * W + ix]) == widen(rout[((i64)n * OH + oy) * OW + ox]) ? 1.f : 0.f;
    acc += (double)v * (double)widen(diff[((part * O + o) * OH + oy) * OW + ox]);
  }
#pragma unroll
  for (int other = 16; other > 0; other /= 2) acc += __shfl_xor_sync(0xffffffffu, acc, other);
  if (valid && lane == 0) narrow(y[i], (float)acc);
}
