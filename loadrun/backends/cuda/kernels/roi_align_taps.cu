// Which pixels each sample of regions (image, x0, y0, x1, y1) reads, and their weights: four a
// sample, samples of a bin next to each other; a key below 0 stands for what lies outside.
$HELPERS
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
  int image = roi_image_$NAME(widen(region[0]), images);
  if (image < 0) {
    *status = slot;
    image = 0;
  }
  float x0 = widen(region[1]) * scale - offset, y0 = widen(region[2]) * scale - offset;
  float x1 = widen(region[3]) * scale - offset, y1 = widen(region[4]) * scale - offset;
  float step_y = (y1 - y0 < 0.f ? 0.f : y1 - y0) / (float)PH;
  float step_x = (x1 - x0 < 0.f ? 0.f : x1 - x0) / (float)PW;
  float py = (y0 + (float)by * step_y) + ((float)s + 0.5f) / (float)SH * step_y;
  float px = (x0 + (float)bx * step_x) + ((float)t + 0.5f) / (float)SW * step_x;
  float low_y = floorf(py), low_x = floorf(px), far_y = py - low_y, far_x = px - low_x;
  for (int u = 0; u < 2; u++)
    for (int v = 0; v < 2; v++) {
      float iy = low_y + (float)u, ix = low_x + (float)v;
      bool inside = iy >= 0.f && iy < (float)H && ix >= 0.f && ix < (float)W;
      keys[i * 4 + u * 2 + v] = inside ? (image * H + (int)iy) * W + (int)ix : -1;
      weights[i * 4 + u * 2 + v] = (u ? far_y : 1.f - far_y) * (v ? far_x : 1.f - far_x);
    }
}
