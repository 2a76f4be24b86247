// Largest value or mean of the pixels of each bin of regions (image, x0, y0, x1, y1).
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, const $RT *__restrict__ regions, $XT *__restrict__ y,
      int *__restrict__ index, int *__restrict__ status, int slot, int items, int images, int C,
      int H, int W, int OH, int OW, float scale) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / OW, bx = i - q * OW, r = q / OH, by = q - r * OH, m = r / C, c = r - m * C;
  const $RT *region = regions + m * 5;
  float which = widen(region[0]);
  int image = which > -1.f && which < (float)images ? (int)which : -1;
  if (image < 0) {
    *status = slot;
    image = 0;
  }
  int ends[4];
#pragma unroll
  for (int k = 0; k < 2; k++) {
    float low = roundf(widen(region[1 + k]) * scale), high = roundf(widen(region[3 + k]) * scale);
    int first = low == low ? (int)clip(low, -1073741824.f, 1073741824.f) : -1073741824;
    int last = high == high ? (int)clip(high, -1073741824.f, 1073741824.f) : -1073741824;
    i64 length = (i64)last - first + 1;
    float step = (float)(length < 1 ? 1 : length) / (float)(k ? OH : OW);
    int bin = k ? by : bx, size = k ? H : W;
    i64 start = (i64)floorf((float)bin * step) + first, end = (i64)ceilf(((float)bin + 1.f) * step) + first;
    ends[k * 2] = clamp64(start, 0, size);
    ends[k * 2 + 1] = clamp64(end, 0, size);
  }
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
