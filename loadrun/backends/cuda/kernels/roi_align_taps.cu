// Which pixels each sample of regions (image, x0, y0, x1, y1) reads, and their weights: four a
// sample, samples of a bin next to each other; a key below 0 stands for what lies outside.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $RT *__restrict__ regions, int *__restrict__ keys, float *__restrict__ weights,
      int *__restrict__ status, int slot, int items, int images, int H, int W, int PH, int PW,
      int SH, int SW, float scale, float offset) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / SW, t = i - q * SW, r = q / SH, s = q - r * SH;
  q = r / PW;
  int bx = r - q * PW, m = q / PH, by = q - m * PH;
  const $RT *region = regions + m * 5;
  int image = region_image(region, images, status, slot);
  RegionBins bins = region_bins(region, scale, offset, PH, PW);
  Sample point = region_sample(bins, by, bx, s, t, SH, SW);
  for (int u = 0; u < 2; u++)
    for (int v = 0; v < 2; v++) {
      int pixel = point.pixel(u, v, H, W);
      keys[i * 4 + u * 2 + v] = pixel >= 0 ? image * H * W + pixel : -1;
      weights[i * 4 + u * 2 + v] = corner_weight(u, v, point.far_y, point.far_x);
    }
}
