// Gradient of a region-restricted convolution by its image: a pixel a thread.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ w, const $XT *__restrict__ diff, const $RT *__restrict__ rin,
      const $ST *__restrict__ rout, $YT *__restrict__ y, int items,
      CONVOLUTION_2D) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / W, ix = i - q * W, r = q / H, iy = q - r * H, part = r / I, c = r - part * I;
  int n = part / groups, g = part - n * groups;
  auto region = widen(rin[((i64)n * H + iy) * W + ix]);
  float acc = 0.f;
  for (int ky = 0; ky < KH; ky++) {
    int oy = window_of(iy, sh, ph, ky, dh, OH);
    if (oy < 0) continue;
    for (int kx = 0; kx < KW; kx++) {
      int ox = window_of(ix, sw, pw, kx, dw, OW);
      if (ox < 0) continue;
      float same = widen(rout[((i64)n * OH + oy) * OW + ox]) == region ? 1.f : 0.f;
      int tap = tap_place(ky, kx, KH, KW, flip);
      const $XT *given = diff + (i64)part * O * OH * OW + oy * OW + ox;
      const $XT *filter = w + ((i64)g * O * I + c) * KH * KW + tap;
      float sum = 0.f;
      for (int o = 0; o < O; o++)
        sum = fmaf(widen(given[(i64)o * OH * OW]), widen(filter[(i64)o * I * KH * KW]), sum);
      acc += sum * same;
    }
  }
  narrow(y[i], acc);
}
