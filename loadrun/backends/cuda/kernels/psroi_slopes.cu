// Gradients of the moves: a block sums the slopes of all samples of the bins that one part of a
// region moves, in float64 and in a fixed order.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const float *__restrict__ data, const float *__restrict__ rois,
      const float *__restrict__ trans, const float *__restrict__ share, float *__restrict__ by_trans,
      int *__restrict__ status, int slot, int items, int images, int C, int H, int W, int PH, int PW, int S, int P, float scale, float std) {
  __shared__ double sums[2][256];
  int m = (int)blockIdx.x / (P * P), wanted = (int)blockIdx.x - m * P * P, tid = (int)threadIdx.x;
  double down = 0, across = 0;
  for (int k = tid; k < PH * PW * S * S; k += 256) {
    int q = k / S, sx = k - q * S, r = q / S, sy = q - r * S, by = r / PW, bx = r - by * PW;
    $SAMPLE
    if (part != wanted) continue;
    $PLACE
    if (!counted) continue;
    double slope_y = 0, slope_x = 0;
    for (int c = 0; c < C; c++) {
      const float *plane = data + ((i64)image * C + c) * H * W;
      double d = share[((i64)m * C + c) * PH * PW + r];
      double v00 = plane[y0 * W + x0] * d, v01 = plane[y0 * W + x1] * d;
      double v10 = plane[y1 * W + x0] * d, v11 = plane[y1 * W + x1] * d;
      slope_y += (double)(1.f - far_x) * (v10 - v00) + (double)far_x * (v11 - v01);
      slope_x += (double)(1.f - far_y) * (v01 - v00) + (double)far_y * (v11 - v10);
    }
    // On a pixel both taps are the same one: no slope.
    down += far_y != 0.f ? slope_y * height : 0.0;
    across += far_x != 0.f ? slope_x * width : 0.0;
  }
  sums[0][tid] = across;
  sums[1][tid] = down;
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (tid < half) {
      sums[0][tid] += sums[0][tid + half];
      sums[1][tid] += sums[1][tid + half];
    }
  }
  __syncthreads();
  if (tid < 2) by_trans[((i64)m * 2 + tid) * P * P + wanted] = (float)(sums[tid][0] * std);
}
