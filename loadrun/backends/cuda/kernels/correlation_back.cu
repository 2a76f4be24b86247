// Gradient of a correlation by a ($FIRST 1) or by b: a pixel a thread, over all displacements and
// window taps that read it. The one by a takes rows of displacements for columns, as files mean it.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $DT *__restrict__ diff, const $XT *__restrict__ a, const $BT *__restrict__ b,
      $YT *__restrict__ y, int items, int C, int H, int W, int OH, int OW, int reach, int kernel,
      int stride, int step, int first) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int side = 2 * reach + 1, q = i / W, x_ = i - q * W, r = q / H, y_ = q - r * H, n = r / C;
  i64 plane = (i64)r * H * W;
  double own = (double)($FIRST ? widen(a[i]) : widen(b[i])), total = 0;
  for (int move = 0; move < side * side; move++) {
    int down = (move / side - reach) * step, across = (move % side - reach) * step;
    int dy = $FIRST ? across : down, dx = $FIRST ? down : across;
    int ay = $FIRST ? y_ : y_ - dy, ax = $FIRST ? x_ : x_ - dx;
    int oy_ = $FIRST ? y_ + dy : ay, ox_ = $FIRST ? x_ + dx : ax;
    bool inside = (unsigned)oy_ < (unsigned)H && (unsigned)ox_ < (unsigned)W;
    double other = 0;
    if (inside) other = (double)($FIRST ? widen(b[plane + oy_ * W + ox_]) : widen(a[plane + oy_ * W + ox_]));
    double gap = own - other;
    double slope = $MULTIPLY ? other : gap > 0 ? 1.0 : gap < 0 ? -1.0 : gap;
    for (int s = 0; s < kernel; s++) {
      int v = ay - first - s, oy = v / stride;
      if (v < 0 || v - oy * stride || oy >= OH) continue;
      for (int t = 0; t < kernel; t++) {
        int u = ax - first - t, ox = u / stride;
        if (u < 0 || u - ox * stride || ox >= OW) continue;
        total += (double)widen(diff[(((i64)n * side * side + move) * OH + oy) * OW + ox]) * slope;
      }
    }
  }
  narrow(y[i], (float)(total / ((double)kernel * kernel * C)));
}
