// Gradient of a convolution with a filter for each tile by its image: a pixel a thread.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ w, const $XT *__restrict__ diff, $XT *__restrict__ y, int items,
      CONVOLUTION_2D, int SH, int SW) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / W, ix = i - q * W, r = q / H, iy = q - r * H, part = r / I, c = r - part * I;
  int g = part % groups;
  float acc = 0.f;
  for (int ky = 0; ky < KH; ky++) {
    int oy = window_of(iy, sh, ph, ky, dh, OH);
    if (oy < 0) continue;
    for (int kx = 0; kx < KW; kx++) {
      int ox = window_of(ix, sw, pw, kx, dw, OW);
      if (ox < 0) continue;
      int tap = tap_place(ky, kx, KH, KW, flip);
      int tile = (g * SH + oy / (OH / SH)) * SW + ox / (OW / SW);
      const $XT *filter = w + (((i64)tile * I + c) * KH * KW + tap) * O;
      const $XT *given = diff + (i64)part * O * OH * OW + oy * OW + ox;
      for (int o = 0; o < O; o++) acc = fmaf(widen(given[(i64)o * OH * OW]), widen(filter[o]), acc);
    }
  }
  narrow(y[i], acc);
}
