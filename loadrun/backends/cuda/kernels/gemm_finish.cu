// Adds the parts of a product that was split along its inner dimension, in order, and finishes.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $ACC *__restrict__ part, $EXTRAS $YT *__restrict__ y, int items, int M, int P,
      int splits, int OD, int OH, int OW, int yn, int yg, int yc, int yd, int yh, int yw $SCALARS) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int row = i / P, px = i - row * P, g = row / M, m = row - g * M;
  $ACC acc = 0;
  for (int s = 0; s < splits; s++) acc += part[((g * splits + s) * M + m) * P + px];
  int r = px / OW, ox = px - r * OW, q = r / OH, oy = r - q * OH, n = q / OD, oz = q - n * OD;
  int pixel = n * yn + g * yg + oz * yd + oy * yh + ox * yw;
  $STORE
}
