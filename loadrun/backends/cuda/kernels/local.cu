// A filter (group, tile row, tile column, I, KH, KW, O) for each tile of SH x SW: an output a
// thread, neighbours along O, where filters are contiguous.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, const $XT *__restrict__ w, $XT *__restrict__ y, int items,
      int groups, int O, int I, int KH, int KW, int H, int W, int OH, int OW, int SH, int SW, int sh, int sw,
      int ph, int pw, int dh, int dw, int flip) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / O, o = i - q * O, r = q / OW, ox = q - r * OW;
  q = r / OH;
  int oy = r - q * OH, n = q / groups, g = q - n * groups;
  int tile = (g * SH + oy / (OH / SH)) * SW + ox / (OW / SW);
  float acc = 0.f;
  for (int c = 0; c < I; c++) {
    const $XT *plane = x + ((i64)q * I + c) * H * W;
    const $XT *filter = w + ((i64)tile * I + c) * KH * KW * O + o;
    for (int ky = 0; ky < KH; ky++) {
      int iy = oy * sh - ph + ky * dh;
      if ((unsigned)iy >= (unsigned)H) continue;
      for (int kx = 0; kx < KW; kx++) {
        int ix = ox * sw - pw + kx * dw, tap = ky * KW + kx;
        if ((unsigned)ix >= (unsigned)W) continue;
        if (flip) tap = KH * KW - 1 - tap;
        acc = fmaf(widen(plane[iy * W + ix]), widen(filter[tap * O]), acc);
      }
    }
  }
  narrow(y[(((i64)n * groups + g) * O + o) * OH * OW + oy * OW + ox], acc);
}
