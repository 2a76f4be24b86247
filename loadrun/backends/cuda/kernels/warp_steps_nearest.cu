$POSITION
  int iy = border_$NAME(py, H, border), ix = border_$NAME(px, W, border);
  auto acc = iy >= 0 && ix >= 0 ? widen(from[iy * line + ix * inner]) : $OUTSIDE;
