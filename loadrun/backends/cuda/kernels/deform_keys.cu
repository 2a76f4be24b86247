// For each of the four pixels that a tap reads: its number among all groups' pixels, or -1, and its
// weight.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ offset, int *__restrict__ keys, float *__restrict__ weights, int items,
      int taps, int pixels, int KW, int H, int W, int OW, int sh, int sw,
      int ph, int pw, int dh, int dw) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / pixels, pixel = i - q * pixels, part = q / taps, tap = q - part * taps;
  $POINT
#pragma unroll
  for (int s = 0; s < 2; s++)
#pragma unroll
    for (int t = 0; t < 2; t++) {
      bool within_image = within(y0 + s, H) && within(x0 + t, W);
      i64 entry = (i64)p * 4 + 2 * s + t;
      keys[entry] = within_image ? (part * H + y0 + s) * W + x0 + t : -1;
      weights[entry] = corner_weight(s, t, far_y, far_x);
    }
}
