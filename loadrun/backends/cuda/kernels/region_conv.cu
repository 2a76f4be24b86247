// A convolution whose taps count where their pixel lies in the output's region: an output a thread.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, const $XT *__restrict__ w, const $RT *__restrict__ rin,
      const $ST *__restrict__ rout, $YT *__restrict__ y, int items,
      CONVOLUTION_2D) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / OW, ox = i - q * OW, r = q / OH, oy = q - r * OH, part = r / O, n = part / groups;
  int channel = r - n * groups * O;
  auto region = widen(rout[((i64)n * OH + oy) * OW + ox]);
  float acc = 0.f;
  for (int ky = 0; ky < KH; ky++) {
    int iy = tap_reads(oy, sh, ph, ky, dh);
    if (!within(iy, H)) continue;
    for (int kx = 0; kx < KW; kx++) {
      int ix = tap_reads(ox, sw, pw, kx, dw);
      if (!within(ix, W)) continue;
      float same = widen(rin[((i64)n * H + iy) * W + ix]) == region ? 1.f : 0.f;
      int tap = tap_place(ky, kx, KH, KW, flip);
      const $XT *from = x + (i64)part * I * H * W + iy * W + ix;
      const $XT *filter = w + (i64)channel * I * KH * KW + tap;
      for (int c = 0; c < I; c++)
        acc = fmaf(widen(from[(i64)c * H * W]) * same, widen(filter[c * KH * KW]), acc);
    }
  }
  narrow(y[i], acc);
}
