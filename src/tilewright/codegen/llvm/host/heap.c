// Scratch memory of compiled programs. Blocks that were given back are kept, so that a large array
// costs its page faults once and not at every call.

#include "host.h"

enum {
    SLOTS = 32,        // blocks that are kept
    KEPT = 256 << 20,  // bytes of them together
    ALIGN = 64,        // of a block
    SPARE = 64 << 10,  // bytes by which a kept block may be more than twice too large
};

void *malloc(u64 size);
void free(void *block);

// Stands right before what the program receives.
typedef struct {
    void *raw; // what malloc gave
    u64 size;
} Header;

typedef struct {
    char *block;
    u64 size;
} Slot;

static Slot slots[SLOTS];
static u64 kept;
static _Alignas(64) u32 locked;

static void lock(void) {
    while (SWAP(&locked, 1, ACQUIRE)) tw_pause();
}

static void unlock(void) { STORE(&locked, 0, RELEASE); }

void tw_reset_heap(void) { locked = 0; }

// The smallest kept block that is large enough and not far too large; else a new one. NULL without
// memory.
void *tw_alloc(u64 wanted) {
    lock();
    Slot *best = NULL;
    for (Slot *slot = slots; slot < slots + SLOTS; ++slot)
        if (slot->block && slot->size >= wanted && (!best || slot->size < best->size)) best = slot;
    if (best && best->size <= 2 * wanted + SPARE) {
        char *block = best->block;
        best->block = NULL;
        kept -= best->size;
        unlock();
        return block;
    }
    unlock();
    if ((i64)wanted < 0) return NULL; // an extent of the program wrapped around
    char *raw = malloc(wanted + 2 * ALIGN);
    if (!raw) return NULL;
    char *block = raw + (-(u64)raw % ALIGN) + ALIGN;
    Header *header = (Header *)block - 1;
    header->raw = raw;
    header->size = wanted;
    return block;
}

// Keep a block for the next that asks for its size, or release it.
void tw_free(char *block) {
    if (!block) return;
    const Header *header = (const Header *)block - 1;
    lock();
    if (kept + header->size <= KEPT)
        for (Slot *slot = slots; slot < slots + SLOTS; ++slot)
            if (!slot->block) {
                slot->block = block;
                slot->size = header->size;
                kept += header->size;
                unlock();
                return;
            }
    unlock();
    free(header->raw);
}
