// Windows (rows, columns, KH, KW) of images, zeros outside.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $T *__restrict__ x, $T *__restrict__ y, int items, int rows, int columns, int KH, int KW, int H, int W, int sh, int sw, int ph, int pw, int dh,
      int dw) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / KW, kx = i - q * KW, r = q / KH, ky = q - r * KH;
  q = r / columns;
  int column = r - q * columns, map = q / rows, row = q - map * rows;
  int iy = tap_reads(row, sh, ph, ky, dh), ix = tap_reads(column, sw, pw, kx, dw);
  bool inside = within(iy, H) && within(ix, W);
  y[i] = inside ? x[((i64)map * H + iy) * W + ix] : 0;
}
