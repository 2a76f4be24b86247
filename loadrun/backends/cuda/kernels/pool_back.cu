// Gradient of a pooling for its input, in any layout: every element gathers from the windows that
// contain it. `size` are the elements of a window, `inside` those within the image.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, const $XT *__restrict__ y, const $XT *__restrict__ dy,
      $XT *__restrict__ dx, int items, int C, int H, int W, int OH, int OW, int kh, int kw, int sh,
      int sw, int ph, int pw, int xn, int xc, int xh, int xw, int yn, int yc, int yh, int yw) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int r = i / W, ix = i - r * W, q = r / H, iy = r - q * H, n = q / C, c = q - n * C;
  int at = n * xn + (c / $L) * xc + c % $L + iy * xh + ix * xw;
  int plane = n * yn + (c / $L) * yc + c % $L;
  int top = iy + ph - kh + 1, left = ix + pw - kw + 1;
  int oy0 = top > 0 ? (top + sh - 1) / sh : 0, oy1 = min((iy + ph) / sh, OH - 1);
  int ox0 = left > 0 ? (left + sw - 1) / sw : 0, ox1 = min((ix + pw) / sw, OW - 1);
  float acc = 0.f;
  for (int oy = oy0; oy <= oy1; oy++)
    for (int ox = ox0; ox <= ox1; ox++) {
      int w = plane + oy * yh + ox * yw;
      $TERM
    }
  narrow(dx[at], acc);
}
