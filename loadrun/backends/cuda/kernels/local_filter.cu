// Gradient of a convolution with a filter for each tile by its filters: an element a thread, over
// all images and the pixels of its tile.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, const $XT *__restrict__ diff, $XT *__restrict__ y, int items,
      CONVOLUTION_2D, int SH, int SW, int batch) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / O, o = i - q * O, taps = KH * KW, r = q / taps, tap = q - r * taps;
  if (flip) tap = taps - 1 - tap;
  int ky = tap / KW, kx = tap - ky * KW, t = r / I, c = r - t * I, s = t / SW, tx = t - s * SW;
  int g = s / SH, ty = s - g * SH, high = OH / SH, wide = OW / SW;
  float acc = 0.f;
  for (int n = 0; n < batch; n++) {
    i64 part = (i64)n * groups + g;
    const $XT *plane = x + (part * I + c) * H * W, *given = diff + (part * O + o) * OH * OW;
    for (int oy = ty * high; oy < (ty + 1) * high; oy++) {
      int iy = tap_reads(oy, sh, ph, ky, dh);
      if (!within(iy, H)) continue;
      for (int ox = tx * wide; ox < (tx + 1) * wide; ox++) {
        int ix = tap_reads(ox, sw, pw, kx, dw);
        if (!within(ix, W)) continue;
        acc = fmaf(widen(plane[iy * W + ix]), widen(given[oy * OW + ox]), acc);
      }
    }
  }
  narrow(y[i], acc);
}
