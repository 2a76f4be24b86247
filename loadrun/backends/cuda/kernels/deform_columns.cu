// What the taps of a deformable convolution read, times the mask: a column (image, channel, tap) of
// output pixels; `image_stride` and `column_stride` say where columns begin.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ src, const $XT *__restrict__ offset, const $XT *__restrict__ mask,
      float *__restrict__ columns, int items, int channels, int each, int image_stride,
      int column_stride, int taps, int pixels, int KW, int H, int W, int OW, int sh, int sw,
      int ph, int pw, int dh, int dw) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / pixels, pixel = i - q * pixels, map = q / taps, tap = q - map * taps;
  int part = map / each, image = map / channels;
  $POINT
  const $XT *plane = src + (i64)map * H * W;
  float acc = 0.f;
#pragma unroll
  for (int s = 0; s < 2; s++)
#pragma unroll
    for (int t = 0; t < 2; t++) {
      float weight = corner_weight(s, t, far_y, far_x);
      bool within_image = within(y0 + s, H) && within(x0 + t, W);
      acc = acc + weight * (within_image ? widen(plane[(y0 + s) * W + x0 + t]) : 0.f);
    }
  i64 column = (i64)image * image_stride + (i64)((map - image * channels) * taps + tap) * column_stride;
  columns[column + pixel] = acc * widen(mask[p]);
}
