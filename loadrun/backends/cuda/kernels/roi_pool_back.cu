// Gradient of the means of the bins of regions for the images: every pixel goes over all regions.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $GT *__restrict__ dy, const $RT *__restrict__ regions, $YT *__restrict__ dx,
      int *__restrict__ status, int slot, int items, int images, int C, int H, int W, int M,
      int OH, int OW, float scale) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int r = i / W, x = i - r * W, q = r / H, y = r - q * H, n = q / C, c = q - n * C;
  double total = 0;
  for (int m = 0; m < M; m++) {
    const $RT *region = regions + m * 5;
    int image = region_image(widen(region[0]), images);
    if (image < 0) *status = slot;
    if (image != n) continue;
    float x0 = widen(region[1]) * scale, y0 = widen(region[2]) * scale;
    float x1 = widen(region[3]) * scale, y1 = widen(region[4]) * scale;
    bool proper = region_is_proper(x0, y0, x1, y1);
    // Bins may reach a pixel further than the region, by rounding.
    if (!proper || (float)y < roundf(y0) || (float)y > roundf(y1) + 1.f) continue;
    if ((float)x < roundf(x0) || (float)x > roundf(x1) + 1.f) continue;
    for (int by = 0; by < OH; by++) {
      int top, bottom;
      region_bin(y0, y1, by, OH, H, top, bottom);
      if (y < top || y >= bottom) continue;
      for (int bx = 0; bx < OW; bx++) {
        int left, right;
        region_bin(x0, x1, bx, OW, W, left, right);
        if (x < left || x >= right) continue;
        double count = (double)((i64)(bottom - top) * (right - left));
        total += (double)widen(dy[((m * C + c) * OH + by) * OW + bx]) / count;
      }
    }
  }
  narrow(dx[i], (float)total);
}
