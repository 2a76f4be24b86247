// Whether a window of a mask holds anything: an output a thread.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, $XT *__restrict__ y, int items, int H, int W, int OW, int KH, int KW,
      int sh, int sw, int ph, int pw, int dh, int dw) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int oy = i / OW, ox = i - oy * OW, y0 = oy * sh - ph, x0 = ox * sw - pw, seen = 0;
  for (int ky = y0 < 0 ? (-y0 + dh - 1) / dh : 0; ky < KH && y0 + ky * dh < H && !seen; ky++)
    for (int kx = x0 < 0 ? (-x0 + dw - 1) / dw : 0; kx < KW && x0 + kx * dw < W && !seen; kx++)
      seen = widen(x[(i64)(y0 + ky * dh) * W + x0 + kx * dw]) != 0;
  narrow(y[i], seen);
}
