// Images to which every window (rows, columns, KH, KW) adds its elements: a pixel a thread.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, $XT *__restrict__ y, int items, int rows, int columns, int KH, int KW, int H, int W, int sh, int sw, int ph, int pw, int dh,
      int dw) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / W, ix = i - q * W, map = q / H, iy = q - map * H;
  $ACC total = 0;
  for (int ky = 0; ky < KH; ky++) {
    int v = iy + ph - ky * dh, row = v / sh;
    if (v < 0 || v - row * sh || row >= rows) continue;
    for (int kx = 0; kx < KW; kx++) {
      int u = ix + pw - kx * dw, column = u / sw;
      if (u < 0 || u - column * sw || column >= columns) continue;
      total += widen(x[((((i64)map * rows + row) * columns + column) * KH + ky) * KW + kx]);
    }
  }
  narrow(y[i], $RESULT);
}
