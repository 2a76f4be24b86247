// The image of a region, -1 for none; and the pixels first..end-1 of a bin of a region low..high
// along one axis.
__device__ __forceinline__ int roi_image_$NAME(float which, int images) {
  return which > -1.f && which < (float)images ? (int)which : -1;
}
__device__ __forceinline__ int roi_corner_$NAME(float p) {
  p = roundf(p);
  return p == p ? (int)clip(p, -1073741824.f, 1073741824.f) : -1073741824;
}
__device__ __forceinline__ void roi_bin_$NAME(float low, float high, int bin, int bins, int size,
                                              int &start, int &end) {
  int first = roi_corner_$NAME(low), last = roi_corner_$NAME(high);
  i64 length = (i64)last - first + 1;
  float step = (float)(length < 1 ? 1 : length) / (float)bins;
  start = clamp64((i64)floorf((float)bin * step) + first, 0, size);
  end = clamp64((i64)ceilf(((float)bin + 1.f) * step) + first, 0, size);
}
