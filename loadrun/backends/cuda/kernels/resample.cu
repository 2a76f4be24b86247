// Two axes of an image mixed by tables of elements and weights, (outputs, taps) each. Tensors are
// (outer, h, middle, w, inner).
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, const int *__restrict__ rows, const $W *__restrict__ row_weight,
      const int *__restrict__ columns, const $W *__restrict__ column_weight, $YT *__restrict__ y,
      int items, int H, int middle, int W, int inner, int OH, int OW, int row_taps,
      int column_taps, float factor) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / inner, e = i - q * inner, r = q / OW, ox = q - r * OW;
  q = r / middle;
  int m = r - q * middle, a = q / OH, oy = q - a * OH;
  $ACC total = 0;
  for (int s = 0; s < row_taps; s++) {
    const $XT *from = x + ((i64)(a * H + rows[oy * row_taps + s]) * middle + m) * W * inner + e;
    $ACC wr = row_weight[oy * row_taps + s];
    $ACC part = 0;
    for (int t = 0; t < column_taps; t++) {
      $ACC v = ($ACC)widen(from[columns[ox * column_taps + t] * inner]);
      $ACC wc = column_weight[ox * column_taps + t];
      $INNER
    }
    $OUTER
  }
  narrow(y[i], $RESULT);
}
