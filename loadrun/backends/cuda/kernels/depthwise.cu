// Depthwise convolutions: a thread computes $ROWS rows of a column and reads each element once.
extern "C" __global__ void __launch_bounds__(128)
$NAME(const $XT *__restrict__ x, const $WT *__restrict__ w, $EXTRAS $YT *__restrict__ y, int items,
      int channels, int strips, int H, int W, int OH, int OW, int sw, int ph, int pw, int dw,
      int xn, int xc, int xh, int xw, int wg, int wk, int yn, int yc, int yh, int yw,
      int zx, int zw $SCALARS) {
  constexpr int SH = $SH, DH = $DH, ROWS = $ROWS, TAPS = $KH * $KW;
  constexpr int READ = (ROWS - 1) * SH + ($KH - 1) * DH + 1;
  int i = (int)(blockIdx.x * 128 + threadIdx.x);
  if (i >= items) return;
  int r = i / OW, ox = i - r * OW, q = r / strips, oy0 = (r - q * strips) * ROWS;
  int n = q / channels, ch = q - n * channels;
  const $XT *from = x + (n * xn + ch / $XL * xc + ch % $XL);
  $ACC taps[TAPS], seen[READ][$KW], sums[ROWS];
#pragma unroll
  for (int t = 0; t < TAPS; t++) taps[t] = widen(w[ch * wg + t * wk]);
#pragma unroll
  for (int s = 0; s < READ; s++) {
    int iy = oy0 * SH - ph + s;
#pragma unroll
    for (int kx = 0; kx < $KW; kx++) {
      int ix = ox * sw - pw + kx * dw;
      seen[s][kx] = zx;
      if ((unsigned)iy < (unsigned)H && (unsigned)ix < (unsigned)W)
        seen[s][kx] = widen(from[iy * xh + ix * xw]);
    }
  }
#pragma unroll
  for (int j = 0; j < ROWS; j++) {
    $ACC acc = 0;
#pragma unroll
    for (int ky = 0; ky < $KH; ky++)
#pragma unroll
      for (int kx = 0; kx < $KW; kx++) {
        auto b = taps[ky * $KW + kx];
        auto a = seen[j * SH + ky * DH][kx];
        acc = $MAC;
      }
    sums[j] = acc;
  }
#pragma unroll
  for (int j = 0; j < ROWS; j++) {
    int oy = oy0 + j;
    if (oy >= OH) break;
    int o = n * yn + ch / $YL * yc + ch % $YL + oy * yh + ox * yw;
    int px = (n * OH + oy) * OW + ox;
    $ACC acc = sums[j];
    $BODY
    narrow(y[o], $RESULT);
  }
}
