$POSITION
  int iy = border_$NAME(whole_$NAME((double)rintf(py)), H, border);
  int ix = border_$NAME(whole_$NAME((double)rintf(px)), W, border);
  float acc = iy >= 0 && ix >= 0 ? (float)widen(from[iy * line + ix * inner]) : fill;
  if (border == 4 && !(fabsf(acc) < INFINITY)) acc = fill;
