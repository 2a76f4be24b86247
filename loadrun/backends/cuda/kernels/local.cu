// A filter (group, tile row, tile column, I, KH, KW, O) for each tile of SH x SW: an output a
// thread, neighbours along O, where filters are contiguous.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, const $XT *__restrict__ w, $XT *__restrict__ y, int items,
      CONVOLUTION_2D, int SH, int SW) {
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
      int iy = tap_reads(oy, sh, ph, ky, dh);
      if (!within(iy, H)) continue;
      for (int kx = 0; kx < KW; kx++) {
        int ix = tap_reads(ox, sw, pw, kx, dw);
        if (!within(ix, W)) continue;
        int tap = tap_place(ky, kx, KH, KW, flip);
        acc = fmaf(widen(plane[iy * W + ix]), widen(filter[tap * O]), acc);
      }
    }
  }
  narrow(y[(((i64)n * groups + g) * O + o) * OH * OW + oy * OW + ox], acc);
}
