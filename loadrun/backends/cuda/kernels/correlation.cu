// Windows of a compared with windows of b moved by each displacement: an output a thread.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ a, const $BT *__restrict__ b, $XT *__restrict__ y, int items, int C,
      int H, int W, int OH, int OW, int reach, int kernel, int stride, int step, int first) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int side = 2 * reach + 1, q = i / OW, ox = i - q * OW, r = q / OH, oy = q - r * OH;
  int n = r / (side * side), move = r - n * side * side;
  int dy = (move / side - reach) * step, dx = (move % side - reach) * step;
  double total = 0;
  for (int c = 0; c < C; c++) {
    i64 plane = ((i64)n * C + c) * H * W;
    for (int s = 0; s < kernel; s++)
      for (int t = 0; t < kernel; t++) {
        int ay = first + stride * oy + s, ax = first + stride * ox + t, by = ay + dy, bx = ax + dx;
        bool in_a = (unsigned)ay < (unsigned)H && (unsigned)ax < (unsigned)W;
        bool in_b = (unsigned)by < (unsigned)H && (unsigned)bx < (unsigned)W;
        double u = in_a ? (double)widen(a[plane + ay * W + ax]) : 0.0;
        double v = in_b ? (double)widen(b[plane + by * W + bx]) : 0.0;
        total += $MULTIPLY ? u * v : fabs(u - v);
      }
  }
  narrow(y[i], (float)(total / ((double)kernel * kernel * C)));
}
