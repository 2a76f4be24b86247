// Where the largest pixel of each bin lies, among all elements of the images; regions that end
// before they begin, and empty bins, have none.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $RT *__restrict__ regions, const int *__restrict__ index, int *__restrict__ keys,
      int *status, int slot, int *again, int outside, int items,
      int images, int C, int plane, int bins, float scale) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / bins, m = q / C, c = q - m * C, at = index[i];
  const $RT *region = regions + m * 5;
  int image = region_image(region, images, status, slot);
  if (at >= plane) {
    *again = outside;
    at = -1;
  }
  float x0 = widen(region[1]) * scale, y0 = widen(region[2]) * scale;
  bool proper = region_is_proper(x0, y0, widen(region[3]) * scale, widen(region[4]) * scale);
  keys[i] = at >= 0 && proper ? (image * C + c) * plane + at : -1;
}
