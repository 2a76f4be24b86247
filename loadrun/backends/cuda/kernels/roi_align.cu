// Samples of regions (image, x0, y0, x1, y1), averaged or the largest; one bin a thread.
$HELPERS
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, const $RT *__restrict__ regions, $XT *__restrict__ y,
      int *__restrict__ index, int *__restrict__ status, int slot, int items, int images, int C,
      int H, int W, int PH, int PW, int SH, int SW, float scale, float offset) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / PW, bx = i - q * PW, r = q / PH, by = q - r * PH, m = r / C, c = r - m * C;
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
  const $XT *plane = x + (i64)(image * C + c) * H * W;
  double total = 0;
  float best = -INFINITY;
  int at = 0;
  for (int s = 0; s < SH; s++)
    for (int t = 0; t < SW; t++) {
      float py = (y0 + (float)by * step_y) + ((float)s + 0.5f) / (float)SH * step_y;
      float px = (x0 + (float)bx * step_x) + ((float)t + 0.5f) / (float)SW * step_x;
      float low_y = floorf(py), low_x = floorf(px), far_y = py - low_y, far_x = px - low_x;
      float acc = 0.f;
      for (int u = 0; u < 2; u++)
        for (int v = 0; v < 2; v++) {
          float iy = low_y + (float)u, ix = low_x + (float)v;
          float weight = (u ? far_y : 1.f - far_y) * (v ? far_x : 1.f - far_x);
          bool inside = iy >= 0.f && iy < (float)H && ix >= 0.f && ix < (float)W;
          acc = acc + weight * (inside ? widen(plane[(int)iy * W + (int)ix]) : 0.f);
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
