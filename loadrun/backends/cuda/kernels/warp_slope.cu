// Gradients of a warp for its positions: by_y and by_x of an output pixel, sums over its channels.
// Images are (images, K, H, middle, W, inner). A block a matrix, or a thread a pixel: see $HOW.
$BORDER
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, const $MT *__restrict__ matrix, $EXTRA const $GT *__restrict__ dy,
      $YT *__restrict__ y, int *__restrict__ status, int slot, int items, int images, int K, int H,
      int middle, int W, int inner, int OH, int OW, int border, float fill) {
  $BEGIN
  int image = $IMAGE;
  if ((unsigned)image >= (unsigned)images) {
    *status = slot;
    image = 0;
  }
  $POSITION
  float low_y = floorf(py), low_x = floorf(px), far_y = py - low_y, far_x = px - low_x;
  int first_y = whole_$NAME(low_y), first_x = whole_$NAME(low_x);
  double by_y = 0, by_x = 0;
  for (int s = 0; s < 2; s++)
    for (int t = 0; t < 2; t++) {
      int iy = border_$NAME(first_y + s, H, border), ix = border_$NAME(first_x + t, W, border);
      bool inside = iy >= 0 && ix >= 0;
      double each = 0;
      for (int c = 0; c < K * middle * inner; c++) {
        int e = c % inner, u = c / inner, mid = u % middle, k = u / middle;
        i64 at = ((((i64)m * K + k) * OH + oy) * middle + mid) * OW + ox;
        i64 from = ((((i64)image * K + k) * H + iy) * middle + mid) * W + ix;
        each += (inside ? (double)widen(x[from * inner + e]) : (double)fill) *
                (double)widen(dy[at * inner + e]);
      }
      by_y += (s ? 1.0 : -1.0) * (double)(t ? far_x : 1.f - far_x) * each;
      by_x += (t ? 1.0 : -1.0) * (double)(s ? far_y : 1.f - far_y) * each;
    }
  $END
}
