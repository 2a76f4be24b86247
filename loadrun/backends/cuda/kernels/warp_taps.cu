// Which pixels of which image each output of a warp reads, and their weights: $TAPS x $TAPS an
// output; a key below 0 stands for what lies outside.
$BORDER
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $MT *__restrict__ matrix, $EXTRA int *__restrict__ keys, float *__restrict__ weights,
      int *__restrict__ status, int slot, int items, int images, int H, int W, int OH, int OW,
      int border) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int r = i / OW, ox = i - r * OW, m = r / OH, oy = r - m * OH;
  int image = $IMAGE;
  if ((unsigned)image >= (unsigned)images) {
    *status = slot;
    image = 0;
  }
  $POSITION
  float low_y = $FLOOR(py), low_x = $FLOOR(px), far_y = py - low_y, far_x = px - low_x;
  int first_y = whole_$NAME(low_y), first_x = whole_$NAME(low_x);
  for (int s = 0; s < $TAPS; s++)
    for (int t = 0; t < $TAPS; t++) {
      int iy = border_$NAME(first_y + s, H, border), ix = border_$NAME(first_x + t, W, border);
      int at = (i * $TAPS + s) * $TAPS + t;
      keys[at] = iy >= 0 && ix >= 0 ? (image * H + iy) * W + ix : -1;
      weights[at] = $TAPS == 1 ? 1.f : corner_weight(s, t, far_y, far_x);
    }
}
