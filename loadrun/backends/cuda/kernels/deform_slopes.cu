// Gradients of the offsets and the mask of a deformable convolution from those of its columns, one
// tap and output pixel a thread: sums over the channels that move together, in float64.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ src, const $XT *__restrict__ offset, const $XT *__restrict__ mask,
      const float *__restrict__ given, $XT *__restrict__ by_offset, $XT *__restrict__ by_mask,
      int items, int each, int taps, int pixels, int KW, int H, int W, int OW, int sh, int sw,
      int ph, int pw, int dh, int dw) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / pixels, pixel = i - q * pixels, part = q / taps, tap = q - part * taps;
  $POINT
  float m = widen(mask[p]);
  double value = 0, corner[4] = {0, 0, 0, 0};
  for (int c = 0; c < each; c++) {
    i64 map = (i64)part * each + c;
    const $XT *plane = src + map * H * W;
    float d = given[(map * taps + tap) * pixels + pixel], acc = 0.f;
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
      for (int t = 0; t < 2; t++) {
        float weight = corner_weight(s, t, far_y, far_x);
        bool within_image = within(y0 + s, H) && within(x0 + t, W);
        float v = within_image ? widen(plane[(y0 + s) * W + x0 + t]) : 0.f;
        acc = acc + weight * v;
        corner[2 * s + t] += (double)v * (double)(d * m);
      }
    value += (double)(d * acc);
  }
  double near_y = 1.f - far_y, near_x = 1.f - far_x;
  double dy = near_x * (corner[2] - corner[0]) + (double)far_x * (corner[3] - corner[1]);
  double dx = near_y * (corner[1] - corner[0]) + (double)far_y * (corner[3] - corner[2]);
  narrow(by_mask[p], (float)value);
  narrow(by_offset[at_], inside ? (float)dy : 0.f);
  narrow(by_offset[at_ + pixels], inside ? (float)dx : 0.f);
}
