$POSITION
  float low_y = floorf(py), low_x = floorf(px), far_y = py - low_y, far_x = px - low_x;
  int first_y = whole_$NAME(low_y), first_x = whole_$NAME(low_x);
  float acc = 0.f;
  for (int s = 0; s < 2; s++)
    for (int t = 0; t < 2; t++) {
      int iy = border_$NAME(first_y + s, H, border), ix = border_$NAME(first_x + t, W, border);
      float weight = corner_weight(s, t, far_y, far_x);
      float v = iy >= 0 && ix >= 0 ? (float)widen(from[iy * line + ix * inner]) : fill;
      acc = acc + weight * v;
    }
  if (border == 4 && !(fabsf(acc) < INFINITY)) acc = fill;
