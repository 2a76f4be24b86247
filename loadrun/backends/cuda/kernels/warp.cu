// Images read at positions between pixels. Tensors are (images, k, h, middle, w, inner).
$BORDER
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
