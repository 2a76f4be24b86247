// Largest value or mean of the pixels of each bin of regions (image, x0, y0, x1, y1).
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, const $RT *__restrict__ regions, $XT *__restrict__ y,
      int *__restrict__ index, int *__restrict__ status, int slot, int items, int images, int C,
      int H, int W, int OH, int OW, float scale) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / OW, bx = i - q * OW, r = q / OH, by = q - r * OH, m = r / C, c = r - m * C;
  const $RT *region = regions + m * 5;
  int image = region_image(region, images, status, slot);
  int ends[4];
#pragma unroll
  for (int k = 0; k < 2; k++)
    region_bin(widen(region[1 + k]) * scale, widen(region[3 + k]) * scale, k ? by : bx,
               k ? OH : OW, k ? H : W, ends[k * 2], ends[k * 2 + 1]);
  const $XT *plane = x + (i64)(image * C + c) * H * W;
  double total = 0;
  float best = -INFINITY;
  int at = -1;
  for (int iy = ends[2]; iy < ends[3]; iy++)
    for (int ix = ends[0]; ix < ends[1]; ix++) {
      float v = widen(plane[iy * W + ix]);
      total += (double)v;
      if (v > best) {
        best = v;
        at = iy * W + ix;
      }
    }
  int count = max(ends[3] - ends[2], 0) * max(ends[1] - ends[0], 0);
  float mean = count > 0 ? (float)(total / count) : 0.f;
  narrow(y[i], $MAXIMUM ? (at < 0 ? 0.f : best) : mean);
  index[i] = $MAXIMUM ? at : -1;
}
