// Gradient of a warp for its images: every element gathers from the list of its pixel. Images are
// (images, K, H, middle, W, inner), gradients the same with other heights and widths.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $GT *__restrict__ dy, const int *__restrict__ heads, const int *__restrict__ next,
      const float *__restrict__ weights, $YT *__restrict__ dx, int items, int taps, int K, int H,
      int middle, int W, int inner, int OH, int OW) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / inner, e = i - q * inner, r = q / W, ix = q - r * W;
  q = r / middle;
  int mid = r - q * middle;
  r = q / H;
  int iy = q - r * H, n = r / K, k = r - n * K;
  double total = 0;
  for (int j = heads[(n * H + iy) * W + ix]; j >= 0; j = next[j]) {
    int p = j / taps, s = p / OW, ox = p - s * OW, m = s / OH, oy = s - m * OH;
    i64 at = ((((i64)m * K + k) * OH + oy) * middle + mid) * OW + ox;
    total += (double)widen(dy[at * inner + e]) * (double)weights[j];
  }
  narrow(dx[i], (float)total);
}
