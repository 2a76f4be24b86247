// Windows of images in any layout; one output element a thread. Modes 0: max, 1: mean, 2: mean of
// what lies inside. `T` sums are float, or int of codes.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, $XT *__restrict__ y, int items, int C, int H, int W, int OH,
      int OW, int kh, int kw, int sh, int sw, int ph, int pw, int xn, int xc, int xh, int xw,
      int yn, int yc, int yh, int yw, int zero, int low, int high) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int r = i / OW, ox = i - r * OW, q = r / OH, oy = r - q * OH, n = q / C, c = q - n * C;
  int top = max(oy * sh - ph, 0), bottom = min(oy * sh - ph + kh, H);
  int left = max(ox * sw - pw, 0), right = min(ox * sw - pw + kw, W);
  const $XT *plane = x + n * xn + (c / $L) * xc + c % $L;
  $ACC acc = $START;
  for (int iy = top; iy < bottom; iy++)
    for (int ix = left; ix < right; ix++) {
      auto v = widen(plane[iy * xh + ix * xw]);
      acc = $STEP;
    }
  int inside = max(bottom - top, 0) * max(right - left, 0), size = kh * kw;
  narrow(y[n * yn + (c / $L) * yc + c % $L + oy * yh + ox * yw], $RESULT);
}
