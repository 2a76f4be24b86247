// Where the largest pixel of each bin lies, among all elements of the images; regions that end
// before they begin, and empty bins, have none.
$HELPERS
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $RT *__restrict__ regions, const int *__restrict__ index, int *__restrict__ keys,
      int *status, int slot, int *again, int outside, int items,
      int images, int C, int plane, int bins, float scale) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / bins, m = q / C, c = q - m * C, at = index[i];
  const $RT *region = regions + m * 5;
  int image = roi_image_$NAME(widen(region[0]), images);
  if (image < 0) {
    *status = slot;
    image = 0;
  }
  if (at >= plane) {
    *again = outside;
    at = -1;
  }
  bool proper = roundf(widen(region[3]) * scale) >= roundf(widen(region[1]) * scale) &&
                roundf(widen(region[4]) * scale) >= roundf(widen(region[2]) * scale);
  keys[i] = at >= 0 && proper ? (image * C + c) * plane + at : -1;
}
