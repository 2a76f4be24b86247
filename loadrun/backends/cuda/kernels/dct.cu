// Cosine transform of blocks of an image, of chosen coefficients. Coefficient u * size + v of image
// channel c is number c * size * size + u * size + v; y is (n, channels / L, h, w, L).
extern "C" __global__ void __launch_bounds__(256)
$NAME(const u8 *__restrict__ x, const int *__restrict__ chosen, const float *__restrict__ cosines,
      $YT *__restrict__ y, int items, int C, int h, int w, int channels, int size $SCALARS) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / $L, lane = i - q * $L, r = q / w, bx = q - r * w;
  q = r / h;
  int by = r - q * h, n = q / (channels / $L), ch = (q - n * (channels / $L)) * $L + lane;
  int number = chosen[ch], c = number / (size * size), uv = number - c * size * size;
  const float *cu = cosines + uv / size * size, *cv = cosines + uv % size * size;
  const u8 *from = x + ((i64)(n * C + c) * h + by) * size * w * size + bx * size;
  double total = 0;
  for (int s = 0; s < size; s++) {
    double part = 0;
    for (int t = 0; t < size; t++) part += (double)from[s * w * size + t] * (double)cv[t];
    total += part * (double)cu[s];
  }
  float acc = (float)total;
  $BODY
  narrow(y[i], $RESULT);
}
