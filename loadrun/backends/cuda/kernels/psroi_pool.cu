// Mean of the samples of a bin that lie in the image, and how many they are; a bin a thread.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const float *__restrict__ data, const float *__restrict__ rois,
      const float *__restrict__ trans, float *__restrict__ out, float *__restrict__ count,
      int *__restrict__ status, int slot, int items, int images, int C, int H, int W, int PH, int PW, int S, int P, float scale, float std) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / PW, bx = i - q * PW, r = q / PH, by = q - r * PH, m = r / C, c = r - m * C;
  $SAMPLE
  const float *plane = data + ((i64)image * C + c) * H * W;
  double total = 0;
  int number = 0;
  for (int sy = 0; sy < S; sy++)
    for (int sx = 0; sx < S; sx++) {
      $PLACE
      if (!counted) continue;
      float near_y = 1.f - far_y, near_x = 1.f - far_x, acc = near_y * near_x * plane[y0 * W + x0];
      acc = acc + near_y * far_x * plane[y0 * W + x1];
      acc = acc + far_y * near_x * plane[y1 * W + x0];
      acc = acc + far_y * far_x * plane[y1 * W + x1];
      total += (double)acc;
      number++;
    }
  out[i] = (float)total / (float)max(number, 1);
  count[i] = (float)number;
}
