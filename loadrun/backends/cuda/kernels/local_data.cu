// Gradient of a convolution with a filter for each tile by its image: a pixel a thread.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ w, const $XT *__restrict__ diff, $XT *__restrict__ y, int items,
      int groups, int O, int I, int KH, int KW, int H, int W, int OH, int OW, int SH, int SW, int sh, int sw,
      int ph, int pw, int dh, int dw, int flip) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / W, ix = i - q * W, r = q / H, iy = q - r * H, part = r / I, c = r - part * I;
  int g = part % groups;
  float acc = 0.f;
  for (int ky = 0; ky < KH; ky++) {
    int v = iy + ph - ky * dh, oy = v / sh;
    if (v < 0 || v - oy * sh || oy >= OH) continue;
    for (int kx = 0; kx < KW; kx++) {
      int u = ix + pw - kx * dw, ox = u / sw, tap = ky * KW + kx;
      if (u < 0 || u - ox * sw || ox >= OW) continue;
      if (flip) tap = KH * KW - 1 - tap;
      int tile = (g * SH + oy / (OH / SH)) * SW + ox / (OW / SW);
      const $XT *filter = w + (((i64)tile * I + c) * KH * KW + tap) * O;
      const $XT *given = diff + (i64)part * O * OH * OW + oy * OW + ox;
      for (int o = 0; o < O; o++) acc = fmaf(widen(given[(i64)o * OH * OW]), widen(filter[o]), acc);
    }
  }
  narrow(y[i], acc);
}
