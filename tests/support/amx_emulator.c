// Tiles of AMX on a processor without them: what traps as an illegal instruction is carried out.
//
// Instructions and faults are those of Intel's SDM, volume 2 (LDTILECFG and on), in 64-bit mode.
// Whatever would fault on a processor that has AMX ends the process with a message.

#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { CONFIGURED, RELEASED, CLEARED, LOADED, STORED, MULTIPLIED, KINDS };

static __thread uint8_t tiles[8][1024];
static __thread unsigned rows[8], widths[8];
static __thread int ready;
static long counts[KINDS];
static struct sigaction before;

static const int registers[16] = {
    REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
    REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

static void refuse(const char *why, const uint8_t *at) {
  fprintf(stderr, "AMX: %s:", why);
  for (int i = 0; i < 12; ++i) fprintf(stderr, " %02x", at[i]);
  fprintf(stderr, "\n");
  signal(SIGABRT, SIG_DFL);
  abort();
}

static float widened(uint16_t bits) {  // denormals are zeros
  uint32_t wide = (uint32_t)bits << 16;
  if (!(wide & 0x7f800000)) wide &= 0x80000000;
  float value;
  memcpy(&value, &wide, 4);
  return value;
}

static int32_t displacement(const uint8_t *at) {
  int32_t value;
  memcpy(&value, at, 4);
  return value;
}

static void configure(const uint8_t *c, const uint8_t *at) {
  if (c[0] != 1 || c[1] != 0) refuse("palette or start row", at);
  for (int i = 0; i < 64; ++i)
    if (((i > 1 && i < 16) || (i >= 32 && i < 48) || i >= 56) && c[i]) refuse("reserved", at);
  for (int i = 0; i < 8; ++i) {
    rows[i] = c[48 + i];
    widths[i] = c[16 + 2 * i] | c[17 + 2 * i] << 8;
    if (rows[i] > 16 || widths[i] > 64 || !rows[i] != !widths[i]) refuse("shape of a tile", at);
  }
  memset(tiles, 0, sizeof tiles);
  ready = 1;
}

// How bytes are multiplied: which of the factors have a sign. Of bfloat16 neither is asked.
enum { BFLOAT16 = 4, LEFT_SIGN = 1, RIGHT_SIGN = 2 };

static int32_t octet(uint8_t byte, int sign) { return sign ? (int8_t)byte : byte; }

static void multiply(int kind, int c, int a, int b, const uint8_t *at) {
  if (a == b || a == c || b == c) refuse("one tile twice", at);
  if (a > 7 || b > 7 || !rows[a] || !rows[b]) refuse("a factor that is not configured", at);
  if (rows[a] != rows[c] || widths[b] != widths[c] || widths[a] != 4 * rows[b])
    refuse("shapes that do not fit", at);
  if (kind != BFLOAT16) {
    uint32_t *words = (uint32_t *)tiles[c];
    for (unsigned m = 0; m < rows[c]; ++m)
      for (unsigned k = 0; k < widths[a]; ++k)
        for (unsigned n = 0; n < widths[c] / 4; ++n)
          words[m * 16 + n] += (uint32_t)(octet(tiles[a][m * 64 + k], kind & LEFT_SIGN) *
                                          octet(tiles[b][k / 4 * 64 + 4 * n + k % 4],
                                                kind & RIGHT_SIGN));
    return;
  }
  float *sums = (float *)tiles[c];
  const uint16_t *x = (const uint16_t *)tiles[a], *y = (const uint16_t *)tiles[b];
  for (unsigned m = 0; m < rows[c]; ++m)
    for (unsigned k = 0; k < rows[b]; ++k)
      for (unsigned n = 0; n < widths[c] / 4; ++n)
        for (unsigned side = 0; side < 2; ++side)
          sums[m * 16 + n] += widened(x[m * 32 + 2 * k + side]) * widened(y[k * 32 + 2 * n + side]);
}

static void trapped(int number, siginfo_t *info, void *context) {
  (void)number, (void)info;
  greg_t *held = ((ucontext_t *)context)->uc_mcontext.gregs;
  const uint8_t *at = (const uint8_t *)held[REG_RIP];
  if (at[0] != 0xC4 || (at[1] & 31) != 2 || at[2] & 0x84) refuse("not of AMX", at);
  int high = ~at[1] >> 5, other = ~at[2] >> 3 & 15, prefix = at[2] & 3, code = at[3];
  int mode = at[4] >> 6, tile = (at[4] >> 3 & 7) | (high >> 2 & 1) << 3;
  int low = at[4] & 7, length = 5;
  int64_t base = 0, step = 0;
  if (mode != 3) {
    int own = low;
    if (low == 4) {  // a byte for base and index
      int index = (at[5] >> 3 & 7) | (high >> 1 & 1) << 3;
      if (index != 4) step = (int64_t)((uint64_t)held[registers[index]] << (at[5] >> 6));
      own = at[5] & 7;
      length = 6;
    }
    if (own == 5 && mode == 0) {
      base = displacement(at + length);
      length += 4;
      if (low == 5) base += (int64_t)(at + length);
    } else {
      base = held[registers[own | (high & 1) << 3]];
      if (mode == 1) base += (int8_t)at[length], length += 1;
      if (mode == 2) base += displacement(at + length), length += 4;
    }
  }
  held[REG_RIP] += length;
  if (code == 0x49 && prefix == 0 && mode != 3) {
    configure((const uint8_t *)(base + step), at);
    ++counts[CONFIGURED];
    return;
  }
  if (code == 0x49 && prefix == 0 && at[4] == 0xC0) {
    ready = 0;
    ++counts[RELEASED];
    return;
  }
  if (!ready || tile > 7 || !rows[tile]) refuse("a tile that is not configured", at);
  if (code == 0x49 && prefix == 3 && mode == 3) {
    memset(tiles[tile], 0, sizeof tiles[tile]);
    ++counts[CLEARED];
  } else if (code == 0x4B && prefix == 3 && mode != 3 && low == 4) {
    memset(tiles[tile], 0, sizeof tiles[tile]);
    for (unsigned r = 0; r < rows[tile]; ++r)
      memcpy(tiles[tile] + 64 * r, (void *)(base + step * r), widths[tile]);
    ++counts[LOADED];
  } else if (code == 0x4B && prefix == 2 && mode != 3 && low == 4) {
    for (unsigned r = 0; r < rows[tile]; ++r)
      memcpy((void *)(base + step * r), tiles[tile] + 64 * r, widths[tile]);
    ++counts[STORED];
  } else if (code == 0x5C && prefix == 2 && mode == 3) {
    multiply(BFLOAT16, tile, low | (high & 1) << 3, other, at);
    ++counts[MULTIPLIED];
  } else if (code == 0x5E && mode == 3) {  // TDPBUUD, TDPBUSD, TDPBSUD and TDPBSSD
    static const int signs[4] = {0, RIGHT_SIGN, LEFT_SIGN, LEFT_SIGN | RIGHT_SIGN};
    multiply(signs[prefix], tile, low | (high & 1) << 3, other, at);
    ++counts[MULTIPLIED];
  } else {
    refuse("another instruction", at);
  }
}

void install(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = trapped;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGILL, &action, &before);
}

// What came since it was installed; whether tiles were left configured behind them.
int removed(long *found) {
  sigaction(SIGILL, &before, NULL);
  memcpy(found, counts, sizeof counts);
  memset(counts, 0, sizeof counts);
  return ready;
}
