// Images to which every window (rows, columns, KH, KW) adds its elements: a pixel a thread.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, $XT *__restrict__ y, int items, int rows, int columns, int KH, int KW, int H, int W, int sh, int sw, int ph, int pw, int dh,
      int dw) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / W, ix = i - q * W, map = q / H, iy = q - map * H;
  $ACC total = 0;
  for (int ky = 0; ky < KH; ky++) {
    int row = window_of(iy, sh, ph, ky, dh, rows);
    if (row < 0) continue;
    for (int kx = 0; kx < KW; kx++) {
      int column = window_of(ix, sw, pw, kx, dw, columns);
      if (column < 0) continue;
      total += widen(x[((((i64)map * rows + row) * columns + column) * KH + ky) * KW + kx]);
    }
  }
  narrow(y[i], $RESULT);
}
