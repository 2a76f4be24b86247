// For each of the four pixels that a sample reads: its number among all images' pixels, or -1 where
// the sample does not count, and its weight.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const float *__restrict__ rois, const float *__restrict__ trans, int *__restrict__ keys,
      float *__restrict__ weights, int *__restrict__ status, int slot, int items, int images, int C, int H, int W, int PH, int PW, int S, int P, float scale, float std) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / S, sx = i - q * S, r = q / S, sy = q - r * S;
  q = r / PW;
  int bx = r - q * PW, m = q / PH, by = q - m * PH;
  $SAMPLE
  $PLACE
  int *key = keys + 4 * (i64)i, base = image * H * W;
  float *weight = weights + 4 * (i64)i;
  key[0] = counted ? base + y0 * W + x0 : -1;
  key[1] = counted ? base + y0 * W + x1 : -1;
  key[2] = counted ? base + y1 * W + x0 : -1;
  key[3] = counted ? base + y1 * W + x1 : -1;
  weight[0] = (1.f - far_y) * (1.f - far_x);
  weight[1] = (1.f - far_y) * far_x;
  weight[2] = far_y * (1.f - far_x);
  weight[3] = far_y * far_x;
}
