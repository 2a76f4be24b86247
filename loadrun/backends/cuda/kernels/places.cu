// Where elements lie: windows, regions and what is interpolated between four pixels.

// What kernels of a two-dimensional convolution get of it: groups, outputs and inputs of a group,
// kernel, image, result, stride, padding, dilation, and whether taps are turned round.
#define CONVOLUTION_2D                                                                            \
  int groups, int O, int I, int KH, int KW, int H, int W, int OH, int OW, int sh, int sw, int ph, \
      int pw, int dh, int dw, int flip

__device__ __forceinline__ bool within(int at, int size) { return (unsigned)at < (unsigned)size; }
// Along one axis: what a tap of a window reads, which may lie outside.
__device__ __forceinline__ int tap_reads(int window, int stride, int pad, int tap, int dilation) {
  return window * stride - pad + tap * dilation;
}
// Along one axis: the window whose tap reads element `at`, -1 for none.
__device__ __forceinline__ int window_of(int at, int stride, int pad, int tap, int dilation,
                                         int windows) {
  int v = at + pad - tap * dilation, window = v / stride;
  return v < 0 || v - window * stride || window >= windows ? -1 : window;
}
// A tap's place in a filter of KH x KW.
__device__ __forceinline__ int tap_place(int ky, int kx, int KH, int KW, int flip) {
  int tap = ky * KW + kx;
  return flip ? KH * KW - 1 - tap : tap;
}

// Sum over the channels at most `far` away from that of element i, of `each(element)`.
template <class F>
__device__ __forceinline__ double sum_of_near(int i, int channels, int plane, int far, F each) {
  int c = i / plane % channels;
  int first = max(c - far, 0), last = min(c + far, channels - 1);
  double total = 0;
  for (int j = first; j <= last; j++) total += (double)each(i + (j - c) * plane);
  return total;
}
// What local response normalisation divides by, before its exponent.
template <class T>
__device__ __forceinline__ float lrn_base(const T *x, int i, int channels, int plane, int far,
                                          float k, float alpha) {
  auto square = [&](int j) {
    float v = widen(x[j]);
    return v * v;
  };
  return k + alpha * (float)sum_of_near(i, channels, plane, far, square);
}

// Weight of pixel (s, t) of the four around a point, of which the last is `far` from the first.
__device__ __forceinline__ float corner_weight(int s, int t, float far_y, float far_x) {
  return (s ? far_y : 1.f - far_y) * (t ? far_x : 1.f - far_x);
}

// The image of a region (image, x0, y0, x1, y1), -1 for none.
__device__ __forceinline__ int region_image(float which, int images) {
  return which > -1.f && which < (float)images ? (int)which : -1;
}
// The same; the first image and a note in the status for none.
template <class R>
__device__ __forceinline__ int region_image(const R *region, int images, int *status, int slot) {
  int image = region_image(widen(region[0]), images);
  if (image < 0) *status = slot;
  return max(image, 0);
}
// Whether a region ends where it begins or later, in whole pixels.
__device__ __forceinline__ bool region_is_proper(float x0, float y0, float x1, float y1) {
  return roundf(x1) >= roundf(x0) && roundf(y1) >= roundf(y0);
}
// The pixels start..end-1 of a bin of a region low..high along one axis.
__device__ __forceinline__ int region_corner(float p) {
  p = roundf(p);
  return p == p ? (int)clip(p, -1073741824.f, 1073741824.f) : -1073741824;
}
__device__ __forceinline__ void region_bin(float low, float high, int bin, int bins, int size,
                                           int &start, int &end) {
  int first = region_corner(low), last = region_corner(high);
  i64 length = (i64)last - first + 1;
  float step = (float)(length < 1 ? 1 : length) / (float)bins;
  start = clamp64((i64)floorf((float)bin * step) + first, 0, size);
  end = clamp64((i64)ceilf(((float)bin + 1.f) * step) + first, 0, size);
}
// The bins of a region, as samples between pixels see them.
struct RegionBins { float y, x, step_y, step_x; };
template <class R>
__device__ __forceinline__ RegionBins region_bins(const R *region, float scale, float offset,
                                                  int PH, int PW) {
  float x0 = widen(region[1]) * scale - offset, y0 = widen(region[2]) * scale - offset;
  float x1 = widen(region[3]) * scale - offset, y1 = widen(region[4]) * scale - offset;
  float step_y = (y1 - y0 < 0.f ? 0.f : y1 - y0) / (float)PH;
  float step_x = (x1 - x0 < 0.f ? 0.f : x1 - x0) / (float)PW;
  return {y0, x0, step_y, step_x};
}
// A point between four pixels: the first of them, and how far the point is from it.
struct Sample {
  float y, x, far_y, far_x;
  // Pixel (s, t) of the four in an image of H x W, -1 outside.
  __device__ __forceinline__ int pixel(int s, int t, int H, int W) const {
    float iy = y + (float)s, ix = x + (float)t;
    bool inside = iy >= 0.f && iy < (float)H && ix >= 0.f && ix < (float)W;
    return inside ? (int)iy * W + (int)ix : -1;
  }
};
// Sample (s, t) of SH x SW of a bin.
__device__ __forceinline__ Sample region_sample(RegionBins bins, int by, int bx, int s, int t,
                                                int SH, int SW) {
  float y = (bins.y + (float)by * bins.step_y) + ((float)s + 0.5f) / (float)SH * bins.step_y;
  float x = (bins.x + (float)bx * bins.step_x) + ((float)t + 0.5f) / (float)SW * bins.step_x;
  float low_y = floorf(y), low_x = floorf(x);
  return {low_y, low_x, y - low_y, x - low_x};
}
