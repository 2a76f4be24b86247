// Samples of regions (image, x0, y0, x1, y1), averaged or the largest; one bin a thread.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, const $RT *__restrict__ regions, $XT *__restrict__ y,
      int *__restrict__ index, int *__restrict__ status, int slot, int items, int images, int C,
      int H, int W, int PH, int PW, int SH, int SW, float scale, float offset) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / PW, bx = i - q * PW, r = q / PH, by = q - r * PH, m = r / C, c = r - m * C;
  const $RT *region = regions + m * 5;
  int image = region_image(region, images, status, slot);
  RegionBins bins = region_bins(region, scale, offset, PH, PW);
  const $XT *plane = x + (i64)(image * C + c) * H * W;
  double total = 0;
  float best = -INFINITY;
  int at = 0;
  for (int s = 0; s < SH; s++)
    for (int t = 0; t < SW; t++) {
      Sample point = region_sample(bins, by, bx, s, t, SH, SW);
      float acc = 0.f;
      for (int u = 0; u < 2; u++)
        for (int v = 0; v < 2; v++) {
          int pixel = point.pixel(u, v, H, W);
          float weight = corner_weight(u, v, point.far_y, point.far_x);
          acc = acc + weight * (pixel >= 0 ? widen(plane[pixel]) : 0.f);
        }
      total += (double)acc;
      if ((acc > best || acc != acc) && best == best) {
        best = acc;
        at = s * SW + t;
      }
    }
  narrow(y[i], $MAXIMUM ? best : (float)(total / (SH * SW)));
  index[i] = $MAXIMUM ? at : 0;
}
