  // Where tap `tap` of group `part` (of image * groups that move together) reads for `pixel`.
  int p = (part * taps + tap) * pixels + pixel, ky = tap / KW, kx = tap - ky * KW;
  int oy = pixel / OW, ox = pixel - oy * OW;
  i64 at_ = 2 * (i64)p - pixel;
  float y = widen(offset[at_]) + (float)(ky * dh + oy * sh - ph);
  float x = widen(offset[at_ + pixels]) + (float)(kx * dw + ox * sw - pw);
  bool inside = y > -1.f && y < (float)H && x > -1.f && x < (float)W;
  float low_y = floorf(inside ? y : -2.f), low_x = floorf(inside ? x : -2.f);
  float far_y = inside ? y - low_y : 0.f, far_x = inside ? x - low_x : 0.f;
  int y0 = (int)low_y, x0 = (int)low_x;
