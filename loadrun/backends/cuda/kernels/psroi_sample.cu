  // Sample (sy, sx) of bin (by, bx) of region m: where it reads, and whether it counts.
  const float *roi = rois + (i64)m * 5;
  float which = roi[0];
  int image = which >= 0.f && which < (float)images && floorf(which) == which ? (int)which : -1;
  if (image < 0) {
    *status = slot;
    image = 0;
  }
  float left = roundf(roi[1]) * scale - 0.5f, top = roundf(roi[2]) * scale - 0.5f;
  float right = (roundf(roi[3]) + 1.f) * scale - 0.5f, bottom = (roundf(roi[4]) + 1.f) * scale - 0.5f;
  float width = greater(right - left, 0.1f), height = greater(bottom - top, 0.1f);
  int part = (int)floorf((float)by / (float)PH * (float)P) * P + (int)floorf((float)bx / (float)PW * (float)P);
  float move_x = $MOVES ? trans[(i64)m * 2 * P * P + part] * std * width : 0.f;
  float move_y = $MOVES ? trans[((i64)m * 2 + 1) * P * P + part] * std * height : 0.f;
  float each_y = height / (float)PH, each_x = width / (float)PW;
  float first_y = top + (float)by * each_y + move_y, first_x = left + (float)bx * each_x + move_x;
