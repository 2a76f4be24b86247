      float y = first_y + (float)sy * (each_y / (float)S), x = first_x + (float)sx * (each_x / (float)S);
      bool counted = y >= -0.5f && y <= (float)H - 0.5f && x >= -0.5f && x <= (float)W - 0.5f;
      y = counted ? clip(y, 0.f, (float)(H - 1)) : 0.f;
      x = counted ? clip(x, 0.f, (float)(W - 1)) : 0.f;
      int y0 = (int)floorf(y), x0 = (int)floorf(x), y1 = min(y0 + 1, H - 1), x1 = min(x0 + 1, W - 1);
      float far_y = y - (float)y0, far_x = x - (float)x0;
