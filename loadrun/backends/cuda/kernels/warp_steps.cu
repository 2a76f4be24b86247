$POSITION
  $ACC acc = 0;
  int base = $TAPS / 2 - 1, y0 = py >> 5, x0 = px >> 5, fy = py & 31, fx = px & 31;
  for (int s = 0; s < $TAPS; s++)
    for (int t = 0; t < $TAPS; t++) {
      int iy = border_$NAME(y0 + s - base, H, border), ix = border_$NAME(x0 + t - base, W, border);
      auto v = iy >= 0 && ix >= 0 ? widen(from[iy * line + ix * inner]) : $OUTSIDE;
      $ACC weight = $WEIGHT;
      acc = acc + weight * ($ACC)v;
    }
