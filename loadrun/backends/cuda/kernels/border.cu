// The pixel that stands for a position of an axis, and the integer part of a coordinate.
__device__ __forceinline__ int border_$NAME(int p, int size, int mode) {
  // 0 repeat the edge, 1 mirror with it, 2 mirror without it, 3 wrap, 4 constant: -1 outside.
  if (mode == 0) return p < 0 ? 0 : p >= size ? size - 1 : p;
  if (mode == 4) return p >= 0 && p < size ? p : -1;
  if (mode == 3) return floor_mod(p, size);
  if (mode == 1) {
    int f = floor_mod(p, 2 * size);
    return min(f, 2 * size - 1 - f);
  }
  if (size == 1) return 0;
  int f = floor_mod(p, 2 * size - 2);
  return min(f, 2 * size - 2 - f);
}
__device__ __forceinline__ int whole_$NAME(double p) {
  return p != p ? -1073741824 : p > 1073741824.0 ? 1073741824 : p < -1073741824.0 ? -1073741824 : (int)p;
}
