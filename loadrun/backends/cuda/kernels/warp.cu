// Images read at positions between pixels. Tensors are (images, k, h, middle, w, inner).
__device__ __forceinline__ int border_$NAME(int p, int size, int mode) {
  // 0 repeat the edge, 1 mirror with it, 2 mirror without it, 3 wrap, 4 constant: -1 outside.
  if (mode == 0) return p < 0 ? 0 : p >= size ? size - 1 : p;
  if (mode == 4) return p >= 0 && p < size ? p : -1;
  if (mode == 3) return floor_mod(p, size);
  if (mode == 1) {
    int f = floor_mod(p, 2 * size);
    return min(f, 2 * size - 1 - f);
  }
  if (size == 1) return 0;
  int f = floor_mod(p, 2 * size - 2);
  return min(f, 2 * size - 2 - f);
}
__device__ __forceinline__ int whole_$NAME(double p) {
  return p != p ? -1073741824 : p > 1073741824.0 ? 1073741824 : p < -1073741824.0 ? -1073741824 : (int)p;
}
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, const $MT *__restrict__ matrix, $EXTRA $YT *__restrict__ y,
      int *__restrict__ status, int slot, int items, int images, int K, int H, int middle, int W,
      int inner, int OH, int OW, int border, float fill) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / inner, e = i - q * inner, r = q / OW, ox = q - r * OW;
  q = r / middle;
  int mid = r - q * middle;
  r = q / OH;
  int oy = q - r * OH, m = r / K, k = r - m * K;
  int image = $IMAGE;
  if ((unsigned)image >= (unsigned)images) {
    *status = slot;
    image = 0;
  }
  const $XT *from = x + ((i64)(image * K + k) * H * middle + mid) * W * inner + e;
  i64 line = (i64)middle * W * inner;
  $BODY
  narrow(y[i], $RESULT);
}
