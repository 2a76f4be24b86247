// Moves a state of xoroshiro128+ by a number of steps. The table holds a matrix over the field of
// two elements for 1, 2, 4 ... steps: images of the 128 unit states, low words, then high words.
__device__ __forceinline__ void jump_$NAME(u64 &low, u64 &high, const u64 *__restrict__ table,
                                           u32 steps) {
  for (; steps; steps >>= 1, table += 256) {
    if (!(steps & 1)) continue;
    u64 a = 0, b = 0;
    for (int bit = 0; bit < 64; bit++) {
      u64 p = 0 - (low >> bit & 1), q = 0 - (high >> bit & 1);
      a ^= (p & table[bit]) ^ (q & table[64 + bit]);
      b ^= (p & table[128 + bit]) ^ (q & table[192 + bit]);
    }
    low = a, high = b;
  }
}
