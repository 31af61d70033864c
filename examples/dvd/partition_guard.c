/* Nobody changes the partition table: the first one that is written to block 0 is kept, and from then on only a block 0 with the very same
 * table may be written, by a boot loader for instance, which has its code around the table.
 *
 * The program asks for the first 512 bytes of what is written. The table must be durable in its state before the write that brings it begins. */
#include "sanwire_dvd.h"

#define TABLE_AT 446
#define TABLE_BYTES 64

static struct sanwire_command command;
static struct sanwire_answer answer;
static uint8_t data[512];

static struct {
    uint8_t is_known;
    uint8_t table[TABLE_BYTES];
} state;

struct sanwire_header sanwire_abi_1 = {
    .command = &command,
    .answer = &answer,
    .data = data,
    .data_max_bytes = sizeof data,
    .state = &state,
    .state_bytes = sizeof state,
    .classes = SANWIRE_WRITE | SANWIRE_DISCARD | SANWIRE_COPY_TARGET,
};

/* Whether the data that has come is what block 0 will hold: WRITE, WRITE AND VERIFY and WRITE SAME. What changes it in another way
 * (COMPARE AND WRITE, ORWRITE, a copy) does not say here what it writes. */
static int says_what_it_writes(void)
{
    switch (command.cdb[0]) {
    case 0x0a: case 0x2a: case 0xaa: case 0x8a: /* WRITE (6), (10), (12), (16) */
    case 0x2e: case 0xae: case 0x8e:            /* WRITE AND VERIFY */
    case 0x41: case 0x93:                       /* WRITE SAME */
        return command.classes == SANWIRE_WRITE && command.data_given == sizeof data;
    }
    return 0;
}

static uint32_t refuse(void)
{
    answer.sense_key = 0x7; /* DATA PROTECT, WRITE PROTECTED */
    answer.sense_code = 0x27;
    return SANWIRE_REFUSE;
}

SANWIRE_EXPORT(judge) uint32_t judge(void)
{
    int is_flush = command.cdb[0] == 0x35 || command.cdb[0] == 0x91;
    if (command.classes & SANWIRE_MANAGEMENT) /* together with SANWIRE_WRITE it is SANITIZE */
        return refuse();
    if (is_flush || command.lba > 0 || command.blocks == 0)
        return SANWIRE_ALLOW;
    if (!says_what_it_writes())
        return refuse();

    int is_table = data[510] == 0x55 && data[511] == 0xaa;
    if (!state.is_known && !is_table)
        return SANWIRE_ALLOW;
    int is_other = !is_table;
    for (int i = 0; i < TABLE_BYTES; i++) {
        if (!state.is_known)
            state.table[i] = data[TABLE_AT + i];
        is_other |= state.table[i] != data[TABLE_AT + i];
    }
    if (is_other)
        return refuse();
    state.is_known = 1;
    return SANWIRE_ALLOW | SANWIRE_KEEP;
}
